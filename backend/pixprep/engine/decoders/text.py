"""Recognize text that a client sent in place of an image, such as JSON, base64, an HTML form, or a decoded image.

A model may accept base64 (parameter ``accept_base64``). Other text is rejected with a message that describes the text
and contains the correct request.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence

from pixprep.engine.decoders import Encoded

_REQUEST = (
    "send the unmodified bytes of the file: curl --data-binary @photo.jpg -H 'Inference-Header-Content-Length: 0'"
)
_ACCEPT = "the model's parameter accept_base64"
_HEAD = 1024  # maximum number of bytes that are examined
_JSON = re.compile(rb"""\s*(?:\{\s*["}]|\[\s*[\[{"\d\]-])""")
_DATA_URL = re.compile(rb"\s*data:[ -+\--~]{0,200},", re.IGNORECASE)
_FORM = re.compile(rb"--[ -~]+\r?\n(?:[ -~]+\r?\n)*?content-disposition:", re.IGNORECASE)
_URL = re.compile(rb"\s*(?:https?|ftp|file|s3|gs|hdfs)://[!-~]+\s*", re.IGNORECASE)
_PATH = re.compile(
    rb"\s*(?:[A-Za-z]:)?[^\0-\x1f<>|\"]{0,500}\.(?:jpe?g|jfif|png|webp|bmp|tiff?|gif|avif|hei[cf])\s*", re.IGNORECASE
)
_WITHOUT_ENDS = re.compile(
    rb"(?:\xff\xd8\xff[\xe0\xe1]|\x89PNG)[^\0\n\r]{1000}"
)  # the first bytes of an intact file contain some of these
_QUOTED = re.compile(rb"\s*(b?)[\"'](?=[^\"']{32})")
_ESCAPED = re.compile(rb"\s*(b?)[\"'](?:\\xff\\xd8\\xff|\\x89PNG)")
_HEX = re.compile(rb"\s*(?:0x|\\x)?(?:ffd8ff|89504e47|47494638|52494646|49492a00|4d4d002a)[0-9a-f]{26}", re.IGNORECASE)
_AS_LATIN1 = re.compile(
    rb"\xc3\xbf\xc3\x98\xc3\xbf|\xc2\x89PNG"
)  # the first bytes of a JPEG and a PNG, decoded as latin-1 and encoded as UTF-8
_AS_UTF8 = re.compile(rb"(?:\xef\xbf\xbd){3}|\xef\xbf\xbdPNG")  # U+FFFD in place of bytes that are not valid UTF-8
_BASE64 = re.compile(rb"[ \t\r\n]*(?:[A-Za-z0-9+/_-][ \t\r\n]*){32}")
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLANKS = b" \t\r\n"
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def described(encoded: memoryview) -> str | None:
    """Return the kind of text that was sent instead of an image, and a hint; None for any other data."""
    if _DATA_URL.match(encoded, 0, _HEAD):
        return f"a data: URL instead of an image; {_REQUEST}; or set {_ACCEPT}"
    if _JSON.match(encoded, 0, _HEAD):
        return f"JSON text instead of an image; {_REQUEST}; for a JSON request of Triton, omit this header"
    if len(encoded) <= _HEAD and _URL.fullmatch(encoded):
        return f"a URL instead of an image; the server does not download it; {_REQUEST}"
    if len(encoded) <= _HEAD and _PATH.fullmatch(encoded):
        return f"a file name instead of the content of the file; {_REQUEST}"
    if _FORM.match(encoded, 0, _HEAD):
        return f"a multipart form, as sent by curl -F; {_REQUEST}"
    if _HEX.match(encoded, 0, _HEAD):
        return f"hexadecimal text; {_REQUEST}"
    found = _QUOTED.match(encoded, 0, _HEAD)
    if found and from_base64(bytes(encoded[found.end() :]).rstrip(b"\"'" + _BLANKS)):
        what = "base64 bytes converted with Python's str(), b'...'" if found[1] else "base64 text in quotes"
        return f"{what}; {_REQUEST}; or send the base64 text without quotes, and set {_ACCEPT}"
    if _ESCAPED.match(encoded, 0, _HEAD):
        return f"the bytes of an image converted with Python's str() or repr(); {_REQUEST}"
    if _AS_LATIN1.match(encoded):
        return f"an image that was decoded as latin-1 text and encoded as UTF-8; {_REQUEST}"
    if _AS_UTF8.match(encoded):
        return f"an image that was decoded as UTF-8 text, which lost some of its bytes; {_REQUEST}"
    if _BASE64.match(encoded, 0, _HEAD):
        if from_base64(encoded) is None:
            return f"invalid base64 text: it is truncated, or contains an invalid character; {_REQUEST}"
        return f"base64 text; {_REQUEST}; or set {_ACCEPT}"
    if _WITHOUT_ENDS.match(encoded):
        return f"an image whose bytes 0, 10 and 13 were removed, as by curl -d; {_REQUEST}"
    return None


def without_base64(images: Sequence[Encoded], *, image_bytes: int, request_bytes: int) -> list[Encoded]:
    """Return the images of a request, with base64 text decoded.

    Text is not decoded if the result would exceed a limit. Because the text is even longer, the limit then rejects it.
    """
    if sum(map(len, images)) > _longest(request_bytes):
        return list(images)
    return [(from_base64(image) if len(image) <= _longest(image_bytes) else None) or image for image in images]


def _longest(n_bytes: int) -> int:
    """Return an upper bound on the length of the base64 text of ``n_bytes`` bytes.

    The text has 4 characters per 3 bytes, and a line break per 76 characters.
    """
    return n_bytes * 3 // 2


def from_base64(encoded: Encoded) -> bytes | None:
    """Decode base64 text (RFC 4648); return None for any other data, such as images.

    The standard and the URL-safe alphabet, line breaks, text without padding, and data: URLs are supported.
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
