"""Frozen vectors: what the original libraries once made of images that this module makes again.

``frozen.npz`` holds outputs only; ``tools/freeze_originals.py`` remakes it. Of each filter every case of ``CASES``, one
after the other; of each kind of JPEG decoding every one of the frozen JPEGs.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep import ops
from pixprep.verify.images import noise

Array = npt.NDArray[Any]
Size = tuple[int, int]

FILE = Path(__file__).with_name("frozen.npz")

CASES: tuple[tuple[Size, Size], ...] = (
    ((32, 24), (16, 12)),  # exactly half: OpenCV has a path of its own for it
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
"""(height, width) before and after: down, up, by whole and odd factors, with sides of one pixel."""


@dataclass(frozen=True)
class Vectors:
    """What one library made.

    Attributes:
        library: its name and version, as printed.
        outputs: for each case, or for each JPEG, an array (height, width, 3).
    """

    library: str
    outputs: tuple[Array, ...]


def source(index: int) -> npt.NDArray[np.uint8]:
    """The image of a case: uint8 (height, width, 3), noise."""
    return noise(*CASES[index][0], seed=index + 1)


def resize_key(op: ops.Resize | ops.Letterbox) -> str:
    """The name of a filter's vectors; ``nearest`` is the same with antialias and without."""
    is_wide = op.antialias and op.filter not in ("nearest", "nearest_exact")
    return f"resize {op.like} {op.filter}{' antialias' if is_wide else ''}"


def decode_key(op: ops.Decode) -> str:
    """The name of a kind of decoding."""
    return f"decode {op.idct} {op.chroma}"


def resized(op: ops.Resize | ops.Letterbox) -> Vectors | None:
    """The vectors of a filter, for each of ``CASES``."""
    arrays, libraries = _load()
    key = resize_key(op)
    if key not in arrays:
        return None
    ends = np.cumsum([height * width * 3 for _, (height, width) in CASES])
    pieces = np.split(arrays[key], ends[:-1])
    outputs = (piece.reshape(*size, 3) for piece, (_, size) in zip(pieces, CASES, strict=True))
    return Vectors(libraries[key], tuple(outputs))


def decoded(op: ops.Decode) -> Vectors | None:
    """The vectors of a kind of decoding, RGB, for each of ``jpegs``."""
    arrays, libraries = _load()
    key = decode_key(op)
    if key not in arrays:
        return None
    sizes = [tuple(size) for size in arrays["sizes"].tolist()]
    pieces = np.split(arrays[key], np.cumsum([height * width * 3 for height, width in sizes])[:-1])
    return Vectors(libraries[key], tuple(piece.reshape(*size, 3) for piece, size in zip(pieces, sizes, strict=True)))


def jpegs() -> Iterator[tuple[str, bytes]]:
    """The frozen JPEGs by name."""
    arrays, _ = _load()
    for key, array in arrays.items():
        if key.startswith("jpeg "):
            yield key.removeprefix("jpeg "), array.tobytes()


@cache
def _load() -> tuple[dict[str, Array], dict[str, str]]:
    return load(FILE)


def load(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of a file by name, and of the vectors among them the library's name and version."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    return arrays, json.loads(arrays.pop("libraries").tobytes())


def save(path: Path, arrays: Mapping[str, Array], libraries: Mapping[str, str]) -> None:
    """Write a file: the same arrays give the same bytes."""
    text = json.dumps(dict(sorted(libraries.items())))
    entries = dict(sorted(arrays.items())) | {"libraries": np.frombuffer(text.encode(), np.uint8)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for key, array in entries.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{key}.npy"), buffer.getvalue(), zipfile.ZIP_DEFLATED, 9)
