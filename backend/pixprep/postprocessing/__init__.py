"""Postprocessing: the outputs of a model as detections in the photo."""
