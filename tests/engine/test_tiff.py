"""Tests that every kind of TIFF is decoded to the written pixels in 8 bits, or rejected with a message that names the
kind.
"""

import logging
import struct
import zlib
from functools import partial
from threading import Thread

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from support.compare import EQUAL, assert_close
from support.decoding import decode
from support.forged import chunk
from support.forged import png as forged

HEIGHT, WIDTH = 21, 36
ROWS, COLUMNS = np.indices((HEIGHT, WIDTH))
SHARES = np.stack(
    [COLUMNS / (WIDTH - 1), ROWS / (HEIGHT - 1), (ROWS + COLUMNS) / (HEIGHT + WIDTH - 2), COLUMNS % 7 / 6, ROWS / 40], 2
)
"""Test image of five channels with values from 0 to 1."""
WHITE_IS_0, GRAY, RGB, PALETTE, CMYK, YCBCR, SENSOR, LINEAR = 0, 1, 2, 3, 5, 6, 32803, 34892
SHORT, LONG, BYTE = 3, 4, 1


def samples(bits, channels=1):
    """Return samples (height, width, channels) that cover the whole range of ``bits`` bits."""
    return np.rint(SHARES[:, :, :channels] * ((1 << bits) - 1)).astype(np.int64)


def packed(part, bits, order, kind):
    """Return the bytes of rows of samples. Each row is padded to a whole byte."""
    if bits == 12:
        digits = part[..., None] >> np.arange(11, -1, -1) & 1
        return np.packbits(digits.reshape(len(part), -1).astype(np.uint8), axis=1).tobytes()
    return part.astype(f"{order}{kind}{bits // 8}").tobytes()


def directory(tags, order, at, following):
    """Return the bytes of a TIFF directory at this offset, followed by its long values. ``tags`` is {tag: (type,
    numbers)}.
    """
    entries, more, end = b"", b"", at + 6 + 12 * len(tags)
    for tag, (type_, numbers) in sorted(tags.items()):
        value = struct.pack(f"{order}{len(numbers)}{'?B?HI'[type_]}", *numbers)
        if len(value) > 4:
            value, more = struct.pack(f"{order}I", end + len(more)), more + value
        entries += struct.pack(f"{order}HHI", tag, type_, len(numbers)) + value.ljust(4, b"\0")
    return struct.pack(f"{order}H", len(tags)) + entries + struct.pack(f"{order}I", following) + more


def page(image, photometric, bits, *, order="<", planar=False, deflated=False, kind="u", at=8, following=0, tags=None):
    """Return a page for samples (height, width, channels): the directory at this offset, and strips of 8 rows."""
    count = image.shape[2]
    parts = [image[:, :, [n]] for n in range(count)] if planar else [image]
    strips = [packed(part[top : top + 8], bits, order, kind) for part in parts for top in range(0, len(image), 8)]
    strips = [*map(zlib.compress, strips)] if deflated else strips
    found = {
        256: (SHORT, [image.shape[1]]), 257: (SHORT, [len(image)]), 258: (SHORT, [bits] * count),
        277: (SHORT, [count]), 259: (SHORT, [8 if deflated else 1]), 262: (SHORT, [photometric]), 278: (SHORT, [8]),
        284: (SHORT, [1 + planar]), 273: (LONG, [0] * len(strips)), 279: (LONG, [*map(len, strips)]),
    } | (tags or {})  # fmt: skip
    begin = at + len(directory(found, order, at, following))
    found[273] = LONG, [begin + sum(map(len, strips[:n])) for n in range(len(strips))]
    return directory(found, order, at, following) + b"".join(strips)


def tiff(*image, order="<", **options):
    """Return a TIFF file that contains one ``page``."""
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8) + page(*image, order=order, **options)


def three(gray):
    return np.repeat(gray, 3, axis=2)


def of_ycbcr(image):
    """Return RGB by the equations of JPEG (JFIF 1.02), which apply to TIFFs without coefficients of their own."""
    y, blue, red = np.moveaxis(image.astype(float), 2, 0) - np.array([0, 128, 128])[:, None, None]
    return np.stack([y + 1.402 * red, y - 0.344136 * blue - 0.714136 * red, y + 1.772 * blue], axis=2).clip(0, 255)


ALPHA, PREMULTIPLIED, UNKNOWN = ({338: (SHORT, [n])} for n in (2, 1, 0))
PALETTE_16 = np.stack([np.arange(256), 255 - np.arange(256), np.arange(256) * 7 % 256])
G8, G12, G16, RGB8, RGB16 = samples(8), samples(12), samples(16), samples(8, 3), samples(16, 3)
HALVED = RGB8 // 2
KINDS = {
    "gray": ((G8, GRAY, 8), {}, three(G8)),
    "gray, white is 0": ((255 - G8, WHITE_IS_0, 8), {}, three(G8)),
    "gray, 12 bits": ((G12, GRAY, 12), {}, three(G12 >> 4)),
    "gray, 16 bits": ((G16, GRAY, 16), {}, three(G16 >> 8)),
    "gray, 16 bits, white is 0": ((65535 - G16, WHITE_IS_0, 16), {}, three(G16 >> 8)),
    "gray, alpha": ((samples(8, 2), GRAY, 8), {"tags": ALPHA}, three(G8)),
    "RGB": ((RGB8, RGB, 8), {}, RGB8),
    "RGB, 16 bits": ((RGB16, RGB, 16), {}, RGB16 >> 8),
    "RGB, alpha": ((samples(8, 4), RGB, 8), {"tags": ALPHA}, RGB8),
    "RGB, 16 bits, alpha": ((samples(16, 4), RGB, 16), {"tags": ALPHA}, RGB16 >> 8),
    "RGB, multiplied by an alpha of 255": (
        (np.dstack([RGB8, np.full_like(G8, 255)]), RGB, 8), {"tags": PREMULTIPLIED}, RGB8,
    ),
    "RGB and a fourth band": ((samples(8, 4), RGB, 8), {"tags": UNKNOWN}, RGB8),
    "RGB and a fourth band, 16 bits": ((samples(16, 4), RGB, 16), {"tags": UNKNOWN}, RGB16 >> 8),
    "palette": (
        (G8, PALETTE, 8), {"tags": {320: (SHORT, (PALETTE_16 * 257).ravel().tolist())}}, PALETTE_16.T[G8[:, :, 0]],
    ),
    "palette with entries of 0 to 255": (
        (G8, PALETTE, 8), {"tags": {320: (SHORT, PALETTE_16.ravel().tolist())}}, PALETTE_16.T[G8[:, :, 0]],
    ),
    "CMYK": (
        (samples(8, 4), CMYK, 8), {}, np.rint((255 - RGB8) * (255 - samples(8, 4)[:, :, 3:]) / 255),
    ),
    "YCbCr": ((HALVED + 60, YCBCR, 8), {"tags": {530: (SHORT, [1, 1])}}, of_ycbcr(HALVED + 60)),
}  # fmt: skip
"""Arguments of ``tiff`` and the expected RGB pixels, by the name of the kind."""
BIG_ENDIAN_NOT_READ = ("gray, 12 bits", "gray, 16 bits, white is 0")
"""Kinds that Pillow can read only in little-endian byte order."""


@pytest.mark.parametrize("deflated", [False, True], ids=["uncompressed", "deflated"])
@pytest.mark.parametrize("planar", [False, True], ids=["pixels", "planes"])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", KINDS)
def test_the_written_array_is_decoded_in_8_bits(name, order, planar, deflated):
    image, options, expected = KINDS[name]
    pixels = decode(tiff(*image, order=order, planar=planar, deflated=deflated, **options))
    if order == ">" and name in BIG_ENDIAN_NOT_READ:
        assert str(pixels).startswith("[UNSUPPORTED] a kind of TIFF that Pillow does not support (gray, ")
    else:
        assert np.abs(pixels - expected).max() <= (name == "YCbCr")


def subsampled(*, order, tags, at=None):
    """Return an uncompressed YCbCr TIFF with 2 x 2 chroma subsampling, or its page at an offset. Also return its RGB
    pixels.
    """
    luma, chroma = samples(8)[:20, :, 0], (100 + samples(8, 3)[:10, :18, 1:] // 5)
    blocks = luma.reshape(10, 2, 18, 2).transpose(0, 2, 1, 3).reshape(10, 18, 4)
    units = np.dstack([blocks, chroma]).reshape(10, -1, 1)
    encoded = (tiff if at is None else partial(page, at=at))(units, YCBCR, 8, order=order, tags={
        256: (SHORT, [36]), 257: (SHORT, [20]), 258: (SHORT, [8] * 3), 277: (SHORT, [3]), 278: (SHORT, [16])
    } | tags)  # fmt: skip
    return encoded, of_ycbcr(np.dstack([luma, np.kron(chroma, np.ones((2, 2, 1)))]))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("tags", [{530: (SHORT, [2, 2])}, {}], ids=["named", "default"])
def test_subsampled_chroma_is_repeated(order, tags):
    encoded, expected = subsampled(order=order, tags=tags)
    assert np.abs(decode(encoded) - expected).max() <= 1


REFUSED = {
    "a TIFF with signed samples (gray, 1 x 8 bits, signed)": ((G8 - 128, GRAY, 8), {"kind": "i"}, 2),
    "a TIFF with signed samples (RGB, 3 x 16 bits, signed)": ((RGB16 // 2, RGB, 16), {"kind": "i"}, 2),
    'an image with signed 16-bit samples: set "window" in decode': ((G16 - 32768, GRAY, 16), {"kind": "i"}, 2),
    "32 bits per sample; at most 16 are supported": ((G8 / 255, GRAY, 32), {"kind": "f"}, 3),
    "64 bits per sample; at most 16 are supported": ((RGB8 / 255, RGB, 64), {"kind": "f"}, 3),
    "a kind of TIFF that Pillow does not support (gray, 1 x 16 bits, floating": (
        (G8 / 255, GRAY, 16),
        {"kind": "f"},
        3,
    ),
    "a kind of TIFF that Pillow does not support (gray, 4 x 8 bits)": ((samples(8, 4), GRAY, 8), {}, 1),
    "a kind of TIFF that Pillow does not support (photometric interpretation 32844, 1": ((G16, 32844, 16), {}, 1),
    "a raw photo (such as NEF, DNG, CR2 or ARW)": ((G16, SENSOR, 16), {}, 1),
}
"""Maps the beginning of the error message to the arguments of ``tiff`` and the sample format."""


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.parametrize("order", "<>")
def test_samples_that_do_not_fit_into_8_bits_are_rejected_by_name(words, order):
    image, options, kind = REFUSED[words]
    error = decode(tiff(*image, order=order, tags={339: (SHORT, [kind] * image[0].shape[2])}, **options))
    assert str(error).startswith(f"[UNSUPPORTED] {words}")


# pages

THUMBNAIL = RGB8[::4, ::4]
REDUCED, WHOLE = {254: (LONG, [1])}, {254: (LONG, [0])}


def pages(*made, order="<"):
    """Return a file of consecutive pages. Each argument is a function that makes a page from its offset and the next
    page's offset.
    """
    encoded = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    for index, make in enumerate(made):
        end = len(encoded) + len(make(len(encoded), 0))
        encoded += make(len(encoded), end if index + 1 < len(made) else 0)
    return encoded


def paged(image, photometric=RGB, bits=8, *, order="<", tags=None, sub=None, planar=False):
    """Return a function that makes a page. ``sub`` contains the arguments for the page's SubIFD."""

    def make(at, following):
        if sub is None:
            return page(image, photometric, bits, order=order, planar=planar, at=at, following=following, tags=tags)
        length = len(page(image, photometric, bits, order=order, at=at, tags=tags | {330: (LONG, [0])}))
        mine = page(
            image, photometric, bits, order=order, at=at, following=following, tags=tags | {330: (LONG, [at + length])}
        )
        return mine + paged(*sub, order=order)(at + length, 0)

    return make


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("before", [1, 2, 70])
def test_the_first_page_that_is_not_a_thumbnail_is_decoded(before, order):
    thumbnails = [paged(THUMBNAIL, order=order, tags=REDUCED)] * before
    others = [paged(RGB8, order=order, tags=WHOLE), paged(255 - RGB8, order=order)]
    assert_close(decode(pages(*thumbnails, *others, order=order)), RGB8.astype(np.uint8), EQUAL)


@pytest.mark.parametrize("order", "<>")
def test_a_page_decoded_by_libtiff_is_equal_after_a_thumbnail(order):
    planes = {"order": order, "planar": True}
    encoded = pages(paged(THUMBNAIL, order=order, tags=REDUCED), paged(RGB16, RGB, 16, **planes), order=order)
    assert_close(decode(encoded), (RGB16 >> 8).astype(np.uint8), EQUAL)
    alone, expected = subsampled(order=order, tags={})
    behind = pages(
        paged(THUMBNAIL, order=order, tags=REDUCED),
        lambda at, _: subsampled(order=order, tags={}, at=at)[0],
        order=order,
    )
    assert np.abs(decode(behind) - expected).max() <= 1
    assert_close(decode(behind), decode(alone), EQUAL)


def test_a_tiff_opened_while_another_is_opened_is_decoded_correctly(monkeypatch):
    """Pillow has one setting for all threads that selects its own reader or libtiff."""
    encoded = tiff(RGB8, YCBCR, 8, tags={530: (SHORT, [1, 1])})
    expected = decode(encoded)
    open_, found, threads = Image.open, [], []

    def slow(*args, **options):
        if not threads:
            threads.append(Thread(target=lambda: found.append(decode(encoded))))
            threads[0].start()
            threads[0].join(0.5)  # the thread waits for the lock, or has finished
        return open_(*args, **options)

    monkeypatch.setattr(Image, "open", slow)
    decode(tiff(RGB16, RGB, 16, planar=True))
    threads[0].join()
    assert_close(found[0], expected, EQUAL)


def test_a_thumbnail_without_its_image_and_the_first_of_many_pages_are_decoded():
    for made in ([paged(RGB8, tags=REDUCED)], [paged(RGB8, tags=REDUCED), paged(THUMBNAIL, tags=REDUCED)]):
        assert_close(decode(pages(*made)), RGB8.astype(np.uint8), EQUAL)
    overview = paged(RGB8, tags=WHOLE, sub=(THUMBNAIL,))
    assert_close(decode(pages(overview, paged(THUMBNAIL))), RGB8.astype(np.uint8), EQUAL)


RAW = {
    "NEF: its SubIFD has the sensor's values": pages(paged(THUMBNAIL, tags=REDUCED, sub=(G16, SENSOR, 16))),
    "linear DNG in a SubIFD": pages(paged(THUMBNAIL, tags=REDUCED, sub=(RGB16, LINEAR, 16))),
    "DNG by its version": pages(paged(RGB8, tags={50706: (BYTE, [1, 4, 0, 0])})),
    "CR2": tiff(RGB8, RGB, 8)[:4] + struct.pack("<I4s", 16, b"CR\2\0") + bytes(4) + page(RGB8, RGB, 8, at=16),
    "IIQ": tiff(RGB8, RGB, 8)[:4] + struct.pack("<I4s", 16, b"IIII") + bytes(4) + page(RGB8, RGB, 8, at=16),
}


@pytest.mark.parametrize("name", RAW)
def test_a_raw_photo_is_rejected_instead_of_decoding_its_thumbnail(name):
    assert str(decode(RAW[name])).startswith("[UNSUPPORTED] a raw photo (such as NEF, DNG, CR2 or ARW)")


def test_a_thumbnail_whose_image_is_not_a_page_is_rejected():
    error = decode(pages(paged(THUMBNAIL, tags=REDUCED, sub=(RGB8,))))
    assert str(error).startswith("[UNSUPPORTED] a TIFF whose pages are thumbnails, with the full image in a SubIFD")


def test_cyclic_and_overlapping_pages_are_rejected_or_decoded_once():
    circle = pages(lambda at, _: page(RGB8, RGB, 8, at=at, following=8, tags=REDUCED))
    assert_close(decode(circle), RGB8.astype(np.uint8), EQUAL)
    overlapping = b"II*\0\x08\0\0\0" + bytes(40) + struct.pack("<H", 0xFFFF) * 100_000
    assert isinstance(decode(overlapping), pp.ImageError)


# more than 8 bits


def png(image, color):
    """Return a PNG of 16 bits per sample."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in image)
    return forged(*image.shape[:2], chunk(b"IDAT", zlib.compress(rows)), depth=16, color=color)


def by_definition(image, low, high):
    """Return the 8-bit values by the formula in the docstring of ``decode``."""
    return np.floor((np.clip(image, low, high) - low) * 255 / (high - low) + 0.5).astype(np.uint8)


DEEP = {
    "PNG, gray": (png(G16, 0), G16),
    "PNG, gray and alpha": (png(samples(16, 2), 4), G16),
    "PNG, RGB": (png(RGB16, 2), RGB16),
    "PNG, RGBA": (png(samples(16, 4), 6), RGB16),
    "TIFF, 12 bits": (tiff(G12, GRAY, 12), G12),
    "TIFF, white is 0": (tiff(65535 - G16, WHITE_IS_0, 16), G16),
    "TIFF, gray in planes": (tiff(G16, GRAY, 16, planar=True), G16),
    "TIFF, signed": (tiff(G16 - 32768, GRAY, 16, kind="i", tags={339: (SHORT, [2])}), G16 - 32768),
    "TIFF, signed, big-endian": (
        tiff(G16 - 32768, GRAY, 16, kind="i", tags={339: (SHORT, [2])}, order=">"), G16 - 32768,
    ),
    **{
        f"TIFF, {bands} bands, {order}, {deflated}": (
            tiff(samples(16, bands), RGB, 16, order=order, deflated=deflated, tags=tags), RGB16,
        )
        for bands, tags in ((3, {}), (4, ALPHA), (4, UNKNOWN))
        for order in "<>"
        for deflated in (False, True)
    },
}  # fmt: skip
WINDOWS = [(0, 65535), (0, 4095), (1000, 1001), (20_000, 20_510), (-1024, 3071), (-32768, 65535), (300, 40_001)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", DEEP)
def test_a_value_window_is_mapped_by_its_definition(name, window):
    encoded, image = DEEP[name]
    expected = by_definition(image, *window)
    assert_close(decode(encoded, window=window), np.broadcast_to(expected, RGB8.shape), EQUAL)
    gray = decode(encoded, window=window, is_gray=True)
    weighted = expected.astype(np.int64) @ [19595, 38470, 7471] + 0x8000 >> 16 if expected.shape[2] == 3 else expected
    assert_close(gray, weighted.reshape(HEIGHT, WIDTH, 1).astype(np.uint8), EQUAL)


def test_a_value_window_ignores_8_bit_images_and_needs_stored_samples():
    assert_close(decode(tiff(RGB8, RGB, 8), window=(0, 9)), RGB8.astype(np.uint8), EQUAL)
    for encoded in (
        tiff(RGB16, RGB, 16, planar=True, deflated=True),
        tiff(samples(16, 4), RGB, 16, tags=PREMULTIPLIED),
        tiff(samples(16, 4), CMYK, 16),
    ):
        assert str(decode(encoded, window=(0, 4095))).startswith(
            '[UNSUPPORTED] "window" of decode requires gray or RGB'
        )


@pytest.mark.parametrize("window", [None, (100, 5000)])
@pytest.mark.parametrize(("image", "color"), [(G16, 0), (RGB16, 2)])
def test_the_transparent_colour_of_16_bits_becomes_white(image, color, window):
    """The decoder must compare both bytes of each sample: neighbours with the same high byte are not transparent."""
    image = image.copy()
    image[3:6, 4:9], image[3:6, 9:12] = 0x1234, 0x1235
    transparent = chunk(b"tRNS", struct.pack(">H", 0x1234) * image.shape[2])
    encoded = png(image, color)
    head = encoded.index(b"IDAT") - 4
    encoded = encoded[:head] + transparent + encoded[head:]
    levels = by_definition(image, *window) if window else image >> 8
    expected = np.where((image == 0x1234).all(2, keepdims=True), 255, levels)
    assert_close(
        decode(encoded, alpha="white", window=window), np.broadcast_to(expected, RGB8.shape).astype(np.uint8), EQUAL
    )


@pytest.mark.parametrize(
    ("encoded", "words"),
    [
        (png(G12, 0), "with 16 bits per sample has only 16 of 256 pixel values"),
        (png(np.repeat(G12 + 30_000, 3, 2), 2), 'set "window" in decode, such as [29952, 34303] here'),
        (tiff(G12 // 16, GRAY, 12), "with 12 bits per sample has only 16 of 256 pixel values"),
        (tiff(samples(8, 4), RGB, 8, tags=UNKNOWN), "decode ignores 1 extra sample(s) per pixel of a TIFF (RGB, 4"),
    ],
)
def test_lost_precision_is_logged_once(encoded, words, caplog):
    pipeline = pp.Pipeline([pp.decode(), pp.resize(9), pp.center_crop(8), pp.tensor()])
    with caplog.at_level(logging.WARNING), pp.Engine(pipeline, device="cpu", threads=1) as engine:
        engine.run([encoded, encoded, png(G16, 0), tiff(samples(8, 4), RGB, 8, tags=ALPHA)])
    (record,) = caplog.records
    assert words in record.getMessage()


def test_nothing_is_logged_for_a_value_window_or_a_full_range(caplog):
    with caplog.at_level(logging.WARNING):
        decode(png(G12, 0), window=(0, 4095))
        decode(png(RGB16, 2))
        decode(tiff(G16, GRAY, 16))
    assert not caplog.records
