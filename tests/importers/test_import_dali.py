"""Tests that serialized DALI pipelines are imported without DALI: supported graphs, rejected graphs, and
hostile bytes.
"""

import os
import re
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep import wire
from pixprep.importers import import_pipeline
from pixprep.importers.dali.importer import from_dali
from support.compare import EQUAL, assert_close
from support.dali_graphs import (
    CMN,
    DECODE,
    EXPRESSION,
    FLOAT,
    FLOAT16,
    INT8,
    RESIZE,
    UINT8,
    argument,
    chain,
    field,
    graph,
    operator,
    varint,
)
from support.images import photo, png, scene
from support.importing import assert_imported_or_refused, damaged, refusal

ROOT = Path(__file__).parents[2]
FROZEN = ROOT / "tests" / "parity" / "frozen" / "dali"  # written by parity/freeze_dali.py
WARPED = {"matrix": [1.0, 0.25, 2.0, -0.5, 1.5, 2.0], "size": [9.0, 7.0]}
EXPECTED = np.load(FROZEN / "expected.npz")
RUN = sorted({name.split("/")[0] for name in EXPECTED})


def middle(height, width, rounding="half_away"):
    """Return the centre crop that corresponds to DALI's crop with the default ``out_of_bounds_policy``."""
    return pp.center_crop(height, width, rounding=rounding, smaller="refuse")


# supported graphs


def test_the_pipeline_of_every_dali_tutorial_becomes_five_ops():
    pipeline = from_dali(FROZEN / "classic_gpu.dali")
    assert pipeline.ops == (
        pp.decode(chroma="fast"),
        pp.resize(256, like="dali"),
        pp.center_crop(224, rounding="half_away", smaller="refuse"),
        pp.normalize((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), scale=1, arithmetic="fused_multiply"),
        pp.tensor(),
    )
    assert pipeline.origin == pp.Origin(library="dali", version="unknown", name="classic_gpu.dali", profile="dali")


def test_a_file_and_its_bytes_give_the_same_ops():
    path = FROZEN / "classic.dali"
    assert from_dali(path).ops == from_dali(str(path)).ops == from_dali(path.read_bytes()).ops
    assert from_dali(path.read_bytes()).origin.name == "model.dali"
    one, other = import_pipeline(str(path)), import_pipeline(f"dali:{path}", output="__CropMirrorNormalize_2")
    assert one.ops == other.ops


def outputs_of(pipeline, name):
    """Yield each of pixprep's outputs for each photo, together with DALI's."""
    photos = sorted({key.split("/")[2] for key in EXPECTED})
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([photo(name) for name in photos])
    assert batch.errors == [None] * len(photos)
    for index, values in enumerate(batch.outputs.values()):
        for row, which in zip(values, photos, strict=True):
            yield row, EXPECTED[f"{name}/{index}/{which}"]


@pytest.mark.parametrize("name", RUN)
def test_the_photos_give_the_same_tensors_as_in_dali(name):
    for actual, expected in outputs_of(from_dali(FROZEN / f"{name}.dali"), name):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, EQUAL)


@pytest.mark.parametrize("name", ["Crop", "CropMirrorNormalize", "decoders__ImageCrop"])
@pytest.mark.parametrize("corner", [{}, {"crop_pos_x": 0.0, "crop_pos_y": 0.0}])
def test_a_crop_rejects_an_image_that_it_does_not_fit_into(name, corner):
    """DALI rejects such an image with its whole batch; pixprep returns an ImageError only for the image itself."""
    crop = (name, {"crop": [40.0, 30.0], **corner})
    ops = from_dali(chain(crop) if "decoders" in name else chain(DECODE, crop)).ops
    with pp.Engine(pp.Pipeline(ops), threads=1) as engine:
        errors = engine.run_batch([png(scene(*size)) for size in ((40, 30), (39, 30), (40, 29), (90, 70))]).errors
    assert [error and error.reason for error in errors] == [None, "DOES_NOT_FIT", "DOES_NOT_FIT", None]


def test_the_chroma_upsampling_of_the_cpu_can_be_chosen():
    path = FROZEN / "classic_gpu.dali"
    assert import_pipeline(str(path), chroma="fancy").ops == from_dali(FROZEN / "classic.dali").ops
    with pytest.raises(pp.PipelineError, match='chroma: "fanzy" is not supported'):
        import_pipeline(str(path), chroma="fanzy")


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({}, {}),
        ({"output_type": 1}, {"color": "bgr"}),
        ({"output_type": 2}, {"color": "gray"}),
        ({"device": "mixed"}, {"chroma": "fast"}),
        ({"device": "mixed", "jpeg_fancy_upsampling": True}, {}),
        ({"adjust_orientation": False}, {"apply_exif_orientation": False}),
        ({"adjust_orientation": False, "use_fast_idct": True}, {"apply_exif_orientation": False, "idct": "fast"}),
        ({"hw_decoder_load": 0.7, "affine": False, "seed": -1, "_origin_stack_name": ["f"]}, {}),
    ],
)
@pytest.mark.parametrize("name", ["decoders__Image", "experimental__decoders__Image", "ImageDecoder"])
def test_a_decoder_keeps_its_meaning(name, arguments, fields):
    assert from_dali(chain((name, arguments), RESIZE, CMN)).ops[0] == pp.decode(**fields)
    cropped = chain((f"{name}Crop", arguments | {"crop": [90.0, 80.0]}), RESIZE, CMN)
    assert from_dali(cropped).ops[:2] == (pp.decode(**fields), middle(90, 80))


def test_lists_can_be_packed():
    numbers = struct.pack("<2f", 20, 30)
    size = field(4, field(1, "size") + field(3, numbers) + field(8, 1))
    resize = field(5, field(1, "Resize") + field(2, field(1, "pixels")) + field(3, field(1, "small")) + size)
    data = graph(
        operator("ExternalSource", [], ["in"]),
        operator("decoders__Image", ["in"], ["pixels"]),
        resize,
        outputs=["small"],
    )
    assert from_dali(data).ops[1] == pp.resize(height=20, width=30, like="dali")


# several outputs


def test_outputs_share_their_common_ops():
    pipeline = from_dali(FROZEN / "two_outputs.dali")
    names = ["decode", "resize", "center_crop", "tensor", "center_crop", "normalize", "tensor"]
    assert [op.__struct_config__.tag for op in pipeline.ops] == names
    assert (pipeline.ops[1].name, pipeline.ops[4].from_) == ("branch_1", "branch_1")
    assert list(pipeline.outputs) == ["thumbnail", "tensor_1"]


def test_one_output_can_be_imported_if_another_is_not_supported():
    data = graph(
        operator("readers__File", [], ["in", "label"]),
        operator("decoders__Image", ["in"], ["pixels"]),
        operator("OpticalFlow", ["pixels"], ["flow"]),
        operator("Resize", ["pixels"], ["small"], size=8.0),
        outputs=["small", "flow", "label"],
    )
    assert list(from_dali(data, output="small").outputs) == ["tensor"]
    listed = '; to import a single output, set --option output=NAME to one of "small", "flow", "label"'
    assert refusal(from_dali, data).startswith('model.dali: operator 3 "OpticalFlow": is not')
    assert refusal(from_dali, data).endswith(listed)
    assert refusal(from_dali, data, output="label") == (
        'model.dali: the output "label" is not computed from an image, which is not supported: serve the graph with '
        "DALI"
    )
    assert refusal(from_dali, data, output="tall") == (
        'model.dali: unknown output "tall"; available outputs: "small", "flow", "label"'
    )


def test_the_page_of_dali_backend_ends_in_a_model_with_the_same_input_and_output(tmp_path):
    """This test does not run the page's line that runs DALI: the parity tests compare its output with the
    frozen file.
    """
    pytest.importorskip("tritonclient", reason="check reads config.pbtxt by it: make .venv/.dev")
    page = (ROOT / "docs" / "dali.md").read_text(encoding="utf-8")
    model = tmp_path / "models" / "dali"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(re.search(r"```text\n(.*?)```", page, re.DOTALL)[1])
    (model / "1" / "model.dali").write_bytes((FROZEN / "classic_gpu.dali").read_bytes())
    lines = re.search(r"```\n(pixprep import .*?check.*?)```", page, re.DOTALL)[1]
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", lines],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "served: no problem found")
    pipeline = pp.load(tmp_path / "served" / "dali" / "1" / "pipeline.json")
    assert list(pipeline.outputs) == ["DALI_OUTPUT_0"]
    assert pipeline.ops[:-1] == from_dali(FROZEN / "classic_gpu.dali").ops[:-1]


# rejected graphs


FOUR = '"fill_values": [1.0, 1.0, 1.0] must be one number or four numbers with pad_output, as DALI requires'
PADDED = {"crop": [9.0, 9.0], "out_of_bounds_policy": "pad", "rounding": "truncate"}
REFUSED = [
    (
        "Resize",
        {"resize_longer": 256.0, "max_size": [640.0]},
        '"max_size": [640.0] is supported only with a constant resize_shorter',
    ),
    ("Resize", {"size": 9.0, "max_size": [640.0]}, '"max_size": [640.0] is not supported'),
    ("Resize", {"size": 9.0, "roi_start": [0.1, 0.2]}, '"roi_end" is missing: it must be two numbers'),
    ("Resize", {"size": 9.0, "roi_start": [0.1], "roi_end": [0.1, 2.0]}, '"roi_start": [0.10000000149011612] must be'),
    (
        "Resize",
        {"size": 9.0, "roi_start": [0.5, 0.0], "roi_end": [0.5, 2.0]},
        'resize: "roi" must be four numbers (top, left, bottom, right), and must not be empty',
    ),
    ("Resize", {"size": 9.5}, '"size": 9.5 must be one side, or a height and a width, from 1 to 16384 pixels each'),
    (
        "Resize",
        {"resize_x": 9.0, "mode": "stretch"},
        "\"mode\": 'stretch' is not supported with only a height or a width, because",
    ),
    ("Hue", {"hue": [1.0, 2.0]}, '"hue": [1.0, 2.0] must be a finite number'),
    ("Brightness", {"brightness": 2.0, "dtype": FLOAT}, '"dtype": 9 must be 0 (uint8), the type of the image'),
    ("GaussianBlur", {}, 'requires "window_size" or "sigma"'),
    ("GaussianBlur", {"sigma": [1.0, 2.0]}, 'requires a "window_size" and a "sigma" that are equal for both axes'),
    (
        "Erase",
        {"anchor": [1.0, 2.0], "shape": [3.0]},
        '"shape": [3.0] must have as many numbers as anchor',
    ),
    (
        "Squeeze",
        {"axes": [2]},
        '"axes": [2] must be dimensions that expand_dims inserted, because a tensor has height, width',
    ),
    (
        "ExpandDims",
        {"axes": [0, 1, 2]},
        '"axes": [0, 1, 2] must contain at most 2 indices, each from 0 to the number of dimensions',
    ),
    ("ExpandDims", {"axes": [4]}, '"axes": [4] must contain at most 2 indices'),
    ("WarpAffine", {"size": [9.0, 9.0]}, "its matrix must have 2 rows of 3 finite numbers"),
    ("WarpAffine", WARPED | {"interp_type": 2}, '"interp_type": 2 must be one of 0 (nearest), 1 (bilinear)'),
    ("WarpAffine", WARPED | {"dtype": FLOAT}, '"dtype": 9 must be 0 (uint8), the type of the image'),
    ("WarpAffine", WARPED | {"fill_value": 0.5}, '"fill_value": 0.5 must be an integer from 0 to 255'),
    ("WarpAffine", WARPED | {"matrix": [1.0, 2.0, 0.0, 2.0, 4.0, 0.0]}, 'warp: "matrix": the transform is singular'),
    ("WarpAffine", WARPED | {"inverse_map": 1}, '"inverse_map": 1 must be true or false'),
    (
        "Water",
        {},
        "displaces pixels by a formula of DALI's own, which is not supported: write a custom operator",
    ),
    ("Resize", {"size": [0.0, 0.0]}, '"size": [0.0, 0.0] must be one side, or a height and a width, from 1'),
    ("Resize", {"resize_x": -9.0, "resize_y": 9.0}, '"resize_x": -9.0 must be an integer'),
    ("Resize", {}, "requires exactly one of size, resize_shorter,"),
    (
        "Resize",
        {"size": 9.0, "resize_x": 9.0},
        "requires exactly one of size, resize_shorter, resize_longer, or resize_x and resize_y, but has size, resize_x",
    ),
    ("Resize", {"size": 9.0, "mode": "warp"}, "\"mode\": 'warp' must be one of default, stretch, not_larger"),
    ("Resize", {"size": 9.0, "interp_type": 5}, '"interp_type": 5 must be one of 0 (nearest), 1 (bilinear), 2 (bic'),
    ("Resize", {"size": 9.0, "mag_filter": 6}, '"mag_filter": 6 must be one of 0'),
    (
        "Resize",
        {"size": 9.0, "min_filter": 2},
        '"min_filter": 2 must be the same filter for enlarging and for shrinking',
    ),
    (
        "Resize",
        {"size": 9.0, "mag_filter": 2},
        '"mag_filter": 2 must be the same filter for enlarging and for shrinking',
    ),
    (
        "Stack",
        {"axis": 2},
        "combines channels or images, which is not supported: to swap red and blue, set output_type",
    ),
    ("Slice", {"start": [1], "shape": [1], "axes": [2]}, '"axes": [2] must contain different axes out of '),
    ("Resize", {"size": 9.0, "dtype": FLOAT}, '"dtype": 9 must be 0 (uint8), because a resized image is uint8'),
    ("Resize", {"size": 9.0, "antialias": 1}, '"antialias": 1 must be true or false'),
    ("Resize", {"size": 9.0, "save_attrs": 1}, '"save_attrs": 1 must be true or false'),
    ("CropMirrorNormalize", {"dtype": INT8}, '"dtype": 4 must be one of 0 (uint8), 8 (float16), 9 (float32)'),
    ("ColorSpaceConversion", {"image_type": 0, "output_type": 3}, '"output_type": 3 converts to or from YCbCr,'),
    ("CropMirrorNormalize", {"std": [0.0]}, '"std": [0.0] must be greater than 0'),
    ("CropMirrorNormalize", {"scale": 0.0}, '"scale": 0.0 must not be 0'),
    ("CropMirrorNormalize", {"mean": [1.0, 2.0]}, '"mean": [1.0, 2.0] must be a finite number, or one for each of 3'),
    ("CropMirrorNormalize", {"output_layout": "FCHW"}, "\"output_layout\": 'FCHW' must be one of CHW, HWC"),
    (
        "CropMirrorNormalize",
        {"crop": 9.0, "out_of_bounds_policy": "pad", "std": 7.0, "fill_values": [0.5]},
        "pads with values that are not equal to a normalized pixel value, which is not",
    ),
    (
        "Crop",
        {"crop": 9.0, "out_of_bounds_policy": "trim_to_shape"},
        "\"out_of_bounds_policy\": 'trim_to_shape' must be 'error' or 'pad'",
    ),
    *[
        ("CropMirrorNormalize", PADDED | {"pad_output": True, "fill_values": [1.0] * 3, **numbers}, FOUR)
        for numbers in ({}, {"mean": 3.0, "std": 2.0}, {"mean": [0.0] * 3})
    ],
    (
        "Crop",
        PADDED | {"fill_values": [1.0, 2.0]},
        '"fill_values": [1.0, 2.0] must be a number from 0 to 255, or one for',
    ),
    ("Crop", PADDED | {"fill_values": [-1.0]}, '"fill_values": [-1.0] must be a number from 0 to 255, or one for each'),
    ("Crop", PADDED | {"crop_pos_x": 1.5}, 'crop: "left" must be between 0 and 1, not 1.5'),
    ("CropMirrorNormalize", {"mirror": 2}, '"mirror": 2 must be one of 0 (False), 1 (True)'),
    ("Crop", {"crop": [9.0, 9.0], "\x1b[2J": 1}, '"\\u001b[2J": 1 is not supported'),
    ("Crop", {"crop_h": 9.0}, '"crop_w" is missing: it must be an integer from 1 to 16384, in pixels'),
    ("Crop", {"crop": [9.0, 9.0], "rounding": "up"}, "\"rounding\": 'up' must be one of round, truncate"),
    ("Flip", {"depthwise": 1}, '"depthwise": 1 must be 0'),
    ("Transpose", {"perm": [1, 0, 2]}, '"perm": [1, 0, 2] must convert an image in HWC to HWC or CHW'),
    ("Transpose", {}, '"perm" is missing: it must convert an image in HWC to HWC or CHW'),
    ("Transpose", {"perm": [2, 0, 1], "transpose_layout": False}, '"transpose_layout": False is not supported'),
    ("Transpose", {"perm": [2, 0, 1], "output_layout": "HWC"}, "\"output_layout\": 'HWC' must be 'CHW'"),
    ("Normalize", {"mean": 3.0}, 'without "stddev", DALI computes it from each image, which is not supported'),
    ("Normalize", {"mean": 3.0, "stddev": 2.0, "batch": True}, '"batch": True is not supported'),
    ("Rotate", {"angle": 30.0, "fill_value": 300.0}, '"fill_value": 300.0 must be an integer from 0 to 255'),
    ("Rotate", {"angle": 30.0, "interp_type": 3}, '"interp_type": 3 must be one of 0 (nearest), 1 (bilinear)'),
    (
        "Rotate",
        {"angle": 90.0, "size": 9.0, "keep_size": True},
        '"size": 9.0 is supported only for a constant angle and an image of',
    ),
    ("Pad", {"axes": [2], "shape": [4]}, '"shape": [4] must not change the number of channels, 3'),
    ("Pad", {"axes": [3], "shape": [4]}, '"axes": [3] must contain different axes out of'),
    (
        "Pad",
        {"axes": [0, 1], "shape": [20000, 99]},
        '"shape": [20000, 99] must be one side, or a height and a width, from 1',
    ),
    (
        "Pad",
        {"axes": [0, 1], "shape": [99, 99, 9]},
        '"shape": [99, 99, 9] must be one length, or one length per axis',
    ),
    ("Pad", {"axes": [0, 1], "shape": [99, 99], "fill_value": 256.0}, '"fill_value": 256.0 must be a number from 0 to'),
    ("Slice", {"start": [1, 2], "shape": [3, 4], "axes": [0, 2]}, '"axes": [0, 2] must contain different axes out of'),
    ("Slice", {"start": [1], "shape": [3, 4], "axes": [0, 1]}, "requires one number for each axis"),
    (
        "_TensorSubscript",
        {"at_0": 1, "num_subscripts": 1},
        "supports only ranges with a start and an end, without a step",
    ),
    (
        "_TensorSubscript",
        {"lo_2": 1, "num_subscripts": 3},
        "selects channels of HWC, which is not supported: to swap red and blue",
    ),
    ("Paste", {"ratio": 0.5}, '"ratio": 0.5 must be from 1 to 100'),
    ("Reshape", {"layout": "CHW"}, "\"layout\": 'CHW' must be HWC, the layout of the image: use transpose"),
    ("Reshape", {"shape": [1, 2, 3]}, '"shape": [1, 2, 3] must be the shape of the image'),
    ("Reinterpret", {"dtype": FLOAT}, '"dtype": 9 must be the type of the image, uint8'),
    (
        EXPRESSION,
        {"expression_desc": "fdiv($0:float32 &0)", "real_constants": [9.0]},
        "\"expression_desc\": 'fdiv($0:float32 &0)' divides a number by an image, which is not supported",
    ),
    (
        EXPRESSION,
        {"expression_desc": "div(&0 $0:int32)", "integer_constants": [2]},
        "\"expression_desc\": 'div(&0 $0:int32)' is not supported: only +, -, * and / of an image and",
    ),
    (
        EXPRESSION,
        {"expression_desc": "sub(&0 $0:int32)", "integer_constants": [2]},
        "\"expression_desc\": 'sub(&0 $0:int32)' computes in integers",
    ),
    (
        EXPRESSION,
        {"expression_desc": "fdiv(&0 $0:float32)", "real_constants": [0.0]},
        "multiplies by 0 or divides by 0, which loses the pixel values",
    ),
    ("Cast", {}, '"dtype" is missing: it must be one of 0 (uint8)'),
    (
        "PythonFunction",
        {"function_id": 1},
        "calls a Python function, which the file does not contain: write a custom operator",
    ),
    (
        "Normalize",
        {"mean": 1.0, "stddev": 2.0, "epsilon": 0.5},
        '"epsilon": 0.5 must be 0: set stddev to sqrt(stddev**2',
    ),
    (
        "Crop",
        {**PADDED, "dtype": FLOAT, "fill_values": 9.5},
        '"fill_values": 9.5 must be an integer for values of type',
    ),
    (
        "CropMirrorNormalize",
        {**PADDED, "fill_values": [1.0, 2.0, 3.0], "std": 2.0},
        '"fill_values": [1.0, 2.0, 3.0] requires a mean for each channel: with a single mean, DALI sets all channels',
    ),
    (
        "CropMirrorNormalize",
        {**PADDED, "fill_values": 300.0, "std": 0.5, "dtype": UINT8},
        '"fill_values": 300.0 must be integers from 0 to 255 in a uint8 tensor, because',
    ),
    ("Paste", {"ratio": 2.0, "n_channels": 1}, '"n_channels": 1 must be 3, the number of channels of the image'),
    ("Warp", {}, "is not supported; supported operators: decoders__Image"),
    ("decoders__Image", {}, 'its input "t2" is not the encoded image'),
]
PADDED_CHANNEL = ("CropMirrorNormalize", {"pad_output": True})
GRAY, HALF = ("decoders__Image", {"output_type": 2}), ("Cast", {"dtype": FLOAT16})
MUST_BE_LAST = "follows the padding of normalized values, which must be the last operator"
REFUSED_CHAINS = [
    *(
        ([DECODE, RESIZE, PADDED_CHANNEL, (name, values)], f'"{name}": {MUST_BE_LAST}')
        for name, values in (
            (EXPRESSION, {"expression_desc": "mul(&0 $0:float32)", "real_constants": [2.0]}),
            ("CropMirrorNormalize", {"mean": [1.0, 2.0, 3.0]}),
            ("Pad", {"axis_names": "HW", "shape": [60, 70]}),
        )
    ),
    *(([DECODE, *[RESIZE] * (name != "Resize"), (name, values)], f'"{name}": {why}') for name, values, why in REFUSED),
    ([("decoders__Image", {"output_type": 3})], '"decoders__Image": "output_type": 3 must be one of 0 (rgb)'),
    ([("decoders__Image", {"dtype": FLOAT})], '"decoders__Image": "dtype": 9 must be 0 (uint8), because images are'),
    (
        [("decoders__Image", {"use_fast_idct": True, "device": "mixed"})],
        '"use_fast_idct": True is not supported with device',
    ),
    (
        [("decoders__Image", {"use_fast_idct": True})],
        '"use_fast_idct": True is ignored by DALI for images with an EXIF orientation, which',
    ),
    (
        [DECODE, ("WarpAffine", {"matrix": [1.0, 0.0, 2.0, 0.0, 1.0, 2.0]})],
        'requires "size": without it, the size of the result',
    ),
    (
        [("decoders__Image", {"output_type": 2}), ("ColorSpaceConversion", {"image_type": 2, "output_type": 0})],
        '"output_type": 0 is not supported for an image in gray: change the model to accept one channel',
    ),
    (
        [GRAY, ("Paste", {"ratio": 2.0, "fill_value": 0})],
        '"n_channels" is missing: it must be 1, the number of channels of the image',
    ),
    (
        [GRAY, RESIZE, ("CropMirrorNormalize", {"mean": [1.0, 2.0, 3.0], "dtype": UINT8})],
        "has a mean or a standard deviation for 3 channels, but the",
    ),
    (
        [DECODE, RESIZE, HALF, ("Pad", {"axes": [0, 1], "shape": [60, 70], "fill_value": 0.5})],
        '"fill_value": 0.5 must be an integer for values of type float16: pad before the cast',
    ),
    (
        [DECODE, RESIZE, HALF, (EXPRESSION, {"expression_desc": "fdiv(&0 $0:int32)", "integer_constants": [255]})],
        "computes in float16, which is not supported: write the constant as a float, such as 127.0",
    ),
    ([DECODE, ("Pad", {})], 'without "shape", the size depends on the other images of the batch, which'),
    (
        [("decoders__ImageRandomCrop", {})],
        '"decoders__ImageRandomCrop": samples random parameters for each image, which is',
    ),
    ([DECODE, RESIZE, ("Cast", {"dtype": FLOAT}), RESIZE], '"Resize": a resize of float32 values'),
    (
        [DECODE, RESIZE, ("CropMirrorNormalize", {"dtype": FLOAT16, "std": 2.0}), ("Cast", {"dtype": FLOAT})],
        '"Cast": follows a cast to float16, but this cast must be the last operator, so that values are rounded once',
    ),
]


@pytest.mark.parametrize(("steps", "message"), REFUSED_CHAINS)
def test_unsupported_graphs_are_rejected_by_operator_and_argument(steps, message):
    text = refusal(from_dali, chain(*steps))
    assert text.startswith(f"model.dali: operator {len(steps) + 1} ")
    assert message in text


# hostile files


def test_a_truncated_file_is_rejected_or_complete():
    data = (FROZEN / "classic.dali").read_bytes()
    complete = assert_imported_or_refused(from_dali, [data[:length] for length in range(len(data))])
    assert {pipeline.ops for pipeline in complete} == {from_dali(data).ops}
    assert len(complete) < 60  # about twenty bytes after the outputs specify how DALI runs the pipeline


def test_changed_bytes_give_a_pipeline_or_an_error():
    assert_imported_or_refused(from_dali, damaged((FROZEN / "two_outputs.dali").read_bytes(), 600))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it does not contain an operator"),
        (operator("ExternalSource", [], ["in"]), "it does not contain an output"),
        (b"\x2a" + varint(100_000_000), "a field has 100,000,000 bytes, but only 0 are left"),
        (b"\x2a" + b"\xff" * 12, "a varint does not end"),
        (b"\x2b", "a field has the unknown wire type 3"),
        (field(5, field(9, 1)) + field(7, field(1, "x")), "unexpected field number 9"),
        (field(5, 1), "expected a value of type message, got wire type 0"),
        (field(5, field(1, b"\xff")) + field(7, field(1, "x")), "'utf-8' codec can't decode"),
        (chain(DECODE).replace(b"decoders__Image", b"decoders__Im\xffge"), "'utf-8' codec can't decode"),
        (
            graph(field(5, field(1, "Cast") + 2 * field(4, argument("dtype", 9))), outputs=["x"]),
            "operator 1 has two arguments with the same name",
        ),
        (
            graph(field(5, field(1, "Cast") + field(4, field(1, "dtype") + field(4, 1) * 2)), outputs=["x"]),
            "expected one name or one argument value, found 2",
        ),
        (
            graph(field(5, field(1, "Cast") + field(4, field(1, "x") + field(7, field(7, b"")))), outputs=["x"]),
            "unexpected field number 7",
        ),
        (field(5, field(2, 1.0)), "expected a value of type message, got wire type 5"),
        (b"\x48\x01" * (wire.MAX_FIELDS + 1), "a message has more than 50,000 fields"),
    ],
)
def test_a_different_message_is_rejected_with_the_reason(data, message):
    assert refusal(from_dali, data).startswith(f"model.dali: not a serialized DALI pipeline: {message}")


def test_a_python_file_is_rejected_with_the_call_that_serializes_it():
    text = refusal(from_dali, b"from nvidia.dali import pipeline_def\n")
    assert text.endswith('type 6; write one with pipe.serialize(filename="model.dali")')


def test_a_graph_that_is_not_a_chain_of_constants_is_rejected():
    assert refusal(from_dali, FROZEN / "random_mirror.dali") == (
        'random_mirror.dali: operator 4 "random__CoinFlip": samples random parameters for each image, which is not '
        "supported: serialize a graph without it, and add the random op to the pipeline file"
    )
    steps = ((f"{name} pixels", f"{name} small") for name in "ab")
    data = graph(
        *(operator("ExternalSource", [], [name]) for name in "ab"),
        *(operator("decoders__Image", [name], [f"{name} pixels"]) for name in "ab"),
        *(operator("Resize", [pixels], [small], size=8.0) for pixels, small in steps),
        outputs=["a small", "b small"],
    )
    assert "the outputs use different" in refusal(from_dali, data)


def test_the_size_of_a_graph_is_limited():
    copies = chain(DECODE, *[("Copy", {})] * 300)
    assert refusal(from_dali, copies) == "model.dali: the graph has 302 operators; the maximum is 256"
    outputs = graph(operator("ExternalSource", [], ["in"]), outputs=["in"] * 33)
    assert refusal(from_dali, outputs) == "model.dali: the graph has 33 outputs; the maximum is 32"


def lines_executed(data):
    """Return how many lines of Python the import of a graph executes. Unlike a time, this number does not depend on the
    load of the machine.
    """
    count, before = 0, sys.gettrace()

    def trace(*_):
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        with suppress(pp.PipelineError):
            from_dali(data)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("large", "twice_as_large"),
    [
        [graph(*[operator("Copy", ["t"], ["t"])] * count, outputs=["t"]) for count in (1000, 2000)],
        [
            graph(
                operator("Cast", [], ["x"], **{f"{index:05}": 1 for index in range(count)}),
                outputs=["x"],
            )
            for count in (1000, 2000)
        ],
        [field(5, b"\x30\x01" * count) for count in (10_000, 20_000)],
        [
            chain(DECODE, RESIZE, *[("Flip", {})] * count) + field(7, field(1, f"t{count + 2}")) * 31
            for count in (126, 252)
        ],
    ],
    ids=["operators", "arguments", "fields", "flips"],
)
def test_twice_as_large_a_file_takes_at_most_twice_the_work(large, twice_as_large):
    from_dali(chain(DECODE, RESIZE))  # results that are computed once per process are not part of the work
    assert lines_executed(twice_as_large) < 2.2 * lines_executed(large)
