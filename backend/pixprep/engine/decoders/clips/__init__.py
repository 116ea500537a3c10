"""Clips: their containers, and the frames that are wanted of them."""

CLIP_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi")
