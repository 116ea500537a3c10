"""Decode the requested frames of clips, and read the containers and bitstreams that they are stored in."""
