"""Tests requests that contain text instead of an image's bytes: base64 is decoded, and all other text is rejected with
a fix.
"""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixprep.engine.decoders.text import described, from_base64, without_base64
from support.images import jpeg, noise, png

PHOTO = jpeg(noise(16, 16))
LARGE = jpeg(noise(64, 64))
TEXT = base64.b64encode(PHOTO)
URL_SAFE = base64.urlsafe_b64encode(PHOTO)
REQUEST = "send the unmodified bytes of the file: curl --data-binary @photo.jpg -H 'Inference-Header-Content-Length: 0'"
WITHOUT_QUOTES = "or send the base64 text without quotes, and set the model's parameter accept_base64"
IMAGES = {"JPEG": PHOTO, "PNG": png(noise(16, 16))}
FORM = b'------------------------d74496d66958873e\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + PHOTO
TYPED_FORM = FORM.replace(b"Content-Disposition", b"content-type: image/jpeg\r\ncontent-disposition")
DESCRIPTIONS = {
    "base64": (TEXT, f"base64 text; {REQUEST}; or set the model's parameter accept_base64"),
    "broken base64": (
        TEXT[:-1] + b"!",
        f"invalid base64 text: it is truncated, or contains an invalid character; {REQUEST}",
    ),
    "data URL": (
        b"data:image/jpeg;base64," + TEXT,
        f"a data: URL instead of an image; {REQUEST}; or set the model's parameter accept_base64",
    ),
    **{
        f"JSON {number}": (
            text,
            f"JSON text instead of an image; {REQUEST}; for a JSON request of Triton, omit this header",
        )
        for number, text in enumerate(
            [
                json.dumps({"b64": TEXT.decode()}).encode(),
                json.dumps({"instances": [{"b64": TEXT.decode()}]}, indent=2).encode(),
                json.dumps({"inputs": [{"name": "image", "data": [TEXT.decode()]}]}).encode(),
                json.dumps([TEXT.decode()]).encode(),
                json.dumps(list(PHOTO)).encode(),
                b"{}",
            ]
        )
    },
    **{
        f"URL {number}": (url, f"a URL instead of an image; the server does not download it; {REQUEST}")
        for number, url in enumerate(
            [b"https://example.org/a?b=c.png", b"s3://bucket/photo.jpg\n", b"file:///photo.jpg"]
        )
    },
    **{
        f"path {number}": (path, f"a file name instead of the content of the file; {REQUEST}")
        for number, path in enumerate([b"photo.jpg", b"/data/my photos/a.PNG\n", b"C:\\photos\\a.jpeg"])
    },
    "form": (FORM, f"a multipart form, as sent by curl -F; {REQUEST}"),
    **{
        f"{name} by curl -d": (
            image.translate(None, b"\0\n\r"),
            f"an image whose bytes 0, 10 and 13 were removed, as by curl -d; {REQUEST}",
        )
        for name, image in {"JPEG": LARGE, "PNG": png(noise(64, 64))}.items()
    },
    "base64 in quotes": (b'"' + TEXT + b'"\n', f"base64 text in quotes; {REQUEST}; {WITHOUT_QUOTES}"),
    "base64 as str() of bytes": (
        str(TEXT).encode(),
        f"base64 bytes converted with Python's str(), b'...'; {REQUEST}; {WITHOUT_QUOTES}",
    ),
    **{
        f"str() of {name}": (
            str(image).encode(),
            f"the bytes of an image converted with Python's str() or repr(); {REQUEST}",
        )
        for name, image in IMAGES.items()
    },
    **{
        f"hexadecimal {number}": (text.encode(), f"hexadecimal text; {REQUEST}")
        for number, text in enumerate(
            [PHOTO.hex(), "0x" + PHOTO.hex().upper(), "\\x" + PHOTO.hex() + "\n", IMAGES["PNG"].hex()]
        )
    },
    **{
        f"{name} as latin-1": (
            image.decode("latin-1").encode(),
            f"an image that was decoded as latin-1 text and encoded as UTF-8; {REQUEST}",
        )
        for name, image in IMAGES.items()
    },
    **{
        f"{name} as UTF-8": (
            image.decode(errors="replace").encode(),
            f"an image that was decoded as UTF-8 text, which lost some of its bytes; {REQUEST}",
        )
        for name, image in IMAGES.items()
    },
    "form, lower case": (TYPED_FORM.lower(), f"a multipart form, as sent by curl -F; {REQUEST}"),
}
NOT_TEXT = {
    "an image": PHOTO,
    "a large image": LARGE,
    "no bytes": b"",
    "words": b"what a nice picture of a flower, is it not?",
    "a brace and noise": b"{" + PHOTO,
    "words in quotes": b'"what a nice picture of a flower, is it not?" he said, and nobody answered him',
    "dashes": b"-- a line\nand another\n",
    "few letters": b"/9j/4AAQSkZJRgABAQAAAQABAAD",
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_text_is_recognized_and_the_error_names_the_right_request(name):
    text, words = DESCRIPTIONS[name]
    assert described(memoryview(text)) == words


@pytest.mark.parametrize("name", NOT_TEXT)
def test_other_data_is_not_described_as_text(name):
    assert described(memoryview(NOT_TEXT[name])) is None
    assert from_base64(NOT_TEXT[name]) is None


@pytest.mark.parametrize(
    "text",
    {
        "plain": TEXT,
        "lines, as the command base64 writes them": base64.encodebytes(PHOTO),
        "lines of mail": base64.encodebytes(PHOTO).replace(b"\n", b"\r\n"),
        "url-safe": URL_SAFE,
        "no padding": TEXT.rstrip(b"="),
        "url-safe, no padding": URL_SAFE.rstrip(b"="),
        "blanks around": b" \n" + TEXT + b"\n\n",
        "a data URL": b"data:image/jpeg;base64," + TEXT,
        "a data URL with a parameter": b"Data:image/svg+xml;charset=utf-8;BASE64," + URL_SAFE,
    }.values(),
)
def test_every_common_form_of_base64_is_decoded(text):
    assert TEXT.endswith(b"=")
    assert URL_SAFE != TEXT
    assert from_base64(text) == from_base64(memoryview(text)) == from_base64(bytearray(text)) == PHOTO


@pytest.mark.parametrize(
    "text",
    {
        "a character too many": TEXT.rstrip(b"=") + b"AA",
        "too much padding": TEXT + b"=",
        "padding alone": b"=" * 64,
        "padding inside": TEXT + TEXT,
        "another character": TEXT[:100] + b"*" + TEXT[101:],
        "a NUL": TEXT + b"\0",
        "a form feed": TEXT + b"\f",
        "letters beyond ASCII": TEXT + "é".encode(),
        "percent signs of a URL": TEXT.replace(b"/", b"%2F"),
        "a data URL without base64": b"data:image/jpeg," + TEXT,
        "a data URL of nothing": b"data:image/jpeg;base64,",
        "two data URLs": b"data:image/jpeg;base64,data:image/jpeg;base64," + TEXT,
        "cut inside a group": TEXT.rstrip(b"=")[: 4 * 20 + 1],
    }.values(),
)
def test_invalid_base64_is_not_decoded(text):
    assert from_base64(text) is None
    assert without_base64([text], image_bytes=1 << 20, request_bytes=1 << 20) == [text]


def test_base64_beyond_the_size_limit_is_not_decoded():
    images = [TEXT, PHOTO, TEXT]
    n_bytes = sum(map(len, images))
    limits = {"image_bytes": len(PHOTO), "request_bytes": n_bytes}
    assert without_base64(images, **limits) == [PHOTO] * 3
    assert without_base64(images, **limits | {"image_bytes": len(TEXT) // 2}) == images
    assert without_base64(images, **limits | {"request_bytes": n_bytes // 2}) == images


@given(st.binary(min_size=24), st.sampled_from([base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes]))
def test_decoding_reverses_encoding(data, encode):
    assert from_base64(encode(data)) == data


@settings(max_examples=20)
@given(
    st.binary() | st.text("aZé€😀\0\n").map(str.encode) | st.text("ABYZabyz0189+/= \n-", min_size=32).map(str.encode)
)
def test_random_bytes_are_decoded_or_left_and_never_quoted(data):
    decoded = from_base64(data)
    assert decoded is None or len(decoded) <= len(data) * 3 // 4
    said = described(memoryview(data))
    assert said is None or said in {words for _, words in DESCRIPTIONS.values()}
