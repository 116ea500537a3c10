"""The page of `pixprep serve --page`: drop a photo, see what the served models make of it, stage by stage.

process     the supervisor's side: holds the port, starts the page's process, starts it again when it ends
handler     the page's process: who may ask, how much, how long
answer      the answer for one photo: outputs, times, stages
outputs     what is said of each output, and of what a detector found
program     the Python program that asks for the same
page.*      what the browser shows: HTML, style and script in one answer; no build step, nothing loads from elsewhere
"""
