"""Sample JPEGs for comparing a GPU's decoder with the CPU decoder before the GPU's decoder is used."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.engine.decoders.header import JpegHeader, read_whole_header
from pixprep.engine.decoders.structure import Structure, structures

U8 = npt.NDArray[np.uint8]

LARGEST_MEAN = 4.0
"""Maximum mean absolute difference between a decoder's pixels and libjpeg-turbo's for a sample. On these samples,
chroma without interpolation causes a difference of 2.4 to 3.4, which is tolerated. Faults cause larger differences:
5.0 if the chroma is shifted by a pixel, 6.9 if the whole image is, 5.7 for limited-range luma of 16 to 235 or for the
color matrix of BT.709, and 40 for swapped channels."""

_CELL = 12
"""Distance between neighboring random colors in pixels.

With a smaller distance, tolerable differences would be as large as those of faults.
"""


_PROGRESSIVE, _MEGAPIXEL = 0xC2, 1_000_000  # above a megapixel, the CUDA decoder decodes Huffman codes on the GPU
_LARGE = 1024, 1040
_SAMPLINGS = ("gray", "4:2:0", "4:2:2", "4:4:4")

Trait = tuple[int, bytes, bool, bool, bool] | tuple[int, int]
"""Property of a JPEG that may select a code path of a decoder. Each JPEG has two traits: that of its coding (frame
type, sampling factors, whether it has more than a megapixel, whether it has restart markers, whether it is sequential
with several scans), and that of its orientation (frame type, orientation)."""


@cache
def samples() -> Mapping[str, bytes]:
    """Return sample JPEGs by name, one for each combination of traits that decoders may treat differently.

    The first call takes 0.1 s.
    """
    odd, upright = _colours(61, 83), _colours(48, 64)
    large = _colours(*_LARGE)
    encoded = {"RGB": _encoded(upright, keep_rgb=True)}
    for css in _SAMPLINGS:
        encoded[css] = _encoded(odd, css)
        encoded[f"{css}, progressive"] = _encoded(odd, css, progressive=True)
        encoded[f"{css}, with restart markers"] = _encoded(odd, css, restart_marker_rows=1)
        encoded[f"{css}, over a megapixel"] = _encoded(large, css)
        encoded[f"{css}, over a megapixel, with restart markers"] = _encoded(large, css, restart_marker_rows=1)
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        encoded[f"orientation {orientation}"] = _encoded(upright, exif=exif.tobytes())
        encoded[f"orientation {orientation}, progressive"] = _encoded(upright, exif=exif.tobytes(), progressive=True)
    return encoded


@cache
def sample_traits() -> Mapping[str, tuple[Trait, Trait]]:
    """Return both traits of each sample by the sample's name; see ``traits_of``."""
    found = {}
    for name, encoded in samples().items():
        (structure,) = structures([np.frombuffer(encoded, np.uint8)])
        assert structure is not None
        header = read_whole_header(memoryview(encoded), structure)
        assert header is not None
        found[name] = traits_of(header, structure)
    return found


def traits_of(header: JpegHeader, structure: Structure) -> tuple[Trait, Trait]:
    """Return both traits of a JPEG: that of its coding, and that of its orientation."""
    is_sequential = header.frame != _PROGRESSIVE
    is_large = is_sequential and header.height * header.width > _MEGAPIXEL
    is_parted = is_sequential and structure.scans > 1
    coding = header.frame, header.samplings, is_large, structure.interval > 0, is_parted
    return coding, (header.frame, header.orientation)


def _colours(height: int, width: int) -> U8:
    """Return an image of random colors with smooth transitions between them."""
    rows, columns = height // _CELL + 1, width // _CELL + 1
    cells = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), np.uint8)
    pixels = Image.fromarray(cells).resize((columns * _CELL, rows * _CELL), Image.Resampling.BICUBIC)
    return np.asarray(pixels)[:height, :width]


def _encoded(pixels: U8, css: str = "4:2:0", **options: object) -> bytes:
    file = io.BytesIO()
    sampling = {} if css == "gray" or "keep_rgb" in options else {"subsampling": css}
    image = Image.fromarray(pixels[:, :, 0] if css == "gray" else pixels)
    image.save(file, "JPEG", **{"quality": 90} | sampling | options)
    return file.getvalue()
