"""Attack: Base64 data is huge, is invalid only at its end, or consists of blanks. JSON, data: URLs and forms are not
terminated.

Defence: The type of the input is determined from its first kilobyte. Text that is larger than the limits is not
decoded. Decoding takes a few passes in C.

Outcome: The request fails in well under a second, and takes the memory of one or two copies of the input.
"""

import base64
import time

import pytest

from pixprep.engine.decoders.text import from_base64, without_base64
from support.images import jpeg, noise

MIB = 1 << 20
LARGE = 19 * MIB
HEAD = base64.b64encode(jpeg(noise(16, 16)))[:400]
TEXTS = {
    "base64": HEAD + b"A" * (LARGE - 400),
    "base64, broken at its end": HEAD + b"A" * (LARGE - 400) + b"*",
    "padding": HEAD + b"=" * LARGE,
    "blanks before": b" " * LARGE + HEAD,
    "blanks between": HEAD[:31] + b"\n" * LARGE + HEAD[31:],
    "a blank after each": b"A " * (LARGE // 2),
    "JSON": b'{"b64": "' + b"A" * LARGE,
    "brackets": b"[" * LARGE,
    "a data URL": b"data:" + b"A" * LARGE,
    "a data URL of base64": b"data:image/png;base64," + b"A " * (LARGE // 2),
    "a form of lines": b"--a\r\n" * (LARGE // 5),
    "a form of dashes": b"-" * LARGE,
}


@pytest.mark.parametrize("name", TEXTS)
def test_large_text_is_rejected_cheaply(measure, name):
    measure(TEXTS[name]).within("UNKNOWN_FORMAT", mib=6 * 20, seconds=3)


@pytest.mark.parametrize("name", TEXTS)
def test_large_base64_costs_a_few_passes_if_base64_is_accepted(name):
    start = time.process_time()
    from_base64(TEXTS[name])
    assert time.process_time() - start < 30


def test_a_request_with_more_text_than_the_limit_is_not_read():
    images = [TEXTS["base64"]] * 200  # the same object 200 times, which decoded would take 3.8 GB
    start = time.process_time()
    assert without_base64(images, image_bytes=20 * MIB, request_bytes=64 * MIB) == images
    assert time.process_time() - start < 10
