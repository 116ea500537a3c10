"""Tests that the server accepts a large body with the content type of a form. Without the front, Triton crashes."""

from pathlib import Path

import pytest

import pixprep as pp
from support.serving import RAW, address, post

pytestmark = pytest.mark.server

FLOWER = Path(__file__).parents[3] / "client_examples" / "images" / "flower.jpg"


def test_a_large_jpeg_can_be_posted_with_curls_default_content_type(demo, demo_repository):
    """Without the front, Triton crashes if such a body has more than 4 MB. The decoder ignores bytes after the end of a
    JPEG.
    """
    with pp.Engine(pp.load(demo_repository / "preprocess" / "1" / "pipeline.json")) as engine:
        (tensor,) = engine.run([FLOWER.read_bytes()])
    headers = {**RAW, "Content-Type": "application/x-www-form-urlencoded"}
    path = "/v2/models/preprocess/infer"
    status, _, body = post(address(demo), path, headers, FLOWER.read_bytes() + bytes(8 << 20))
    assert (status, body[-tensor.nbytes :]) == (200, tensor.tobytes())
