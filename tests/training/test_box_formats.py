"""Tests boxes in the formats of sources: normalized coordinates, implausible values, and the attributes of each box."""

import json
from typing import get_args

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from pixprep.plan.boxes import Shares, convert
from pixprep.spec import BoxSource
from support.images import png, scene
from support.records import tar_bytes

SIZE = (60, 80)
WHOLE = [80, 60, 80, 60]
BOXES = np.array([[8, 6, 40, 30], [40, 15, 72, 60]], np.float32)
IMAGE = png(scene(*SIZE))
PIPELINE = pp.Pipeline([pp.decode(), pp.resize(height=120, width=160), pp.boxes(), pp.tensor()]).for_training()


def given(box_format):
    """Return the boxes in the given format, as a list."""
    form, _, normalized = box_format.partition("_")
    boxes = convert(BOXES, "xyxy", form)
    return (boxes / WHOLE if normalized else boxes).tolist()


def rows(tmp_path, boxes, box_format):
    del tmp_path
    return read.rows([{"image": IMAGE, "boxes": boxes}], boxes="boxes", box_format=box_format)


def tar(tmp_path, boxes, box_format):
    (tmp_path / "a.tar").write_bytes(tar_bytes([("1.png", IMAGE), ("1.json", json.dumps(boxes).encode())]))
    return read.tar(tmp_path / "a.tar", label=None, boxes="json", box_format=box_format)


def parquet(tmp_path, boxes, box_format):
    pa = pytest.importorskip("pyarrow", reason="NO PYARROW: pip install pyarrow", exc_type=ImportError)
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.Table.from_pylist([{"image": IMAGE, "boxes": boxes}]), tmp_path / "a.parquet")
    return read.parquet(tmp_path / "a.parquet", boxes="boxes", box_format=box_format)


def loaded(source, pipeline=PIPELINE, **options):
    with pp.Loader(source, pipeline, batch_size=1, **options) as loader:
        return list(loader), loader.errors


@pytest.mark.parametrize("source", [rows, tar, parquet])
@pytest.mark.parametrize("box_format", get_args(BoxSource))
def test_boxes_of_any_format_match_their_objects(tmp_path, source, box_format):
    (batch,), _ = loaded(source(tmp_path, given(box_format), box_format))
    np.testing.assert_allclose(batch["boxes"][0], 2 * BOXES, atol=1e-4)


def test_normalized_boxes_refer_to_the_decoded_image_and_are_used_by_ops_on_boxes():
    crop = [pp.random_iou_crop(), pp.resize(height=60, width=80), pp.boxes(min_size=0)]
    pipeline = pp.Pipeline([pp.decode(), *crop, pp.tensor(only="training")])
    batches = [
        loaded(rows(None, given(form), form), pipeline.for_training(), seed=3)[0][0]["boxes"][0]
        for form in ("xyxy", "xyxy_normalized")
    ]
    np.testing.assert_allclose(*batches, atol=1e-4)


def test_implausible_boxes_are_a_broken_sample():
    both = given("xyxy"), [[0.1, 0.2, 0.5, 0.6]]
    source = read.rows([{"image": IMAGE, "boxes": boxes} for boxes in both], boxes="boxes")
    batches, (broken,) = loaded(source, on_error="skip", max_errors=1.0)
    assert [len(batch) for batch in batches] == [1]
    assert broken.error.reason == "BAD_RECORD"


def test_boxes_may_be_outside_or_in_the_first_pixel_or_absent():
    for boxes in ([[0, 0, 1, 1], [5, 5, 9, 9]], [[100, 100, 110, 110], [5, 5, 9, 9]], []):
        batches, errors = loaded([{"image": IMAGE, "boxes": boxes}])
        assert (len(batches), errors) == (1, [])


def test_boxes_that_no_op_uses_cause_only_a_warning(caplog):
    plain = pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor()])
    (batch,), _ = loaded([{"image": IMAGE, "boxes": [[0.1, 0.2, 0.5, 0.6]]}], plain)
    assert batch["boxes"] == [[[0.1, 0.2, 0.5, 0.6]]]
    assert 'no op transforms batch["boxes"]' in caplog.text


@pytest.mark.parametrize("box_format", get_args(BoxSource))
def test_a_crop_uses_the_box_of_a_sample_in_any_format_of_its_source(box_format):
    pipeline = pp.Pipeline(
        [pp.decode(), pp.crop(box="boxes"), pp.resize(height=60, width=80), pp.tensor(dtype="uint8")]
    )
    # this would be one pixel if normalized coordinates were interpreted as pixels
    whole = convert([[0, 0, 80, 60]], "xyxy", box_format.partition("_")[0])
    boxes = whole / WHOLE if "_" in box_format else whole
    (batch,), _ = loaded(rows(None, boxes.tolist(), box_format), pipeline)
    np.testing.assert_array_equal(batch["tensor"][0], scene(*SIZE).transpose(2, 0, 1))


def test_normalized_boxes_that_no_op_uses_are_returned_in_pixels_of_the_photo():
    plain = pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor()])
    (batch,), _ = loaded(rows(None, given("cxcywh_normalized"), "cxcywh_normalized"), plain)
    np.testing.assert_allclose(batch["boxes"][0], BOXES, atol=1e-4)


def test_normalized_coordinates_must_be_numbers():
    shares = Shares(np.array([[0, 0, 0.5, 0.5]]))
    assert (len(shares), np.asarray(shares).tolist()) == (1, [[0, 0, 0.5, 0.5]])


def test_an_unmoved_field_with_a_value_per_box_is_reported_once(caplog):
    samples = [
        {
            "image": IMAGE,
            "boxes": BOXES[:count],
            "kinds": ["a", "b"][:count],
            "camera": [1, 2],
            "box_kinds": [1, 2][:count],
        }
        for count in (2, 1, 2)
    ]
    (_, batch, _), _ = loaded(samples)
    assert batch["box_kinds"][0].tolist() == [1]
    said = [record.message for record in caplog.records]
    assert said == [
        'batch["kinds"] seems to have one value per box, but does not change with the boxes: add the field to "follow" '
        "of the op boxes"
    ]


def test_a_field_that_always_matches_the_number_of_boxes_is_reported_when_a_box_is_removed(caplog):
    samples = [{"image": IMAGE, "boxes": BOXES, "kinds": ["a", "b"]} for _ in range(8)]
    batches, _ = loaded(
        samples, pp.Pipeline([pp.decode(), pp.crop(0, 0, 20, 40), pp.boxes(), pp.tensor()]).for_training()
    )
    assert {len(batch["boxes"][0]) for batch in batches} == {1}
    assert [record.message.partition(" seems ")[0] for record in caplog.records] == ['batch["kinds"]']


@pytest.mark.parametrize("pad", [None, 3])
def test_fields_named_by_the_op_follow_their_boxes(pad, caplog):
    sample = {"image": IMAGE, "boxes": BOXES, "kinds": ["a", "b"] if pad is None else [7, 8], "track": [5, 6]}
    op = pp.boxes(pad=pad, follow=("kinds", "track"))
    pipeline = pp.Pipeline([pp.decode(), pp.crop(0, 0, 20, 40), op, pp.tensor()]).for_training()
    with pp.Loader([sample], pipeline, batch_size=1) as loader:
        (batch,) = loader
    assert (batch["boxes"][0] >= 0).any(axis=1).sum() == 1
    assert batch["track"][0].tolist() == [5, -1, -1][:pad] if pad else [5]
    assert batch["kinds"][0].tolist() == ([7, -1, -1] if pad else ["a"])
    assert caplog.records == []
