"""Read the tags of a TIFF: choose the page to decode, find out how its samples are stored, reject unsupported kinds.

Pillow decodes the pixels. Because it ignores some of the tags (see ``Page``), they are read here first. The numbers of
tags and of their values are specified in TIFF 6.0, TIFF/EP and DNG 1.7.
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
"""Number of color samples per pixel by photometric interpretation. Other interpretations have one."""
_SENSOR = {32803, 34892}
"""Photometric interpretations of raw photos: color filter array, and linear raw."""
_RAW = re.compile(rb"(?s)(?:II\*\0|MM\0\*)....(?:CR|IIII)")
"""First bytes of CR2 and IIQ files. Their pages are previews, but not marked as previews."""
_FORMATS = {2: "signed", 3: "floating-point", 5: "complex", 6: "complex"}
_OLD_JPEG, _YCBCR, _WHITE_IS_ZERO = 6, 6, 0
_DIRECTORIES, _MAX_DIRECTORIES, _MAX_VALUES = (34665, 34853, 40965), 8, 16  # EXIF, GPS, interoperability
_LIBTIFF = Lock()
"""Lock for opening a TIFF, because Pillow's ``open`` and ``seek`` read ``READ_LIBTIFF``, which all threads share."""

Tags = dict[int, tuple[int, ...]]


class Page(NamedTuple):
    """The page of a TIFF that is decoded, and properties of it that Pillow ignores.

    Attributes:
        number: Index of the page, as for Pillow's ``seek``.
        bits: Number of bits per sample.
        is_signed: Whether the samples are signed integers.
        is_inverted: Whether the value 0 is white and a sample has more than 8 bits. Pillow does not invert such images.
        is_planar: Whether each channel is stored in a separate plane.
        extra: Number of samples per pixel that are neither a color nor alpha.
        needs_libtiff: Whether Pillow's own reader would misinterpret the order of the samples. This is the case for
            uncompressed planar samples, and for uncompressed YCbCr with subsampled chroma.
        words: Description of the samples for error messages; empty if the page does not specify a width.
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
    """Read the tags of the page to decode: the first page, or the first page that is not a thumbnail.

    Raises:
        ImageError: CORRUPT: The values that the tags declare exceed the size of the file. UNSUPPORTED: The file is a
            raw photo, all pages are thumbnails, or the conversion of the samples to 8 bits would be ambiguous.
    """
    if _RAW.match(tiff):
        raise _raw()
    order = byte_order(tiff)
    pages, offsets, offset, n_bytes = list[Tags](), list[int](), number(tiff[4:8], order), 0
    while offset not in offsets and n_bytes <= len(tiff):  # if they have more bytes, directories overlap
        offsets.append(offset)
        n_bytes += 12 * number(tiff[offset : offset + 2], order)
        tags, offset = _directory(tiff, offset, order)
        pages.append(tags)
        if not (offset and _is_reduced(tags)):
            break
    _check_declared_size(tiff, offsets, order)
    first, chosen = pages[0], len(pages) - 1
    subs = [_directory(tiff, sub, order)[0] for sub in first.get(_SUB_DIRECTORIES, ())]
    if any(_DNG_VERSION in tags or _first(tags, _PHOTOMETRIC) in _SENSOR for tags in (first, *subs)):
        raise _raw()
    if _is_reduced(pages[chosen]):  # all pages are thumbnails
        if not all(map(_is_reduced, subs)):
            raise ImageError(
                "UNSUPPORTED",
                "a TIFF whose pages are thumbnails, with the full image in a SubIFD: save the full image as a page",
            )
        chosen = 0
    return _page(chosen, pages[chosen])


def opened(encoded: Encoded, page: Page) -> Image.Image:
    """Open a page as a Pillow image, without decoding its pixels.

    Raises:
        ImageError: UNSUPPORTED: Pillow does not support this kind of TIFF.
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
        raise ImageError("UNSUPPORTED", f"a kind of TIFF that Pillow does not support ({page.words})") from None
    return image


def with_palette(image: Image.Image) -> None:
    """Decode an image, and correct its palette if the entries have 8 bits, which is assumed if none exceeds 255.

    TIFF 6.0 specifies entries of 16 bits. libtiff and OpenCV also accept palettes with 8 bits.
    """
    colors = image.tag_v2.get(_COLORMAP, ())  # type: ignore[attr-defined]
    if image.mode in ("P", "PA") and max(colors, default=256) < 256:
        image.putpalette(bytes(colors), "RGB;L")


def _page(index: int, tags: Tags) -> Page:
    photometric = _first(tags, _PHOTOMETRIC) if _first(tags, _COMPRESSION, 1) != _OLD_JPEG else _YCBCR
    bits, samples = max(tags.get(_BITS, (1,))), _first(tags, _SAMPLES, 1)
    kind, planes = _first(tags, _FORMAT, 1), _first(tags, _PLANAR, 1) == 2
    own = _OWN_SAMPLES.get(photometric, 1)
    words = f"{_COLORS.get(photometric, f'photometric interpretation {photometric}')}, {samples} x {bits} bits"
    words += f", {_FORMATS.get(kind, f'sample format {kind}')}" * (kind != 1)
    words += ", planar" * (planes and samples > 1)
    if bits > 16:
        raise ImageError("UNSUPPORTED", f"{bits} bits per sample; at most 16 are supported")
    if kind == 2 and (bits, samples) != (16, 1):
        raise ImageError("UNSUPPORTED", f"a TIFF with signed samples ({words}): save it with unsigned samples")
    is_subsampled = photometric == _YCBCR and tags.get(_SUBSAMPLING, (2, 2)) != (1, 1)
    alphas = sum(extra in (1, 2) for extra in tags.get(_EXTRA, ()))
    return Page(
        number=index,
        bits=bits,
        is_signed=kind == 2,
        is_inverted=photometric == _WHITE_IS_ZERO and bits > 8,
        is_planar=planes and samples > 1,
        extra=max(0, samples - own - alphas),
        needs_libtiff=_first(tags, _COMPRESSION, 1) == 1 and (planes or is_subsampled),
        words=words if _WIDTH in tags else "",
    )


def _raw() -> ImageError:
    return ImageError(
        "UNSUPPORTED",
        "a raw photo (such as NEF, DNG, CR2 or ARW): develop it with a raw converter, and send the result as JPEG, "
        "PNG or TIFF",
    )


def _is_reduced(tags: Tags) -> bool:
    return bool(_first(tags, _SUBFILE) & 1)


def _first(tags: Tags, tag: int, default: int = 0) -> int:
    return next(iter(tags.get(tag, ())), default)


def _directory(tiff: memoryview, offset: int, order: Order) -> tuple[Tags, int]:
    """Return the values of the tags in ``_READ`` in a directory, and the offset of the next directory."""
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


def _check_declared_size(tiff: memoryview, pages: Sequence[int], order: Order) -> None:
    """Reject a TIFF whose tags declare more bytes of values than the file contains.

    Values may overlap, and Pillow before 13 copies each of them, so that a file of 10 MB would take 2 GB of memory.

    Args:
        tiff: Bytes of the file.
        pages: Offsets of the directories that Pillow reads.
        order: Byte order of the file.

    Raises:
        ImageError: CORRUPT: The values, or the number of directories, exceed the limit.
    """
    declared = 0
    directories = [*pages]
    for directory in directories:  # the loop below appends to this list
        for tag, type_, count, value in entries(tiff, directory, order):
            declared += TYPE_BYTES.get(type_, 0) * count
            if tag in _DIRECTORIES and number(value, order) not in directories:
                directories.append(number(value, order))
            if len(directories) >= len(pages) + _MAX_DIRECTORIES:
                raise ImageError("CORRUPT", f"the TIFF has {_MAX_DIRECTORIES} or more directories of EXIF tags")
    if declared > len(tiff):
        raise ImageError(
            "CORRUPT",
            f"the tags of the TIFF declare {declared:,} bytes of values, but the file has {len(tiff):,} bytes",
        )
