"""Tests the errors for files that are not accepted as images: they name the file type and a fix for the sender."""

import gzip
import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from pixprep.engine.decoders import USUAL, Limits
from pixprep.engine.decoders.header import sniff
from support.decoding import decode
from support.images import NO_IMAGE, noise, save

READ = "the accepted formats are JPEG, PNG, WebP, BMP, TIFF and GIF"
CONVERT = "convert it to JPEG or PNG first"
RENDER = "render its pages to JPEG or PNG first"
UNPACK = "unpack it, and send the images that it contains"
FRAME = "send one of its frames as JPEG or PNG"
FILM = "a video (MP4 or QuickTime), or an unsupported variant of HEIC"
PAGE = "check the download: it may be an error page instead of the image"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("photo.jpg", b"x")
    return file.getvalue()


def npy():
    file = io.BytesIO()
    np.save(file, noise(3, 4))
    return file.getvalue()


def ftyp(brand):
    return b"\0\0\0\x18ftyp" + brand + b"\0\0\2\0isomiso2" + bytes(99)


IMAGE = Image.fromarray(noise(9, 7))
PHOTO = save(IMAGE, "PNG")
FILES = {
    "JPEG XL codestream": (b"\xff\x0a" + bytes(99), "a JPEG XL file", CONVERT),
    "JPEG XL": (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(99), "a JPEG XL file", CONVERT),
    "JPEG 2000": (save(IMAGE, "JPEG2000"), "a JPEG 2000 file", CONVERT),
    "JPEG 2000 codestream": (save(IMAGE, "JPEG2000", no_jp2=True), "a JPEG 2000 file", CONVERT),
    "BigTIFF": (save(IMAGE, "TIFF", big_tiff=True), "a BigTIFF file", CONVERT),
    "ICO": (save(IMAGE, "ICO"), "an icon file (ICO)", CONVERT),
    "PPM": (save(IMAGE, "PPM"), "a PPM, PGM or PBM file", CONVERT),
    "Photoshop": (b"8BPS\0\1" + bytes(99), "a Photoshop file", CONVERT),
    "DICOM": (bytes(128) + b"DICM" + bytes(99), "a DICOM file", CONVERT),
    "raw": (ftyp(b"crx "), "a raw photo of a camera", CONVERT),
    "PDF": (save(IMAGE, "PDF"), "a PDF file", RENDER),
    "EPS": (save(IMAGE, "EPS"), "a PostScript file", RENDER),
    "SVG": (SVG, "an SVG drawing", "render it to PNG first"),
    "SVG after a comment": (
        b"\xef\xbb\xbf\n<?xml version='1.0'?>\n<!-- made\nby hand -->\n" + SVG,
        "an SVG drawing",
        "render it to PNG first",
    ),
    "HTML": (b"\n<!DOCTYPE html><html><head><title>404</title>", "an HTML page", PAGE),
    "MP4": (ftyp(b"isom"), FILM, CONVERT),
    "QuickTime": (ftyp(b"qt  "), FILM, CONVERT),
    "WebM": (b"\x1aE\xdf\xa3" + bytes(99), "a Matroska or WebM video", FRAME),
    "AVI": (b"RIFF\0\0\0\0AVI LIST" + bytes(99), "an AVI video", FRAME),
    "ZIP": (zipped(), "a ZIP file", UNPACK),
    "gzip": (gzip.compress(b"x"), "a gzip file", UNPACK),
    "NumPy": (npy(), "a NumPy file", "send an encoded image instead of its pixels"),
    "Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "a Git LFS pointer instead of the image",
        'fetch the image with "git lfs pull"',
    ),
    "text": ("Sehr geehrte Damen und Herren, könnten Sie ".encode() * 99, "text", "send the bytes of the image file"),
    "zeros": (bytes(4096), "a file of zeros", "check how the file was written"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_error_names_the_format_and_the_fix(name):
    encoded, what, remedy = FILES[name]
    assert str(decode(encoded)) == f"[UNKNOWN_FORMAT] {what}; {READ}: {remedy}"


@pytest.mark.parametrize(
    ("before", "what"),
    [
        (b"\r\n", "a line break"),
        (len(PHOTO).to_bytes(4, "little"), "its length in 4 bytes"),
        (len(PHOTO).to_bytes(4, "big"), "its length in 4 bytes"),
        (len(PHOTO).to_bytes(8, "little"), "its length in 8 bytes"),
        (b"\xef\xbb\xbf", "3 other bytes"),
        (b"x", "1 other byte"),
        (b"\0\0\1\0", "4 other bytes"),
    ],
)
def test_the_error_quotes_bytes_before_an_image(before, what):
    words = f"[UNKNOWN_FORMAT] a PNG preceded by {what}: send only the bytes of the file"
    assert str(decode(before + PHOTO)) == words


@pytest.mark.parametrize("encoded", [b"x", b"not an image", noise(16, 16).tobytes(), "schön".encode("latin-1") * 9])
def test_the_error_for_unknown_data_lists_the_supported_formats(encoded):
    assert str(decode(encoded)) == f"[UNKNOWN_FORMAT] {NO_IMAGE}"


def test_the_error_lists_the_enabled_formats():
    assert str(decode(b"x", limits=Limits(formats=("png",)))) == "[UNKNOWN_FORMAT] not a PNG file"
    assert str(decode(b"%PDF-1.7", limits=Limits(formats=("jpeg", "png")))) == (
        f"[UNKNOWN_FORMAT] a PDF file; the accepted formats are JPEG and PNG: {RENDER}"
    )


def test_text_with_a_truncated_last_character_is_recognized():
    for shift in range(4):
        text = b"x" * shift + "äöü€".encode() * 200
        assert "text; " in str(decode(text))


@pytest.mark.parametrize(
    ("brands", "name"),
    [
        (b"avif\0\0\0\0mif1", "avif"),
        (b"avis\0\0\0\0msf1", "avif"),
        (b"mif1\0\0\0\0avifmiaf", "avif"),
        (b"heic\0\0\0\0mif1", "heic"),
        (b"heix\0\0\0\0mif1", "heic"),
        (b"mif1\0\0\0\0mif1heic", "heic"),
        (b"mif1\0\0\0\0mif1", None),
        (b"isom\0\0\0\0mp41", None),
        (b"xavi\0\0\0\0fheic", None),  # a brand has four bytes and starts at a multiple of four bytes
    ],
)
def test_container_brands_distinguish_avif_and_heic(brands, name):
    encoded = (8 + len(brands)).to_bytes(4, "big") + b"ftyp" + brands + b"avif" * 20
    assert sniff(encoded) == name
    if name:
        reason = str(decode(encoded))
        called = "an AVIF" if name == "avif" else "a HEIC"
        assert reason.startswith(f"[UNSUPPORTED] {called} is not accepted (parameter formats: {', '.join(USUAL)})")
