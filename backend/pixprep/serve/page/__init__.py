"""The page of `pixprep serve --page`: drop a photo, see what the served models make of it, stage by stage.

process     the supervisor's side: holds the port, starts the page's process, starts it anew when it ends
server      the page's process: who may ask, how much, how long
answer      what is said of one photo
page.html   what the browser shows; it has no build step, and loads nothing from elsewhere
"""
