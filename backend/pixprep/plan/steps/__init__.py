"""Concrete steps of a plan, for an image of known size."""
