"""Operators of DALI that are not imported, with what to do."""

from __future__ import annotations

from pixprep.importers.dali.geometry import DECODERS
from pixprep.importers.dali.ops import IMAGES

_OWN = "an operator of your own may do it: see docs/own-operators.md"
_AXES = "is not understood: a tensor has height, width and channels; reshape of the model's config.pbtxt has others"
_REASONS = {
    "random__": "draws for each image, as in training: serve a graph without it, or write the op of training by hand",
    "conditional__": "chooses a branch for each image, which is not understood: serialize a graph of one branch",
    "decoders__ImageRandomCrop": "draws for each image, as in training: serve a graph without it",
    "RandomResizedCrop": "draws for each image, as in training: serve a graph without it",
    "PythonFunction": f"calls a function of Python's, which the file does not bring: {_OWN}",
    "NumbaFunction": f"calls a function of Python's, which the file does not bring: {_OWN}",
    "Water": f"moves pixels in a way of DALI's own, which is not understood: {_OWN}",
    "Sphere": f"moves pixels in a way of DALI's own, which is not understood: {_OWN}",
    "Jitter": f"moves pixels at random, which is not understood: {_OWN}",
    "JpegCompressionDistortion": f"compresses the image again, which is not understood: {_OWN}",
    "Squeeze": _AXES,
    "ExpandDims": _AXES,
    "Clahe": f"equalizes tiles of the image, which is not understood: {_OWN}",
}
"""Why, and what to do, by the name of an operator or its beginning."""


def refused(name: str) -> str:
    """Words for why an operator is refused."""
    why = next((why for begin, why in _REASONS.items() if name.startswith(begin)), "")
    return why or f"is not understood; understood are {', '.join((*DECODERS, *IMAGES))}"
