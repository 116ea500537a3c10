"""Tests that the pixels of a pipeline file never change: ``tests/golden/pixels.jsonl`` contains the results of hundreds
of lists of ops.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

import pixprep as pp
from engine import frozen_pixels
from engine.frozen_pixels import IMAGES, changed, digests, frozen
from pixprep.engine.kernels import native
from pixprep.pipeline.ops import OPS
from pixprep.plan.profiles import PROFILES, Method
from pixprep.plan.profiles.windows import Axis, Passes

REMAKE_HINT = "tests/golden/remake.py adds missing digests, and writes changed ones with --accept-changed-pixels alone"
TESTS = Path(__file__).parents[1]


def test_every_list_of_ops_gives_its_frozen_tensors():
    assert all(frozen().values())
    moved = changed({ops: digests(ops) for ops in frozen()})
    assert not moved, f"{moved}\n{REMAKE_HINT}"


@pytest.mark.parametrize("level", native.levels()[1:])
def test_tensors_are_equal_on_each_level_of_the_kernels(level):
    code = (
        "from engine.frozen_pixels import *; from pixprep.engine.kernels.native import library\n"
        "print(changed({ops: digests(ops) for ops in frozen()}), library()._name)"
    )
    environment = os.environ | {native.SETTING: level}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(" ")
    assert Path(done.stdout.strip()).stem == f"pixprep-{level}"


def test_the_lists_cover_every_arithmetic_and_every_op_on_pixels():
    found, ops = set(), {entry["op"] for line in frozen() for entry in json.loads(line)}
    for line in frozen():
        for entry in json.loads(line):
            if entry["op"] == "resize" and {"height", "width"} < set(entry) and "mode" not in entry:
                op = msgspec.convert(entry, OPS["resize"])
                for height, width, _ in (image.shape for image in IMAGES):
                    axes = (Axis(a, b, a / b, 0, b) for a, b in ((height, op.height), (width, op.width)))
                    found.add(PROFILES[op.like].passes(Method(op.filter, antialias=op.antialias), *axes))
    assert found == {*get_args(Passes)}
    others = {"decode", "decode_video", "extern", "original_size", "image_size", "scale_factor", "transform"}
    others |= {"optical_flow", "boxes", "points", "mask", "masks", "target", "patches", "patch_grid", "patch_mask"}
    others |= {"patch_positions", "token_count", "tiles", "tile_count", "tile_grid_id", "tile_mask", "tile_token_count"}
    others |= {
        "pixel_mask",
        "constant",
        "slice_patches",
        "slice_grids",
        "slice_mask",
        "slice_count",
        "seconds_per_patch",
    }
    others |= {"color_ids", "random_box_warp"}  # ids of colors; a region around a box, which apply does not accept
    assert ops == {*OPS} - others


def test_a_changed_value_is_reported_and_not_written_without_the_option(tmp_path, monkeypatch):
    line, new = (json.dumps([{"op": op}]) for op in ("invert", "equalize"))
    path = tmp_path / "pixels.jsonl"
    path.write_text(f'{{"ops": {line}, "digests": "{frozen()[line]}"}}\n{{"ops": {new}}}\n')
    monkeypatch.setattr(frozen_pixels, "FROZEN", path)
    was = path.read_text()
    apply = pp.apply
    with monkeypatch.context() as wrong:
        wrong.setattr(pp, "apply", lambda *args, **how: apply(*args, **how) ^ np.uint8(1))
        assert f"1 of 2 lists of ops give other tensors than they did:\n{line}" in frozen_pixels.write(
            accepts_changes=False
        )
        assert path.read_text() == was
        assert not frozen_pixels.write(accepts_changes=True)
        assert path.read_text().splitlines()[0] != was.splitlines()[0]
    assert all(frozen().values())
    assert frozen_pixels.write(accepts_changes=False)


def test_the_input_images_are_unchanged():
    """The images are made by integer formulas, which do not depend on NumPy's version or on the processor."""
    sums = [int(pixels.sum(dtype=np.int64)) for pixels in IMAGES]
    assert sums == [2781280, 2118370, 2070758, 37050, 205001, 12613905]
