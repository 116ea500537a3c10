"""Tests that boxes and points follow an image's geometry: their formats, removal and attributes, and the mapping back
to the photo.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.engine.annotations import annotated, columns
from pixprep.pipeline.ops import op_name
from pixprep.plan.boxes import convert
from pixprep.training.fields import Annotated
from support.images import png, scene, with_exif

SIZE = (60, 80)
BOXES = np.array([[10, 20, 30, 40], [0, 0, 80, 60], [50, 5, 70, 6], [70, 50, 79, 59]], np.float32)
SAMPLE = {
    "boxes": BOXES,
    "labels": np.array([1, 2, 3, 4]),
    "iscrowd": np.array([False, True, False, False]),
    "box_track": ["a", "b", "c", "d"],
    "name": "photo.jpg",
    # this field has as many values as there are boxes, but does not belong to them
    "camera": (1.5, 2.5, 3.5, 4.5),
}


def plan_of(*ops):
    return pp.Pipeline([pp.decode(), *ops, pp.tensor(only="training")]).for_training().plan


def run_sample(*ops, sample=SAMPLE, seed=0, size=SIZE):
    plan = plan_of(*ops)
    (numbers,) = plan.draw(seed=seed, epoch=0, indices=[0])
    place = Annotated(plan, plan.placing(numbers, sample), sample)
    place(*size)
    return place.fields


TWICE = pp.resize(height=120, width=160)
LEFT_HALF = pp.crop(0, 0, 60, 40)


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([TWICE, pp.boxes()], BOXES * 2),
        ([TWICE, pp.boxes(normalized=True)], BOXES / (80, 60, 80, 60)),
        ([TWICE, pp.boxes(format="xywh")], [[20, 40, 40, 40], [0, 0, 160, 120], [100, 10, 40, 2], [140, 100, 18, 18]]),
        (
            [TWICE, pp.boxes(format="cxcywh", normalized=True)],
            np.array([[20, 30, 20, 20], [40, 30, 80, 60], [60, 5.5, 20, 1], [74.5, 54.5, 9, 9]]) / (80, 60, 80, 60),
        ),
        ([LEFT_HALF, pp.boxes()], [[10, 20, 30, 40], [0, 0, 40, 60]]),
        ([LEFT_HALF, pp.boxes(clip=False)], [[10, 20, 30, 40], [0, 0, 80, 60]]),
        ([LEFT_HALF, pp.boxes(min_visible=0.6)], [[10, 20, 30, 40]]),
        ([LEFT_HALF, pp.boxes(min_area=401)], [[0, 0, 40, 60]]),
        ([LEFT_HALF, pp.boxes(min_size=25)], [[0, 0, 40, 60]]),
        ([pp.resize(height=30, width=40), pp.boxes()], [[5, 10, 15, 20], [0, 0, 40, 30], [35, 25, 39.5, 29.5]]),
        ([pp.pad(100, 100), pp.boxes()], BOXES + np.float32([10, 20, 10, 20])),
        (
            [pp.flip(), pp.center_crop(60, 80), pp.boxes()],
            [[50, 20, 70, 40], [0, 0, 80, 60], [10, 5, 30, 6], [1, 50, 10, 59]],
        ),
        ([pp.flip("vertical"), TWICE, pp.boxes(min_size=9)], [[20, 40, 60, 80], [0, 0, 160, 120], [140, 2, 158, 20]]),
    ],
    ids=str,
)
def test_boxes_follow_the_image(ops, expected):
    ops = ops if any(isinstance(op, (pp.resize, pp.crop, pp.pad, pp.center_crop)) for op in ops) else [*ops, TWICE]
    boxes = run_sample(*ops)["boxes"]
    assert boxes.dtype == np.float32
    np.testing.assert_allclose(boxes, np.asarray(expected, np.float32), atol=1e-5)


@pytest.mark.parametrize("axis", ["horizontal", "vertical"])
@pytest.mark.parametrize("place", ["before the resize", "after a margin", "after the resize", "after a filter"])
def test_boxes_are_mirrored_for_a_mirror_at_any_position(axis, place):
    """The mirror may also be among the steps on pixel values, after a filter that cannot be exchanged with a mirror."""
    first, last = pp.crop(3, 9, 50, 60), pp.crop(5, 11, 31, 40)
    mirror, larger = pp.flip(axis), pp.resize(height=100, width=120)
    ops = {
        "before the resize": [first, mirror, larger, last],
        "after a margin": [first, pp.pad(62, 76), pp.crop(2, 3, 57, 70), mirror, larger, last],
        "after the resize": [first, larger, mirror, last],
        "after a filter": [first, larger, pp.gaussian_blur(3), mirror, last],
    }[place]
    box = np.array([20.0, 11, 50, 44])
    boxes, points = box[None], [[33.0, 40.0]]
    fields = run_sample(*ops, pp.boxes(clip=False), pp.points(), sample={"boxes": boxes, "points": points})
    begin, size = ((4, -1), (70, 57)) if place == "after a margin" else ((9, 3), (60, 50))
    along = int(axis == "vertical")

    def there(point):
        point = np.array(point) - begin
        point[along] = size[along] - point[along]
        return point * (120, 100) / size - (11, 5)

    corners = np.array([there(box[:2]), there(box[2:])])
    np.testing.assert_allclose(fields["boxes"][0], [*corners.min(0), *corners.max(0)], atol=1e-4)
    np.testing.assert_allclose(fields["points"], [there(points[0])], atol=1e-4)


JITTER = pp.color_jitter(0.4)
MOVERS = [
    pp.resize(height=30, width=40),
    pp.center_crop(8),
    pp.crop(0, 65, 60, 15),
    pp.flip(),
    pp.pad(100, 100),
    pp.letterbox(64, 64),
    pp.random_resized_crop(8),
    pp.random_crop(8),
    pp.random_flip(),
    pp.random_zoom_out(),
    pp.random_iou_crop(),
    pp.rotate(10),
    pp.random_rotate(10),
    pp.random_affine(10),
    pp.random_perspective(),
    pp.elastic(),
    pp.grid_distortion(),
    pp.rand_augment(),
    pp.operator("acme.half", version=1, shape=(30, 40))(lambda pixels: pixels[::2, ::2])(),
]


@pytest.mark.parametrize("annotation", [pp.boxes(), pp.points(), pp.mask(), pp.masks()], ids=op_name)
@pytest.mark.parametrize("mover", MOVERS, ids=str)
def test_ops_on_annotations_are_rejected_before_ops_that_move_the_photo(annotation, mover):
    name, kind = op_name(annotation), getattr(mover, "operator", None)
    said = f'ops[3] "{kind.name if kind else op_name(mover)}"'
    with pytest.raises(pp.PipelineError) as caught:
        plan_of(pp.center_crop(60, 80), annotation, mover, *[pp.center_crop(8)] * (mover in MOVERS[9:11]))
    assert str(caught.value) == (
        f'ops[2] "{name}": in training: {said} transforms the image, but not the earlier {name}: '
        f"move {name} after {said}"
    )


def test_ops_that_do_not_move_pixels_can_follow_ops_on_boxes():
    still = [JITTER, pp.gaussian_blur(3), pp.random_gaussian_blur(3), pp.sharpness(2), pp.equalize(), pp.normalize()]
    plan_of(TWICE, pp.boxes(), *still)
    plan_of(TWICE, pp.boxes(), pp.tensor(name="one", only="training"), pp.center_crop(8))  # attributes of "one"
    plan_of(pp.mask(name="whole"), TWICE, pp.mask())


def test_only_the_attributes_of_a_box_are_removed_with_it():
    fields = run_sample(LEFT_HALF, pp.boxes())
    assert set(fields) == {"boxes", "labels", "iscrowd", "box_track"}
    assert fields["labels"].tolist() == [1, 2]
    assert fields["iscrowd"].tolist() == [False, True]
    assert fields["box_track"].tolist() == ["a", "b"]


def test_a_box_is_removed_if_its_centre_is_outside_the_crop():
    plan = plan_of(pp.random_iou_crop(), pp.resize(height=8, width=8), pp.boxes(min_size=0))
    words = {"random_iou_crop#0": {"top": 0, "left": 0, "height": 35, "width": 45}}
    placed = plan.replaying(words, SAMPLE)(*SIZE)
    assert placed.kept["random_iou_crop#0"].tolist() == [True, True, False, False]
    # the centre of the second box is at the edge, although most of the box is visible
    words["random_iou_crop#0"]["width"] = 40
    assert annotated(plan, plan.replaying(words, SAMPLE)(*SIZE), SAMPLE)["labels"].tolist() == [1]


def test_boxes_are_padded_with_minus_one_to_form_one_array():
    fields = run_sample(LEFT_HALF, pp.boxes(pad=4))
    assert fields["boxes"].shape == (4, 4)
    assert (fields["boxes"][2:] == -1).all()
    assert fields["labels"].tolist() == [1, 2, -1, -1]
    assert fields["iscrowd"].tolist() == [0, 1, -1, -1]
    plan = plan_of(LEFT_HALF, pp.boxes(pad=4))
    sample = {key: SAMPLE[key] for key in ("boxes", "labels", "iscrowd")}
    rows = [run_sample(LEFT_HALF, pp.boxes(pad=4), sample=sample), None]
    together = columns(plan, rows)
    assert together["boxes"].shape == (2, 4, 4)
    assert (together["boxes"][1] == -1).all()
    assert together["labels"].tolist() == [[1, 2, -1, -1], [-1, -1, -1, -1]]
    ragged = columns(plan_of(LEFT_HALF, pp.boxes()), [run_sample(LEFT_HALF, pp.boxes()), None])
    assert [None if each is None else len(each) for each in ragged["boxes"]] == [2, None]
    assert columns(plan, [None, None]) == {}


def test_a_sample_without_boxes_has_an_empty_array():
    fields = run_sample(TWICE, pp.boxes(), sample={"boxes": [], "labels": []})
    assert fields["boxes"].shape == (0, 4)
    assert fields["labels"].shape == (0,)
    assert run_sample(TWICE, pp.boxes(pad=2), sample={"boxes": np.zeros((0, 4))})["boxes"].tolist() == [[-1] * 4] * 2


def test_an_image_whose_rotation_contradicts_its_annotation_fails_alone():
    plan = plan_of(pp.resize(height=8, width=8), pp.boxes())
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.boxes(), pp.tensor(only="training")])
    stored = with_exif(6)
    with pp.Engine(pp.Pipeline([pp.decode(), pp.original_size(), pp.center_crop(8), pp.tensor()])) as engine:
        height, width = engine.run_batch([stored])["original_size"][0].tolist()
    sample = {"boxes": [[0, 0, 5, 5]], "size": (width, height)}
    place = Annotated(plan, plan.place, sample)
    fine = Annotated(plan, plan.place, {"boxes": [[0, 0, 5, 5]], "size": SIZE})
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([stored, png(scene(*SIZE))], places=[place, fine])
    assert batch.errors[0].reason == "BAD_RECORD"
    assert "if this is due to the EXIF orientation" in str(batch.errors[0])
    assert batch.errors[1] is None
    assert len(fine.fields["boxes"]) == 0  # half a pixel of the box remains


def test_points_follow_the_image_and_the_boxes():
    points = np.array([[[10, 20], [30, 40]], [[0, 0], [80, 60]], [[60, 5], [70, 6]], [[70, 50], [79, 59]]], np.float32)
    sample = {"boxes": BOXES, "points": points}
    fields = run_sample(pp.flip(), pp.crop(0, 40, 60, 40), pp.boxes(), pp.points(), sample=sample)
    np.testing.assert_allclose(fields["points"], [[[30, 20], [10, 40]], [[40, 0], [-40, 60]]])
    clipped = run_sample(pp.flip(), pp.crop(0, 40, 60, 40), pp.boxes(), pp.points(clip=True), sample=sample)
    np.testing.assert_allclose(clipped["points"][1], [[40, 0], [0, 60]])
    normalized = run_sample(TWICE, pp.points(normalized=True), sample={"points": points[:, 0]})
    np.testing.assert_allclose(normalized["points"], points[:, 0] / (80, 60), atol=1e-6)
    padded = run_sample(TWICE, pp.points(pad=5), sample={"points": points})
    assert padded["points"].shape == (5, 2, 2)
    assert (padded["points"][4] == -1).all()


@pytest.mark.parametrize(
    ("ops", "is_mirrored"),
    [
        ([pp.flip(), TWICE], True),
        ([pp.flip("vertical"), LEFT_HALF, TWICE], True),
        ([pp.flip(), pp.flip("vertical"), TWICE], False),
        ([TWICE, pp.rotate(180)], False),
    ],
)
@pytest.mark.parametrize("boxes", [[pp.boxes()], []])
def test_a_mirror_swaps_left_and_right_keypoints(ops, is_mirrored, boxes):
    points = np.arange(4 * 5 * 2, dtype=np.float32).reshape(4, 5, 2)
    sample = {"boxes": BOXES, "points": points, "visible": np.arange(20).reshape(4, 5) % 3}
    plain = run_sample(*ops, *boxes, pp.points(), sample=sample)
    paired = run_sample(*ops, *boxes, pp.points(flip_pairs=[[1, 2], [4, 3]]), sample=sample)
    order = [0, 2, 1, 4, 3] if is_mirrored else [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(paired["points"], plain["points"][:, order])
    np.testing.assert_array_equal(paired["visible"], plain.get("visible", sample["visible"])[:, order])


def test_left_and_right_keypoints_are_not_swapped_without_keypoints():
    sample = {"boxes": np.zeros((0, 4)), "points": np.zeros((0, 3, 2)), "visible": np.zeros((0, 3), np.uint8)}
    fields = run_sample(pp.flip(), TWICE, pp.boxes(), pp.points(flip_pairs=[[1, 2]]), sample=sample)
    assert (fields["points"].shape, fields["visible"].shape) == ((0, 3, 2), (0, 3))


CHAIN = (
    pp.random_flip(), pp.random_zoom_out(fill=0), pp.random_iou_crop(), pp.random_flip("vertical"),
    pp.resize(height=90, width=70), pp.random_flip(),
)  # fmt: skip


@settings(max_examples=40, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_box_encloses_the_same_pixels_before_and_after(seed, index):
    """A bright rectangle is drawn where the box is. In the tensor, the moved box must enclose the bright pixels."""
    generator = np.random.default_rng(seed)
    top, left = generator.integers(0, 30), generator.integers(0, 40)
    bottom, right = top + generator.integers(20, 30), left + generator.integers(20, 40)
    pixels = np.zeros((*SIZE, 3), np.uint8)
    pixels[top:bottom, left:right] = 255
    sample = {"boxes": np.array([[left, top, right, bottom]], np.float32), "labels": [7]}
    ops = [pp.decode(), *CHAIN, pp.boxes(min_size=0), pp.tensor(dtype="uint8", layout="hwc", only="training")]
    pipeline = pp.Pipeline(ops)
    (numbers,) = pipeline.plan.draw(seed=seed, epoch=0, indices=[index])
    place = Annotated(pipeline.plan, pipeline.plan.placing(numbers, sample), sample)
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([png(pixels)], places=[place])
    assert batch.errors == [None]
    rows, cols = (np.flatnonzero(batch["tensor"][0, :, :, 0].max(axis=axis) > 127) for axis in (1, 0))
    ((x1, y1, x2, y2),) = place.fields["boxes"]
    assert place.fields["labels"].tolist() == [7]
    found = [cols[0], rows[0], cols[-1] + 1, rows[-1] + 1]
    np.testing.assert_allclose([x1, y1, x2, y2], found, atol=0.51)


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["xyxy", "xywh", "cxcywh"]))
def test_boxes_are_mapped_back_to_the_photo(seed, form):
    plan = plan_of(*CHAIN, pp.boxes(format=form, clip=False, min_size=0), pp.transform())
    (numbers,) = plan.draw(seed=seed, epoch=0, indices=[0])
    placed = plan.placing(numbers, SAMPLE)(*SIZE)
    fields = annotated(plan, placed, SAMPLE)
    transform = np.float32(placed.placements["transform"].transform)
    back = pp.boxes_to_original(fields["boxes"], transform, format=form)
    expected = convert(BOXES[fields["labels"] - 1], "xyxy", form)
    np.testing.assert_allclose(back, expected, atol=1e-3)
    assert back.dtype == np.float32
