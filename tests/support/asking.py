"""Runs the ops of a pipeline on images in an engine."""

import numpy as np

import pixprep as pp


def ask(ops, encoded, **inputs):
    """Return the outputs for one image by name, or raise its error. ``inputs`` are the rows of the request."""
    given = {name: [rows] for name, rows in inputs.items()} or None
    with pp.Engine(pp.Pipeline(ops), threads=1, odd_range=True) as engine:
        batch = engine.run_batch([encoded], inputs=given)
    for error in batch.errors:
        if error is not None:
            raise error
    return {name: np.asarray(values[0]) for name, values in batch.outputs.items()}
