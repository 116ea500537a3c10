"""Decodes single images with the CPU decoder."""

from dataclasses import replace

import numpy as np

from pixprep.engine.decoders import Limits
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.errors import ImageError
from pixprep.plan.plan import Plan

PLAN = Plan(is_gray=False, apply_exif_orientation=True, chroma="fancy", outputs={})
"""Plan that decodes to RGB, applies the EXIF orientation, and does nothing else."""


def decoded(encoded, plan=PLAN, *, limits=None, damage="strict", before=()):
    """Return a copy of the ``Decoded`` object, or the ImageError.

    Args:
        encoded: The encoded image.
        plan: Decode plan.
        limits, damage: Options of the decoder.
        before: Images that the same decoder decodes first.
    """
    decoder = CpuDecoder(plan, limits or Limits(), damage=damage)
    for each in before:
        with decoder.decoded(each):
            pass
    with decoder.decoded(encoded) as result:
        return result if isinstance(result, ImageError) else result._replace(pixels=result.pixels.copy())


def decode(encoded, *, limits=None, damage="strict", **plan):
    """Return uint8 (height, width, 3 or 1), or the ImageError. The fields in ``plan`` override those of ``PLAN``."""
    result = decoded(encoded, replace(PLAN, **plan), limits=limits, damage=damage)
    if isinstance(result, ImageError):
        return result
    assert result.pixels.dtype == np.uint8
    assert result.pixels.flags.c_contiguous
    assert result.pixels.shape[2] == (1 if plan.get("is_gray") else 4)
    return result.pixels[:, :, :3]
