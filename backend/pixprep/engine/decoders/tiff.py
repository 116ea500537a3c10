"""TIFF: the page that is decoded, how its samples are stored, and the kinds that are refused by name.

Pillow decodes the pixels. It ignores some of what the tags say (``Page``), so the tags are read here first. The
numbers of tags and of their values are those of TIFF 6.0, of TIFF/EP and of DNG 1.7.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from io import BytesIO
from threading import Lock
from typing import NamedTuple

from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from pixprep.engine.decoders import Encoded
from pixprep.engine.decoders.exif import NUMBERS, TYPE_BYTES, Order, byte_order, entries, number
from pixprep.errors import ImageError

_SUBFILE, _WIDTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _SAMPLES, _PLANAR = 254, 256, 258, 259, 262, 277, 284
_COLORMAP, _SUB_DIRECTORIES, _EXTRA, _FORMAT, _SUBSAMPLING, _DNG_VERSION = 320, 330, 338, 339, 530, 50706
_READ = {
    _SUBFILE, _WIDTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _SAMPLES, _PLANAR, _SUB_DIRECTORIES, _EXTRA, _FORMAT,
    _SUBSAMPLING, _DNG_VERSION,
}  # fmt: skip
_COLORS = {0: "gray, white is 0", 1: "gray", 2: "RGB", 3: "a palette", 5: "CMYK", 6: "YCbCr", 8: "L*a*b*"}
_OWN_SAMPLES = {2: 3, 5: 4, 6: 3, 8: 3}
"""Samples of a pixel that are its colour, by the photometric interpretation; of others one."""
_SENSOR = {32803, 34892}
"""Photometric interpretations of raw photos: a colour filter array, and linear raw."""
_RAW = re.compile(rb"(?s)(?:II\*\0|MM\0\*)....(?:CR|IIII)")
"""First bytes of CR2 and IIQ, whose pages are previews that are not marked as such."""
_FORMATS = {2: "signed numbers", 3: "floating-point numbers", 5: "complex numbers", 6: "complex numbers"}
_OLD_JPEG, _YCBCR, _WHITE_IS_ZERO = 6, 6, 0
_DIRECTORIES, _MAX_DIRECTORIES, _MAX_VALUES = (34665, 34853, 40965), 8, 16  # EXIF, GPS, interoperability
_LIBTIFF = Lock()
"""Held while a TIFF is opened: ``open`` and ``seek`` of Pillow read ``READ_LIBTIFF``, which all threads share."""

Tags = dict[int, tuple[int, ...]]


class Page(NamedTuple):
    """The page of a TIFF that is decoded, and what Pillow ignores of its tags.

    Attributes:
        number: index of the page, as Pillow's ``seek`` counts.
        bits: number of bits of a sample.
        is_signed: the samples are signed numbers.
        is_inverted: white is 0, in samples of more than 8 bits, which Pillow does not invert.
        is_planar: each sample of a pixel has a plane of its own.
        extra: number of samples that are neither a colour nor alpha.
        needs_libtiff: the samples are not compressed, and in an order that Pillow's own reader mistakes for another:
            each sample has a plane of its own, or YCbCr has fewer samples of the chroma.
        words: what the page holds, for an error; empty where it does not even have a width.
    """

    number: int
    bits: int
    is_signed: bool
    is_inverted: bool
    is_planar: bool
    extra: int
    needs_libtiff: bool
    words: str


def read(tiff: memoryview) -> Page:
    """Read the tags of a TIFF: of its first page, or where this is a thumbnail, of the first page that is not.

    Raises:
        ImageError: CORRUPT: the tags claim more than the file holds. UNSUPPORTED: the file is a raw photo, only its
            thumbnail is a page, or its samples are of a kind that cannot be 8 bits without a choice.
    """
    if _RAW.match(tiff):
        raise _raw()
    order = byte_order(tiff)
    pages, offsets, offset, n_bytes = list[Tags](), list[int](), number(tiff[4:8], order), 0
    while offset not in offsets and n_bytes <= len(tiff):  # directories would overlap
        offsets.append(offset)
        n_bytes += 12 * number(tiff[offset : offset + 2], order)
        tags, offset = _directory(tiff, offset, order)
        pages.append(tags)
        if not (offset and _is_reduced(tags)):
            break
    _check_claims(tiff, offsets, order)
    first, chosen = pages[0], len(pages) - 1
    subs = [_directory(tiff, sub, order)[0] for sub in first.get(_SUB_DIRECTORIES, ())]
    if any(_DNG_VERSION in tags or _one(tags, _PHOTOMETRIC) in _SENSOR for tags in (first, *subs)):
        raise _raw()
    if _is_reduced(pages[chosen]):  # none is whole
        if not all(map(_is_reduced, subs)):
            raise ImageError(
                "UNSUPPORTED",
                "a TIFF whose page is a thumbnail, and whose whole image is in a SubIFD: save that image as a page",
            )
        chosen = 0
    return _page(chosen, pages[chosen])


def opened(encoded: Encoded, page: Page) -> Image.Image:
    """Pillow's image of a page; its pixels are not decoded yet.

    Raises:
        ImageError: UNSUPPORTED: Pillow does not know the kind.
    """
    try:
        with _LIBTIFF:
            before = TiffImagePlugin.READ_LIBTIFF
            TiffImagePlugin.READ_LIBTIFF = before or page.needs_libtiff
            try:
                image = Image.open(BytesIO(encoded), formats=("TIFF",))
                image.seek(page.number)
            finally:
                TiffImagePlugin.READ_LIBTIFF = before
    except UnidentifiedImageError:
        if not page.words:
            raise
        raise ImageError("UNSUPPORTED", f"a kind of TIFF that Pillow does not read ({page.words})") from None
    return image


def with_palette(image: Image.Image) -> None:
    """Decode an image, and give it the palette that is meant where no entry is over 255: such entries have 8 bits.

    libtiff and OpenCV read them in this way; TIFF 6.0 has entries of 16 bits.
    """
    colors = image.tag_v2.get(_COLORMAP, ())  # type: ignore[attr-defined]
    if image.mode in ("P", "PA") and max(colors, default=256) < 256:
        image.putpalette(bytes(colors), "RGB;L")


def _page(index: int, tags: Tags) -> Page:
    photometric = _one(tags, _PHOTOMETRIC) if _one(tags, _COMPRESSION, 1) != _OLD_JPEG else _YCBCR
    bits, samples = max(tags.get(_BITS, (1,))), _one(tags, _SAMPLES, 1)
    kind, planes = _one(tags, _FORMAT, 1), _one(tags, _PLANAR, 1) == 2
    own = _OWN_SAMPLES.get(photometric, 1)
    words = f"{_COLORS.get(photometric, f'photometric interpretation {photometric}')}, {samples} x {bits} bits"
    words += f" of {_FORMATS.get(kind, f'sample format {kind}')}" * (kind != 1) + ", in planes" * (
        planes and samples > 1
    )
    if bits > 16:
        raise ImageError("UNSUPPORTED", f"{bits} bits a sample; pixprep reads 8 and 16")
    if kind == 2 and (bits, samples) != (16, 1):
        raise ImageError("UNSUPPORTED", f"a TIFF of signed numbers ({words}): save it as unsigned ones")
    is_odd = photometric == _YCBCR and tags.get(_SUBSAMPLING, (2, 2)) != (1, 1)
    alphas = sum(extra in (1, 2) for extra in tags.get(_EXTRA, ()))
    return Page(
        number=index,
        bits=bits,
        is_signed=kind == 2,
        is_inverted=photometric == _WHITE_IS_ZERO and bits > 8,
        is_planar=planes and samples > 1,
        extra=max(0, samples - own - alphas),
        needs_libtiff=_one(tags, _COMPRESSION, 1) == 1 and (planes or is_odd),
        words=words if _WIDTH in tags else "",
    )


def _raw() -> ImageError:
    return ImageError(
        "UNSUPPORTED",
        "a raw photo (such as NEF, DNG, CR2 or ARW), which has no pixels in colour before it is developed: send what a "
        "raw converter makes of it, as JPEG, PNG or TIFF",
    )


def _is_reduced(tags: Tags) -> bool:
    return bool(_one(tags, _SUBFILE) & 1)


def _one(tags: Tags, tag: int, default: int = 0) -> int:
    return next(iter(tags.get(tag, ())), default)


def _directory(tiff: memoryview, offset: int, order: Order) -> tuple[Tags, int]:
    """Values of those tags of a directory that are read here, and the place of the next directory."""
    tags: Tags = {}
    count = number(tiff[offset : offset + 2], order)
    for tag, type_, length, value in entries(tiff, offset, order):
        if length and tag in _READ and tag not in tags and type_ in (1, 3, 4):  # BYTE, SHORT, LONG
            length = min(length, _MAX_VALUES)  # noqa: PLW2901
            size, packed = TYPE_BYTES[type_] * length, memoryview(value)
            if size > len(value):
                at = number(value, order)
                packed = tiff[at : at + size]
            if size <= len(packed):
                tags[tag] = struct.unpack_from(f"{order}{length}{NUMBERS.get(type_, 'B')}", packed)
    end = offset + 2 + 12 * count
    return tags, number(tiff[end : end + 4], order)


def _check_claims(tiff: memoryview, pages: Sequence[int], order: Order) -> None:
    """Refuse a TIFF whose tags claim more than the file holds.

    Values may overlap, and Pillow before 13 copies each of them: 10 MB became 2 GB.

    Args:
        tiff: the file.
        pages: the places of the directories that Pillow reads.
        order: of its bytes.

    Raises:
        ImageError: CORRUPT.
    """
    claimed = 0
    directories = [*pages]
    for directory in directories:  # which grows on the way
        for tag, type_, count, value in entries(tiff, directory, order):
            claimed += TYPE_BYTES.get(type_, 0) * count
            if tag in _DIRECTORIES and number(value, order) not in directories:
                directories.append(number(value, order))
            if len(directories) >= len(pages) + _MAX_DIRECTORIES:
                raise ImageError("CORRUPT", f"over {_MAX_DIRECTORIES} directories of tags in the TIFF")
    if claimed > len(tiff):
        raise ImageError("CORRUPT", f"the tags of the TIFF claim {claimed:,} bytes of a file of {len(tiff):,}")
