"""Files of Albumentations, read without it: what is understood, and what is refused by its name."""

import json

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers import import_pipeline
from pixprep.importers.albumentations import from_albumentations
from support.images import png, scene
from support.importing import assert_imported_or_refused, damaged, refusal
from support.refusals import refusal as words_of
from support.refusals import refusals

RESIZE = {"height": 8, "width": 9, "interpolation": 1}
PAD = {"min_height": 8, "min_width": 9, "position": "center", "border_mode": 0, "fill": 114.0}
CROP = {"height": 8, "width": 9}
NORMALIZE = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "max_pixel_value": 255.0}


def transform(name, **fields):
    """A transform as the library writes it."""
    return {"__class_fullname__": name, "p": 1.0, **fields}


def compose(*transforms, version="2.0.8", **fields):
    """Result of ``A.to_dict``."""
    return {"__version__": version, "transform": transform("Compose", transforms=list(transforms), **fields)}


def imported(*transforms, side="source", **fields):
    """The ops between ``decode`` and ``tensor``."""
    return list(from_albumentations(**{side: compose(*transforms, **fields)}).ops[1:-1])


LONGEST = transform("LongestMaxSize", max_size=[8], interpolation=0)
CASES = [
    ([transform("Resize", **RESIZE)], [pp.resize(height=8, width=9, like="opencv")]),
    (
        [LONGEST, transform("PadIfNeeded", **PAD | {"min_width": 8})],
        [
            pp.resize(8, side="longer", mode="scale", filter="nearest", like="opencv", rounding="half_even"),
            pp.pad(8, 8, fill=114, larger="keep"),
        ],
    ),
    (
        [transform("LongestMaxSize", max_size_hw=[8, 9], interpolation=3), transform("PadIfNeeded", **PAD)],
        [pp.letterbox(8, 9, filter="area", like="opencv")],
    ),
    (
        [transform("SmallestMaxSize", max_size=8, interpolation=4), transform("CenterCrop", **CROP | {"width": 4})],
        [
            pp.resize(8, mode="scale", filter="lanczos4", like="opencv", rounding="half_even"),
            pp.center_crop(8, 4, rounding="down", smaller="refuse"),
        ],
    ),
    (
        [
            transform("SmallestMaxSize", max_size_hw=[None, 8], interpolation=2),
            transform("Crop", x_min=1, y_min=0, x_max=4, y_max=1),
        ],
        [pp.resize(width=8, filter="bicubic", like="opencv", rounding="half_even"), pp.crop(0, 1, 1, 3)],
    ),
    (
        [transform("CenterCrop", **CROP, pad_if_needed=True, border_mode=4, fill=0, pad_position="top_left")],
        [
            pp.pad(8, 9, anchor="top_left", padding_mode="reflect", larger="keep"),
            pp.center_crop(8, 9, rounding="down", smaller="refuse"),
        ],
    ),
    (
        [
            transform("PadIfNeeded", **{k: v for k, v in PAD.items() if k != "fill"}, value=[1, 2, 3], mask_value=None),
            transform("CenterCrop", **CROP),
        ],
        [pp.pad(8, 9, fill=(1, 2, 3), larger="keep"), pp.center_crop(8, 9, rounding="down", smaller="refuse")],
    ),
    (
        [transform("Resize", **RESIZE), transform("Normalize", **NORMALIZE), transform("HorizontalFlip")],
        [
            pp.resize(height=8, width=9, like="opencv"),
            pp.flip(),
            pp.normalize((123.675, 116.28, 103.53), (58.395, 57.120003, 57.375), 1.0, "fused_multiply"),
        ],
    ),
    (
        [transform("Resize", **RESIZE), transform("ToFloat", max_value=None), transform("VerticalFlip", p=0)],
        [pp.resize(height=8, width=9, like="opencv"), pp.normalize(arithmetic="divide")],
    ),
    (
        [
            transform("Transpose"),
            transform("InvertImg"),
            transform("OneOf", transforms=[transform("Resize", **RESIZE)]),
        ],
        [
            pp.rotate(90, expand=True),
            pp.flip("vertical"),
            pp.invert(),
            pp.resize(height=8, width=9, like="opencv"),
        ],
    ),
    (
        [LONGEST, transform("PadIfNeeded", **PAD | {"min_width": 8}), transform("Resize", **RESIZE | {"width": 8})],
        [
            pp.resize(8, side="longer", mode="scale", filter="nearest", like="opencv", rounding="half_even"),
            pp.pad(8, 8, fill=114, larger="keep"),
        ],
    ),
]


@pytest.mark.parametrize(
    ("transforms", "ops"), CASES, ids=[" ".join(t["__class_fullname__"] for t in c[0]) for c in CASES]
)
def test_a_transform_becomes_its_ops(transforms, ops):
    assert imported(*transforms) == ops


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


def test_one_gray_channel_is_the_tensors():
    gray = transform("ToGray", method="weighted_average", num_output_channels=1)
    pipeline = from_albumentations(compose(transform("Resize", **RESIZE), gray, transform("ToTensorV2")))
    assert list(pipeline.ops[2:]) == [pp.grayscale("opencv"), pp.tensor(channels=1, dtype="uint8")]


def test_an_image_of_its_own_size_needs_the_option_max_size():
    chain = compose(transform("PadIfNeeded", **PAD), transform("ToTensorV2"), additional_targets={"image2": "image"})
    assert from_albumentations(chain, max_size=640).ops[-1] == pp.tensor(dtype="uint8", max_size=640)
    assert refusal(from_albumentations, chain).endswith("here that is the option max_size, such as max_size=4096")


def test_what_older_versions_always_apply_is_done_always():
    chain = compose(transform("Resize", **RESIZE), transform("HorizontalFlip", p=0.5, always_apply=True))
    assert from_albumentations(chain).ops[2] == pp.flip()
    chain["transform"]["transforms"][1]["always_apply"] = False
    assert from_albumentations(training=chain).ops[2] == pp.random_flip(p=0.5)


def test_a_file_of_yaml_is_refused_with_the_option_that_writes_json(tmp_path):
    path = tmp_path / "transforms.yaml"
    path.write_text("transform:")
    assert refusal(from_albumentations, path).startswith(
        "transforms.yaml: is YAML: A.save(transform, path, data_format="
    )


BOXES = {
    "format": "yolo",
    "label_fields": ["labels"],
    "min_area": 25.0,
    "min_visibility": 0.25,
    "min_width": 2,
    "min_height": 2,
}


def test_boxes_and_points_are_outputs_of_training():
    points = {"format": "xy", "label_fields": None, "remove_invisible": False}
    ops = imported(transform("Resize", **RESIZE), bbox_params=BOXES, keypoint_params=points)
    assert ops[1:] == [pp.boxes("cxcywh", normalized=True, min_size=2, min_visible=0.25, min_area=25), pp.points()]


def test_label_fields_go_with_their_boxes():
    pascal = BOXES | {"format": "pascal_voc", "label_fields": ["labels", "cls"], "min_visibility": 0.5}
    chain = compose(transform("CenterCrop", height=20, width=20), transform("ToTensorV2"), bbox_params=pascal)
    pipeline = from_albumentations(training=chain)
    assert pipeline.ops[-2].follow == ("cls",)  # labels do anyway
    sample = {"image": png(scene(60, 60)), "boxes": [[0, 0, 20, 20], [25, 25, 35, 35]], "cls": [4, 5], "labels": [1, 2]}
    with pp.Loader([sample] * 2, pipeline, batch_size=2) as loader:
        (batch,) = loader
    assert [each.tolist() for each in batch["cls"]] == [[5], [5]]
    assert [each.tolist() for each in batch["labels"]] == [[2], [2]]


@pytest.mark.parametrize("label", [None, 0, 7, 7.0, [7, 7, 7], (7, 7.0)])
def test_a_mask_gets_the_label_of_fill_mask_where_no_image_is(label, caplog):
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
        f'masks have "fill_mask" {expected} where no image is, and the op mask 255: the option mask adds it'
    ]


def test_both_sides_and_flips_by_chance():
    served = compose(transform("Resize", **RESIZE), transform("ToTensorV2"))
    drawn = compose(transform("Resize", **RESIZE), transform("VerticalFlip", p=0.25), transform("ToTensorV2"))
    pipeline = from_albumentations(served, training=drawn)
    assert pp.random_flip("vertical", 0.25) in pipeline.for_training().side_ops
    assert pp.random_flip("vertical", 0.25) not in pipeline.for_serving().side_ops


def test_a_file_is_known_by_its_fields(tmp_path):
    path = tmp_path / "transforms.json"
    path.write_text(json.dumps(compose(transform("Resize", **RESIZE))))
    assert import_pipeline(str(path)) == import_pipeline(f"albumentations:{path}")
    assert import_pipeline(str(path)).origin.name == "transforms.json"


def test_a_damaged_file_is_imported_or_refused():
    whole = compose(transform("Resize", **RESIZE), transform("Normalize", **NORMALIZE), bbox_params=BOXES)
    sources = [whole, *map(readable, damaged(json.dumps(whole).encode()))]
    assert_imported_or_refused(from_albumentations, [source for source in sources if isinstance(source, dict)])


def readable(data):
    """The JSON in a file; None where it is none."""
    try:
        return json.loads(data)
    except ValueError:
        return None


JITTER = {name: [0.8, 1.2] for name in ("brightness", "contrast", "saturation")} | {"hue": [-0.5, 0.5]}
WARPED = {"interpolation": 1, "border_mode": 0, "fill": 7.0, "fill_mask": 0.0, "mask_interpolation": 0}
ROTATE = WARPED | {"limit": [0, 9]}
DRAWN = [
    ([transform("RandomCrop", **CROP | {"p": 0.5})], [pp.random_crop(8, 9, p=0.5)]),
    (
        [transform("RandomResizedCrop", size=[8, 9], scale=[0.08, 1.0], ratio=[0.75, 1.5], interpolation=1)],
        [pp.random_resized_crop(8, 9, (0.08, 1.0), (0.75, 1.5), like="opencv")],
    ),
    (
        [transform("RandomScale", scale_limit=[-0.5, 1], interpolation=1, area_for_downscale=None)],
        [pp.scale_jitter(scale_range=(0.5, 2), like="opencv")],
    ),
    (
        [transform("RandomResizedCrop", height=8, width=9, scale=[0.08, 1.0], ratio=[0.75, 1.5], interpolation=1)],
        [pp.random_resized_crop(8, 9, (0.08, 1.0), (0.75, 1.5), like="opencv")],
    ),
    (
        [transform("RandomRotate90", p=0.5), transform("Flip", p=0.25)],
        [
            pp.random_choice([[], *(pp.rotate(angle, expand=True) for angle in (90, 180, 270))], p=0.5),
            pp.random_choice([pp.flip("vertical"), pp.flip(), [pp.flip("vertical"), pp.flip()]], p=0.25),
        ],
    ),
    (
        [
            transform(
                "CoarseDropout",
                max_holes=3,
                min_holes=1,
                max_height=9,
                min_height=8,
                max_width=8,
                min_width=1,
                fill_value=7,
                mask_fill_value=None,
            )
        ],
        [pp.coarse_dropout((1, 3), (8, 9), (1, 8), 7, 1.0)],
    ),
    (
        [transform("GaussianBlur", sigma_limit=[0.5, 3], blur_limit=[0, 0], p=0.25)],
        [pp.random_gaussian_blur(0, (0.5, 3), 0.25, "opencv")],
    ),
    (
        [transform("GaussianBlur", sigma_limit=[0.5, 3], blur_limit=[0, 4], p=0.25)],
        [
            pp.random_choice(
                [pp.random_gaussian_blur(size, (0.5, 3), like="opencv") for size in (0, 1, 3, 5)], (1, 1, 2, 1), 0.25
            )
        ],
    ),
    (
        [transform("ColorJitter", **JITTER | {"p": 0.25})],
        [pp.color_jitter((0.8, 1.2), (0.8, 1.2), (0.8, 1.2), (-0.5, 0.5), "opencv", 0.25)],
    ),
    (
        [transform("RandomBrightnessContrast", brightness_limit=[-0.1, 0.2], contrast_limit=[0, 1])],
        [pp.random_brightness_contrast((-0.1, 0.2), (0, 1), 1.0)],
    ),
    (
        [
            transform("HueSaturationValue", hue_shift_limit=[-20, 20], sat_shift_limit=[-3, 3], val_shift_limit=[0, 2]),
            transform("ToGray", method="weighted_average", num_output_channels=3, p=0.125),
        ],
        [pp.random_hue_saturation_value((-20, 20), (-3, 3), (0, 2), 1.0), pp.random_gray("opencv", 0.125)],
    ),
    (
        [
            transform(
                "CoarseDropout",
                num_holes_range=[1, 3],
                hole_height_range=[8, 9],
                hole_width_range=[1, 8],
                fill_value=7,
                mask_fill_value=None,
            )
        ],
        [pp.coarse_dropout((1, 3), (8, 9), (1, 8), 7, 1.0)],
    ),
    (
        [
            transform(
                "Affine",
                **WARPED,
                rotate=[-9, 9],
                translate_px=None,
                translate_percent={"x": [-0.1, 0.1], "y": [0, 0.5]},
                scale={"x": [0.5, 1], "y": [0.5, 1]},
                shear={"x": [-5, 5], "y": [0, 0]},
                keep_ratio=True,
                fit_output=False,
                balanced_scale=False,
                p=0.5,
            )
        ],
        [pp.random_warp((-9, 9), (-0.1, 0.1, 0, 0.5), (0.5, 1, 0.5, 1), (-5, 5, 0, 0), keep_ratio=True, fill=7, p=0.5)],
    ),
    (
        [
            transform(
                "ShiftScaleRotate",
                **WARPED | {"border_mode": 4, "interpolation": 2},
                shift_limit_x=[0, 0.5],
                shift_limit_y=[0, 0.25],
                scale_limit=[-0.5, 0.5],
                rotate_limit=[-9, 9],
            )
        ],
        [
            pp.random_warp(
                (-9, 9), (0, 0.5, 0, 0.25), (0.5, 1.5, 0.5, 1.5), filter="bicubic", padding_mode="reflect"
            )
        ],
    ),
    (
        [transform("Rotate", **WARPED, limit=[0, 9], crop_border=False)],
        [pp.random_warp((0, 9), fill=7)],
    ),
    (
        [transform("Perspective", **WARPED, scale=[0, 0.5], keep_size=True, fit_output=False)],
        [pp.random_warp_perspective((0, 0.5), fill=(7, 0, 0))],
    ),
    (
        [
            transform(
                "OneOf",
                p=0.5,
                transforms=[
                    transform("HorizontalFlip", p=0.75),
                    transform("Sequential", transforms=[transform("VerticalFlip"), transform("ToGray")], p=0.25),
                ],
            )
        ],
        [pp.random_choice((pp.flip(), (pp.flip("vertical"), pp.grayscale("opencv"))), (0.75, 0.25), 0.5)],
    ),
    ([transform("Compose", transforms=[transform("CenterCrop", **CROP, p=0.5)])],
     [pp.random_apply((pp.center_crop(8, 9, rounding="down", smaller="refuse"),), 0.5)]),
]  # fmt: skip


@pytest.mark.parametrize(("transforms", "ops"), DRAWN, ids=[case[0][0]["__class_fullname__"] for case in DRAWN])
def test_what_draws_becomes_an_op_of_training(transforms, ops):
    chain = compose(*transforms, transform("PadIfNeeded", **PAD), transform("CenterCrop", **CROP))
    pipeline = from_albumentations(training=chain)
    assert list(pipeline.ops[1:-3]) == ops
    assert pipeline.sides == ("training",)
    assert "is random, and serving draws nothing" in refusal(from_albumentations, chain)


@refusals("importers")
def test_a_mistake_is_refused_in_whole_words(call, words):
    names = {
        "t": transform,
        "RESIZE": RESIZE,
        "PAD": PAD,
        "CROP": CROP,
        "NORMALIZE": NORMALIZE,
        "BOXES": BOXES,
        "WARPED": WARPED,
        "ROTATE": ROTATE,
    }
    assert words_of(call, a=imported, compose=compose, from_albumentations=from_albumentations, **names) == words
