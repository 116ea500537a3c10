"""Pipelines of ops: their file format, the ops, and their checks and compilation."""
