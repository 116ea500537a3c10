"""Tests that pixprep and Pillow accept the same unusual images from other projects' collections, and decode the same
pixels.

``DIFFERENCES`` lists the files for which the results differ, with the reasons. The checks run only with
``PIXPREP_CORPORA=1`` (``make corpora``). They download 100 MB, which pytest's cache keeps.
"""

import os
import subprocess
import sys
from collections import Counter
from json import loads
from pathlib import Path

import pytest

from support.corpora import CannotFetchError, fetch

ALL = ["golang", "libjpeg-turbo", "pillow", "imagecodecs", "scikit-image", "foolbox"]
LEAST = {"golang": 80, "libjpeg-turbo": 30, "pillow": 700, "imagecodecs": 75, "scikit-image": 10, "foolbox": 20}

WARNED = "Pillow alone: [CORRUPT] libjpeg-turbo:"
PILLOW_32_BITS = "Pillow alone: [UNSUPPORTED] 32 bits per sample"
UNKNOWN = "Pillow alone: [UNKNOWN_FORMAT]"
DIFFERENCES = {
    # libjpeg-turbo warns that pixels or colours may be damaged; with ``lenient``, both files are decoded to Pillow's
    # pixels
    "hopper_bad_exif.jpg": WARNED,  # the scan has 1,214 extra bytes
    "jpeg_ff00_header.jpg": WARNED,  # four extra bytes follow Adobe's segment, which alone specifies the colour space
    # in modes I and F, files do not specify the range of their values, and Pillow clips the values at 255
    **dict.fromkeys(
        [
            "10ct_32bit_128.tiff", "16_bit_binary_pgm.tiff", "16bit.s.tif", "gray.f4.tif", "gray.i2.tif", "gray.i4.tif",
            "gray.one.f4.tif", "gray.one.i2.tif", "gray.one.i4.tif", "gray.one.u4.tif", "gray.tiled.f4.tif",
            "gray.u4.tif",
        ],
        PILLOW_32_BITS,
    ),
    # BigTIFF is for files of more than 4 GB. Clients do not send such files, and the tags would need separate checks.
    "gray.bigtiff.u1.tif": UNKNOWN,
    "hopper_bigtiff.tif": UNKNOWN,
    # only XMP contains the orientation, and pixprep does not read XMP (docs/operators.md)
    "xmp_tags_orientation.png": "different",
    "xmp_tags_orientation_exiftool.png": "different",
}  # fmt: skip


def compared(files):
    """Compare the files in a separate process. Return its findings, one per file in order. If the process dies, there
    are fewer findings than files.
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "support.corpora"], input="".join(f"{path}\n" for path in files),
        capture_output=True, text=True, check=False, timeout=600, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    results = [loads(line) for line in done.stdout.splitlines()]
    return results, done.stderr[-2000:]


@pytest.mark.parametrize("source", ALL)
def test_pixprep_and_pillow_agree_on_every_file(request, source):
    if not os.environ.get("PIXPREP_CORPORA"):
        pytest.skip("NO CORPORA: set PIXPREP_CORPORA=1 to download and compare them")
    try:
        files = fetch(source, request.config.cache.mkdir("corpora"))
    except CannotFetchError as error:
        pytest.skip(f"NO CORPUS of {source}: {error}")
    assert len(files) >= LEAST[source]
    results, stderr = compared(files.values())
    assert len(results) == len(files), f"{list(files)[len(results)]} ended the process: {stderr}"
    strict, lenient = Counter(), Counter()
    for name, found in zip(files, results, strict=True):
        expected = DIFFERENCES.get(Path(name).name)
        strict[found["strict"].partition(":")[0]] += 1
        lenient[found["lenient"].partition(":")[0]] += 1
        if expected is None:
            assert found["strict"] in ("same", "neither"), (name, found)
            assert found["lenient"] in ("same", "neither"), (name, found)
        else:
            assert found["strict"].startswith(expected), (name, found)
            assert found["lenient"] == "same" if expected == WARNED else found["lenient"].startswith(expected), name
    print(f"{source}: {len(files)} files; strict {dict(strict)}; lenient {dict(lenient)}")


def test_a_file_that_differs_is_detected(tmp_path):
    """As negative controls, the comparison gets a truncated file, a file of a different format, and an intact file."""
    from support.images import jpeg, scene  # noqa: PLC0415  (the worker process also needs this module in its path)

    whole = jpeg(scene(24, 33))
    for name, encoded in {"whole": whole, "cut": whole[:-40], "text": b"text"}.items():
        (tmp_path / name).write_bytes(encoded)
    results, _ = compared([tmp_path / name for name in ("whole", "cut", "text")])
    assert results == [
        {"strict": "same", "lenient": "same"},
        {"strict": "neither", "lenient": "same"},
        {"strict": "neither", "lenient": "neither"},
    ]
