"""Operators of DALI that are not imported, with what to do."""

from __future__ import annotations

from pixprep.importers.dali.geometry import DECODERS
from pixprep.importers.dali.ops import IMAGES
from pixprep.importers.dali.windows import EXCHANGED

_OWN = "an operator of your own may do it: see docs/own-operators.md"
_REASONS = {
    "draws for each image, as in training: serve a graph without it, or write the op of training by hand": (
        *("random__", "decoders__ImageRandomCrop", "RandomResizedCrop"),
    ),
    "chooses a branch for each image, which is not understood: serialize a graph of one branch": ("conditional__",),
    f"calls a function of Python's, which the file does not bring: {_OWN}": ("PythonFunction", "NumbaFunction"),
    f"moves pixels in a way of DALI's own, which is not understood: {_OWN}": ("Water", "Sphere", "Jitter"),
    f"compresses the image again, which is not understood: {_OWN}": ("JpegCompressionDistortion",),
    f"puts channels or images together, which is not understood: {EXCHANGED}": ("Cat", "Stack"),
    f"equalizes the image, which is not understood: {_OWN}": ("Clahe", "Equalize"),
}
"""Reason and remedy, with the operators' names or their beginnings."""


def refused(name: str) -> str:
    """Words for why an operator is refused."""
    why = next((why for why, names in _REASONS.items() if name.startswith(names)), "")
    return why or f"is not understood; understood are {', '.join((*DECODERS, *IMAGES))}"
