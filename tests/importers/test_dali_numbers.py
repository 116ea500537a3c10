"""Numbers that a DALI graph computes: sides, windows and outputs that follow from the size of the image."""

import msgspec
import pytest

import pixprep as pp
from dali_graphs import EXPRESSION, FLOAT, graph, operator
from images import png, scene
from importing import refusal
from pixprep.importers.dali import from_dali

DECODED = (operator("ExternalSource", [], ["in"]), operator("decoders__Image", ["in"], ["pixels"]))
PEEKED = (*DECODED, operator("PeekImageShape", ["in"], ["shape"], dtype=FLOAT), operator("Copy", ["shape"], ["same"]))
SIDES = tuple(
    operator("_TensorSubscript", ["shape"], [name], at_0=index, num_subscripts=1) for index, name in enumerate("hw")
)


def calculated(*steps):
    """Operators of arithmetic: (result, expression, inputs and constants)."""
    made = []
    for result, text, *operands in steps:
        constants = [number for number in operands if not isinstance(number, str)]
        names = [name for name in operands if isinstance(name, str)]
        kind = "integer_constants" if constants and isinstance(constants[0], int) else "real_constants"
        made.append(
            operator(EXPRESSION, names, [result], expression_desc=text, **({kind: constants} if constants else {}))
        )
    return made


SCALED = calculated(
    ("a", "fdiv($0:int32 &0)", 640, "w"),
    ("b", "fdiv($0:int32 &0)", 480, "h"),
    ("scale", "min(&0 &1)", "a", "b"),
    ("width 1", "mul(&0 &1)", "w", "scale"),
    ("height 1", "mul(&0 &1)", "h", "scale"),
    ("width 2", "add(&0 $0:float32)", "width 1", 0.5),
    ("height 2", "add(&0 $0:float32)", "height 1", 0.5),
    ("width 3", "floor(&0)", "width 2"),
    ("height 3", "floor(&0)", "height 2"),
)


@pytest.mark.parametrize(("step", "fields"), [(1, {"subpixel": True}), (3, {"subpixel": False})])
def test_sides_that_a_graph_computes_are_a_rule_of_resize(step, fields):
    sides = {"resize_x": f"width {step}", "resize_y": f"height {step}"}
    data = graph(*PEEKED, *SIDES, *SCALED, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    fit = pp.resize(height=480, width=640, mode="fit", like="dali", **fields)
    assert from_dali(data).ops[1] == fit


def test_sides_that_are_multiples_are_a_rule_with_multiples():
    scale = [
        ("a", "fdiv($0:int32 &0)", 518, "w"),
        ("b", "fdiv($0:int32 &0)", 518, "h"),
        ("scale", "max(&0 &1)", "a", "b"),
    ]
    for side in "wh":
        scale += [
            (f"{side} 1", "mul(&0 &1)", side, "scale"),
            (f"{side} 2", "fdiv(&0 $0:int32)", f"{side} 1", 14),
            (f"{side} 3", "add(&0 $0:float32)", f"{side} 2", 0.5),
            (f"{side} 4", "floor(&0)", f"{side} 3"),
            (f"{side} 5", "mul(&0 $0:int32)", f"{side} 4", 14),
        ]
    sides = {"resize_x": "w 5", "resize_y": "h 5"}
    small = operator("Resize", ["pixels"], ["small"], sides, interp_type=2)
    pipeline = from_dali(graph(*PEEKED, *SIDES, *calculated(*scale), small, outputs=["small"]))
    how = {"filter": "bicubic", "like": "dali", "rounding": "half_away"}
    assert pipeline.ops[1] == pp.resize(518, "shorter", multiple=14, **how)


def test_sides_that_are_no_rule_are_refused_with_an_example():
    more = calculated(("more", "add(&0 $0:float32)", "width 3", 7.0))
    sides = {"resize_x": "more", "resize_y": "height 3"}
    data = graph(*PEEKED, *SIDES, *SCALED, *more, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    assert refusal(from_dali, data).endswith(
        '"Resize": its size is no rule that resize has; 480 x 640 pixels become 480 x 647'
    )
    less = calculated(("less", "sub(&0 $0:float32)", "height 3", 11.0))
    sides = {"resize_x": "width 3", "resize_y": "less"}
    data = graph(*PEEKED, *SIDES, *SCALED, *less, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    assert "its size is 0 for some images, whose other side DALI then follows: write" in refusal(from_dali, data)
    data = graph(*PEEKED, *SIDES, operator("Resize", ["pixels"], ["small"], {"size": "w"}), outputs=["small"])
    assert '"size": (computed for each image) is understood of a height and a width' in refusal(from_dali, data)


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ([operator("Slice", ["shape"], ["size"], start=[0], shape=[2], axes=[0])], pp.original_size(dtype="float32")),
        ([operator("Cat", ["w", "h"], ["size"])], pp.original_size(dtype="float32", order="wh")),
        (
            [operator("Stack", ["w", "h"], ["wh"]), operator("Cast", ["wh"], ["size"], dtype=7)],
            pp.original_size(dtype="int64", order="wh"),
        ),
        (
            [
                *calculated(("y", "fdiv($0:int32 &0)", 20, "h"), ("x", "fdiv($0:int32 &0)", 30, "w")),
                operator("Stack", ["y", "x"], ["size"]),
            ],
            pp.scale_factor(),
        ),
    ],
)
def test_an_output_of_numbers_is_one_that_says_the_same(steps, output):
    small = operator("Resize", ["pixels"], ["small"], resize_x=30.0, resize_y=20.0)
    pipeline = from_dali(graph(*PEEKED, *SIDES, small, *steps, outputs=["small", "size"]))
    last = pipeline.ops[-1]
    assert (msgspec.structs.replace(last, name=None, from_=None), last.name) == (output, "size")


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (
            [],
            '"shape": is float32 [3] computed of the image\'s size, and no output that pixprep has',
        ),  # a file's channels
        (calculated(("shape", "mul(&0 $0:int32)", "same", 2)), '"shape": is float32 [3]'),
        ([operator("Slice", ["same"], ["shape"], start=[2], shape=[2], axes=[0])], "takes 2 from 2 of 3 numbers"),
        ([operator("_TensorSubscript", ["same"], ["shape"], at_0=7, num_subscripts=1)], "subscripts reach past 3"),
        (calculated(("shape", "exp(&0)", "same")), "'exp(&0)' is not understood; of numbers add, sub, mul"),
        ([operator("Constant", [], ["shape"], fdata=[1.0] * 65)], "is understood of 1 to 64 finite numbers"),
    ],
)
def test_other_numbers_are_refused(steps, why):
    small = operator("Resize", ["pixels"], ["small"], resize_x=30.0, resize_y=20.0)
    assert why in refusal(from_dali, graph(*PEEKED, small, *steps, outputs=["small", "shape"]))


def test_the_shape_of_a_decoded_image_is_its_size_and_its_channels():
    shape = operator("Shapes", ["pixels"], ["shape"], dtype=6)
    small = operator("Resize", ["pixels"], ["small"], resize_x=30.0, resize_y=20.0)
    pipeline = from_dali(graph(*DECODED, small, shape, outputs=["small", "shape"]))
    assert pipeline.ops[-1] == pp.original_size(dtype="int32", order="hwc", name="shape", from_="branch_0")
    with pp.Engine(pipeline, threads=1) as engine:
        assert engine.run_batch([png(scene(33, 44))])["shape"].tolist() == [[33, 44, 3]]


def test_a_resize_gives_the_size_before_it():
    small = operator("Resize", ["pixels"], ["small", "before"], resize_x=30.0, resize_y=20.0, save_attrs=True)
    assert from_dali(graph(*DECODED, small, outputs=["small", "before"])).ops[-1].name == "before"
