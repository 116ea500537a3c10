"""Tests that Pillow and the decoder for PNG masks return equal labels and equal errors."""

import io
import zlib

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.decoders import pillow, png
from support.forged import chunk
from support.forged import png as forged

ZLIBS = [zlib]
try:
    from zlib_ng import zlib_ng

    ZLIBS += [zlib_ng]
except ImportError:
    pass
PALETTE = chunk(b"PLTE", bytes(range(255)))


def labels(encoded):
    """Return the labels or the message of the error, and whether Pillow decoded the PNG."""
    is_pillow = []
    original = pillow.Image.open

    def opened(*arguments, **options):
        is_pillow.append(True)
        return original(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pillow.Image, "open", opened)
        try:
            return pillow.labels_of(encoded, lambda _: None), bool(is_pillow)
        except pp.ImageError as error:
            return str(error), True


def labels_of_pillow(encoded):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pillow, "samples", lambda *_: None)
        return labels(encoded)[0]


def same(ours, theirs):
    return np.array_equal(ours, theirs) and isinstance(ours, str) == isinstance(theirs, str)


def filtered(rows, filters):
    """Return the bytes of rows (rows, bytes), each encoded with its PNG filter."""
    padded = np.pad(rows.astype(np.int64), ((1, 0), (1, 0)))
    left, up, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    distances = np.abs(np.stack([up - corner, left - corner, left + up - 2 * corner]))
    nearest = np.take_along_axis(np.stack([left, up, corner]), distances.argmin(0)[None], 0)[0]
    guesses = np.stack([np.zeros_like(left), left, up, (left + up) // 2, nearest])
    values = rows - guesses[filters, np.arange(len(rows))]
    return np.concatenate([filters[:, None], values], axis=1).astype(np.uint8).tobytes()


def drawn(random, height, width, bits):
    """Return labels with isolated pixels and with uniform areas. In the latter, the decoder copies blocks of bytes."""
    image = np.full((height, width), random.integers(1 << bits))
    for _ in range(4):
        top, left = random.integers(height), random.integers(width)
        image[top : top + random.integers(1, 9), left : left + random.integers(1, 40)] = random.integers(1 << bits)
    return np.where(random.random((height, width)) < 0.02, random.integers(1 << bits, size=(height, width)), image)


@pytest.mark.parametrize("library", ZLIBS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("color", [0, 3], ids=["gray", "palette"])
def test_labels_equal_those_of_pillow_with_every_filter(monkeypatch, library, bits, color):
    monkeypatch.setattr(png, "zlib", library)
    random = np.random.default_rng(bits + color)
    for _ in range(60):
        height, width = random.integers(1, 24), random.integers(1, 90)
        image = drawn(random, height, width, bits)
        digits = (image[:, :, None] >> np.arange(bits - 1, -1, -1) & 1).reshape(height, -1).astype(np.uint8)
        data = zlib.compress(filtered(np.packbits(digits, axis=1), random.integers(5, size=height)))
        half = len(data) // 2
        parts = [PALETTE] * (color == 3) + [chunk(b"IDAT", data[:half]), chunk(b"IDAT", data[half:])]
        encoded = forged(height, width, *parts, depth=bits, color=color)
        found, is_pillow = labels(encoded)
        assert not is_pillow
        assert np.array_equal(found, image)
        assert same(found, labels_of_pillow(encoded))


def saved(image, **options):
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


SMALL = Image.fromarray(drawn(np.random.default_rng(7), 9, 21, 8).astype(np.uint8))
FILES = {"gray": saved(SMALL), "palette": saved(SMALL.quantize(5)), "1 bit": saved(SMALL.convert("1"))}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_mask_gives_the_labels_or_the_error_of_pillow(name):
    whole = FILES[name]
    assert not labels(whole)[1]
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in (1, 128)]
    assert all(same(labels(each)[0], labels_of_pillow(each)) for each in damaged)
    # the data of these files is damaged, but their checksums are right
    at = whole.index(b"IDAT")
    length = int.from_bytes(whole[at - 4 : at], "big")
    data, end = whole[at + 4 : at + 4 + length], whole[at + 8 + length :]
    for changed in [data[:-1], data[:8], data + b"more", *(data[:i] + b"\xaa" + data[i + 1 :] for i in range(length))]:
        encoded = whole[: at - 4] + chunk(b"IDAT", changed) + end
        assert same(labels(encoded)[0], labels_of_pillow(encoded))


def test_all_other_pngs_are_left_to_pillow():
    data = zlib.compress(bytes(9 * 22))
    idat = chunk(b"IDAT", data)
    made = {
        "3 bits": forged(9, 21, idat, depth=3, color=0),
        "interlaced": saved(SMALL)[:28] + b"\1" + saved(SMALL)[29:],
        "16 bits": saved(Image.fromarray(np.arange(99, dtype=np.uint16).reshape(9, 11))),
        "color": saved(Image.new("RGB", (9, 9))),
        "gray with alpha": saved(Image.new("LA", (9, 9))),
        "text": forged(9, 21, chunk(b"tEXt", b"a\0b"), idat, color=0),
        "an unknown chunk": forged(9, 21, chunk(b"prVt", b"a"), idat, color=0),
        "a chunk of another length": forged(9, 21, chunk(b"gAMA", b"a"), idat, color=0),
        "no palette": forged(9, 21, idat, color=3),
        "a late palette": forged(9, 21, idat, PALETTE, color=3),
        "a chunk between the data": forged(
            9, 21, chunk(b"IDAT", data[:9]), chunk(b"tIME", bytes(7)), chunk(b"IDAT", data[9:]), color=0
        ),
        "an unknown filter": forged(9, 21, chunk(b"IDAT", zlib.compress(b"\x05" * (9 * 22))), color=0),
        "too much data": forged(9, 21, chunk(b"IDAT", zlib.compress(bytes(1 << 20))), color=0),
        "too little data": forged(9, 21, chunk(b"IDAT", zlib.compress(bytes(99))), color=0),
        "not a PNG": b"GIF89a",
        "nothing": b"",
    }
    for name, encoded in made.items():
        found, is_pillow = labels(encoded)
        assert is_pillow, name
        assert same(found, labels_of_pillow(encoded)), name


def test_the_size_is_checked_before_the_data_is_decompressed(monkeypatch):
    def check_size(_size):
        raise pp.ImageError("BAD_RECORD", "too large")

    monkeypatch.setattr(png.zlib, "decompressobj", lambda: pytest.fail("decompressed"))
    with pytest.raises(pp.ImageError, match="too large"):
        png.samples(memoryview(FILES["gray"]), check_size)
