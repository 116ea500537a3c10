"""Tests that random parameters match known answers and are a pure function of seed, epoch, sample, attempt and op."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.engine.annotations import annotated, mask_of
from pixprep.plan.draws.augments import Seen
from pixprep.plan.draws.philox import philox
from support.images import png, scene

# From Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, expected result
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_gives_the_known_answers_of_random123(counter, key, answer):
    assert philox(np.array(words(counter), np.uint32), tuple(words(key))).tolist() == words(answer)


def training(*ops):
    return pp.Pipeline([pp.decode(), *ops, pp.resize(height=8, width=8), pp.tensor(dtype="uint8")]).for_training()


GEOMETRY = (pp.random_zoom_out(), pp.random_iou_crop(), pp.random_flip(), pp.random_flip("vertical"))
BOXES = {"boxes": np.array([[3, 4, 20, 30], [10, 5, 40, 25]], np.float32)}
SIZE = (32, 48)
seeds = st.integers(0, 2**32 - 1)


def draws_of(pipeline, indices, *, seed=1, epoch=0, attempts=0):
    numbers = pipeline.plan.draw(seed=seed, epoch=epoch, indices=indices, attempts=attempts)
    return [dict(pipeline.plan.placing(each, BOXES)(*SIZE).draws) for each in numbers]


@settings(max_examples=30, derandomize=True)
@given(seeds, seeds, st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12), st.integers(0, 2**16 - 1))
def test_random_parameters_do_not_depend_on_the_batch(seed, epoch, indices, attempt):
    pipeline = training(*GEOMETRY)
    together = draws_of(pipeline, indices, seed=seed, epoch=epoch, attempts=attempt)
    apart = [draws_of(pipeline, [index], seed=seed, epoch=epoch, attempts=[attempt])[0] for index in indices]
    assert together == apart
    backwards = draws_of(pipeline, indices[::-1], seed=seed, epoch=epoch, attempts=[attempt] * len(indices))
    assert backwards == together[::-1]


@settings(max_examples=30, derandomize=True)
@given(seeds, seeds, st.permutations(range(len(GEOMETRY))))
def test_random_parameters_do_not_depend_on_other_ops(seed, epoch, order):
    """An op's random numbers depend on its type and running number, or on its name, but not on the other ops in the
    list.
    """
    alone = training(pp.random_flip(p=0.4, name="mine"), pp.random_flip())
    others = [pp.random_zoom_out(name="a"), pp.random_crop(9, pad_if_needed=True), pp.random_flip(name="b")]
    mixed = training(*[[*others, pp.random_flip(p=0.4, name="mine")][index] for index in order], pp.random_flip())
    indices = range(20)
    first, second = (draws_of(each, indices, seed=seed, epoch=epoch) for each in (alone, mixed))
    for key in ("mine", "random_flip#0"):
        assert [each[key] for each in first] == [each[key] for each in second]


def test_each_seed_epoch_sample_attempt_and_op_has_its_own_numbers():
    pipeline = training(*GEOMETRY)
    rows = set()
    for seed, epoch, attempt in ((1, 0, 0), (0, 1, 0), (1, 1, 0), (2**32 - 1, 0, 0), (1, 0, 1), (1, 0, 65535)):
        indices = [0, 1, 2**32, 2**64 - 1]
        for numbers in pipeline.plan.draw(seed=seed, epoch=epoch, indices=indices, attempts=attempt):
            for step in pipeline.plan.random_steps:
                rows |= {tuple(row) for row in numbers.blocks(step.key, 0, step.blocks).tolist()}
    blocks = sum(step.blocks for step in pipeline.plan.random_steps)
    assert len(rows) == 6 * 4 * blocks


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_seed_or_an_epoch_that_does_not_fit_into_32_bits_is_rejected(value):
    plan = training(*GEOMETRY).plan
    with pytest.raises(pp.PipelineError, match=f"seed must be an integer from 0 to 4294967295, not {value}"):
        plan.draw(seed=value, epoch=0, indices=[0])
    with pytest.raises(pp.PipelineError, match=f"epoch must be an integer from 0 to 4294967295, not {value}"):
        plan.draw(seed=0, epoch=value, indices=[0])


def batch_of(pipeline, places, threads):
    encoded = [png(scene(*SIZE))] * len(places)
    with pp.Engine(pipeline, threads=threads) as engine:
        return engine.run_batch(encoded, places=places)


def test_a_replay_needs_the_parameters_of_every_op_and_a_valid_crop():
    plan = training(*GEOMETRY).plan
    with pytest.raises(pp.PipelineError, match='lack the op "random_zoom_out#0"; they contain: random_flip#0'):
        plan.replaying({"random_flip#0": {"flip": True}}, BOXES)(*SIZE)
    resized = pp.Pipeline([pp.decode(), pp.random_resized_crop(8), pp.tensor(only="training")]).plan
    words = {"random_resized_crop#0": {"top": 0, "left": 30, "height": 30, "width": 30}}
    with pytest.raises(pp.ImageError, match=r"\[DOES_NOT_FIT\] 32 x 48 pixels are too small for the window"):
        resized.replaying(words)(*SIZE)


def test_an_iou_crop_needs_boxes():
    plan = training(*GEOMETRY).plan
    (numbers,) = plan.draw(seed=0, epoch=0, indices=[0])
    with pytest.raises(pp.PipelineError, match='random_iou_crop needs the "boxes" of each sample'):
        plan.placing(numbers)


def test_an_image_without_boxes_is_not_cropped():
    plan = training(pp.random_iou_crop()).plan
    for numbers in plan.draw(seed=0, epoch=0, indices=range(20)):
        placed = plan.placing(numbers, {"boxes": np.zeros((0, 4), np.float32)})(*SIZE)
        assert placed.draws["random_iou_crop#0"] == {"top": 0, "left": 0, "height": 32, "width": 48}


def test_placement_without_random_ops_depends_only_on_the_size():
    plan = pp.presets.imagenet().plan
    (numbers,) = plan.draw(seed=0, epoch=0, indices=[3])
    assert plan.placing(numbers) is plan.place
    assert plan.replaying({}) is plan.place
    assert plan.place(9, 9).draws == {}


def test_an_op_shared_by_several_outputs_is_sampled_once():
    """Two tensors and a transform of one chain have the same flip. A branch has ops of its own, which are sampled
    separately.
    """
    ops = [
        pp.decode(), pp.random_flip(name="f"), pp.resize(height=8, width=8), pp.transform(), pp.tensor(dtype="uint8"),
    ]  # fmt: skip
    ops += [pp.flip(), pp.tensor(dtype="uint8", name="other")]
    pipeline = pp.Pipeline(ops).for_training()
    numbers = pipeline.plan.draw(seed=1, epoch=0, indices=range(20))
    batch = batch_of(pipeline, [pipeline.plan.placing(each) for each in numbers], 1)
    np.testing.assert_array_equal(batch["tensor"][..., ::-1], batch["other"])
    flips = [placed.draws["f"]["flip"] for placed in batch.placed]
    assert (batch["transform"][:, 1] < 0).tolist() == flips
    assert 3 < sum(flips) < 17


def by_hand(pixels, draws, fill):
    """Return the image after each op has been applied in turn, with its random parameters, in NumPy."""
    for key, words in draws.items():
        if "flip" in words:
            if words["flip"]:
                pixels = pixels[::-1] if key == "up" else pixels[:, ::-1]
            continue
        height, width = pixels.shape[:2]
        whole = np.full((words["height"] + height + 200, words["width"] + width + 200, 3), fill, np.uint8)
        top, left = 100 - words["top"], 100 - words["left"]  # the canvas begins at row 100 and column 100
        whole[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
        pixels = whole[100 : 100 + words["height"], 100 : 100 + words["width"]]
    return np.ascontiguousarray(pixels)


def test_images_with_padding_equal_manually_padded_images():
    """The chains have flips, canvases and crops before the resize, in orders in which each op could fail."""
    ops = [
        pp.random_flip(), pp.random_flip("vertical", name="up"), pp.random_crop(30, 40, padding=(3, 9, 5, 1), fill=77),
        pp.random_flip(name="again"), pp.random_zoom_out(fill=77, side_range=(1, 2.5), p=0.8),
        pp.random_flip(name="last"), pp.random_iou_crop(),
    ]  # fmt: skip
    pipeline, plain = training(*ops), pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")])
    pixels, boxes = scene(*SIZE), {"boxes": [[5, 5, 40, 30]]}
    numbers = pipeline.plan.draw(seed=5, epoch=0, indices=range(60))
    batch = batch_of(pipeline, [pipeline.plan.placing(each, boxes) for each in numbers], 2)
    with pp.Engine(plain) as engine:
        expected = engine.run([png(by_hand(pixels, placed.draws, 77)) for placed in batch.placed])
    np.testing.assert_array_equal(batch["tensor"], np.stack(expected))
    assert 20 < sum(any(placed.placements["tensor"].margins) for placed in batch.placed) <= 60


def first_window(step, height, width, numbers, boxes):
    """Return the crop of ``random_iou_crop`` as torchvision implements it: trial by trial, with all boxes."""
    blocks = numbers.blocks(step.key, 0, 20 * step.blocks // 4).reshape(20, -1, 4)
    for choice in blocks:
        overlap = step.op.sampler_options[int(choice[0, 0] * len(step.op.sampler_options))]
        if overlap >= 1:
            break
        for across, down, from_left, from_top in choice[1:]:
            low, high = step.op.scale
            w, h = int(width * (low + (high - low) * across)), int(height * (low + (high - low) * down))
            left, top = int((width - w) * from_left), int((height - h) * from_top)
            if not step.op.ratio[0] * h <= w <= step.op.ratio[1] * h or not w * h:
                continue
            begin, end = np.maximum(boxes[:, :2], (left, top)), np.minimum(boxes[:, 2:], (left + w, top + h))
            middles = (boxes[:, :2] + boxes[:, 2:]) * 0.5
            inside = ((middles > (left, top)) & (middles < (left + w, top + h))).all(axis=1)
            shared = np.maximum(end - begin, 0).prod(axis=1)
            area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
            if (shared >= overlap * (area + w * h - shared))[inside].any():
                return {"top": top, "left": left, "height": h, "width": w}
    return {"top": 0, "left": 0, "height": height, "width": width}


@pytest.mark.parametrize("options", [(0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0), (0.2, 0.6, 0.95), (0.0,)])
def test_an_iou_crop_is_the_first_trial_with_the_required_overlap(options):
    plan = training(pp.random_iou_crop(sampler_options=options, trials=12, min_scale=0.1)).plan
    (step,) = plan.random_steps
    random = np.random.default_rng(len(options))
    found = []
    for numbers in plan.draw(seed=5, epoch=0, indices=range(300)):
        height, width = random.integers(1, 400, 2).tolist()
        corners = np.sort(random.random((random.integers(1, 12), 2, 2)), axis=1)
        corners[:, 1] = corners[:, 0] + (corners[:, 1] - corners[:, 0]) * random.choice([0, 0.1, 1], 1)
        boxes = (corners * (width, height)).reshape(-1, 4)
        found.append(step.words(height, width, numbers, Seen(boxes)))
        assert found[-1] == first_window(step, height, width, numbers, boxes)
    assert len({tuple(window.values()) for window in found}) > 100


LABELS = np.zeros(SIZE, np.uint8)
LABELS[4:28, 6:30], LABELS[20:22, 40:42], LABELS[0, :] = 1, 2, 255
MASKED = {
    "mask": LABELS,
    "boxes": [[6, 4, 30, 28], [40, 20, 42, 22]],
    "points": [[7, 5], [41, 21], [30, 25]],
    "visible": [1, 2, 0],
}


def windows(op, count=400, *before):
    """Yield the draw of an op and the mask labels in its window, for ``count`` samples."""
    labels = pp.mask()
    plan = pp.Pipeline([pp.pixels(), *before, op, labels, pp.tensor(max_size=99, only="training")]).for_training().plan
    key = next(step.key for step in plan.random_steps if step.sees)
    numbers = plan.draw(seed=3, epoch=0, indices=range(count))
    mask = mask_of(plan, MASKED)
    for each in numbers:
        placed = plan.placing(each, MASKED, mask)(*SIZE)
        words = placed.draws[key]
        yield words, annotated(plan, placed, MASKED)["mask"]


@pytest.mark.parametrize("before", [[], [pp.resize(64, filter="nearest")], [pp.random_flip(), pp.random_zoom_out(p=1)]])
def test_a_window_around_the_mask_contains_foreground(before):
    labels = [window for _, window in windows(pp.random_crop(8, 10, around="mask"), 200, *before)]
    assert all(((window > 0) & (window < 255)).any() for window in labels)
    varied = [window for _, window in windows(pp.random_crop(9, 9, max_label=0.8), 200, *before)]
    fractions = [np.unique(window[window < 255], return_counts=True)[1] for window in varied]
    is_varied = [len(counts) > 1 and counts.max() < 0.8 * counts.sum() for counts in fractions]
    assert np.mean(is_varied) > (0.9 if len(before) < 2 else 0.3)  # a zoom out adds padding


def test_labels_in_the_padding_of_a_crop_are_not_counted():
    found = [window for _, window in windows(pp.random_crop(9, padding=(12, 0), max_label=0.8), 200)]
    assert np.mean([(window == 255).all() for window in found]) < 0.02


def test_a_label_is_chosen_before_its_pixel():
    op = pp.random_crop(5, 7, around="mask", by_label=True, centered=True, around_p=0.5, pad_if_needed=True)
    centers = [window[2, 3] for _, window in windows(op, 1000)]
    counts = np.bincount(centers, minlength=256)
    uniform = np.bincount(LABELS[2:-2, 3:-3].ravel(), minlength=256) / LABELS[2:-2, 3:-3].size
    assert abs(counts[2] / 1000 - (0.25 + uniform[2] / 2)) < 0.05
    assert abs(counts[1] / 1000 - (0.25 + uniform[1] / 2)) < 0.05


@pytest.mark.parametrize(("around", "points"), [("box", [(18, 16), (41, 21)]), ("point", [(7, 5), (41, 21)])])
def test_a_window_contains_a_box_or_a_point_at_any_of_its_pixels(around, points):
    offsets = set()
    for words, _ in windows(pp.random_crop(6, 8, around=around), 600):
        inside = [(x - words["left"], y - words["top"]) for x, y in points]
        inside = [each for each in inside if 0 <= each[0] < 8 and 0 <= each[1] < 6]
        assert len(inside) == 1
        offsets |= {*inside}
    assert len(offsets) == 48


@pytest.mark.parametrize("around", ["box", "point"])
def test_boxes_and_points_outside_an_earlier_crop_are_not_chosen(around):
    before = pp.crop(top=14, left=32, height=18, width=16)
    assert all((labels == 2).any() for _, labels in windows(pp.random_crop(6, 8, around=around), 50, before))


def test_a_box_without_random_changes_is_a_crop():
    """The region has the size of the result, so no pixel is interpolated."""
    image, box = scene(90, 80), [[10, 20, 58, 84]]
    plain = {"height": 64, "width": 48, "box_padding": 1.0}
    drawn = pp.random_box_warp(**plain, scale=(1, 1), shift=0, degrees=0)
    ends = [pp.tensor(dtype="uint8", layout="hwc")]
    served = pp.Pipeline([pp.pixels(), pp.warp(box="boxes", **plain), *ends])
    with pp.Engine(served, device="cpu", threads=1) as engine:
        assert np.array_equal(engine.run([image], inputs={"boxes": [box]})[0], image[20:84, 10:58])
    trained = pp.Pipeline([pp.pixels(), drawn, pp.boxes(), pp.tensor(dtype="uint8", layout="hwc", only="training")])
    sample = {"image": image, "boxes": [*box, [60, 3, 79, 9]], "labels": [4, 5]}
    found = {}
    with pp.Loader([sample] * 20, trained.for_training(), batch_size=20) as loader:
        (batch,) = loader
        for label, boxes, tensor in zip(batch["labels"], batch["boxes"], batch["tensor"], strict=True):
            assert len(label) == 1
            found[int(label[0])] = boxes.tolist(), tensor
    assert found.keys() == {4, 5}
    assert found[4][0] == [[0, 0, 48, 64]]
    assert np.array_equal(found[4][1], image[20:84, 10:58])


def test_a_crop_around_a_point_accepts_samples_without_objects():
    plan = training(pp.random_crop(8, around="point")).plan
    numbers = plan.draw(seed=0, epoch=0, indices=range(20))
    drawn = [plan.placing(each, {"points": np.zeros((0, 17, 2))})(*SIZE).draws["random_crop#0"] for each in numbers]
    assert len({(words["top"], words["left"]) for words in drawn}) > 10


@pytest.mark.parametrize(
    ("around", "sample"),
    [
        ("point", {"points": np.zeros((2, 3))}),
        ("point", {"points": np.zeros((2, 4, 3))}),  # (x, y, visible), as in COCO
        ("point", {"points": ["left eye"]}),
        ("box", {"boxes": np.zeros((2, 2))}),
    ],
)
def test_annotations_of_another_shape_are_rejected(around, sample):
    plan = training(pp.random_crop(8, around=around)).plan
    (numbers,) = plan.draw(seed=0, epoch=0, indices=[0])
    with pytest.raises(pp.ImageError, match=r'BAD_RECORD\] "(points|boxes)" must be an array of numbers'):
        plan.placing(numbers, sample)(*SIZE)


@pytest.mark.parametrize(("count", "is_half"), [(8, False), (9, True)])
def test_half_of_a_body_requires_nine_visible_points(count, is_half):
    """COCO's value of a visible point is 2."""
    body = {"half_body_p": 1.0, "upper_body": tuple(range(6)), "lower_body": tuple(range(6, 12))}
    op = pp.random_box_warp(height=64, width=48, scale_p=0, shift_p=0, degrees_p=0, **body)
    points = np.random.default_rng(1).integers(10, 40, (1, 12, 2))
    visible = np.where(np.arange(12) < count, 2, 0)[None]
    seen = Seen(np.array([[0.0, 0.0, 60.0, 80.0]]), points, visible)
    hidden = seen._replace(visible=np.zeros((1, 12)))
    half, whole = (op.draw_by(each, 80, 60, lambda _, blocks: np.full((blocks, 4), 0.5)) for each in (seen, hidden))
    assert (half != whole) == is_half


def test_samples_without_the_field_of_a_random_op_are_rejected():
    for op, field in ((pp.random_crop(8, around="mask"), "mask"), (pp.random_crop(8, around="point"), "points")):
        with pytest.raises(pp.PipelineError, match=f'random_crop needs the "{field}" of each sample'):
            training(op).plan.placing({}, {})
    plan = training(pp.random_crop(8, around="mask")).plan
    (numbers,) = plan.draw(seed=0, epoch=0, indices=[0])
    with pytest.raises(pp.ImageError, match="annotation was made for 32 x 48"):
        plan.placing(numbers, MASKED, mask_of(plan, MASKED))(50, 60)
