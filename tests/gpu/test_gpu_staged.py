"""Tests plans that a GPU computes in several stages: with steps on the whole image, or with a second resize."""

import sys

import numpy as np
import pytest

import pixprep as pp
from gpu.cuda_cases import SIZES, is_real, resizes
from gpu.fake_cupy import COUNTS
from gpu.played import on_gpu

pytestmark = pytest.mark.usefixtures("gpu")
TENSOR = pp.tensor(dtype="uint8")
TURNED = [pp.resize(height=37, width=43), pp.rotate(11, filter="bilinear")]
WHOLE = {
    "autocontrast": [pp.autocontrast(), pp.resize(height=20, width=30), TENSOR],
    "gray": [pp.grayscale(), pp.resize(40), pp.center_crop(32, 30), pp.normalize(), pp.tensor(layout="hwc")],
    "several": [
        *(
            pp.equalize(),
            pp.contrast(1.5),
            pp.letterbox(31, 33, fill=114),
            pp.hue(0.1),
            pp.normalize(scale="max"),
        ),
        pp.tensor(dtype="float16"),
    ],
    "repeated padding": [pp.pad(40, 50, padding_mode="reflect", larger="keep"), pp.resize(height=24, width=20), TENSOR],
    "repeated padding, then a resize of values": [
        *(pp.pad(root=0.5, padding_mode="reflect"), pp.normalize(arithmetic="multiply")),
        *(pp.resize(height=90, width=70, antialias=False, like="torch_corners"), pp.tensor()),
    ],
    "not resized": [pp.autocontrast(), pp.letterbox(1300, 1300, anchor="top_left"), pp.crop(1, 2, 30, 40), TENSOR],
    "open sizes": [
        *(pp.equalize(), pp.resize(40, max_size=90), pp.rotate(20), pp.resize(24, max_size=70, like="opencv")),
        pp.tensor(multiple=8, pad_level=9),
    ],
    "three resizes": [
        *TURNED,
        pp.resize(height=50, width=20),
        pp.flip(),
        pp.rotate(90),
        pp.resize(height=9, width=80),
        TENSOR,
    ],
    "patches": [
        *TURNED,
        pp.resize(height=32, width=48, filter="bicubic"),
        pp.normalize(),
        pp.patches(16, name="tensor"),
    ],
    "tiles": [
        *(pp.equalize(), pp.resize_to_tiles(tile_size=28, max_tiles=6), pp.normalize()),
        pp.tiles(28, thumbnail="last", name="tensor"),
    ],
    "already of the size": [*TURNED, pp.resize(height=37, width=43, filter="bicubic"), TENSOR],
}
SECOND = [
    *(options for options in resizes() if not is_real(options)),
    {"like": "dali", "size": 25, "mode": "scale", "subpixel": True},
    {"like": "opencv", "size": 25, "mode": "scale", "max_size": 60, "subpixel": True},
]


def frames(channels=3):
    """Return noise images of many sizes. Two of them have the same size."""
    rng = np.random.default_rng(4)
    return [rng.integers(0, 256, (*size, channels), np.uint8) for size in [*SIZES, SIZES[3]]]


def compare(pipeline, images, places=None):
    """Compare a mocked GPU with the CPU engine, and return the numbers of launches and waits."""
    with on_gpu(pipeline) as ours, pp.Engine(pipeline, odd_range=True) as theirs:
        assert isinstance(ours._kernels["tensor"], sys.modules["pixprep.gpu.staged"].StagedGpuKernel)
        COUNTS.clear()
        batch = ours.run_batch(images, places=places)
        counts = COUNTS["launches"], COUNTS["waits"]
        expected = theirs.run_batch(images, places=places)
    assert [str(error) for error in batch.errors] == [str(error) for error in expected.errors]
    assert batch.errors.count(None) > 8
    for index, tensor in enumerate(expected["tensor"]):
        assert np.array_equal(batch["tensor"][index], tensor), (index, images[index].shape)
    assert len({tensor.tobytes() for tensor in expected["tensor"]}) > 5
    return counts


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("name", WHOLE)
def test_steps_on_the_whole_image_and_several_resizes_equal_the_cpu_engine(name, color):
    images = frames(1 if color == "gray" else 3)
    launches, waits = compare(pp.Pipeline([pp.pixels(color=color), *WHOLE[name]]), images)
    assert launches <= 2 * 3 * 3  # two chunks, at most three stages of three launches
    assert waits == 2


@pytest.mark.parametrize("options", SECOND, ids=lambda options: " ".join(map(str, options.values())))
def test_a_second_resize_of_every_library_equals_the_cpu_engine(options):
    size = {} if "size" in options else {"height": 20, "width": 53}
    compare(pp.Pipeline([pp.pixels(), *TURNED, pp.resize(**size, **options), TENSOR]), frames())


def test_random_steps_and_sizes_equal_the_cpu_engine():
    """Some images have no steps before the geometry, and each image has its own size before the second resize."""
    ops = [
        *(pp.random_autocontrast(p=0.5), pp.random_resized_crop(48, 40), pp.random_rotate(40, expand=True)),
        *(pp.resize(height=30, width=31), pp.normalize(), pp.random_erasing(1.0, value="random")),
    ]
    pipeline = pp.Pipeline([pp.pixels(), *ops, pp.tensor()]).for_training()
    images = frames()
    numbers = pipeline.plan.draw(seed=1, epoch=0, indices=range(len(images)))
    compare(pipeline, images, [pipeline.plan.placing(each) for each in numbers])
