"""The web page of `pixprep serve --page`, which shows a photo at each stage of a pipeline, and the models' outputs.

process     binds the port, starts the page's process, and restarts this process when it exits; used by the supervisor
handler     the page's process: an HTTP server with access checks, size limits and time limits
answer      builds the response for one photo: outputs, times and stages
outputs     describes the outputs of a model and the detected objects
program     writes a Python program that sends the same request as the page
page.*      HTML, CSS and JavaScript of the page, sent as one response without external resources
"""
