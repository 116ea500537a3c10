"""What the resizes of libraries too heavy for everyday tests are frozen from; tools/freeze_vectors.py froze them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from images import checkerboard, gradient, noise, photo, read, scene
from pixprep.kernels.resample import resample
from pixprep.plan import Geometry, Resize
from pixprep.profiles import resampling

FOLDER = Path(__file__).parent / "parity" / "frozen"

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")
RULES = ("shorter", "longer", "fit", "cover")


@cache
def cases():
    """Name, pixels and the (height, width) wanted: shrinking, growing, both, by whole and odd factors, a pixel wide."""
    crop = np.asarray(read(photo()))[150:300, 200:347]
    return [
        ("photo shrinks", crop, (21, 19)),
        ("photo by a half", crop[:40, :52], (20, 26)),
        ("photo keeps a side", crop[:60, :40], (60, 7)),
        ("scene grows", scene(17, 13), (29, 25)),
        ("scene by 3", scene(5, 7), (15, 21)),
        ("scene by an eighth", scene(160, 200), (20, 25)),
        ("scene grows and shrinks", scene(50, 8), (7, 41)),
        ("noise by a little", noise(22, 24), (21, 23)),
        ("noise far down", noise(211, 187), (5, 6)),
        ("checkerboard", checkerboard(45, 61), (20, 27)),
        ("gradient", gradient(23, 90), (27, 12)),
        ("one row", noise(1, 40), (9, 17)),
        ("one column", noise(51, 1), (20, 3)),
        ("one pixel", noise(1, 1), (4, 5)),
        ("to one pixel", noise(30, 21), (1, 1)),
        ("gray", scene(40, 55)[:, :, :1], (24, 35)),
    ]


ASPECT = (9, 12)
"""What ``RULES`` are asked for."""


@cache
def shapes():
    """Name, pixels and rules: sides that are rounded up, down and at a tie, or are all but nothing."""
    sizes = (
        (30, 21),
        (21, 30),
        (17, 13),
        (33, 35),
        (40, 15),
        (15, 40),
        (24, 32),
        (1, 2),
        (60, 2),
        (9, 13),
        (61, 45),
        (7, 7),
    )
    shapes = [(f"{height} x {width}", noise(height, width), RULES) for height, width in sizes]
    return [*shapes, ("400 x 1", noise(400, 1), ("longer", "fit"))]


@cache
def pictures():
    """40 images of many sizes, for the libraries themselves."""
    rng = np.random.default_rng(7)
    kinds = (scene, noise, gradient, lambda height, width: checkerboard(height, width, cell=2))
    sizes = [(int(height), int(width)) for height, width in rng.integers(2, 130, (34, 2))]
    sizes += [(1, 1), (1, 90), (90, 1), (2, 120), (128, 128), (97, 131)]
    return [kinds[index % len(kinds)](*size) for index, size in enumerate(sizes)]


SIZES = (
    (1, 1),
    (1, 30),
    (31, 1),
    (7, 7),
    (16, 16),
    (32, 32),
    (33, 47),
    (50, 20),
    (64, 96),
    (90, 90),
    (99, 101),
    (150, 61),
)
"""(height, width), for ``pictures``: most shrink some and enlarge others."""


@cache
def load(name):
    """The frozen arrays of a library by name, and the version that made them."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = dict(file)
    return arrays, str(arrays.pop("made by"))


def ours(pixels, rule, size, filter_name, *, like, antialias, subpixel=True, **changes):
    """What pixprep makes of it: uint8, or float32 where the library does not round; ``changes`` to the resampling."""
    resize = Resize(
        rule=rule,
        height=size[0],
        width=size[0] if rule in ("shorter", "longer") else size[1],
        filter=filter_name,
        antialias=antialias,
        like=like,
        rounding="half_away" if like == "dali" else "down",
        subpixel=subpixel and like == "dali",
    )
    how = resampling(resize, Geometry((), resize, ()).place(*pixels.shape[:2]))
    return resample(pixels, replace(how, **changes))
