"""TensorFlow and DALI themselves, for the tests that compare with them and the tool that freezes what they give."""

import os
import warnings
from functools import cache
from importlib import import_module

import numpy as np


@cache
def library(name):
    """A module, imported late: TensorFlow takes seconds. Both warn of their own innards, and TensorFlow logs."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def tensorflow(pixels, size, filter_name, *, antialias):
    """``tf.image.resize``: float32, uint8 for nearest and for an unchanged size."""
    image = library("tensorflow").image
    return image.resize(pixels, size, method=filter_name, antialias=antialias).numpy()


def tensorflow_decode(encoded, *, channels=3, **options):
    """``tf.io.decode_jpeg``, whose default IDCT is the fast one."""
    return library("tensorflow").io.decode_jpeg(encoded, channels=channels, **options).numpy()


def dali(images, rule, size, filter_name, *, antialias, subpixel=True):
    """``fn.resize`` of uint8 images (height, width, channels) on the CPU.

    Args:
        rule: ``both``: to ``size``; ``shorter``, ``longer``: that side to the height; ``fit``, ``cover``: ``size`` with
            mode not_larger, not_smaller.
    """
    dali, fn, types = (library(f"nvidia.dali{part}") for part in ("", ".fn", ".types"))
    height, width = (float(side) for side in size)
    where = {
        "both": {"size": [height, width]},
        "shorter": {"resize_shorter": height},
        "longer": {"resize_longer": height},
        "fit": {"size": [height, width], "mode": "not_larger"},
        "cover": {"size": [height, width], "mode": "not_smaller"},
    }[rule]
    name = {"nearest": "NN", "bilinear": "LINEAR", "bicubic": "CUBIC", "lanczos": "LANCZOS3"}[filter_name]
    contiguous = [np.ascontiguousarray(pixels) for pixels in images]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = dali.Pipeline(batch_size=len(images), num_threads=1, device_id=None)
        with pipeline:
            pixels = fn.external_source(source=lambda: contiguous, batch=True, layout="HWC")
            interp_type = getattr(types, f"INTERP_{name}")
            resized = fn.resize(pixels, interp_type=interp_type, antialias=antialias, subpixel_scale=subpixel, **where)
            pipeline.set_outputs(resized)
        pipeline.build()
        (outputs,) = pipeline.run()
        return [np.array(outputs[index]) for index in range(len(images))]
