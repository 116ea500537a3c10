"""Tests that a GPU engine returns the patches, tiles and slices of vision-language models that a CPU engine returns."""

import sys

import numpy as np
import pytest

import pixprep as pp
from gpu.played import NO_KERNELS, jpeg, on_gpu, refusal, same
from support.images import noise, png, with_exif

pytestmark = pytest.mark.usefixtures("gpu")
NORMALIZE = pp.normalize(mean=(0.48, 0.45, 0.40), std=(0.26, 0.25, 0.27))
GRIDS = [(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]
PIPELINES = {
    "Qwen2-VL": [
        pp.resize_to_pixels(multiple=28, min_pixels=3136, max_pixels=15680, filter="bicubic", like="torchvision"),
        NORMALIZE, pp.patches(14, merge_size=2, temporal_patch_size=2),
        pp.patch_grid(14, merge_size=2, order="thw"), pp.token_count(14, merge_size=2),
    ],
    "SigLIP 2": [
        pp.resize_to_patches(patch_size=16, max_patches=30, like="torchvision"), NORMALIZE,
        pp.patches(16, max_patches=30, layout="hwc"), pp.patch_grid(16, max_patches=30),
        pp.patch_mask(16, max_patches=30), pp.patch_positions(16, max_patches=30),
    ],
    "InternVL": [
        pp.resize_to_tiles(tile_size=28, max_tiles=6, filter="bicubic", like="torchvision"), NORMALIZE,
        pp.tiles(28, thumbnail="last"), pp.tile_count(28, thumbnail="last"), pp.patch_grid(28),
    ],
    "LLaVA-NeXT": [
        pp.resize_to_tiles(tile_size=28, grids=GRIDS, choose="resolution", fit="center", filter="bicubic"), NORMALIZE,
        pp.tiles(28, thumbnail="first", thumbnail_of_one=True), pp.original_size(),
    ],
    "Idefics 3": [
        pp.resize_by_rule(rule="idefics3", size=112, filter="lanczos", like="torchvision"),
        pp.resize_by_rule(rule="up", multiple=28, again=True, filter="lanczos", like="torchvision"), NORMALIZE,
        pp.tiles(28, thumbnail="last", thumbnail_of="tiles"), pp.tile_count(28, thumbnail="last"),
    ],
    "Inkling": [
        pp.resize_by_rule(rule="keep", size=96, like="torchvision"),
        pp.pad(multiple=20, anchor="top_left", value=-1.0), NORMALIZE,
        pp.patches(20, layout="hwc", flat=False), pp.patch_grid(20, order="thw"),
    ],
    "MiniCPM-V": [
        pp.resize_to_slices(rule="minicpm", slice_size=42, multiple=28, max_slices=9, filter="bicubic"), NORMALIZE,
        pp.slice_patches(14), pp.slice_grids(14), pp.slice_count(14),
    ],
}  # fmt: skip
"""Pipelines like those that are imported for these models, with smaller sizes."""
TILES = pp.Pipeline([pp.decode(), *PIPELINES["InternVL"]])


@pytest.mark.parametrize("name", PIPELINES)
def test_inputs_of_vision_language_models_equal_the_cpu_and_are_joined_on_the_gpu(name, caplog):
    pipeline = pp.Pipeline([pp.decode(), *PIPELINES[name]])
    images = [jpeg(40 + 7 * index % 91, 40 + 13 * index % 120, index) for index in range(12)]
    images += [b"no image", with_exif(6), png(noise(70, 66)), jpeg(20, 300)]
    with on_gpu(pipeline, damage="strict") as engine, pp.Engine(pipeline) as cpu:
        ours, theirs = engine.run_batch(images), cpu.run_batch(images)
        assert not caplog.records  # a warning would report that the fast kernels are not used
        assert not pipeline.plan.unsupported_by_cuda
        same(ours, theirs)
    for output in pipeline.outputs:
        for rows in (slice(None), slice(0, 1), slice(9, 15)):
            assert np.array_equal(ours.packed(output, rows), theirs.packed(output, rows)), (output, rows)


def test_a_missing_thumbnail_is_detected_before_an_engine_starts(monkeypatch):
    """Negative control: in the comparison at the start, the kernels compute the tiles without the thumbnails."""
    kernel = sys.modules["pixprep.gpu.kernel"]

    def without(spec, images, placements, tensors):
        return split(spec, images, [placement._replace(thumbnail=None) for placement in placements], tensors)

    split = kernel.split
    monkeypatch.setattr(kernel, "split", without)
    assert refusal(TILES).startswith(f"{NO_KERNELS}4,704 of ")
