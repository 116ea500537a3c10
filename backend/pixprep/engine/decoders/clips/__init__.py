"""Clips: their containers, and the frames that are wanted of them."""
