"""Tests random geometric ops against torchvision v2: the crops that are computed from random numbers, and the pixels
and boxes of samples.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.annotations import annotated
from pixprep.plan.draws import crops, philox
from pixprep.plan.draws.augments import RandomStep
from support.images import png, scene

torch = pytest.importorskip("torch", reason="NO PYTORCH: its random transforms were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its random transforms were not compared")

from torchvision import tv_tensors  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_images import (  # noqa: E402
    JITTER,
    as_array,
    as_theirs,
    flipped,
    jittered,
    padded,
    shortest,
    some_boxes,
    window,
)  # fmt: skip

torch.set_num_threads(1)  # two threads would wait for each other on a busy machine
DRAWS = 500
SIZES = ((60, 80), (97, 51), (33, 120), (128, 128), (20, 31))
FILL = (123, 117, 104)
LIKES = ["pillow", "torchvision"]
MODES = ["constant", "edge", "reflect", "symmetric"]
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch computes bilinear in float32 here", allow_module_level=True)


# ----------------------------------------------------------------------------------------------------- the rules


def image_of(height, width):
    return tv_tensors.Image(torch.zeros(3, height, width, dtype=torch.uint8))


def numbers(key, blocks):
    """Return reproducible random numbers in rows of four."""
    return philox.Numbers(0, 0, 0, 0, {key: np.asarray(blocks, np.float64)})


def resized_crop_window(height, width, scale, ratio):
    """Return the window of ``random_resized_crop``, computed from torch's own random numbers in torchvision's order."""
    log_ratio = torch.log(torch.tensor(ratio))
    for _ in range(10):
        share = torch.empty(1).uniform_(*scale).item()
        shape = torch.exp(torch.empty(1).uniform_(log_ratio[0], log_ratio[1])).item()
        size = crops.fitting(height, width, share, shape)
        if size is not None:
            top = torch.randint(0, height - size[0] + 1, size=(1,)).item()
            left = torch.randint(0, width - size[1] + 1, size=(1,)).item()
            return {"top": top, "left": left, "height": size[0], "width": size[1]}
    rows, columns = crops.fallback(height, width, ratio)
    return {"top": (height - rows) // 2, "left": (width - columns) // 2, "height": rows, "width": columns}


CROPS = [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.9, 1.1)), ((0.2, 0.3), (2.0, 3.0)), ((1.0, 1.0), (1.0, 1.0))]


def test_the_crop_of_a_resized_crop_equals_torchvision():
    for seed in range(DRAWS):
        height, width = 1 + seed * 7 % 301, 1 + seed * 13 % 257
        scale, ratio = CROPS[seed % len(CROPS)]
        torch.manual_seed(seed)
        expected = v2.RandomResizedCrop(8, scale, ratio).make_params([image_of(height, width)])
        torch.manual_seed(seed)
        assert resized_crop_window(height, width, scale, ratio) == expected


def test_a_resized_crop_follows_its_rule():
    """``words`` reads the attempts in order, and maps the random numbers to the ranges of scale and log(ratio)."""
    step = RandomStep("k", pp.random_resized_crop(8, scale=(0.5, 1.0), ratio=(0.5, 2.0)))
    fits, does_not = (0.0, 0.5, 0.999, 0.0), (1.0 - 1e-9, 0.0, 0.0, 0.0)
    words = step.words(100, 100, numbers("k", [does_not, fits] + [does_not] * 8))
    assert words == {"top": 29, "left": 0, "height": 71, "width": 71}
    assert step.words(100, 40, numbers("k", [does_not] * 10)) == {"top": 10, "left": 0, "height": 80, "width": 40}


@pytest.mark.parametrize("options", [{}, {"padding": 4}, {"padding": (1, 2)}, {"padding": (1, 2, 3, 4), "pad": True}])
def test_the_position_of_a_crop_equals_torchvision(options):
    pad = options.pop("pad", False)
    op = pp.random_crop(32, 24, pad_if_needed=pad, **options)
    step = pp.Pipeline([pp.decode(), op, pp.tensor(only="training")]).for_training().plan.random_steps[0]
    theirs = v2.RandomCrop(
        (32, 24), padding=np.ravel(options["padding"]).tolist() if options else None, pad_if_needed=pad
    )
    for seed in range(DRAWS):
        height, width = (18 + seed % 40, 18 + seed % 30) if pad else (32 + seed % 40, 24 + seed % 30)
        torch.manual_seed(seed)
        params = theirs.make_params([image_of(height, width)])
        left, top, right, bottom = params["padding"]
        places = height + top + bottom - 32 + 1, width + left + right - 24 + 1
        block = [(params["top"] + 0.5) / places[0], (params["left"] + 0.5) / places[1], 0, 0]
        words = step.words(height, width, numbers(step.key, [block]))
        assert words == {"top": params["top"] - top, "left": params["left"] - left, "height": 32, "width": 24}


def test_a_crop_that_does_not_fit_is_rejected_by_both():
    step = RandomStep("k", pp.random_crop(32, 24))
    with pytest.raises(ValueError, match="larger than"):
        v2.RandomCrop((32, 24)).make_params([image_of(31, 99)])
    with pytest.raises(pp.ImageError, match=r"\[DOES_NOT_FIT\] 31 x 99 pixels are too small for the window of 32 x 24"):
        step.words(31, 99, philox.EXAMPLE)


def test_the_canvas_of_a_zoom_out_equals_torchvision():
    step = RandomStep("k", pp.random_zoom_out(side_range=(1.0, 4.0)))
    for seed in range(DRAWS):
        height, width = 1 + seed * 7 % 301, 1 + seed * 13 % 257
        torch.manual_seed(seed)
        left, top, right, bottom = v2.RandomZoomOut().make_params([image_of(height, width)])["padding"]
        torch.manual_seed(seed)
        block = [0.0, *torch.rand(1).tolist(), *torch.rand(2).tolist()]
        words = step.words(height, width, numbers("k", [block]))
        assert words == {"top": -top, "left": -left, "height": height + top + bottom, "width": width + left + right}


MIN_SIZES = (24, 33, 40, 57)


def assert_equal_sizes(theirs, op, block):
    """Assert that torchvision's sizes equal pixprep's for images of every shape.

    ``block`` returns random numbers like torchvision's.
    """
    step = pp.Pipeline([pp.decode(), op, pp.center_crop(8), pp.tensor(only="training")]).for_training()
    (drawn,), resize = step.plan.random_steps, step.plan.outputs["tensor"].geometry.resize
    for seed in range(DRAWS):
        height, width = 9 + seed * 7 % 301, 9 + seed * 13 % 257
        torch.manual_seed(seed)
        expected = theirs.make_params([image_of(height, width)])["size"]
        torch.manual_seed(seed)
        words = drawn.words(height, width, numbers(drawn.key, [[block(), 0, 0, 0]]))
        assert resize.of(words).size(height, width) == expected


def one_size():
    return (torch.randint(len(MIN_SIZES), ()).item() + 0.5) / len(MIN_SIZES)


@pytest.mark.parametrize("most", [None, 60, 40])
def test_the_size_of_a_shortest_size_equals_torchvision(most):
    theirs, ours = v2.RandomShortestSize(list(MIN_SIZES), most), pp.random_shortest_size(MIN_SIZES, most or 16384)
    assert_equal_sizes(theirs, ours, one_size)


@pytest.mark.parametrize("target", [(1024, 1024), (640, 480)])
def test_the_size_of_a_scale_jitter_equals_torchvision(target):
    def uniform():
        return torch.rand(1).item()

    assert_equal_sizes(v2.ScaleJitter(target, (0.1, 2.0)), pp.scale_jitter(target[1], target[0]), uniform)


def test_a_scale_of_one_is_truncated_in_float32_like_torchvision():
    """If the scale were computed in float64, many sizes would be one pixel smaller."""
    theirs, step = v2.ScaleJitter((80, 60), (1.0, 1.0)), RandomStep("k", pp.scale_jitter(60, 80, (1.0, 1.0)))
    others = 0
    for height, width in ((9 + seed * 7 % 301, 9 + seed * 13 % 257) for seed in range(DRAWS)):
        expected = theirs.make_params([image_of(height, width)])["size"]
        assert (*step.words(height, width, philox.EXAMPLE).values(),) == expected
        factor = min(60 / height, 80 / width)
        others += (int(height * factor), int(width * factor)) != expected
    print(f"{others} of {DRAWS} sizes differ in float64")
    assert others > DRAWS / 20


def test_an_empty_size_is_one_pixel_where_torchvision_raises():
    step = RandomStep("k", pp.scale_jitter(10, 10, (0.1, 0.1)))
    assert v2.ScaleJitter((10, 10), (0.1, 0.1)).make_params([image_of(40, 400)])["size"] == (0, 1)
    assert step.words(40, 400, philox.EXAMPLE) == {"height": 1, "width": 1}


def iou_blocks(height, width, choices=20, trials=40):
    """Return torch's random numbers as blocks, in the order in which ``RandomIoUCrop`` requests them."""
    blocks = []
    for _ in range(choices):
        blocks.append([(int(torch.randint(0, 7, (1,))) + 0.5) / 7, 0, 0, 0])
        for _ in range(trials):
            sides = torch.rand(2)
            columns, rows = int(width * (0.3 + 0.7 * sides[0])), int(height * (0.3 + 0.7 * sides[1]))
            places = torch.rand(2) if 0.5 <= columns / rows <= 2 else torch.zeros(2)
            blocks.append([*sides.tolist(), *places.tolist()])
    return blocks


def test_the_crop_of_an_iou_crop_equals_torchvision():
    step = pp.Pipeline([pp.decode(), pp.random_iou_crop(), pp.resize(height=8, width=8), pp.tensor()])
    (step,) = step.for_training().plan.random_steps
    wholes = 0
    for seed in range(DRAWS):
        height, width = 50 + seed * 7 % 301, 50 + seed * 13 % 257
        boxes = some_boxes(seed, height, width)
        bounding = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(height, width))
        torch.manual_seed(seed)
        params = v2.RandomIoUCrop().make_params([image_of(height, width), bounding])
        torch.manual_seed(seed)
        words = step.words(height, width, numbers(step.key, iou_blocks(height, width)), boxes.astype(float))
        kept = params.pop("is_within_crop_area", torch.ones(len(boxes), dtype=torch.bool)).numpy()
        wholes += not params
        expected = params or {"top": 0, "left": 0, "height": height, "width": width}
        assert words == expected
        assert np.array_equal(crops.within(words, boxes.astype(float)), kept)
    assert 30 < wholes < 300


# ------------------------------------------------------------------------------------------- pixels with given
# parameters


def flipped_down(image, words):
    return F.vertical_flip(image) if words["flip"] else image


@dataclass(frozen=True)
class Case:
    """Ops to test, and torchvision's functions for the recorded parameters of these ops."""

    ops: list
    expected: object


def zoomed(image, words):
    return padded(image, words["random_zoom_out#0"], fill=FILL)


def of_ssd(first, then):
    """Return torchvision's reference recipe for SSD. Padding that follows the colour ops keeps its colour."""
    return lambda image, words: flipped(
        F.resize(F.crop(then(first(image, words), words), *window(words["random_iou_crop#0"])), [40, 36]),
        words["random_flip#0"],
    )


SSD = [pp.color_jitter(**JITTER), pp.random_zoom_out(fill=FILL), pp.random_iou_crop()]
CASES = {
    "colours before all, as SSD has them": Case(
        [*SSD, pp.resize(height=40, width=36), pp.random_flip()],
        of_ssd(lambda image, words: jittered(words["color_jitter#0"])(image), zoomed),
    ),
    "colours of a mirrored photo, a margin and a resize": Case(
        [
            pp.random_flip(),
            pp.color_jitter(**JITTER),
            pp.random_autocontrast(p=1.0),
            pp.random_crop(36, 40, padding=[3, 8], pad_if_needed=True, fill=FILL),
            pp.resize(height=24, width=50),
        ],
        lambda image, words: F.resize(
            padded(
                F.autocontrast(jittered(words["color_jitter#0"])(flipped(image, words["random_flip#0"]))),
                words["random_crop#0"],
                fill=FILL,
            ),
            [24, 50],
        ),
    ),
    "colours before a resized crop, and after it": Case(
        [pp.color_jitter(**JITTER), pp.random_resized_crop(40, 36), pp.random_invert(p=1.0)],
        lambda image, words: F.invert(
            F.resized_crop(
                jittered(words["color_jitter#0"])(image), *window(words["random_resized_crop#0"]), size=[40, 36]
            )
        ),
    ),
    "a crop before colours and a resize": Case(
        [pp.random_crop(18, 17), pp.random_solarize(threshold=99.5, p=1.0), pp.resize(height=40, width=36)],
        lambda image, words: F.resize(F.solarize(F.crop(image, *window(words["random_crop#0"])), 99.5), [40, 36]),
    ),
    "random_resized_crop": Case(
        [pp.random_resized_crop(40, 36)],
        lambda image, words: F.resized_crop(image, *window(words["random_resized_crop#0"]), size=[40, 36]),
    ),
    "random_resized_crop, bicubic": Case(
        [pp.random_resized_crop(40, 36, scale=(0.3, 1.0), filter="bicubic")],
        lambda image, words: F.resized_crop(
            image, *window(words["random_resized_crop#0"]), size=[40, 36], interpolation=v2.InterpolationMode.BICUBIC
        ),
    ),
    "random_crop": Case([pp.random_crop(19, 17)], lambda image, words: F.crop(image, *window(words["random_crop#0"]))),
    "random_crop with a margin": Case(
        [pp.random_crop(36, 40, padding=4, pad_if_needed=True, fill=FILL)],
        lambda image, words: padded(image, words["random_crop#0"], fill=FILL),
    ),
    "random_crop with a margin, resized": Case(
        [pp.random_crop(36, 40, padding=4, pad_if_needed=True, fill=FILL), pp.resize(height=24, width=50)],
        lambda image, words: F.resize(padded(image, words["random_crop#0"], fill=FILL), [24, 50]),
    ),
    **{
        f"random_crop, {mode}, after a resize": Case(
            [
                pp.resize(height=22, width=27),
                pp.random_crop(36, 40, padding=(3, 9), pad_if_needed=True, padding_mode=mode),
                pp.random_flip(),
            ],
            lambda image, words, mode=mode: flipped(
                padded(F.resize(image, [22, 27]), words["random_crop#0"], padding_mode=mode), words["random_flip#0"]
            ),
        )
        for mode in MODES
    },
    **{
        f"pad, {mode}": Case(
            [pp.resize(height=19, width=17), pp.random_flip(), pp.pad(31, 40, padding_mode=mode)],
            lambda image, words, mode=mode: F.pad(
                flipped(F.resize(image, [19, 17]), words["random_flip#0"]), [11, 6, 12, 6], padding_mode=mode
            ),
        )
        for mode in MODES
    },
    "random_flip": Case(
        [pp.resize(height=30, width=40), pp.random_flip()],
        lambda image, words: flipped(F.resize(image, [30, 40]), words["random_flip#0"]),
    ),
    "random_zoom_out": Case(
        [pp.random_zoom_out(fill=FILL), pp.resize(height=40, width=36)],
        lambda image, words: F.resize(zoomed(image, words), [40, 36]),
    ),
    "random_iou_crop": Case(
        [pp.random_iou_crop(), pp.resize(height=40, width=36)],
        lambda image, words: F.resize(F.crop(image, *window(words["random_iou_crop#0"])), [40, 36]),
    ),
    "random_shortest_size": Case(
        [pp.random_flip("vertical"), pp.random_shortest_size(MIN_SIZES, 70), pp.random_flip()],
        lambda image, words: flipped(
            F.resize(flipped_down(image, words["random_flip#0"]), shortest(image, words["random_shortest_size#0"], 70)),
            words["random_flip#1"],
        ),
    ),
    "random_shortest_size, bicubic": Case(
        [pp.random_shortest_size(MIN_SIZES, 70, filter="bicubic")],
        lambda image, words: F.resize(
            image, shortest(image, words["random_shortest_size#0"], 70), v2.InterpolationMode.BICUBIC
        ),
    ),
    "random_iou_crop, random_shortest_size": Case(
        [pp.random_iou_crop(), pp.random_shortest_size(MIN_SIZES, 70)],
        lambda image, words: F.resize(
            (cut := F.crop(image, *window(words["random_iou_crop#0"]))),
            shortest(cut, words["random_shortest_size#0"], 70),
        ),
    ),
    "scale_jitter, random_crop": Case(
        [pp.scale_jitter(48, 40), pp.random_crop(48, 40, pad_if_needed=True, fill=FILL), pp.random_flip()],
        lambda image, words: flipped(
            padded(
                F.resize(image, [words["scale_jitter#0"][side] for side in ("height", "width")]),
                words["random_crop#0"],
                fill=FILL,
            ),
            words["random_flip#0"],
        ),
    ),
    "all before a flip": Case(
        [pp.random_zoom_out(fill=FILL), pp.random_iou_crop(), pp.resize(height=40, width=36), pp.random_flip()],
        lambda image, words: flipped(
            F.resize(F.crop(zoomed(image, words), *window(words["random_iou_crop#0"])), [40, 36]),
            words["random_flip#0"],
        ),
    ),
    "a flip before all": Case(
        [pp.random_flip(), pp.random_zoom_out(fill=FILL), pp.random_iou_crop(), pp.resize(height=40, width=36)],
        lambda image, words: F.resize(
            F.crop(zoomed(flipped(image, words["random_flip#0"]), words), *window(words["random_iou_crop#0"])),
            [40, 36],
        ),
    ),
    "flips of both axes around a resized crop": Case(
        [pp.random_flip("vertical"), pp.random_resized_crop(33), pp.random_flip()],
        lambda image, words: flipped(
            F.resized_crop(
                flipped_down(image, words["random_flip#0"]), *window(words["random_resized_crop#0"]), size=[33, 33]
            ),
            words["random_flip#1"],
        ),
    ),
}


def sampled_crops(case, like):
    """Yield (pixels of the photo, random parameters, our uint8 tensor) for each sample."""
    ops = [resizing(op, like) for op in case.ops]
    tensor = [pp.resize(height=40, width=36, only="serving"), pp.tensor(dtype="uint8", layout="hwc")]
    pipeline = pp.Pipeline([pp.decode(), *ops, *tensor[has_resize(ops) or 0 :]]).for_training()
    photos = [scene(*size) for size in SIZES]
    annotations = [{"boxes": some_boxes(4, *size)} for size in SIZES]
    encoded = [png(photo) for photo in photos]
    which = [index % len(photos) for index in range(DRAWS)]
    numbers = pipeline.plan.draw(seed=3, epoch=5, indices=range(DRAWS))
    places = [pipeline.plan.placing(each, annotations[index]) for each, index in zip(numbers, which, strict=True)]
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([encoded[index] for index in which], places=places)
    for row, index in enumerate(which):
        if batch.errors[row] is None:
            yield photos[index], batch.placed[row].draws, batch["tensor"][row]
        else:
            assert batch.errors[row].reason == "DOES_NOT_FIT"


def has_resize(ops):
    return any(isinstance(op, pp.resize) for op in ops)


def resizing(op, like):
    import msgspec  # noqa: PLC0415

    return msgspec.structs.replace(op, like=like) if hasattr(op, "like") else op


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", CASES)
def test_every_value_of_a_sample_equals_torchvision(name, like):
    count = 0
    for photo, words, ours in sampled_crops(CASES[name], like):
        np.testing.assert_array_equal(as_array(CASES[name].expected(as_theirs(photo, like), words)), ours)
        count += ours.size
    assert count > 100_000


# --------------------------------------------------------------------------------------------- boxes with given
# parameters


@pytest.mark.parametrize("op", [pp.random_shortest_size(MIN_SIZES, 70), pp.scale_jitter(60, 80)])
def test_boxes_of_a_random_size_equal_tv_tensors(op):
    ops = [pp.decode(), op, pp.random_flip(), pp.boxes(min_size=0), pp.tensor(only="training")]
    plan = pp.Pipeline(ops).for_training().plan
    farthest = 0
    for index, each in enumerate(plan.draw(seed=1, epoch=0, indices=range(DRAWS))):
        height, width = SIZES[index % len(SIZES)]
        sample = {"boxes": some_boxes(index, height, width), "labels": np.arange(1 + index % 5)}
        placed = plan.placing(each, sample)(height, width)
        ours = annotated(plan, placed, sample)["boxes"]
        format_ = {"format": "XYXY", "canvas_size": (height, width)}
        expected = tv_tensors.BoundingBoxes(torch.from_numpy(sample["boxes"]), **format_)
        size, flip = placed.draws.values()
        resized = shortest(image_of(height, width), size, 70) if "size" in size else [size["height"], size["width"]]
        expected = flipped(F.resize(expected, resized), flip).numpy()
        farthest = max(farthest, np.abs(ours - expected).max())
    assert farthest < 1e-4


def test_boxes_through_the_chain_of_ssd_equal_tv_tensors():
    pipeline = pp.Pipeline(
        [pp.decode(), *SSD, pp.resize(height=300, width=300), pp.random_flip(), pp.boxes(), pp.tensor(dtype="uint8")]
    ).for_training()
    farthest = dropped = 0
    numbers = pipeline.plan.draw(seed=1, epoch=0, indices=range(DRAWS))
    for index, each in enumerate(numbers):
        height, width = SIZES[index % len(SIZES)]
        boxes, labels = some_boxes(index, height, width), np.arange(1 + index % 5)
        sample = {"boxes": boxes, "labels": labels}
        placed = pipeline.plan.placing(each, sample)(height, width)
        ours = annotated(pipeline.plan, placed, sample)
        _, zoom, crop, flip = placed.draws.values()
        expected = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(height, width))
        left, top = -zoom["left"], -zoom["top"]
        margins = [left, top, zoom["width"] - width - left, zoom["height"] - height - top]
        expected = v2.RandomZoomOut().transform(expected, {"padding": margins})
        if crop != {"top": 0, "left": 0, "height": zoom["height"], "width": zoom["width"]}:
            kept = torch.from_numpy(placed.kept["random_iou_crop#0"])
            expected = v2.RandomIoUCrop().transform(expected, dict(crop) | {"is_within_crop_area": kept})
        expected = F.resize(expected, [300, 300])
        expected = F.horizontal_flip(expected) if flip["flip"] else expected
        expected, kept = v2.SanitizeBoundingBoxes()({"boxes": expected, "labels": torch.from_numpy(labels)}).values()
        assert ours["labels"].tolist() == kept.tolist(), index
        dropped += len(labels) - len(kept)
        if len(kept):
            farthest = max(farthest, np.abs(ours["boxes"] - expected.numpy()).max())
    print(f"{DRAWS} draws: boxes within {farthest:.2g} pixels of torchvision's, {dropped} dropped by both")
    assert dropped > 100
    assert farthest < 1e-4
