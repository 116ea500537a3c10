"""Tests the per-request inputs of the engine: boxes, mirrors and colours."""

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from support.images import jpeg as encode
from support.images import noise, photo, png, read, scene, with_exif

SMALL = {"height": 24, "width": 30}


def crops(*after, box="boxes", decode=None, resize=None, **tensor):
    tail = [pp.resize(**SMALL, **(resize or {})), *after, pp.tensor(**{"dtype": "uint8", "layout": "hwc"} | tensor)]
    return pp.Pipeline([decode or pp.decode(), pp.crop(box=box), *tail])


def fixed_crop(box, resize=None, dtype="uint8"):
    """Return the same pipeline with a fixed crop, given by integers: left, top, right, bottom."""
    left, top, right, bottom = box
    ops = [pp.crop(top, left, bottom - top, right - left), pp.resize(**SMALL, **(resize or {}))]
    return pp.Pipeline([pp.decode(), *ops, pp.tensor(dtype=dtype, layout="hwc")])


def run(pipeline, encoded, limits=None, **inputs):
    with pp.Engine(pipeline, limits=limits) as engine:
        return engine.run(encoded, inputs=inputs)


BOXES = [(0, 0, 640, 427), (10, 20, 200, 90), (639, 426, 640, 427), (0, 5, 640, 6), (300, 100, 333, 427)]
RESIZES = [{}, {"filter": "bicubic"}, {"like": "torchvision"}, {"like": "opencv"}, {"like": "tensorflow"}]


@pytest.mark.parametrize("resize", RESIZES, ids=str)
def test_the_crop_of_a_box_equals_the_fixed_crop(resize):
    dtype = "float32" if resize.get("like") == "tensorflow" else "uint8"
    ours = run(crops(resize=resize, dtype=dtype), [photo()], boxes=[BOXES])
    for box, tensor in zip(BOXES, ours, strict=True):
        (theirs,) = run(fixed_crop(box, resize, dtype), [photo()])
        assert np.array_equal(tensor, theirs), box


def test_box_edges_are_rounded_like_pillow():
    rng = np.random.default_rng(1)
    boxes = [np.sort(rng.uniform(-0.49, 40, (2, 2)), axis=0).reshape(-1) for _ in range(200)]
    boxes += [(0.5, 1.5, 2.5, 3.5), (1.5, 0.5, 3.5, 4.5), (3.49, 2.51, 5.5, 6.5)]
    pixels = noise(41, 41)
    whole = pp.Pipeline(
        [pp.decode(), pp.crop(box="boxes"), pp.pad(41, 41, anchor="top_left"), pp.tensor("uint8", "hwc")]
    )
    found = 0
    for box, ours in zip(boxes, run(whole, [png(pixels)], pp.Limits(max_boxes=300), boxes=[boxes]), strict=True):
        by_pillow = np.asarray(Image.fromarray(pixels).crop(tuple(np.float32(box).tolist())))
        if 0 in by_pillow.shape:
            assert isinstance(ours, pp.ImageError)
            continue
        found += 1
        height, width = by_pillow.shape[:2]
        assert np.array_equal(ours[:height, :width], by_pillow), box
        assert not ours[height:].any()
    assert found > 180


def test_a_box_is_clipped_to_the_image():
    over, inside = run(crops(), [photo()], boxes=[[(-1e30, 380.4, 50.2, 3e38), (0, 380, 50, 427)]])
    assert np.array_equal(over, inside)


OVERLAPPING_BOXES = [
    (-7, -5, 50, 40),
    (600, 400, 701, 430),
    (-9.5, 20, 700.5, 90),
    (10, 380, 30, 900),
    (-100, -100, 740, 527),
]


@pytest.mark.parametrize("resize", [*RESIZES[:-1], {"filter": "lanczos"}, {"filter": "nearest"}], ids=str)
@pytest.mark.parametrize("fill", [0, (9, 200, 77)])
def test_a_box_with_padding_equals_the_crop_of_the_padded_photo(resize, fill):
    """The reference pads and crops the photo with NumPy, and resizes the result like a photo."""
    tail = [pp.resize(**SMALL, **resize), pp.tensor(dtype="uint8", layout="hwc")]
    pads = pp.Pipeline([pp.decode(), pp.crop(box="boxes", smaller="pad", fill=fill), *tail])
    canvas = np.empty((427 + 1200, 640 + 1200, 3), np.uint8)
    canvas[...] = fill
    canvas[600:1027, 600:1240] = read(photo())
    for box, ours in zip(
        [*OVERLAPPING_BOXES, *BOXES], run(pads, [photo()], boxes=[[*OVERLAPPING_BOXES, *BOXES]]), strict=True
    ):
        left, top, right, bottom = (600 + round(edge) for edge in box)
        (theirs,) = pp.Engine(pp.Pipeline([pp.decode(), *tail])).run([png(canvas[top:bottom, left:right])])
        assert np.array_equal(ours, theirs), box


def test_a_padded_box_maps_back_and_keeps_its_colour():
    pads = pp.crop(box="boxes", smaller="pad", fill="colour")
    pipeline = pp.Pipeline([pp.decode(), pads, pp.resize(**SMALL), pp.transform(), pp.tensor("uint8", "hwc")])
    with pp.Engine(pipeline) as engine:
        inputs = {"boxes": [OVERLAPPING_BOXES], "colour": [[(1, 2, 3)] * len(OVERLAPPING_BOXES)]}
        batch = engine.run_batch([photo()], inputs=inputs)
    for box, transform in zip(OVERLAPPING_BOXES, batch["transform"], strict=True):
        back = pp.boxes_to_original([[0, 0, 30, 24]], transform)
        assert np.abs(back[0] - np.round(box)).max() < 1e-3
    assert batch["tensor"][4, 0, 0].tolist() == [1, 2, 3]


def test_boxes_of_many_photos_keep_their_order_and_each_photo_is_decoded_once():
    photos = [photo(), encode(scene(60, 80)), photo("flower"), png(noise(50, 40))]
    boxes = [BOXES[:3], [(1, 2, 30, 40)], BOXES[1:], [(0, 0, 40, 50), (5, 5, 25, 25)]]
    decoded = []
    with pp.Engine(crops(), threads=3) as engine:
        batch = engine.run_batch(photos, inputs={"boxes": boxes}, keep=lambda place, _: decoded.append(place))
    assert sorted(decoded) == [0, 1, 2, 3]
    assert [(span.start, span.stop) for span in batch.rows] == [(0, 3), (3, 4), (4, 8), (8, 10)]
    assert batch.errors == [None] * 10
    for encoded, those, span in zip(photos, boxes, batch.rows, strict=True):
        for box, tensor in zip(those, batch["tensor"][span], strict=True):
            (alone,) = run(fixed_crop(box), [encoded])
            assert np.array_equal(tensor, alone)


def test_box_coordinates_refer_to_the_oriented_photo_whatever_ops_precede_the_crop():
    encoded = with_exif(6)
    upright = np.asarray(read(encoded).transpose(Image.Transpose.ROTATE_270))
    box = (3, 5, 17, 30)
    seen = upright[5:30, 3:17]
    tail = [pp.pad(50, 50, anchor="top_left"), pp.tensor("uint8", "hwc")]
    plain, mirrored, cropped = (
        run(pp.Pipeline([pp.decode(), *before, pp.crop(box="box"), *tail]), [encoded], box=[[box]])[0]
        for before in ([], [pp.flip()], [pp.crop(2, 1, 36, 22)])
    )
    assert np.array_equal(plain[:25, :14], seen)
    assert np.array_equal(mirrored[:25, :14], seen[:, ::-1])
    assert np.array_equal(cropped, plain)


def test_each_output_has_a_row_per_box_and_transform_maps_back_to_the_photo():
    pipeline = pp.Pipeline(
        [pp.decode(), pp.crop(box="boxes"), pp.resize(**SMALL), pp.transform(), pp.original_size(), pp.tensor()]
    )
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([photo()], inputs={"boxes": [BOXES]})
    assert batch["original_size"].tolist() == [[427, 640]] * len(BOXES)
    for box, transform in zip(BOXES, batch["transform"], strict=True):
        back = pp.boxes_to_original([[0, 0, 30, 24]], transform)
        assert np.abs(back[0] - box).max() < 1e-3


def test_an_invalid_box_fails_alone_and_is_named():
    good, bad = (10, 20, 200, 90), {1: (9, 9, 5, 20), 3: (640, 0, 700, 50), 5: (0, 0, 600, 400)}
    boxes = [bad.get(index, good) for index in range(7)]
    limits = pp.Limits(max_box_pixels=8 * 190 * 70)
    with pp.Engine(crops(), limits=limits) as engine:
        batch = engine.run_batch([photo(), photo("flower")], inputs={"boxes": [boxes, [good]]})
    (alone,) = run(fixed_crop(good), [photo()])
    for index in range(7):
        assert (batch.errors[index] is None) == (index not in bad)
        if index in bad:
            assert f'] "boxes", row {index + 1} of 7: ' in str(batch.errors[index])
            assert not batch["tensor"][index].any()
            assert batch.placed[index] is None
        else:
            assert np.array_equal(batch["tensor"][index], alone)
    assert str(batch.errors[5]).endswith(
        "it covers 240,000 pixels, but only 66,500 of 106,400 are left for the boxes of an image (parameter "
        "max_box_pixels)"
    )
    assert batch.errors[7] is None


def test_malformed_boxes_fail_only_their_photo_with_one_row():
    before, bad, after = run(crops(), [photo()] * 3, boxes=[[(0, 0, 9, 9)], [[1, 2, 3]], [(0, 0, 9, 9)]])
    assert bad.reason == "BAD_INPUT"
    assert np.array_equal(before, after)


@pytest.mark.parametrize("broken", [photo()[:5000], pp.ImageError("BAD_RECORD", "photo.jpg: cannot be read")])
def test_a_broken_photo_fails_only_its_own_boxes(broken):
    boxes = [[(0, 0, 9, 9)] * 2] * 3
    with pp.Engine(crops()) as engine:
        batch = engine.run_batch([photo(), broken, photo()], inputs={"boxes": boxes})
    reason = broken.reason if isinstance(broken, pp.ImageError) else "TRUNCATED"
    assert [error and error.reason for error in batch.errors] == [None, None, reason, reason, None, None]
    assert batch["tensor"][[0, 1, 4, 5]].any(axis=(1, 2, 3)).all()
    assert not batch["tensor"][2:4].any()


def test_inputs_are_one_element_per_image():
    with pp.Engine(crops()) as engine, pytest.raises(pp.PipelineError) as caught:
        engine.run([photo()], inputs={"boxes": [[], []]})
    assert str(caught.value) == (
        'inputs: "boxes" must be a list with one element per image (1), not 2 elements: an element is the row of an '
        "image, or the list of its rows"
    )


def test_the_mirror_input_mirrors_the_image():
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.flip(when="turn"),
            pp.resize(**SMALL),
            pp.flip("vertical", when="over"),
            pp.tensor("uint8", "hwc"),
        ]
    )
    whether = [(False, False), (True, False), (False, True), (True, True)]
    turn, over = zip(*whether, strict=True)
    ours = run(pipeline, [photo()] * 4, turn=turn, over=[[value] for value in over])
    for (is_turned, is_over), tensor in zip(whether, ours, strict=True):
        ops = [pp.decode(), *[pp.flip()] * is_turned, pp.resize(**SMALL), *[pp.flip("vertical")] * is_over]
        assert np.array_equal(tensor, run(pp.Pipeline([*ops, pp.tensor("uint8", "hwc")]), [photo()])[0])


def test_an_invalid_mirror_value_fails_only_its_image():
    pipeline = pp.Pipeline([pp.decode(), pp.resize(**SMALL), pp.flip(when="turn"), pp.tensor()])
    good, as_one, odd = run(pipeline, [photo()] * 3, turn=[True, 1, 2])
    assert good.any()
    assert np.array_equal(good, as_one)
    assert odd.reason == "BAD_INPUT"


FRAMES = {
    "letterbox": ([pp.letterbox(40, 40, fill="paint")], [pp.letterbox(40, 40, fill=(9, 200, 77))]),
    "padded before": (
        [pp.pad(square=True, fill="paint"), pp.resize(**SMALL)],
        [pp.pad(square=True, fill=(9, 200, 77)), pp.resize(**SMALL)],
    ),
    "both": (
        [pp.pad(square=True, fill="paint"), pp.resize(**SMALL), pp.pad(40, 40, fill="paint")],
        [pp.pad(square=True, fill=(9, 200, 77)), pp.resize(**SMALL), pp.pad(40, 40, fill=(9, 200, 77))],
    ),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_the_colour_input_sets_the_colour(frame, color):
    ours, theirs = (pp.Pipeline([pp.decode(color=color), *ops, pp.normalize(), pp.tensor()]) for ops in FRAMES[frame])
    colours = [(9, 200, 77), (0, 0, 0), (9, 200, 77)]
    images = [photo(), photo(), png(noise(90, 30))]
    found = run(ours, images, paint=colours)
    expected = run(theirs, images)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[2], expected[2])
    assert not np.array_equal(found[1], expected[1])
    assert len({tuple(tensor.ravel().tolist()) for tensor in found}) == 3


def test_an_invalid_colour_fails_only_its_image():
    pipeline = pp.Pipeline([pp.decode(), pp.letterbox(40, 40, fill="paint"), pp.tensor("uint8")])
    bad, good = run(pipeline, [photo()] * 2, paint=[(0, 0, 256), (1, 2, 3)])
    assert bad.reason == "BAD_INPUT"
    assert good[:, 0, 0].tolist() == [1, 2, 3]


def test_with_boxes_every_input_has_one_row_per_box():
    """The same box can therefore be given twice, once with a mirror and once without."""
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.crop(box="boxes"),
            pp.flip(when="turn"),
            pp.letterbox(40, 40, fill="paint"),
            pp.tensor("uint8"),
        ]
    )
    box = (10, 20, 210, 120)
    plain, turned, gray = run(
        pipeline, [photo()], boxes=[[box] * 3], turn=[[False, True, False]], paint=[[(0, 0, 0), (0, 0, 0), (9, 9, 9)]]
    )
    assert np.array_equal(turned, plain[:, :, ::-1])
    assert np.array_equal(gray[:, 10:30], plain[:, 10:30])
    assert (gray[:, :10] == 9).all()


def test_one_input_can_set_several_sizes_and_two_inputs_several_crops():
    pipeline = pp.Pipeline(
        [
            pp.decode(name="photo"), pp.crop(box="face"), pp.resize(**SMALL), pp.tensor("uint8", "hwc", name="small"),
            pp.crop(box="face", from_="photo"), pp.resize(height=50, width=50), pp.tensor("uint8", "hwc", name="large"),
            pp.crop(box="scene", from_="photo"), pp.resize(**SMALL), pp.tensor("uint8", "hwc", name="around"),
        ]
    )  # fmt: skip
    assert list(pipeline.inputs) == ["face", "scene"]
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([photo()], inputs={"face": [BOXES[1:2]], "scene": [BOXES[:1]]})
    assert np.array_equal(batch["small"][0], run(fixed_crop(BOXES[1]), [photo()])[0])
    assert np.array_equal(batch["around"][0], run(fixed_crop(BOXES[0]), [photo()])[0])
    assert batch["large"].shape == (1, 50, 50, 3)


def test_returned_input_values_reproduce_the_tensor():
    pipeline = pp.Pipeline(
        [pp.decode(), pp.crop(box="boxes"), pp.flip(when="turn"), pp.letterbox(40, 40, fill="paint"), pp.tensor()]
    )
    inputs = {"boxes": [[(10.4, 20, 210, 120)]], "turn": [True], "paint": [(1, 2, 3)]}
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([photo()], inputs=inputs)
        assert batch.draws == [
            {
                "crop#0": {"top": 20, "left": 10, "height": 100, "width": 200},
                "flip#0": {"flip": True},
                "paint": {"fill": [1, 2, 3]},
            }
        ]
        again = engine.run_batch([photo()], places=[pipeline.plan.replaying(batch.draws[0])])
    assert np.array_equal(batch["tensor"], again["tensor"])


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_a_pipeline_has_example_inputs(color):
    ops = [pp.crop(box="boxes"), pp.flip(when="turn"), pp.letterbox(40, 40, fill="paint"), pp.tensor("uint8")]
    pipeline = pp.Pipeline([pp.decode(color=color), *ops])
    plain = pp.Pipeline([pp.decode(color=color), pp.letterbox(40, 40, fill=0), pp.tensor("uint8")])
    ours = run(pipeline, [photo(), png(noise(90, 30))], **pipeline.example_inputs(2))
    for tensor, theirs in zip(ours, run(plain, [photo(), png(noise(90, 30))]), strict=True):
        assert np.array_equal(tensor, theirs)


def test_reduced_decoding_has_the_resolution_that_the_smallest_box_needs():
    reduced = crops(decode=pp.decode(reduced=True))
    large, small = (0, 0, 640, 427), (10, 20, 90, 70)
    with pp.Engine(reduced) as engine:
        alone = engine.run_batch([photo()], inputs={"boxes": [[large]]})
        both = engine.run_batch([photo()], inputs={"boxes": [[large, small]]})
    reductions = [batch.placed[0].placements["tensor"].reduction for batch in (alone, both)]
    assert reductions[0].denominator == 8
    assert reductions[1] is None
    assert np.array_equal(both["tensor"][1], run(fixed_crop(small), [photo()])[0])


@pytest.mark.parametrize("like", ["pillow", "torchvision"])
@pytest.mark.parametrize("expand", [False, True])
def test_a_per_request_angle_equals_a_fixed_angle(like, expand):
    def pipeline(angle):
        turn = pp.rotate(angle, filter="bilinear", like=like, expand=expand, fill=(9, 80, 200))
        ops = [pp.decode(), pp.resize(**SMALL), turn, pp.center_crop(20), pp.tensor(dtype="uint8")]
        return pp.Pipeline(ops)

    angles = [0.0, 33.5, -90.0, 180.0, 1234.5]
    assert str(pipeline("degrees").inputs["degrees"]) == "float32 [n, 1]"
    ours = run(pipeline("degrees"), [photo()] * len(angles), degrees=angles)
    for angle, tensor in zip(angles, ours, strict=True):
        (theirs,) = run(pipeline(angle), [photo()])
        assert np.array_equal(tensor, theirs), angle
    with pp.Engine(pipeline("degrees")) as engine:
        batch = engine.run_batch([photo()] * 2, inputs={"degrees": [12.0, float("nan")]})
    assert batch.draws[0] == {"rotate#0": {"angle": 12.0}}
    assert batch.errors[0] is None
    assert batch.errors[1].reason == "BAD_INPUT"


def test_each_box_can_have_its_own_angle():
    ops = [pp.decode(), pp.crop(box="boxes"), pp.resize(**SMALL), pp.rotate("degrees"), pp.tensor(dtype="uint8")]
    first, second = run(pp.Pipeline(ops), [photo()], boxes=[BOXES[:2]], degrees=[[0.0, 180.0]])
    for box, tensor, turn in ((BOXES[0], first, 0), (BOXES[1], second, 2)):
        (whole,) = run(fixed_crop(box), [photo()])
        assert np.array_equal(tensor.transpose(1, 2, 0), np.rot90(whole, turn))
