"""Write tests/parity/frozen/{tensorflow,dali}.npz: what the two libraries make of the images of tests/vectors.py.

    PYTHONPATH=tests .venv-frozen/bin/python tools/freeze_vectors.py

It needs tensorflow and nvidia-dali (2.21 and 2.4 wrote the committed files) and no GPU; the same versions write the
same bytes.
"""

from typing import Any

import numpy as np

import originals
import vectors
from images import jpegs

JPEGS = ("sampling 422", "sampling 420", "sampling 440", "progressive", "gray", "quality 5", "rgb without transform")


def tensorflow() -> dict[str, Any]:
    """Resizes, and JPEGs with their pixels."""
    arrays: dict[str, Any] = {}
    for name, pixels, size in vectors.cases():
        for filter_name, antialias in (("nearest", False), ("bilinear", False), ("bilinear", True)):
            key = f"{name}, {filter_name}{', antialias' * antialias}"
            arrays[key] = originals.tensorflow(pixels, size, filter_name, antialias=antialias)
    for name in JPEGS:
        arrays[f"jpeg {name}"] = np.frombuffer(jpegs()[name], np.uint8)
        arrays[f"pixels {name}"] = originals.tensorflow_decode(jpegs()[name])
    return arrays


def dali() -> dict[str, Any]:
    """Every filter to a size of its own; bilinear also by the rules that keep the aspect ratio."""
    arrays: dict[str, Any] = {}
    for name, pixels, size in vectors.cases():
        for filter_name in vectors.FILTERS:
            for antialias in (False, True)[: 1 + (filter_name != "nearest")]:
                key = f"{name}, {filter_name}{', antialias' * antialias}"
                (arrays[key],) = originals.dali([pixels], "both", size, filter_name, antialias=antialias)
    for name, pixels, rules in vectors.shapes():
        for rule in rules:
            for subpixel in (False, True):
                key = f"{name}, {rule}{', subpixel' * subpixel}"
                (arrays[key],) = originals.dali(
                    [pixels], rule, vectors.ASPECT, "bilinear", antialias=True, subpixel=subpixel
                )
    return arrays


for name, module, arrays in (("tensorflow", "tensorflow", tensorflow()), ("dali", "nvidia.dali", dali())):
    made_by = f"{name} {originals.library(module).__version__}"
    np.savez_compressed(vectors.FOLDER / f"{name}.npz", **arrays, **{"made by": np.array(made_by)})
