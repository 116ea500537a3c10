"""The page of `pixprep serve --page`: drop a photo and see the outputs of the served models and each stage.

process     the supervisor's side: holds the port, starts the page's process, starts it again when it ends
handler     the page's process: who may ask, how much, how long
answer      the answer for one photo: outputs, times, stages
outputs     the description of each output, and of the objects that a detector found
program     the Python program that sends the same request
page.*      the page in the browser: HTML, style and script in one response; no build step, no external resources
"""
