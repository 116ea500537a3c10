"""Tests that files of Albumentations are imported without the library, and that errors name unsupported transforms."""

import json

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers import import_pipeline
from pixprep.importers.albumentations import from_albumentations
from support.images import png, scene
from support.importing import assert_imported_or_refused, damaged, refusal
from support.sources import BOXES, NORMALIZE, PAD, RESIZE, compose, imported, transform


def test_the_layout_is_that_of_the_last_transform():
    resize = transform("Resize", **RESIZE)
    assert from_albumentations(compose(resize)).ops[-1] == pp.tensor(dtype="uint8", layout="hwc")
    whole = transform("albumentations.core.composition.Compose", transforms=[resize, transform("ToTensorV2")])
    pipeline = from_albumentations(compose(whole, version="1.4.18"), apply_exif_orientation=False)
    assert pipeline.ops[0] == pp.decode(apply_exif_orientation=False)
    assert pipeline.ops[-1] == pp.tensor(dtype="uint8")
    assert (pipeline.origin.library, pipeline.origin.version, pipeline.origin.name) == (
        "albumentations",
        "1.4.18",
        "Compose",
    )


def test_one_gray_channel_becomes_that_of_the_tensor():
    gray = transform("ToGray", method="weighted_average", num_output_channels=1)
    pipeline = from_albumentations(compose(transform("Resize", **RESIZE), gray, transform("ToTensorV2")))
    assert list(pipeline.ops[2:]) == [pp.grayscale("opencv"), pp.tensor(channels=1, dtype="uint8")]


def test_an_image_of_its_own_size_needs_the_option_max_size():
    chain = compose(transform("PadIfNeeded", **PAD), transform("ToTensorV2"), additional_targets={"image2": "image"})
    assert from_albumentations(chain, max_size=640).ops[-1] == pp.tensor(dtype="uint8", max_size=640)
    assert refusal(from_albumentations, chain).endswith(
        "in this importer, set the option max_size, such as max_size=4096"
    )


def test_always_apply_of_older_versions_is_supported():
    chain = compose(transform("Resize", **RESIZE), transform("HorizontalFlip", p=0.5, always_apply=True))
    assert from_albumentations(chain).ops[2] == pp.flip()
    chain["transform"]["transforms"][1]["always_apply"] = False
    assert from_albumentations(training=chain).ops[2] == pp.random_flip(p=0.5)


def test_a_yaml_file_is_rejected_with_the_option_that_writes_json(tmp_path):
    path = tmp_path / "transforms.yaml"
    path.write_text("transform:")
    assert refusal(from_albumentations, path).startswith(
        "transforms.yaml: YAML is not supported: save the transforms with"
    )


def test_boxes_and_points_are_outputs_of_training():
    points = {"format": "xy", "label_fields": None, "remove_invisible": False}
    ops = imported(transform("Resize", **RESIZE), bbox_params=BOXES, keypoint_params=points)
    assert ops[1:] == [pp.boxes("cxcywh", normalized=True, min_size=2, min_visible=0.25, min_area=25), pp.points()]


def test_label_fields_follow_their_boxes():
    pascal = BOXES | {"format": "pascal_voc", "label_fields": ["labels", "cls"], "min_visibility": 0.5}
    chain = compose(transform("CenterCrop", height=20, width=20), transform("ToTensorV2"), bbox_params=pascal)
    pipeline = from_albumentations(training=chain)
    assert pipeline.ops[-2].follow == ("cls",)  # labels follow their boxes in any case
    sample = {"image": png(scene(60, 60)), "boxes": [[0, 0, 20, 20], [25, 25, 35, 35]], "cls": [4, 5], "labels": [1, 2]}
    with pp.Loader([sample] * 2, pipeline, batch_size=2) as loader:
        (batch,) = loader
    assert [each.tolist() for each in batch["cls"]] == [[5], [5]]
    assert [each.tolist() for each in batch["labels"]] == [[2], [2]]


@pytest.mark.parametrize("label", [None, 0, 7, 7.0, [7, 7, 7], (7, 7.0)])
def test_a_mask_has_the_label_of_fill_mask_outside_the_image(label, caplog):
    fields = {} if label is None else {"fill_mask": label}
    chain = compose(transform("PadIfNeeded", **PAD | {"min_height": 12, "min_width": 12}, **fields))
    pipeline = from_albumentations(training=chain, mask=True, max_size=20)
    expected = 7 if label else 0
    sample = {"image": png(scene(8, 8)), "mask": np.ones((8, 8), np.uint8)}
    with pp.Loader([sample], pipeline, batch_size=1) as loader:
        (batch,) = loader
    mask = np.full((12, 12), expected, np.uint8)
    mask[2:10, 2:10] = 1
    assert np.array_equal(batch["mask"][0], mask)
    assert caplog.messages == []
    assert pp.mask not in map(type, from_albumentations(training=chain, max_size=20).ops)
    assert caplog.messages == [
        f'Albumentations pads masks with "fill_mask" {expected}, but the op mask pads with 255 by default: set the '
        "option mask to add the op with this value"
    ]


def test_pad_and_flips_in_training_and_serving():
    served = compose(transform("Resize", **RESIZE), transform("ToTensorV2"))
    drawn = compose(transform("Resize", **RESIZE), transform("VerticalFlip", p=0.25), transform("ToTensorV2"))
    pipeline = from_albumentations(served, training=drawn)
    assert pp.random_flip("vertical", 0.25) in pipeline.for_training().side_ops
    assert pp.random_flip("vertical", 0.25) not in pipeline.for_serving().side_ops


def test_a_file_is_recognized_by_its_fields(tmp_path):
    path = tmp_path / "transforms.json"
    path.write_text(json.dumps(compose(transform("Resize", **RESIZE))))
    assert import_pipeline(str(path)) == import_pipeline(f"albumentations:{path}")
    assert import_pipeline(str(path)).origin.name == "transforms.json"


def test_a_damaged_file_is_imported_or_rejected():
    whole = compose(transform("Resize", **RESIZE), transform("Normalize", **NORMALIZE), bbox_params=BOXES)
    sources = [whole, *map(readable, damaged(json.dumps(whole).encode()))]
    assert_imported_or_refused(from_albumentations, [source for source in sources if isinstance(source, dict)])


def readable(data):
    """Return the parsed JSON, or None if the data are not JSON."""
    try:
        return json.loads(data)
    except ValueError:
        return None
