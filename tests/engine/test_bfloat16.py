"""Tests of bfloat16: rounding with ties to even, the values of tensors, patches and tiles, and the export as DLPack."""

import ctypes
from sys import getrefcount

import numpy as np
import pytest

import pixprep as pp
from pixprep.bfloat16 import Exported, bfloat16_bits, bfloat16_floats, to_bfloat16
from support.asking import ask
from support.images import png, scene

NORMALIZE = pp.normalize(mean=[0.48, 0.45, 0.41], std=[0.27, 0.26, 0.28])
SIZE = pp.resize(height=33, width=47)


def by_integers(values):
    """Round float32 values to bfloat16 with integer arithmetic, and return the bits."""
    words = values.view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)


def test_float32_values_are_rounded_to_the_nearest_bfloat16_with_ties_to_even():
    words = np.random.default_rng(0).integers(0, 1 << 32, 200_000, np.uint32)
    words[:1000] = words[:1000] & 0xFFFF0000 | 0x8000  # ties
    words[1000:2000] &= 0x807FFFFF  # subnormal numbers
    values = words.view(np.float32)
    values = values[np.abs(values) < 3.38e38]
    assert np.array_equal(bfloat16_bits(values), by_integers(values))
    assert np.array_equal(bfloat16_floats(bfloat16_bits(values)), to_bfloat16(values))


def test_float64_values_are_rounded_only_once():
    above_a_tie = 1 + 2.0**-8 + 2.0**-40  # as a float32, this value is a tie, which is rounded down
    assert to_bfloat16(above_a_tie) == np.float32(1 + 2.0**-7)
    assert to_bfloat16(np.float32(above_a_tie)) == np.float32(1)


BOTH = {
    "planes": [SIZE, NORMALIZE],
    "channels last": [SIZE, NORMALIZE, {"layout": "hwc"}],
    "padding": [pp.resize(24, max_size=60), NORMALIZE, {"multiple": 16, "pad_value": 0.3}],
    "padding with a pixel value": [pp.resize(24, max_size=60), NORMALIZE, {"multiple": 16, "pad_level": 7}],
    "a padded canvas": [pp.letterbox(height=48, width=40), NORMALIZE],
    "a canvas padded with a value": [pp.resize(height=20, width=30), NORMALIZE, pp.pad(multiple=16, value=0.3)],
    "four channels": [SIZE, NORMALIZE, {"channels": 4, "pad_value": 0.3, "layout": "hwc"}],
    "values of a resize": [pp.resize(height=33, width=47, like="tensorflow"), NORMALIZE],
    "changed pixel values": [SIZE, pp.gamma(2.2), pp.rotate(20), NORMALIZE],
}


@pytest.mark.parametrize("case", BOTH)
def test_a_tensor_has_the_rounded_values_of_a_float32_tensor(case):
    fields = next((each for each in BOTH[case] if isinstance(each, dict)), {})
    ops = [pp.decode(), *(each for each in BOTH[case] if not isinstance(each, dict))]
    outputs = [pp.tensor(dtype="bfloat16", name="short", **fields), pp.tensor(name="long", **fields)]
    found = ask([*ops, *outputs], png(scene(70, 101)))
    assert found["short"].dtype == np.uint16
    # the float32 values have already been rounded once; this changes the result only for values close to a tie
    assert np.abs(to_bfloat16(found["long"]) - bfloat16_floats(found["short"])).max() <= 2**-7
    assert np.mean(bfloat16_bits(found["long"]) != found["short"]) < 1e-3


def test_the_text_of_a_batch_mentions_the_bits():
    with pp.Engine(pp.Pipeline([pp.decode(), SIZE, NORMALIZE, pp.tensor(dtype="bfloat16")]), threads=1) as engine:
        text = repr(engine.run_batch([png(scene(70, 101))]))
    assert text == "<Batch: 1 images, tensor uint16 [1, 3, 33, 47], tensor contains the bits of bfloat16>"


def test_patches_and_tiles_have_the_rounded_values():
    ops = [pp.decode(), pp.resize_to_tiles(tile_size=16, max_tiles=4), NORMALIZE]
    outputs = [pp.patches(8, dtype="bfloat16", name="a"), pp.patches(8, name="b")]
    outputs += [pp.tiles(16, thumbnail="last", dtype=dtype, name=dtype) for dtype in ("bfloat16", "float32")]
    found = ask([*ops, *outputs], png(scene(70, 101)))
    for short, long in (("a", "b"), ("bfloat16", "float32")):
        assert np.mean(bfloat16_bits(found[long]) != found[short]) < 1e-3


@pytest.mark.parametrize("like", ["pillow", "tensorflow"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_arithmetic_rounds_each_result_to_bfloat16(like, dtype):
    mean, std, scale = np.float32([0.48, 0.45, 0.41]), np.float32([0.27, 0.26, 0.28]), np.float32(1 / 255)
    size = pp.resize(height=33, width=47, like=like)
    normalize = pp.normalize(mean.tolist(), std.tolist(), arithmetic="bfloat16")
    kind = "uint8" if like == "pillow" else "float32"
    ops = [pp.decode(), size, pp.tensor(dtype=kind, layout="hwc", name="levels"), normalize]
    ops += [pp.tensor(dtype=dtype, layout="hwc")]
    unsupported = pp.Pipeline(ops).plan.tensors["tensor"].unsupported_by_cuda
    assert unsupported == (("bfloat16",) if like == "tensorflow" else ())
    found = ask(ops, png(scene(70, 101)))
    scaled = to_bfloat16(found["levels"].astype(np.float32) * scale)
    expected = to_bfloat16(to_bfloat16(scaled - to_bfloat16(mean)) / to_bfloat16(std))
    tensor = found["tensor"]
    assert np.array_equal(bfloat16_floats(tensor) if dtype == "bfloat16" else tensor, expected)


def test_an_exported_array_is_bfloat16_and_shares_its_memory_until_the_importer_frees_it():
    array = bfloat16_bits(np.linspace(-3, 3, 24).reshape(4, 6))
    exported, count = Exported(array), getrefcount(array)
    assert exported.__dlpack_device__() == (1, 0)
    capsule = exported.__dlpack__()
    at = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor")
    assert ctypes.c_void_p.from_address(at).value == array.ctypes.data
    assert ctypes.c_uint8.from_address(at + 20).value == 4  # kDLBfloat
    assert ctypes.c_uint8.from_address(at + 21).value == 16
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dlpack")  # Triton also renames it
    del capsule
    assert getrefcount(array) == count + 1
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_void_p.from_address(at + 56).value)
    free(at)
    assert getrefcount(array) == count
