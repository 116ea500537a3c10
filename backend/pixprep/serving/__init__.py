"""Serving: Triton, its model repository, and programs beside it."""
