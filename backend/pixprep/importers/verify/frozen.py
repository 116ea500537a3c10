"""Frozen vectors, which are stored results of the original libraries for images that this module generates or stores.

``frozen.npz`` contains one flat array for each decoding, each filter and each op on colors: the concatenated outputs of
its cases. It also contains the seven JPEGs of the decodings, by name and size, and the library that produced each array
of outputs. ``tools/freeze_originals.py`` regenerates the file.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from pixprep.importers.verify.images import U8, Array, noise, png
from pixprep.pipeline import ops
from pixprep.plan.profiles import PROFILES
from pixprep.spec import Chroma, ColorLike, Idct

Size = tuple[int, int]
Op = ops.Decode | ops.Resize | ops.Letterbox | ops.SteadyOp

FILE = Path(__file__).with_name("frozen.npz")

SIZES: tuple[tuple[Size, Size], ...] = (
    ((32, 24), (16, 12)),  # exactly half, for which OpenCV has a separate code path
    ((61, 47), (23, 19)),
    ((11, 13), (23, 17)),
    ((1, 37), (5, 16)),
    ((40, 1), (13, 3)),
    ((90, 120), (15, 17)),
    ((33, 20), (21, 20)),
    ((64, 20), (8, 26)),
    ((5, 7), (1, 1)),
    ((36, 27), (12, 9)),  # a third
    ((3, 2), (12, 14)),
    ((29, 30), (28, 29)),
)
"""(height, width) before and after.

They reduce and enlarge by integer and fractional factors, and contain sides of one pixel.
"""


_WARPS: tuple[Literal["nearest", "bilinear"], ...] = ("nearest", "bilinear")

COLOURS: tuple[ops.SteadyOp, ...] = (
    *(kind(factor=factor, like=like) for kind in (ops.Brightness, ops.Contrast, ops.Saturation)
      for like in get_args(ColorLike) for factor in (0.37, 1.6)),
    *(ops.Hue(factor=factor, like=like) for like in get_args(ColorLike) for factor in (0.0, 0.13, -0.4)),
    *(ops.Grayscale(like=like) for like in get_args(ColorLike)),
    *(ops.Gamma(gamma=gamma, gain=gain, like=like) for like in get_args(ColorLike)
      for gamma, gain in ((2.2, 1.0), (0.45, 1.3))),
    *(ops.Autocontrast(like=like) for like in get_args(ColorLike)),
    ops.Posterize(bits=3), ops.Solarize(threshold=100), ops.Equalize(), ops.Invert(),
    *(ops.Rotate(angle=33.0, filter=filter_, like=like, fill=(7, 99, 200))
      for like, filter_ in product(get_args(ColorLike), _WARPS)),
    *(ops.Affine(angle=20.0, translate=(1.0, -2.0), scale=0.8, shear=(9.0, -4.0), filter=filter_, like=like)
      for like, filter_ in product(get_args(ColorLike), _WARPS)),
    *(ops.Sharpness(factor=factor, like=like) for like in get_args(ColorLike) for factor in (0.3, 1.9)),
    ops.GaussianBlur(kernel_size=(5, 3), sigma=(0.9, 1.4)),
)  # fmt: skip


class Case(NamedTuple):
    """An image that an op is compared on: ``op`` returns uint8 or float32 of ``shape``."""

    name: str
    op: ops.Decode | ops.Resize | ops.SteadyOp
    encoded: bytes
    shape: tuple[int, int, int]

    @property
    def chain(self) -> list[ops.Op]:
        """Return the ops from the encoded image to the output.

        For color ops, a crop fixes the size without changing pixels.
        """
        if isinstance(self.op, ops.Decode):
            return [self.op]
        height, width, _ = self.shape
        crop = [ops.Crop(top=0, left=0, height=height, width=width)] if isinstance(self.op, ops.SteadyOp) else []
        return [ops.Decode(), *crop, self.op]


def every() -> list[Op]:
    """Return each decoding, each filter that its library supports, and each op on colors.

    Pillow supports filters only with antialiasing.
    """
    found: list[Op] = [ops.Decode(idct=i, chroma=c) for i, c in product(get_args(Idct), get_args(Chroma))]
    for like, profile in PROFILES.items():
        for antialias, filters in (
            (True, profile.antialiased),
            (False, profile.filters if profile.original.order is None else ()),
        ):
            found += [ops.Resize(height=1, width=1, like=like, filter=f, antialias=antialias) for f in filters]
    return list({key(op): op for op in [*found, *COLOURS]}.values())


def key(op: Op) -> str:
    """Return the name of an op's vectors. ``nearest`` does not depend on antialiasing."""
    if isinstance(op, ops.Decode):
        return f"decode {op.idct} {op.chroma}"
    if isinstance(op, ops.SteadyOp):
        return f"{ops.op_name(op)} {getattr(op, 'like', '')}".strip()
    is_widened = op.antialias and not op.filter.startswith("nearest")
    return f"resize {op.like} {op.filter}{' antialias' if is_widened else ''}"


def cases(op: Op) -> list[Case]:
    """Return the images of an op, with its fields."""
    found = []
    if isinstance(op, ops.SteadyOp):
        size = (19, 17) if isinstance(op, ops.Equalize) else (9, 7)
        for index, each in enumerate(each for each in COLOURS if key(each) == key(op)):
            for name, pixels in _colours(*size).items():
                found.append(Case(f"{name} {index}", each, png(pixels), (len(pixels), pixels.shape[1], 3)))
        return found
    if isinstance(op, ops.Decode):
        decode = ops.Decode(idct=op.idct, chroma=op.chroma)
        for name, array in sorted(load()[0].items()):
            if name.startswith("jpeg "):
                height, width = map(int, name.rpartition(" ")[2].split("x"))
                found.append(Case(name, decode, array.tobytes(), (height, width, 3)))
        return found
    for index, (size, (height, width)) in enumerate(SIZES):
        resize = ops.Resize(height=height, width=width, like=op.like, filter=op.filter, antialias=op.antialias)
        name = f"{size[0]}x{size[1]} to {height}x{width}"
        found.append(Case(name, resize, png(noise(*size, seed=index + 1)), (height, width, 3)))
    return found


def _colours(height: int, width: int) -> dict[str, U8]:
    """Return images with every pixel value, and with values close to each other. Equalizing needs 256 pixels."""
    every = noise(height, width, seed=1)
    return {"noise": every, "dim noise": (every[:, ::2] // 3 + 60).astype(np.uint8)}


def outputs(op: Op) -> tuple[str, list[Array]] | None:
    """Return the name of the library and its result for each case, or None if no library supports the op."""
    arrays, libraries = load()
    if key(op) not in arrays:
        return None
    shapes = [case.shape for case in cases(op)]
    pieces = np.split(arrays[key(op)], np.cumsum([prod(shape) for shape in shapes])[:-1])
    return libraries[key(op)], [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


@cache
def load() -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays of the file by name, and for those with vectors the name and version of the library."""
    with np.load(FILE, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(arrays.pop("libraries").tobytes())
