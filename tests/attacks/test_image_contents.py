"""Attack: An image contains malicious data besides its first frame: 100,000 frames or pages, circular EXIF directories,
65,535 directory entries, profiles of 16 MB, Photoshop blocks that claim gigabytes, an index of missing frames, or a
second file.

Defence: The format is determined once, from the first bytes. Only the first frame is decoded, and the other frames are
not even searched for. pixprep itself reads the orientation from one directory, and reads nothing else from EXIF. Pillow
never receives the EXIF data of a JPEG.

Outcome: The image is decoded in one format or rejected, at the cost of one frame.
"""

import zlib

import pytest
from PIL import Image

from support.forged import chunk, gif, png, segment
from support.images import cmyk, jpeg, noise, save

SMALL, PNG = jpeg(noise(16, 16), subsampling=0), png(4, 4, chunk(b"IDAT", zlib.compress(bytes(52))))
START, DIRECTORY = b"Exif\0\0II*\0\x08\0\0\0", b"\x69\x87\x04\0\1\0\0\0\x08\0\0\0"


def before(segments, encoded=SMALL):
    return b"\xff\xd8" + segments + encoded[2:]


def orientation(value):
    return segment(0xE1, START + b"\1\0\x12\1\3\0\1\0\0\0" + value.to_bytes(4, "little") + bytes(4))


FRAMES = [Image.new("RGB", (16, 16), (number % 256, number // 256, 9)) for number in range(1_000)]
ANIMATIONS = {
    "GIF of 100,000 frames": gif(4, 4, frames=100_000),
    "WebP of 1,000 frames": save(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], duration=1),
    "PNG of 1,000 frames": save(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:], duration=1),
    # Pillow takes quadratic time
    "TIFF of 300 pages": save(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:300]),
}
HARMLESS = {
    "a directory that is its own": before(segment(0xE1, START + b"\1\0" + DIRECTORY + b"\x08\0\0\0")),
    "a directory of 65,535 entries": before(segment(0xE1, START + b"\xff\xff" + DIRECTORY * 5_000)),
    "a directory beyond the segment": before(segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff")),
    "an orientation of 65535": before(orientation(65535)),
    "an orientation of 0": before(orientation(0)),
    "another 4,000 segments": before(orientation(6) + segment(0xE1, START) * 4_000),
    "CMYK and a directory that is its own": before(segment(0xE1, START + b"\xff\x0f" + DIRECTORY * 4_095), cmyk()),
    "CMYK and frames that are not there": before(
        segment(0xE2, b"MPF\0II*\0\x08\0\0\0\xff\xff" + bytes(60_000)), cmyk()
    ),
    "CMYK and Photoshop blocks of 4 GB": before(
        segment(0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\xff\xff\xff\xff") * 4_000, cmyk()
    ),
    "PNG and a directory that is its own": png(
        4, 4, chunk(b"IDAT", zlib.compress(bytes(52))), chunk(b"eXIf", START[6:] + b"\xff\xff" + DIRECTORY * 65_535)
    ),
}
FILES = {
    "HTML before": (b"<html>" + SMALL, "UNKNOWN_FORMAT"),
    "a PDF before": (b"%PDF-1.7\n" + SMALL, "UNKNOWN_FORMAT"),
    "a script before": (b"#!/bin/sh\n" + SMALL, "UNKNOWN_FORMAT"),
    "a GIF's first bytes": (b"GIF89a" + SMALL, "CORRUPT"),
    "a BMP's first bytes": (b"BM" + SMALL, "TRUNCATED"),
    "a TIFF's first bytes": (b"II*\0" + SMALL, "CORRUPT"),
    "a ZIP behind": (SMALL + b"PK\3\4" + bytes(999), "ok"),
    "a PNG behind": (SMALL + PNG, "ok"),
    "a JPEG behind": (PNG + SMALL, "ok"),
    "a GIF behind": (PNG + gif(65535, 65535), "ok"),
}
ENTRY = b"\x9c\x9c\1\0\x40\0\0\0\x08\0\0\0"  # declares 64 bytes at the offset of the directory itself
MANY_SEGMENTS = [segment(0xE1, START + b"\xff\xff" + entry * 5_000) * 300 for entry in (DIRECTORY, ENTRY)]


@pytest.mark.parametrize("name", ANIMATIONS)
def test_only_the_first_frame_is_decoded(measure, name):
    measure(ANIMATIONS[name]).within("ok", mib=16, seconds=0.3)


def test_frames_of_50_megapixels_without_data_are_rejected(measure):
    measure(gif(7071, 7071, frames=1_000)).within("TRUNCATED", mib=16)


@pytest.mark.parametrize("name", FILES)
def test_the_first_bytes_determine_the_format(measure, name):
    encoded, reason = FILES[name]
    measure(encoded).within(reason, mib=8)


@pytest.mark.parametrize("name", HARMLESS)
def test_metadata_costs_nothing(measure, name):
    measure(HARMLESS[name]).within("ok", mib=8, seconds=0.5)


@pytest.mark.parametrize("numbers", ["in order", "one number"])
def test_a_profile_of_16_mb_costs_only_its_bytes(measure, numbers):
    number = (lambda i: i + 1) if numbers == "in order" else (lambda _: 1)
    profile = b"".join(segment(0xE2, b"ICC_PROFILE\0" + bytes([number(i), 255]) + bytes(65_000)) for i in range(255))
    measure(before(profile)).within("ok", "CORRUPT", mib=48, seconds=1)


@pytest.mark.parametrize("encoded", [SMALL, cmyk()], ids=["RGB", "CMYK"])
@pytest.mark.parametrize("segments", MANY_SEGMENTS, ids=["circles", "values over each other"])
def test_exif_of_18_mb_in_300_segments_costs_only_its_bytes(measure, segments, encoded):
    measure(before(segments, encoded)).within("ok", mib=72, seconds=0.5)
