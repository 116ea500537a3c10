"""Text in place of an image's bytes: what clients send that speak JSON, base64 or HTML forms, or take images for text.

A model may take base64 (parameter ``accept_base64``). Everything else is refused, in words that name the right request.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence

from pixprep.engine.decoders import Encoded

_REQUEST = "send the file's bytes as they are: curl --data-binary @photo.jpg -H 'Inference-Header-Content-Length: 0'"
_ACCEPT = "the model's parameter accept_base64"
_HEAD = 1024  # bytes that are looked at
_JSON = re.compile(rb"""\s*(?:\{\s*["}]|\[\s*[\[{"\d\]-])""")
_DATA_URL = re.compile(rb"\s*data:[ -+\--~]{0,200},", re.IGNORECASE)
_FORM = re.compile(rb"--[ -~]+\r?\n(?:[ -~]+\r?\n)*?content-disposition:", re.IGNORECASE)
_URL = re.compile(rb"\s*(?:https?|ftp|file|s3|gs|hdfs)://[!-~]+\s*", re.IGNORECASE)
_PATH = re.compile(
    rb"\s*(?:[A-Za-z]:)?[^\0-\x1f<>|\"]{0,500}\.(?:jpe?g|jfif|png|webp|bmp|tiff?|gif|avif|hei[cf])\s*", re.IGNORECASE
)
_WITHOUT_ENDS = re.compile(rb"(?:\xff\xd8\xff[\xe0\xe1]|\x89PNG)[^\0\n\r]{1000}")  # no whole file begins so
_QUOTED = re.compile(rb"\s*(b?)[\"'](?=[^\"']{32})")
_ESCAPED = re.compile(rb"\s*(b?)[\"'](?:\\xff\\xd8\\xff|\\x89PNG)")
_HEX = re.compile(rb"\s*(?:0x|\\x)?(?:ffd8ff|89504e47|47494638|52494646|49492a00|4d4d002a)[0-9a-f]{26}", re.IGNORECASE)
_AS_LETTERS = re.compile(rb"\xc3\xbf\xc3\x98\xc3\xbf|\xc2\x89PNG")  # the first bytes of a JPEG and a PNG, in UTF-8
_AS_LOST_LETTERS = re.compile(rb"(?:\xef\xbf\xbd){3}|\xef\xbf\xbdPNG")  # U+FFFD, in place of what is no UTF-8
_BASE64 = re.compile(rb"[ \t\r\n]*(?:[A-Za-z0-9+/_-][ \t\r\n]*){32}")
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLANKS = b" \t\r\n"
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def described(encoded: memoryview) -> str | None:
    """Return the kind of text that was sent instead of an image, and a hint; None for any other data."""
    if _DATA_URL.match(encoded, 0, _HEAD):
        return f"the text of a data: URL; {_REQUEST}; or set {_ACCEPT}"
    if _JSON.match(encoded, 0, _HEAD):
        return f"JSON text; {_REQUEST}; Triton's own JSON goes without that header"
    if len(encoded) <= _HEAD and _URL.fullmatch(encoded):
        return f"the text of a URL, which no server fetches; {_REQUEST}"
    if len(encoded) <= _HEAD and _PATH.fullmatch(encoded):
        return f"the name of a file in place of its bytes; {_REQUEST}"
    if _FORM.match(encoded, 0, _HEAD):
        return f"a multipart form, as curl -F sends it; {_REQUEST}"
    if _HEX.match(encoded, 0, _HEAD):
        return f"hexadecimal text; {_REQUEST}"
    found = _QUOTED.match(encoded, 0, _HEAD)
    if found and from_base64(bytes(encoded[found.end() :]).rstrip(b"\"'" + _BLANKS)):
        what = "the text b'...' that Python's str() makes of base64 bytes" if found[1] else "base64 text in quotes"
        return f"{what}; {_REQUEST}; or send the base64 text without them, and set {_ACCEPT}"
    if _ESCAPED.match(encoded, 0, _HEAD):
        return f"the text that Python's str() or repr() makes of an image's bytes; {_REQUEST}"
    if _AS_LETTERS.match(encoded):
        return f"an image as text: each byte was taken for a letter (latin-1) and written in UTF-8; {_REQUEST}"
    if _AS_LOST_LETTERS.match(encoded):
        return f"an image that was read as text, so that bytes were lost; {_REQUEST}"
    if _BASE64.match(encoded, 0, _HEAD):
        if from_base64(encoded) is None:
            return f"broken base64 text: its end or some character of it is wrong; {_REQUEST}"
        return f"base64 text; {_REQUEST}; or set {_ACCEPT}"
    if _WITHOUT_ENDS.match(encoded):
        return f"an image without its bytes 0, 10 and 13, as curl -d sends it; {_REQUEST}"
    return None


def without_base64(images: Sequence[Encoded], *, image_bytes: int, request_bytes: int) -> list[Encoded]:
    """Return the images of a request, with base64 text decoded.

    Base64 of more bytes than the limits allow stays text, which is longer still: the limits refuse it.
    """
    if sum(map(len, images)) > _longest(request_bytes):
        return list(images)
    return [(from_base64(image) if len(image) <= _longest(image_bytes) else None) or image for image in images]


def _longest(n_bytes: int) -> int:
    """Text that is longer stands for more bytes: it has 4 characters for 3 bytes, and a line break for 19 of these."""
    return n_bytes * 3 // 2


def from_base64(encoded: Encoded) -> bytes | None:
    """Decode base64 text (RFC 4648); return None for any other data, such as images.

    The standard and the URL-safe alphabet, with line breaks or without, padded or not; also in a data: URL.
    """
    if head := _DATA_URL.match(encoded, 0, _HEAD):
        if not head[0].lower().endswith(b";base64,"):
            return None
        encoded = memoryview(encoded)[head.end() :]
    if not _BASE64.match(encoded, 0, _HEAD):
        return None
    text = bytes(encoded).translate(_FROM_URL_SAFE, _BLANKS)
    digits = text.rstrip(b"=")
    missing = -len(digits) % 4
    if missing == 3 or len(text) - len(digits) not in (0, missing) or digits.translate(None, _ALPHABET):
        return None
    return binascii.a2b_base64(digits + b"=" * missing)
