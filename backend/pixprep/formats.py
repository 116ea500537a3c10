"""Formats of images and clips with their names, file name suffixes and signatures, and options for decoding."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

Format = Literal["jpeg", "png", "webp", "bmp", "tiff", "gif", "avif", "heic"]
FORMATS: tuple[Format, ...] = get_args(Format)


class Kind(NamedTuple):
    """A format of images.

    Attributes:
        title: Name of the format in texts.
        begins: Pattern of the first bytes of its files.
        brands: Brands in the ``ftyp`` box, for formats based on ISO/IEC 23008-12 (HEIF). Videos have other brands.
        suffixes: File name suffixes.
        is_usual: Whether the format is accepted by default. The other formats require a video decoder.
        turns: Whether Pillow reports the orientation as EXIF data without applying it. For TIFF, Pillow applies the
            orientation itself, and for HEIC, libheif does.
    """

    title: str
    suffixes: tuple[str, ...]
    begins: re.Pattern[bytes] | None = None
    brands: frozenset[bytes] = frozenset()
    is_usual: bool = True
    turns: bool = False


KINDS: dict[Format, Kind] = {
    "jpeg": Kind(title="JPEG", begins=re.compile(rb"\xff\xd8\xff"), suffixes=(".jpg", ".jpeg")),
    "png": Kind(title="PNG", begins=re.compile(rb"\x89PNG\r\n\x1a\n"), suffixes=(".png",), turns=True),
    "webp": Kind(title="WebP", begins=re.compile(rb"(?s)RIFF....WEBP"), suffixes=(".webp",), turns=True),
    "bmp": Kind(title="BMP", begins=re.compile(rb"(?s)BM(?!..ftyp)"), suffixes=(".bmp",)),
    "tiff": Kind(title="TIFF", begins=re.compile(rb"II\*\0|MM\0\*"), suffixes=(".tif", ".tiff")),
    "gif": Kind(title="GIF", begins=re.compile(rb"GIF8[79]a"), suffixes=(".gif",)),
    "avif": Kind(title="AVIF", brands=frozenset({b"avif", b"avis"}), suffixes=(".avif",), is_usual=False, turns=True),
    "heic": Kind(title="HEIC", brands=frozenset({b"heic", b"heix"}), suffixes=(".heic",), is_usual=False),
}
USUAL: tuple[Format, ...] = tuple(name for name, kind in KINDS.items() if kind.is_usual)
CLIP_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi")
NAMES: dict[Format, str] = {name: kind.title for name, kind in KINDS.items()}
Damage = Literal["strict", "structural", "pillow", "lenient"]
Codec = Literal["consistent", "cuda", "cpu"]
DAMAGES: tuple[Damage, ...] = get_args(Damage)
CODECS: tuple[Codec, ...] = get_args(Codec)


_OTHERS = (
    (re.compile(rb"PK\x03\x04"), "a zip archive, such as weights of PyTorch"),
    (re.compile(rb"\x89HDF"), "an HDF5 file, such as weights of Keras"),
    (re.compile(rb"[fpv]trt"), "a TensorRT plan"),
    (re.compile(rb"(?i)\s*<(!doctype )?html"), "a web page"),
    (re.compile(rb"(?s)\x08[\x03-\x14][\x12:\x1a\x22\x42]"), "an ONNX file"),  # field 1 of ModelProto is the IR version
    (re.compile(rb"\s*[{\[]"), "JSON text"),
)
"""Patterns of the first bytes of files that users pass by mistake, and the descriptions of these files."""


def content_of(head: bytes) -> str:
    """Describe a file by its first bytes, such as ``a JPEG image``. Return an empty string for unknown content."""
    kinds = ((kind.begins, f"{called(name)} image") for name, kind in KINDS.items() if kind.begins)
    return next((words for pattern, words in (*kinds, *_OTHERS) if pattern.match(head)), "")


def called(name: Format) -> str:
    """Return the name of a format with its article, such as ``a JPEG`` or ``an AVIF``."""
    return f"{'an' if name == 'avif' else 'a'} {NAMES[name]}"
