"""Runs one pipeline on many machines."""
