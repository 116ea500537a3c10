"""Tests boxes, points and masks with the serving ops: annotations for validation must match the served photo."""

import numpy as np
import pytest

import pixprep as pp
from support.images import png, scene

PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(48),
        pp.random_flip(),
        pp.resize(height=60, width=60, only="serving"),
        pp.center_crop(48, only="serving"),
        pp.boxes(),
        pp.points(),
        pp.mask(),
        pp.masks(),
        pp.tensor(),
    ]
)


def sample(height=90, width=120):
    mask = np.zeros((height, width), np.uint8)
    mask[30:60, 40:80] = 7
    return {
        "image": png(scene(height, width)),
        "boxes": [[40, 30, 80, 60], [0, 0, 9, 9]],
        "labels": [3, 4],
        "points": [[[40, 30]], [[0, 0]]],
        "mask": mask,
        "masks": np.stack([mask > 0, mask == 1]),
    }


def test_validation_annotations_match_the_served_photo():
    with pp.Loader([sample(), sample(120, 90)], PIPELINE.for_serving(), batch_size=2) as loader:
        (batch,) = loader
    assert batch["boxes"][0].tolist() == [[14, 14, 34, 34]]
    assert batch["labels"][0].tolist() == [3]
    assert batch["points"][0].tolist() == [[[14, 14]]]
    assert batch["mask"].shape == (2, 48, 48)
    assert np.array_equal(batch["mask"][0] == 7, batch["masks"][0][0] == 1)
    rows, columns = np.nonzero(batch["mask"][0])
    assert (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1) == (14, 14, 34, 34)


def test_serving_returns_no_annotations_and_does_not_mention_them():
    served = PIPELINE.for_serving()
    assert list(served.outputs) == ["tensor"]
    assert "boxes" not in served.left_out
    with pp.Engine(served, threads=1) as engine:
        assert list(engine.run_batch([sample()["image"]]).outputs) == ["tensor"]


def test_unlabelled_photos_can_be_served_but_not_trained_on():
    plain = [{"image": sample()["image"]}, {key: sample()[key] for key in ("image", "mask")}]
    with pp.Loader(plain, PIPELINE.for_serving(), batch_size=2) as loader:
        (batch,) = loader
    assert batch["mask"].shape == (2, 48, 48)
    assert (batch["mask"][0] == 255).all()
    assert "boxes" not in batch
    with (
        pp.Loader(plain, PIPELINE.for_training(), batch_size=2) as loader,
        pytest.raises(pp.PipelineError, match="boxes"),
    ):
        next(iter(loader))


def test_annotation_ops_before_a_serving_resize_are_training_only(caplog):
    """Therefore, a Loader of the serving ops returns the field unchanged and warns."""
    ops = [pp.decode(), pp.random_crop(48), pp.boxes(), pp.mask(only="training")]
    ops += [pp.resize(48, only="serving"), pp.center_crop(48, only="serving"), pp.tensor()]
    pipeline = pp.Pipeline(ops)
    with pp.Loader([sample()], pipeline.for_serving(), batch_size=1) as loader:
        (batch,) = loader
    assert batch["boxes"] == [sample()["boxes"]]
    assert 'no op transforms batch["boxes"]' in caplog.text
    assert list(pipeline.for_training().plan.annotations) == ["boxes", "mask"]
