"""Tests that random geometric ops compute the same crops and sizes from random numbers as torchvision v2.

``test_import_torchvision`` compares the pixels, boxes and masks of samples.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.plan.draws import crops, philox
from pixprep.plan.draws.augments import RandomStep, Seen

torch = pytest.importorskip("torch", reason="NO PYTORCH: its random transforms were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its random transforms were not compared")

from torchvision import tv_tensors  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms import v2  # noqa: E402

from parity.torchvision_images import some_boxes  # noqa: E402

torch.set_num_threads(1)  # two threads would wait for each other on a busy machine
DRAWS = 500
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch computes bilinear in float32 here", allow_module_level=True)


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
        words = step.words(height, width, numbers(step.key, iou_blocks(height, width)), Seen(boxes.astype(float)))
        kept = params.pop("is_within_crop_area", torch.ones(len(boxes), dtype=torch.bool)).numpy()
        wholes += not params
        expected = params or {"top": 0, "left": 0, "height": height, "width": width}
        assert words == expected
        assert np.array_equal(crops.within(words, boxes.astype(float)), kept)
    assert 30 < wholes < 300
