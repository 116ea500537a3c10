"""Serialized DALI pipelines, read without DALI: what is understood, what is refused, and what hostile bytes do."""

import struct
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pixprep as pp
from compare import assert_close
from images import photo
from pixprep.errors import PipelineError
from pixprep.importers import import_pipeline, wire
from pixprep.importers.dali import MAX_BYTES, from_dali

FROZEN = Path(__file__).parents[1] / "parity" / "frozen" / "dali"  # tools/freeze_dali_pipelines.py wrote it
EXPECTED = np.load(FROZEN / "expected.npz")
RUN = sorted({name.split("/")[0] for name in EXPECTED})
FLOAT, FLOAT16, UINT8, INT8 = 9, 8, 0, 4


# A writer, as small as the reader


def varint(value):
    value &= (1 << 64) - 1
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def argument(name, value):
    if isinstance(value, list):
        return field(1, name) + b"".join(field(7, argument("element", x)) for x in value) + field(8, 1)
    number = {float: 3, int: 4, str: 5, bool: 6}[type(value)]
    return field(1, name) + field(number, value)


def operator(name, inputs, outputs, computed=(), **arguments):
    edges = [field(2, field(1, edge)) for edge in inputs]
    edges += [field(2, field(1, "computed") + field(3, 1) + field(4, key)) for key in computed]
    edges += [field(3, field(1, edge)) for edge in outputs]
    body = [field(4, argument(key, value)) for key, value in arguments.items()]
    return field(5, field(1, name) + b"".join(edges + body))


def graph(*operators, outputs):
    return b"".join(operators) + b"".join(field(7, field(1, name)) for name in outputs)


def chain(*steps):
    """A graph of (operator, arguments), each of which takes what the one before gives."""
    steps = [("ExternalSource", {}), *steps]
    names = [f"t{index}" for index in range(len(steps))]
    made = [
        operator(name, names[index - 1 : index] if index else [], [names[index]], **arguments)
        for index, (name, arguments) in enumerate(steps)
    ]
    return graph(*made, outputs=names[-1:])


DECODE = ("decoders__Image", {})
RESIZE = ("Resize", {"size": [40.0, 50.0]})
CMN = ("CropMirrorNormalize", {"crop": [20.0, 30.0]})


def imported(*steps):
    """The ops between ``decode`` and ``tensor``, and that tensor, of a chain after the decoder."""
    ops = from_dali(chain(DECODE, *steps)).ops
    return ops[1:-1], ops[-1]


# What is understood


def test_the_pipeline_of_every_dali_tutorial_becomes_five_ops():
    assert from_dali(FROZEN / "classic_gpu.dali").to_json() == (
        '{\n  "format": "pixprep/1",\n'
        '  "source": {"library": "dali", "version": "unknown", "name": "classic_gpu.dali", "profile": "dali"},\n'
        '  "ops": [\n'
        '    {"op": "decode", "color": "rgb", "apply_exif_orientation": true, "chroma": "fast",'
        ' "idct": "accurate", "scale": "full",'
        ' "alpha": "drop", "damage": "strict", "decoder": "consistent"},\n'
        '    {"op": "resize", "size": 256, "side": "shorter", "filter": "bilinear", "antialias": true,'
        ' "like": "dali", "rounding": "half_away", "subpixel": true},\n'
        '    {"op": "center_crop", "height": 224, "width": 224, "rounding": "half_away"},\n'
        '    {"op": "normalize", "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "scale": 1.0,'
        ' "arithmetic": "fused_multiply"},\n'
        '    {"op": "tensor", "dtype": "float32", "layout": "chw"}\n  ]\n}\n'
    )


def test_on_the_cpu_dali_decodes_with_fancy_upsampling():
    gpu, cpu = (from_dali(FROZEN / name) for name in ("classic_gpu.dali", "classic.dali"))
    assert (gpu.ops[0].chroma, cpu.ops[0].chroma) == ("fast", "fancy")
    assert gpu.ops[1:] == cpu.ops[1:]


def test_a_file_and_its_bytes_give_the_same_ops():
    path = FROZEN / "classic.dali"
    assert from_dali(path).ops == from_dali(str(path)).ops == from_dali(path.read_bytes()).ops
    assert from_dali(path.read_bytes()).source.name == "model.dali"
    assert import_pipeline(str(path)) == import_pipeline(f"dali:{path}", output="__CropMirrorNormalize_2")


def test_what_is_imported_can_be_saved_and_loaded():
    for name in (*RUN, "classic"):
        pipeline = from_dali(FROZEN / f"{name}.dali")
        assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline


def outputs_of(pipeline, name):
    """Each output for each photo, beside DALI's."""
    photos = sorted({key.split("/")[2] for key in EXPECTED})
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([photo(name) for name in photos])
    assert batch.errors == [None] * len(photos)
    for index, values in enumerate(batch.outputs.values()):
        for row, which in zip(values, photos, strict=True):
            yield row, EXPECTED[f"{name}/{index}/{which}"]


@pytest.mark.parametrize("name", RUN)
def test_the_photos_become_what_dali_made_of_them(name):
    for actual, expected in outputs_of(from_dali(FROZEN / f"{name}.dali"), name):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected)


WRONG = {
    "another library": ("two_outputs", 1, {"like": "pillow", "subpixel": None}),
    "no sub-pixel scale": ("two_outputs", 1, {"subpixel": False}),
    "antialias": ("cover", 1, {"antialias": True}),
    "the other rounding": ("mirrored", 2, {"rounding": "half_away"}),
    "no mirror": ("mirrored", 3, {"axis": "vertical"}),
    "another mean": ("mirrored", 4, {"mean": 1.0}),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_the_comparison_sees(mistake):
    name, index, changes = WRONG[mistake]
    ops = list(from_dali(FROZEN / f"{name}.dali").ops)
    ops[index] = msgspec.structs.replace(ops[index], **changes)
    pairs = list(outputs_of(pp.Pipeline(ops), name))
    with pytest.raises(AssertionError):
        [assert_close(actual, expected) for actual, expected in pairs]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"resize_shorter": 256.0}, {"size": 256, "side": "shorter"}),
        ({"resize_longer": 256.0}, {"size": 256, "side": "longer"}),
        ({"resize_x": 30.0, "resize_y": 20.0}, {"height": 20, "width": 30}),
        ({"size": [20.0, 30.0]}, {"height": 20, "width": 30}),
        ({"size": [20.0]}, {"height": 20, "width": 20}),
        ({"size": 20.0, "mode": "stretch"}, {"height": 20, "width": 20}),
        ({"size": [20.0, 30.0], "mode": "not_larger"}, {"height": 20, "width": 30, "mode": "fit"}),
        ({"size": [20.0, 30.0], "mode": "not_smaller"}, {"height": 20, "width": 30, "mode": "cover"}),
        ({"size": 9.0, "interp_type": 0}, {"height": 9, "width": 9, "filter": "nearest"}),
        ({"size": 9.0, "interp_type": 2}, {"height": 9, "width": 9, "filter": "bicubic"}),
        ({"size": 9.0, "min_filter": 3, "mag_filter": 3}, {"height": 9, "width": 9, "filter": "lanczos"}),
        ({"size": 9.0, "antialias": False}, {"height": 9, "width": 9, "antialias": False}),
        ({"size": 9.0, "interp_type": 4, "antialias": False}, {"height": 9, "width": 9, "antialias": True}),
        ({"size": 9.0, "min_filter": 4}, {"height": 9, "width": 9}),  # triangular is linear when it enlarges
        ({"size": 9.0, "subpixel_scale": False, "dtype": UINT8}, {"height": 9, "width": 9}),
        ({"resize_shorter": 9.0, "subpixel_scale": False}, {"size": 9, "subpixel": False}),
    ],
)
def test_a_resize_keeps_its_meaning(arguments, fields):
    ops, _ = imported(("Resize", arguments), CMN)
    assert ops[0] == pp.resize(like="dali", **fields)


@pytest.mark.parametrize(
    ("arguments", "ops", "tensor"),
    [
        ({}, [], pp.tensor()),
        ({"output_layout": "HWC", "dtype": FLOAT16}, [], pp.tensor(dtype="float16", layout="hwc")),
        ({"dtype": UINT8, "mean": [0.0], "std": [1.0]}, [], pp.tensor(dtype="uint8")),
        ({"output_dtype": UINT8}, [], pp.tensor(dtype="uint8")),
        ({"crop": [9.0, 7.0]}, [pp.center_crop(9, 7, rounding="half_away")], pp.tensor()),
        (
            {"crop_h": 9.0, "crop_w": 7.0, "rounding": "truncate"},
            [pp.center_crop(9, 7, rounding="down")],
            pp.tensor(),
        ),
        (
            {"crop": [9.0, 7.0], "crop_pos_x": 0.0, "crop_pos_y": 0.0},
            [pp.crop(top=0, left=0, height=9, width=7)],
            pp.tensor(),
        ),
        ({"mirror": 1}, [pp.flip()], pp.tensor()),
        ({"mean": 127.0, "std": [2.0]}, [pp.normalize(127, 2, scale=1, arithmetic="fused_multiply")], pp.tensor()),
        (
            {"mean": [1.0, 2.0, 3.0], "std": 2.0, "shift": 4.0, "scale": 0.5},
            [pp.normalize((-7.5, -7.0, -6.5), (2, 2, 2), scale=0.5, arithmetic="fused_multiply")],
            pp.tensor(),
        ),
    ],
)
def test_crop_mirror_normalize_keeps_its_meaning(arguments, ops, tensor):
    found, last = imported(RESIZE, ("CropMirrorNormalize", arguments))
    assert (list(map(normal, found[1:])), last) == (list(map(normal, ops)), tensor)


def normal(op):
    """One number as a list of one."""
    if not isinstance(op, pp.normalize):
        return op
    return [tuple(np.ravel(value)) for value in (op.mean, op.std, op.scale)] + [op.arithmetic]


def test_separate_operators_keep_their_meaning():
    ops, tensor = imported(
        ("Resize", {"size": [40.0, 50.0]}),
        ("Crop", {"crop": [30.0, 20.0]}),
        ("Flip", {"horizontal": 0, "vertical": 1}),
        ("Copy", {}),
        ("Cast", {"dtype": FLOAT}),
        ("Transpose", {"perm": [2, 0, 1]}),
        ("Normalize", {"mean": 3.0, "stddev": 4.0, "dtype": FLOAT}),
    )
    assert ops[1:3] == (pp.center_crop(30, 20, rounding="half_away"), pp.flip("vertical"))
    assert normal(ops[3]) == [(3,), (4,), (1,), "fused_multiply"]
    assert tensor == pp.tensor()


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"output_type": 1}, {"color": "bgr"}),
        ({"output_type": 2}, {"color": "gray"}),
        ({"device": "mixed"}, {"chroma": "fast"}),
        ({"device": "mixed", "jpeg_fancy_upsampling": True}, {}),
        ({"use_fast_idct": True}, {"idct": "fast"}),
        ({"adjust_orientation": False}, {"apply_exif_orientation": False}),
        ({"hw_decoder_load": 0.7, "affine": False, "seed": -1, "_origin_stack_name": ["f"]}, {}),
    ],
)
@pytest.mark.parametrize("name", ["decoders__Image", "experimental__decoders__Image"])
def test_a_decoder_keeps_its_meaning(name, arguments, fields):
    assert from_dali(chain((name, arguments), RESIZE, CMN)).ops[0] == pp.decode(**fields)


def test_a_decoder_that_crops_decodes_and_crops():
    pipeline = from_dali(chain(("decoders__ImageCrop", {"crop": [90.0, 80.0]}), RESIZE, CMN))
    assert pipeline.ops[:2] == (pp.decode(), pp.center_crop(90, 80, rounding="half_away"))


def test_lists_may_be_packed():
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


# Several outputs


def test_outputs_share_what_they_have_in_common():
    pipeline = from_dali(FROZEN / "two_outputs.dali")
    assert [op.__struct_config__.tag for op in pipeline.ops] == [
        "decode",
        "resize",
        "center_crop",
        "tensor",
        "center_crop",
        "normalize",
        "tensor",
    ]
    assert (pipeline.ops[1].name, pipeline.ops[4].from_) == ("branch_1", "branch_1")
    assert list(pipeline.outputs) == ["thumbnail", "tensor_1"]


def test_one_output_can_be_taken_though_another_is_not_understood():
    data = graph(
        operator("readers__File", [], ["in", "label"]),
        operator("decoders__Image", ["in"], ["pixels"]),
        operator("OpticalFlow", ["pixels"], ["flow"]),
        operator("Resize", ["pixels"], ["small"], size=8.0),
        outputs=["small", "flow", "label"],
    )
    assert list(from_dali(data, output="small").outputs) == ["tensor"]
    with pytest.raises(PipelineError, match=r'operator 3 "OpticalFlow": is not understood; .*; if one '):
        from_dali(data)
    with pytest.raises(PipelineError) as caught:
        from_dali(data, output="label")
    assert str(caught.value) == 'model.dali: the output "label" is no image'
    with pytest.raises(PipelineError) as caught:
        from_dali(data, output="tall")
    assert str(caught.value) == 'model.dali: no output "tall"; there are "small", "flow", "label"'


def test_outputs_of_two_inputs_are_refused():
    data = graph(
        *(operator("ExternalSource", [], [name]) for name in ("a", "b")),
        *(operator("decoders__Image", [name], [f"{name} pixels"]) for name in ("a", "b")),
        *(operator("Resize", [f"{name} pixels"], [f"{name} small"], size=8.0) for name in ("a", "b")),
        outputs=["a small", "b small"],
    )
    with pytest.raises(PipelineError, match="several inputs"):
        from_dali(data)
    assert from_dali(data, output="b small").ops[1] == pp.resize(height=8, width=8, like="dali")


# What is refused


REFUSED = [
    ((DECODE, ("Resize", {"resize_shorter": 256.0, "max_size": [640.0]})), '3 "Resize": "max_size": [640.0] is not'),
    ((DECODE, ("Resize", {"size": 9.0, "roi_start": [0.1, 0.2]})), '3 "Resize": "roi_start": [0.10'),
    ((DECODE, ("Resize", {"size": 9.5})), '3 "Resize": "size": 9.5 must be a height and a width, whole numbers from 1'),
    ((DECODE, ("Resize", {"size": [9.0, 0.0]})), '3 "Resize": "size": [9.0, 0.0] must be'),
    ((DECODE, ("Resize", {"size": [1e30, 9.0]})), '3 "Resize": "height" must be 1 to 16384 pixels'),
    ((DECODE, ("Resize", {"size": float("nan")})), '3 "Resize": "size": nan must be'),
    ((DECODE, ("Resize", {"resize_x": 9.0})), '3 "Resize": "resize_x": 9.0 without the other side'),
    ((DECODE, ("Resize", {"resize_x": -9.0, "resize_y": 9.0})), '3 "Resize": "resize_x": -9.0 must be'),
    ((DECODE, ("Resize", {})), '3 "Resize": needs one size, and has none'),
    ((DECODE, ("Resize", {"size": 9.0, "mode": "warp"})), '3 "Resize": "mode": \'warp\' is not understood'),
    ((DECODE, ("Resize", {"size": 9.0, "interp_type": 5})), '3 "Resize": "interp_type": 5 is not understood'),
    ((DECODE, ("Resize", {"size": 9.0, "min_filter": 2})), '3 "Resize": "min_filter": 2 and bilinear when enlarging'),
    ((DECODE, ("Resize", {"size": 9.0, "dtype": FLOAT})), '3 "Resize": "dtype": 9 is not understood: a resized'),
    ((DECODE, ("Resize", {"size": 9.0, "antialias": 1})), '3 "Resize": "antialias": 1 must be bool'),
    ((DECODE, ("Resize", {"size": 9.0, "save_attrs": True})), '3 "Resize": "save_attrs": True'),
    ((DECODE, RESIZE, ("Cast", {"dtype": FLOAT}), RESIZE), '5 "Resize": a resize of float32 values'),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"pad_output": True})), '4 "CropMirrorNormalize": "pad_output": True'),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"dtype": INT8})), '4 "CropMirrorNormalize": "dtype": 4 is not'),
    (
        (DECODE, RESIZE, ("CropMirrorNormalize", {"dtype": UINT8, "std": 2.0})),
        '4 "CropMirrorNormalize": "dtype": 0 of normalized values',
    ),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"std": [0.0]})), '4 "CropMirrorNormalize": "std": [0.0] cannot divide'),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"std": [-1.0]})), '4 "CropMirrorNormalize": "std" must be over 0'),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"mean": []})), '4 "CropMirrorNormalize": "mean": [] must be'),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"mean": [1.0, 2.0]})), '"normalize": "mean" has 2 values, but the'),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"output_layout": "FCHW"})), "\"output_layout\": 'FCHW' is not"),
    ((DECODE, RESIZE, ("CropMirrorNormalize", {"out_of_bounds_policy": "pad"})), "\"out_of_bounds_policy\": 'pad' is"),
    ((DECODE, RESIZE, ("Crop", {"crop": [9.0, 9.0], "crop_pos_x": 0.25})), '"crop_pos_x": 0.25 is not understood: 0.5'),
    ((DECODE, RESIZE, ("Crop", {"crop": [9.0, 9.0], "crop_pos_y": 1.0})), '"crop_pos_y": 1.0 is not understood: 0.5'),
    ((DECODE, RESIZE, ("Crop", {"crop_h": 9.0})), '4 "Crop": "crop_w": None must be a whole number'),
    ((DECODE, RESIZE, ("Crop", {"crop": [9.0, 9.0, 3.0]})), '4 "Crop": "crop": [9.0, 9.0, 3.0] must be'),
    ((DECODE, RESIZE, ("Crop", {"crop": [9.0, 9.0], "rounding": "up"})), '4 "Crop": "rounding": \'up\' is not'),
    ((DECODE, RESIZE, ("Flip", {"depthwise": 1})), '4 "Flip": "depthwise": 1 is not understood'),
    ((DECODE, RESIZE, ("Transpose", {"perm": [1, 0, 2]})), '4 "Transpose": "perm": [1, 0, 2] of an image in HWC'),
    ((DECODE, RESIZE, ("Transpose", {})), '4 "Transpose": "perm": [2, 1, 0] of an image in HWC'),
    (
        (DECODE, RESIZE, ("Transpose", {"perm": [2, 0, 1], "transpose_layout": False})),
        '4 "Transpose": "transpose_layout": False',
    ),
    ((DECODE, RESIZE, ("Normalize", {"mean": 3.0})), '4 "Normalize": without "stddev" each image has its own'),
    (
        (DECODE, RESIZE, ("Normalize", {"mean": 3.0, "stddev": 2.0, "batch": True})),
        '4 "Normalize": "batch": True',
    ),
    ((DECODE, RESIZE, ("Cast", {})), '4 "Cast": "dtype": None is not understood'),
    (
        (DECODE, RESIZE, ("CropMirrorNormalize", {"dtype": FLOAT16, "std": 2.0}), ("Cast", {"dtype": FLOAT})),
        '5 "Cast": "dtype": 9 after float16',
    ),
    ((("decoders__Image", {"output_type": 3}), RESIZE), '2 "decoders__Image": "output_type": 3 is not understood'),
    ((("decoders__Image", {"dtype": FLOAT}), RESIZE), '2 "decoders__Image": "dtype": 9 is not understood'),
    (
        (("decoders__Image", {"use_fast_idct": True, "device": "mixed"}), RESIZE),
        '2 "decoders__Image": "use_fast_idct": True with device "mixed"',
    ),
    ((("decoders__ImageRandomCrop", {}), RESIZE), '2 "decoders__ImageRandomCrop": is not understood; understood are'),
    ((RESIZE,), '2 "Resize": its input "t0" is not a decoded image'),
    ((DECODE, DECODE), '3 "decoders__Image": its input "t1" is not the encoded image'),
    ((DECODE, ("PythonFunction", {"function_id": 1})), '3 "PythonFunction": is not understood'),
]


@pytest.mark.parametrize(("steps", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_not_understood_is_refused_by_name(steps, message):
    with pytest.raises(PipelineError) as caught:
        from_dali(chain(*steps))
    text = str(caught.value)
    assert text.startswith("model.dali: ")
    assert message in text


def test_an_argument_that_another_operator_computes_is_refused():
    with pytest.raises(PipelineError) as caught:
        from_dali(FROZEN / "random_mirror.dali")
    assert str(caught.value) == (
        'random_mirror.dali: operator 5 "CropMirrorNormalize": '
        'argument "mirror" is computed for each image, not a constant'
    )


def test_an_output_without_a_size_is_refused():
    with pytest.raises(PipelineError, match=r'^model.dali: ops\[1\] "tensor": the size differs'):
        from_dali(chain(DECODE))


# Hostile files


def attempt(data):
    """The pipeline, or None where it is refused; anything else fails the test."""
    try:
        return from_dali(data)
    except PipelineError as error:
        message = str(error)
    assert message.startswith("model.dali: ")
    assert len(message) < 1500
    assert message.isprintable()
    return None


def test_a_file_cut_anywhere_is_refused_or_complete():
    data = (FROZEN / "classic.dali").read_bytes()
    whole = from_dali(data)
    kept = [length for length in range(len(data)) if attempt(data[:length]) is not None]
    # What follows the outputs says how the pipeline is run: twenty bytes or so.
    assert min(kept) > len(data) - 60
    assert all(from_dali(data[:length]) == whole for length in kept)


def test_changed_bytes_give_a_pipeline_or_an_error():
    data = (FROZEN / "two_outputs.dali").read_bytes()
    rng = np.random.default_rng(4)
    for _ in range(600):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), rng.integers(1, 6)):
            changed[place] = rng.integers(0, 256)
        attempt(bytes(changed))


def test_junk_is_refused():
    rng = np.random.default_rng(5)
    for _ in range(300):
        assert attempt(rng.bytes(rng.integers(0, 400))) is None
    for junk in (b"", b"\x80" * 4000, b"\0" * 4000, b"{}", b"\x89PNG\r\n\x1a\n" * 9, b"\x2a\xff\xff\xff\x7f" * 99):
        assert attempt(junk) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has no operator"),
        (operator("ExternalSource", [], ["in"]), "it has no output"),
        (b"\x2a" + varint(100_000_000), "a field of 100,000,000 bytes where 0 are left"),
        (b"\x2a" + b"\xff" * 12, "a number that does not end"),
        (b"\x2b", "a field of the unknown kind 3"),
        (field(5, field(9, 1)) + field(7, field(1, "x")), "no such field: 9"),
        (field(5, 1), "an integer in the place of another value"),
        (field(5, field(1, b"\xff")) + field(7, field(1, "x")), "'utf-8' codec can't decode"),
        (chain(DECODE).replace(b"decoders__Image", b"decoders__Im\xffge"), "'utf-8' codec can't decode"),
        (
            graph(field(5, field(1, "Cast") + 2 * field(4, argument("dtype", 9))), outputs=["x"]),
            'the argument "dtype" of operator 1 stands twice',
        ),
        (
            graph(field(5, field(1, "Cast") + field(4, field(1, "dtype") + field(4, 1) * 2)), outputs=["x"]),
            'the argument "dtype" has 2 values',
        ),
        (chain(DECODE, ("Cast", {"\x1b[2J": 1})), 'an argument cannot be called "\\u001b[2J"'),
        (b"\x38\x01" * (wire.MAX_FIELDS + 1), "an integer in the place of another value"),
        (b"\x48\x01" * (wire.MAX_FIELDS + 1), "a message of more than 50,000 fields"),
    ],
)
def test_a_message_of_another_kind_is_refused_with_the_reason(data, message):
    with pytest.raises(PipelineError) as caught:
        from_dali(data)
    assert str(caught.value).startswith(f"model.dali: not a serialized DALI pipeline: {message}")


def test_lists_do_not_nest():
    value = argument("x", 1.0)
    for _ in range(5000):
        value = field(1, "x") + field(7, value) + field(8, 1)
    data = graph(field(5, field(1, "Cast") + field(4, value)), outputs=["x"])
    with pytest.raises(PipelineError, match="neither a value nor a list of values"):
        from_dali(data)


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "model.dali"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: nothing is written
    with pytest.raises(PipelineError) as caught:
        from_dali(path)
    assert str(caught.value) == "model.dali: more than 1,048,576 bytes; the graph of a pipeline takes a few thousand"


def test_a_graph_has_its_limits():
    copies = [("Copy", {})] * 300
    with pytest.raises(PipelineError) as caught:
        from_dali(chain(DECODE, *copies))
    assert str(caught.value) == "model.dali: 302 operators; at most 256"
    with pytest.raises(PipelineError) as caught:
        from_dali(graph(operator("ExternalSource", [], ["in"]), outputs=["in"] * 33))
    assert str(caught.value) == "model.dali: 33 outputs; at most 32"


def test_the_largest_file_takes_bounded_time():
    many = b"".join(field(4, argument(f"{index:05}", 1)) for index in range(40_000))
    flips = [("Flip", {})] * 252
    for data in (
        graph(*[operator("Copy", ["t"], ["t"])] * 40_000, outputs=["t"]),
        graph(field(5, field(1, "Cast") + field(3, field(1, "x")) + many), outputs=["x"])[:MAX_BYTES],
        field(5, b"\x30\x01" * 400_000),
        chain(DECODE, RESIZE, *flips) + field(7, field(1, "t254")) * 31,
    ):
        start = time.process_time()
        attempt(data)
        assert time.process_time() - start < 5


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PipelineError) as caught:
        from_dali(tmp_path / "model.dali")
    assert str(caught.value) == "model.dali: cannot be read: No such file or directory"
