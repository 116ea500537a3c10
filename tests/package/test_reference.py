"""The reference pages list what the code has: pictures of ops, settings, metrics, and versions."""

import runpy
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


def test_every_op_on_images_has_a_picture_that_shows_a_change():
    drawer = runpy.run_path(ROOT / "tools" / "site" / "pictures.py")
    pictures = list(drawer["pictures"]())
    assert [picture.op for picture in pictures] == drawer["drawn_ops"]()
    assert len(pictures) > 50
    for op, _, (before, *after) in pictures:
        assert any(not np.array_equal(before, each) for each in after), op
    assert len(drawer["encoded"](pictures[0])) < 100_000
