"""Tests of the outputs that the page shows: their pictures, the metadata of an ONNX file, and the times of a
request.
"""

import numpy as np
import pytest

from pixprep.serving.embedded.connection import Spent
from pixprep.serving.page.answer import within
from pixprep.serving.page.outputs import heat_map
from pixprep.serving.repository.exports import Export, read_export
from support import detectors


def test_a_map_becomes_a_picture_and_a_list_of_boxes_does_not():
    ramp = np.linspace(-3, 5, 40 * 30, dtype=np.float32).reshape(1, 30, 40)
    picture = heat_map(ramp)
    assert (picture.shape, picture.dtype) == ((30, 40, 3), np.uint8)
    light = picture.astype(int).sum(axis=2).ravel()
    assert light[0] == light.min()
    assert light[-1] == light.max()
    assert (np.diff(light.reshape(-1, 40).mean(axis=1)) > 0).all()
    assert heat_map(np.zeros((16, 16), np.int64)).max() == 60
    for shape in ((84, 8400), (3, 30, 40), (1000,), (7, 7), (5000, 5000)):
        assert heat_map(np.zeros(shape, np.float32)) is None
    assert heat_map(np.full((16, 16), np.nan)) is None


@pytest.mark.parametrize(
    ("metadata", "export"),
    [
        (
            {"task": "pose", "kpt_shape": "[17, 3]", "names": "{0: 'person'}"},
            Export("pose", (17, 3), ("person",)),
        ),
        ({"task": "classify", "kpt_shape": "[17]", "names": "nobody's"}, Export()),
        ({"task": "obb", "kpt_shape": "[-1, 3"}, Export()),
        ({}, Export()),
    ],
)
def test_the_task_is_read_from_an_onnx_files_metadata(tmp_path, metadata, export):
    path = detectors.save_constant(tmp_path / "model.onnx", {"output0": np.zeros((6, 9), np.float32)}, **metadata)
    assert read_export(path) == export


@pytest.mark.parametrize("content", [b"", b"no model", b"\x72\xff"])
def test_a_file_that_is_not_onnx_has_no_metadata(tmp_path, content):
    (tmp_path / "model.onnx").write_bytes(content)
    assert read_export(tmp_path / "model.onnx") == Export()
    assert read_export(tmp_path / "none.onnx") == Export()


@pytest.mark.parametrize(("waited", "computed", "whole"), [(1, 2, 10), (1, 5, 10), (30, 90, 10)])
def test_the_times_of_steps_are_no_longer_than_their_request(waited, computed, whole):
    steps = within({"a": Spent(1, waited, computed), "b": Spent(2, 0, computed)}, whole)
    total = sum(each.queue_ms + each.compute_ms for each in steps.values())
    assert total == pytest.approx(min(whole, waited + 2 * computed))
    assert steps["a"].compute_ms == pytest.approx(steps["b"].compute_ms)
