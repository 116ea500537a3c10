"""Cluster: one pipeline on many machines."""
