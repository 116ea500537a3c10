"""Serving with Triton: the backend, model repositories, the embedded server, its HTTP proxy and the web page."""
