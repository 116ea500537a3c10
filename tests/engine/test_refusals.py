"""Mistakes of whoever calls: ops that do not go alone, and what is no image."""

import io

import numpy as np

import pixprep as pp
from images import scene
from pixprep.serving.embedded.request import pixels_of
from refusals import refusal, refusals

PHOTO = scene(48, 64)
ENGINE = pp.Engine(pp.Pipeline([pp.pixels(), pp.crop(0, 0, 1, 1), pp.tensor()]))
SAME = pp.operator("acme.same", version=1)(lambda pixels: pixels)


class OnGpu:
    """An array of PyTorch's on a GPU."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def npy(array, **options):
    """The bytes of a file of NumPy's."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@refusals("engine")
def test_a_mistake_is_refused_in_whole_words(call, words):
    names = {"SAME": SAME, "PHOTO": PHOTO, "run": ENGINE.run, "OnGpu": OnGpu, "npy": npy, "pixels_of": pixels_of}
    assert refusal(call, np=np, **names) == words
