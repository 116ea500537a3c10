"""Meaning of a pipeline: its words, pictures of a photo in it, and doubts about it."""
