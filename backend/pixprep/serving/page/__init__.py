"""The web page of `pixprep serve --page`, which shows the outputs of the served models for a photo, and its stages.

process     used by the supervisor: bind the port, start the page's process and restart it when it ends
handler     the page's process, an HTTP server: access checks, size limits and time limits
answer      the response for one photo: outputs, times and stages
outputs     descriptions of the outputs and of detected objects
program     a Python program that sends the same request
page.*      the page itself: HTML, CSS and JavaScript, sent as one response without external resources
"""
