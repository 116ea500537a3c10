"""Pipelines: their ops, their file format, their validation, and their compilation to plans."""
