"""Tests the C code that checks the structure of JPEGs by their markers: which are complete, and what headers state."""

import ctypes
import mmap
import re
import time

import numpy as np
import pytest

from pixprep.engine.decoders.header import read_jpeg_header, read_whole_header
from pixprep.engine.decoders.structure import has_many_scans, structures
from support.decoding import decode
from support.forged import frame, parts, segment
from support.images import JUNK, bare, jpeg, jpegs, noise, renamed, scene, with_exif

END = b"\xff\xd9"
RESTARTS = jpeg(scene(48, 64), restart_marker_rows=1)
MAX_SEGMENTS = 4096


def is_complete(encoded):
    """Return whether the JPEG is complete. If so, the segment parser must return the same header."""
    (found,) = structures([np.frombuffer(encoded, np.uint8)])
    if found is None:
        return False
    header = read_whole_header(memoryview(encoded), found)
    if header is None:
        return False
    assert header == read_jpeg_header(encoded, max_scans=found.scans)
    return True


@pytest.mark.parametrize("name", jpegs())
def test_a_complete_jpeg_of_any_kind_is_complete(name):
    assert is_complete(jpegs()[name])


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_exif_orientation_equals_that_of_the_segment_parser(orientation, order):
    assert is_complete(with_exif(orientation, order=order))


def test_data_that_is_not_a_jpeg_has_no_structure():
    for encoded in (*JUNK.values(), b"\xff\xd8\xff"):
        if encoded.startswith(b"\xff\xd8\xff"):
            assert not is_complete(encoded)


@pytest.mark.parametrize("name", ["baseline", "progressive", "restart markers", "gray", "gray progressive"])
def test_a_truncated_jpeg_is_not_complete(name):
    encoded = jpegs()[name]
    assert not any(is_complete(encoded[:end]) for end in range(3, len(encoded) - 1, 3))


BEFORE, FRAME, AFTER = parts(jpeg(noise(16, 16), subsampling=0))
SCAN = AFTER.index(b"\xff\xda")
TABLES, SCAN = AFTER[:SCAN], AFTER[SCAN:]
UNUSUAL_STRUCTURES = {
    "a byte between two segments": BEFORE + b"\0" + FRAME + AFTER,
    "a table that ends early": BEFORE[:20] + b"\0" + BEFORE[20:] + FRAME + AFTER,
    "two frames": BEFORE + FRAME + FRAME + AFTER,
    "a larger frame before": BEFORE + frame(65500, 65500) + FRAME + AFTER,
    "a larger frame after": BEFORE + FRAME + AFTER[:-2] + frame(65500, 65500) + SCAN,
    "no frame": BEFORE + AFTER,
    "no scan": BEFORE + FRAME + END,
    "an image in an image": BEFORE + FRAME + AFTER[:-2] + BEFORE + FRAME + AFTER,
    "a height after the scan": BEFORE + frame(0, 16) + AFTER[:-2] + segment(0xDC, b"\0\x10") + END,
    "arithmetic codes": BEFORE + frame(16, 16, marker=0xC9) + AFTER,
    "lossless": BEFORE + frame(16, 16, marker=0xC3) + AFTER,
    "a frame of more components than it has": BEFORE + segment(0xC0, FRAME[4:13]) + AFTER,
    "a scan of no components": BEFORE + FRAME + TABLES + segment(0xDA, b"\0\0\x3f\0") + SCAN[14:],
    "a frame of no bytes": BEFORE + segment(0xC0, b"") + AFTER,
    "a restart interval of one byte": BEFORE + segment(0xDD, b"\1") + FRAME + AFTER,
    "a marker without a meaning": BEFORE + b"\xff\x02" + FRAME + AFTER,
    "a restart marker without an interval": BEFORE + FRAME + AFTER[:-6] + b"\xff\xd0" + AFTER[-6:],
    "two segments of EXIF": with_exif(6)[:2] + segment(0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\0") + with_exif(6)[2:],
    "too many segments": BEFORE + segment(0xFE, b"") * MAX_SEGMENTS + FRAME + AFTER,
    "too many segments to keep": BEFORE + segment(0xE1, b"") * 17 + FRAME + AFTER,
}


@pytest.mark.parametrize("name", UNUSUAL_STRUCTURES)
def test_structures_that_no_encoder_writes_are_not_complete(name):
    assert is_complete(BEFORE + FRAME + AFTER)
    assert not is_complete(UNUSUAL_STRUCTURES[name])


def test_missing_doubled_or_swapped_restart_markers_are_found():
    places = [at for at in range(len(RESTARTS) - 1) if RESTARTS[at] == 0xFF and 0xD0 <= RESTARTS[at + 1] <= 0xD7]
    assert len(places) == 2
    assert is_complete(RESTARTS)
    first, last = places
    assert not is_complete(RESTARTS[:first] + RESTARTS[first + 2 :])
    assert not is_complete(RESTARTS[:first] + RESTARTS[last:])
    # the remaining markers are in sequence, but one marker is missing
    assert not is_complete(RESTARTS[:last] + RESTARTS[last + 2 :])
    assert not is_complete(RESTARTS[:first] + RESTARTS[first : first + 2] + RESTARTS[first:])
    swapped = bytearray(RESTARTS)
    swapped[first + 1], swapped[last + 1] = swapped[last + 1], swapped[first + 1]
    assert not is_complete(bytes(swapped))


def test_colour_spaces_are_determined_by_libjpegs_rule():
    """``default_decompress_parms`` contains the rule: JFIF has priority, then Adobe's transform, then the component
    ids.
    """
    rgb, ycc = jpegs()["rgb without transform"], jpeg(scene(20, 30), subsampling=0)
    adobe = lambda transform: segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))  # noqa: E731
    jfif = ycc[2 : 4 + int.from_bytes(ycc[4:6], "big")]
    plain = bare(ycc)
    cases = [
        (rgb, True), (bare(rgb), True), (jpegs()["gray"], False), (ycc, False), (plain, False),
        (renamed(plain, b"RGB"), True), (renamed(plain, b"rgb"), False), (renamed(ycc, b"RGB"), False),
        (plain[:2] + adobe(0) + plain[2:], True), (plain[:2] + adobe(1) + plain[2:], False),
        (plain[:2] + adobe(0) + adobe(1) + plain[2:], False), (plain[:2] + adobe(2) + plain[2:], False),
        (renamed(plain[:2] + adobe(1) + plain[2:], b"RGB"), False), (plain[:2] + jfif + adobe(0) + plain[2:], False),
        (plain[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0") + plain[2:], False),
    ]  # fmt: skip
    for encoded, is_rgb in cases:
        assert is_complete(encoded)
        assert read_jpeg_header(encoded).is_rgb == is_rgb
        if len(encoded) < len(ycc) + 20 and encoded[-200:] == ycc[-200:]:  # the CPU decoder follows libjpeg's rule
            red = scene(20, 30)[:, :, 0].astype(int)
            assert (np.abs(decode(encoded, damage="lenient")[:, :, 0] - red).mean() < 10) != is_rgb


def mutated(numbers, images):
    """Return one of the images with changed bytes, mostly in its header, or truncated, or concatenated with itself."""
    encoded = bytearray(images[numbers.integers(len(images))])
    for _ in range(numbers.integers(0, 4)):
        end = len(encoded) if numbers.random() < 0.3 else min(len(encoded), 700)
        encoded[numbers.integers(2, end)] = numbers.choice(
            [0, 1, 255, 0xC0, 0xD0, 0xD8, 0xD9, 0xDA, numbers.integers(256)]
        )
    if numbers.random() < 0.2:
        encoded = encoded[: numbers.integers(3, len(encoded) + 1)]
    if numbers.random() < 0.1:
        at = numbers.integers(2, len(encoded) + 1)
        encoded[at:at] = encoded[numbers.integers(0, at) : at]
    return bytes(encoded)


def test_the_header_of_a_damaged_but_complete_jpeg_equals_that_of_the_segment_parser():
    numbers = np.random.default_rng(3)
    images = [encoded for name, encoded in jpegs().items() if name != "photo"] + [with_exif(6), RESTARTS]
    found = [is_complete(mutated(numbers, images)) for _ in range(4000)]
    assert 0.2 < sum(found) / len(found) < 0.9


def test_a_batch_is_parsed_like_its_images_alone():
    images = [np.frombuffer(each, np.uint8) for each in (*jpegs().values(), *UNUSUAL_STRUCTURES.values())]
    assert structures(images) == [found for each in images for found in structures([each])]
    assert structures([]) == []


def test_nothing_is_read_after_a_jpeg():
    """The JPEG is truncated at every byte, and an unreadable page follows the remaining bytes."""
    size, page = 1 << 16, mmap.PAGESIZE
    memory = mmap.mmap(-1, size + page)
    whole_memory = np.frombuffer(memory, np.uint8)
    libc, end = ctypes.CDLL(None), ctypes.c_void_p(whole_memory.ctypes.data + size)
    images = [jpegs()["baseline"], jpegs()["progressive"], RESTARTS, *UNUSUAL_STRUCTURES.values(), with_exif(6)]
    images += [each[:cut] + b"\xff" * more for each in images for cut in range(2, 40) for more in (0, 1, 2)]
    images += [RESTARTS[:cut] for cut in range(3, len(RESTARTS))]
    images = [each for each in images if 3 <= len(each) <= size]
    assert libc.mprotect(end, ctypes.c_size_t(page), 0) == 0
    try:
        for each in images:
            place = whole_memory[size - len(each) : size]
            place[:] = np.frombuffer(each, np.uint8)
            assert structures([place]) == structures([np.frombuffer(each, np.uint8)])
    finally:
        assert libc.mprotect(end, ctypes.c_size_t(page), 3) == 0


@pytest.mark.parametrize("filler", [b"\xff", b"\0", b"\xff\0", b"\xff\xd0", END, b"\xff\xda\0\2", b"\xff\xfe\0\2"])
@pytest.mark.parametrize("cut", [2, -2])
def test_megabytes_of_markers_cost_milliseconds(cut, filler):
    encoded = jpegs()["baseline"]
    encoded = encoded[:cut] + filler * ((4 << 20) // len(filler)) + encoded[cut:]
    start = time.process_time()
    structures([np.frombuffer(encoded, np.uint8)])
    assert time.process_time() - start < 20


def test_scans_are_counted_like_the_markers_that_a_regular_expression_finds():
    """The byte FF does not begin a segment if the next byte is 00, 01, D0 to D8 or FF."""
    marker, rng, found = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]"), np.random.default_rng(0), 0

    def is_above(data, at, max_scans, max_segments):
        scans = 1
        for _ in range(max_segments):
            segment = marker.search(data, at + int.from_bytes(data[at : at + 2], "big"))
            if segment is None or segment[0] == END:
                return False
            at = segment.end()
            scans += segment[0] == b"\xff\xda"
            if scans > max_scans:
                return True
        return True

    scan, others = (
        b"\xff\xda\0\2",
        [b"\xff\xe0\0\3", b"\xff\xd8", b"\xff\0", b"\xff\1", b"\xff", b"\xff\xd3", b"\0", b"\xda"],
    )
    for _ in range(4000):
        parts = rng.integers(0, 24, int(rng.integers(1, 30))).tolist()
        data = b"".join(END if part == 0 else scan if part < 8 else others[part % 8] for part in parts)
        at, max_scans, max_segments = (int(rng.integers(low, high)) for low, high in ((0, len(data)), (1, 6), (1, 12)))
        expected = is_above(data, at, max_scans, max_segments)
        assert has_many_scans(memoryview(data), at, max_scans, max_segments) == expected
        found += expected
    assert 100 < found < 3600
