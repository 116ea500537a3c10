"""Serving: Triton, its model repository, the proxy in front of Triton, and the page for the browser."""
