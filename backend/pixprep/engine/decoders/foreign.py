"""Recognize file types that pixprep does not support by their first bytes, with a hint for the sender."""

from __future__ import annotations

import re

_CONVERT = "convert it to JPEG or PNG first"
_UNPACK = "unpack it, and send the images that it contains"
_FRAME = "send one of its frames as JPEG or PNG"
_MIN_TEXT = 32  # minimum bytes of a file that counts as text, because a few letters may occur by chance
_HEAD = 512
_FIRST = (
    (b"\xff\x0a", "a JPEG XL file", _CONVERT),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL file", _CONVERT),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 file", _CONVERT),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 file", _CONVERT),
    (b"II\xbc\x01", "a JPEG XR file", _CONVERT),
    (b"II+\0", "a BigTIFF file", _CONVERT),
    (b"MM\0+", "a BigTIFF file", _CONVERT),
    (b"8BPS", "a Photoshop file", _CONVERT),
    (b"\0\0\1\0", "an icon file (ICO)", _CONVERT),
    (b"qoif", "a QOI file", _CONVERT),
    (b"v/1\1", "an OpenEXR file", _CONVERT),
    (b"#?RADIANCE", "a Radiance HDR file", _CONVERT),
    (b"FUJIFILMCCD-RAW", "a raw photo of a camera", _CONVERT),
    (b"%PDF-", "a PDF file", "render its pages to JPEG or PNG first"),
    (b"%!PS", "a PostScript file", "render its pages to JPEG or PNG first"),
    (b"PK\3\4", "a ZIP file", _UNPACK),
    (b"\x1f\x8b", "a gzip file", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip file", _UNPACK),
    (b"Rar!", "a RAR file", _UNPACK),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM video", _FRAME),
    (b"\x93NUMPY", "a NumPy file", "send an encoded image instead of its pixels"),
    (b"version https://git-lfs", "a Git LFS pointer instead of the image", 'fetch the image with "git lfs pull"'),
)
_NETPBM = re.compile(rb"P[1-7]\s")
_SVG = re.compile(rb"(?:<\?xml|<!--|<!DOCTYPE svg|<svg)[^\0]{0,400}?<svg[\s>]|<svg[\s>]", re.IGNORECASE)
_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def described(encoded: bytes | memoryview) -> tuple[str, str] | None:
    """Return the name of the file's type and a hint; None if its first bytes are not recognized.

    >>> described(b"%PDF-1.7")
    ('a PDF file', 'render its pages to JPEG or PNG first')
    """
    head = bytes(encoded[:_HEAD])
    for first, name, hint in _FIRST:
        if head.startswith(first):
            return name, hint
    if head[4:8] == b"ftyp":  # a file type box (ISO/IEC 14496-12), followed by the brand
        if head[8:11] == b"crx":
            return "a raw photo of a camera", _CONVERT
        return "a video (MP4 or QuickTime), or an unsupported variant of HEIC", _CONVERT
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "an AVI video", _FRAME
    if head[128:132] == b"DICM":
        return "a DICOM file", _CONVERT
    if _NETPBM.match(head):
        return "a PPM, PGM or PBM file", _CONVERT
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _SVG.match(text):
        return "an SVG drawing", "render it to PNG first"
    if _HTML.match(text):
        return "an HTML page", "check the download: it may be an error page instead of the image"
    if not head.strip(b"\0"):
        return "a file of zeros", "check how the file was written"
    if len(encoded) >= _MIN_TEXT and _is_text(head):
        return "text", "send the bytes of the image file"
    return None


def _is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file are UTF-8 text; the last character may be cut off."""
    if _BINARY.search(head):
        return False
    try:
        head[: -3 if len(head) == _HEAD else None].decode()
    except UnicodeDecodeError as error:
        return len(head) == _HEAD and error.start > len(head) - 7
    return True
