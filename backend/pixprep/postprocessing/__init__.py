"""Converts the outputs of a detector to detections in the photo (postprocessing)."""
