"""Tests OpenCV's ``fx`` and ``fy``: one scale applies to both axes, and rounding the size does not change it."""

import numpy as np
import pytest

import pixprep as pp
from engine.opencv4 import cv2
from pixprep.engine.annotations import annotated
from pixprep.engine.kernels import resize
from pixprep.engine.kernels.resampling import resampling
from support.images import noise, png
from support.resize_cases import assert_equal
from support.resize_cases import resized as by_sides

SIZES = [(37, 61), (61, 37), (100, 331), (9, 9), (64, 200), (13, 170)]


def scaled(filter_name="bilinear", **fields):
    return pp.resize(29, mode="scale", max_size=71, like="opencv", filter=filter_name, subpixel=True, **fields)


def scale_of(size):
    """Return the scale of the shorter side. If it would round the longer side above its limit, return the scale of the
    longer side.
    """
    scale = 29 / min(size)
    return scale if round(scale * max(size)) <= 71 else 71 / max(size)


@pytest.mark.parametrize(
    ("filter_name", "way"),
    [("nearest", cv2.INTER_NEAREST), ("bilinear", cv2.INTER_LINEAR), ("lanczos4", cv2.INTER_LANCZOS4)],
)
def test_sampling_positions_follow_the_scale_and_not_the_rounded_size(filter_name, way):
    def pairs():
        pipeline = pp.Pipeline([pp.decode(), scaled(filter_name), pp.tensor(dtype="uint8", layout="hwc")])
        geometry = pipeline.plan.outputs["tensor"].geometry
        for size in SIZES:
            placement, pixels = geometry.place(*size), noise(*size)
            assert placement.ratio == (1 / scale_of(size),) * 2
            assert placement.resized == tuple(round(side * scale_of(size)) for side in size)
            how = resampling(geometry.resize, placement)
            ours = resize.resize(pixels, how)
            if (placement.resized[0] / size[0]) != placement.resized[1] / size[1]:
                assert not np.array_equal(ours, by_sides(pixels, placement.resized, "opencv", filter_name))
            scale = scale_of(size)
            yield f"{size}", ours, cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=way)

    assert_equal(pairs())


def test_the_longer_side_may_be_rounded_to_its_limit():
    """The scale 29 / 61 resizes 150 to 71.3. The limit is 71, so the shorter side determines the scale."""
    geometry = pp.Pipeline([pp.decode(), scaled(), pp.tensor()]).plan.outputs["tensor"].geometry
    assert geometry.place(61, 150).ratio == (61 / 29,) * 2
    assert geometry.place(61, 151).ratio == (151 / 71,) * 2


def test_annotations_are_mapped_back_by_the_scale():
    pipeline = pp.Pipeline([pp.decode(), scaled(), pp.scale_factor(), pp.transform(), pp.tensor()])
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([png(noise(*size)) for size in SIZES])
    for size, factor, transform in zip(SIZES, batch["scale_factor"], batch["transform"], strict=True):
        scale = np.float32(scale_of(size))
        assert (factor == scale).all()
        assert np.array_equal(transform, [scale, scale, 0, 0])


def test_mask_labels_are_those_of_opencvs_nearest_pixels():
    pipeline = pp.Pipeline([pp.decode(), scaled("nearest"), pp.mask(), pp.tensor("uint8", "hwc")]).for_training()
    for size in SIZES:
        labels = noise(*size)[:, :, 0]
        (numbers,) = pipeline.plan.draw(seed=1, epoch=0, indices=[0])
        placement = pipeline.plan.placing(numbers, {"mask": labels})(*size)
        found = annotated(pipeline.plan, placement, {"mask": labels})["mask"]
        step = pipeline.plan.outputs["tensor"].geometry.resize
        pixels = resize.resize(labels[:, :, None], resampling(step, placement.placements["tensor"]))
        assert np.array_equal(found, pixels[:, :, 0])
