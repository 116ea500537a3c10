"""Tests the messages about callers' mistakes: ops that need other ops, and invalid images."""

import io
from pathlib import Path  # noqa: F401

import numpy as np

import pixprep as pp
from engine import test_annotations, test_masks
from pixprep.serving.embedded.request import pixels_of  # noqa: F401  (lines of the table call it)
from support.asking import ask
from support.images import png, scene
from support.refusals import refusal, refusals

PHOTO = scene(48, 64)
IMAGENET = pp.presets.imagenet()
ENGINE = pp.Engine(pp.Pipeline([pp.pixels(), pp.crop(0, 0, 1, 1), pp.tensor()]))
SAME = pp.operator("acme.same", version=1)(lambda pixels: pixels)


def warped(row, **fields):
    """Return the tensor of a photo of 48 x 64 pixels for one row of a request."""
    sides = {} if "size" in fields else {"height": 9, "width": 9}
    warp = pp.warp(**{name: value for name, value in fields.items() if name != "size"}, **sides)
    return ask([pp.decode(), warp, pp.tensor()], png(PHOTO), rows=row)


def asked(*ops, **inputs):
    """Return the outputs of a pipeline of pixels for a photo of 48 x 64 pixels and the rows of a request."""
    return ask([pp.pixels(), *ops, pp.tensor("uint8")], PHOTO, **inputs)


class OnGpu:
    """Array of PyTorch on a GPU."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def npy(array, **options):
    """Return the bytes of a NumPy file that contains the array."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


NAMES = vars(test_annotations) | vars(test_masks) | globals()
NAMES |= {"run": ENGINE.run, "annotated": test_annotations.run_sample, "masked": test_masks.run_sample}


@refusals("engine")
def test_a_mistake_raises_the_expected_message(call, words):
    assert refusal(call, **NAMES) == words
