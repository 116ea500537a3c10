"""Tests DALI graphs that compute numbers: sizes, crops and outputs that depend on the size of the image."""

from itertools import product

import msgspec
import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.dali import from_dali, sizes, values
from support.dali_graphs import DECODED, EXPRESSION, FLOAT, graph, mapped, operator
from support.images import png, scene
from support.importing import refusal

PEEKED = (*DECODED, operator("PeekImageShape", ["in"], ["shape"], dtype=FLOAT), operator("Copy", ["shape"], ["same"]))
SIDES = tuple(
    operator("_TensorSubscript", ["shape"], [name], at_0=index, num_subscripts=1) for index, name in enumerate("hw")
)


def calculated(*steps):
    """Return arithmetic operators of a graph. Each argument is (result, expression, inputs and constants)."""
    made = []
    for result, text, *operands in steps:
        constants = [number for number in operands if not isinstance(number, str)]
        names = [name for name in operands if isinstance(name, str)]
        kind = "integer_constants" if constants and isinstance(constants[0], int) else "real_constants"
        made.append(
            operator(EXPRESSION, names, [result], expression_desc=text, **({kind: constants} if constants else {}))
        )
    return made


@pytest.fixture(autouse=True)
def fewer_sizes(request, monkeypatch):
    """Limit the sizes at which rules are checked to 300. Two tests need every size up to 4096."""
    if not any(words in request.node.name for words in ("fails_at_a_single_size", "pixel[scale1")):
        monkeypatch.setattr(sizes, "LARGEST", 300)


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
def test_computed_sizes_become_a_rule_of_resize(step, fields):
    sides = {"resize_x": f"width {step}", "resize_y": f"height {step}"}
    data = graph(*PEEKED, *SIDES, *SCALED, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    fit = pp.resize(height=480, width=640, mode="fit", like="dali", **fields)
    assert from_dali(data).ops[1] == fit


@pytest.mark.parametrize("rounding", ["ceil", "floor"])
def test_a_height_with_a_derived_width_is_kept_for_the_widest_photos(rounding):
    steps = calculated(
        ("long", "mul(&0 $0:float32)", "w", 48.0),
        ("follows", "fdiv(&0 &1)", "long", "h"),
        ("whole", f"{rounding}(&0)", "follows"),
        ("width", "max(&0 $0:float32)", "whole", 1.0),
        ("height", "add(&0 $0:float32)", "none", 48.0),
    )
    none = calculated(("none", "mul(&0 $0:float32)", "h", 0.0))
    small = operator("Resize", ["pixels"], ["small"], {"resize_x": "width", "resize_y": "height"})
    op = from_dali(graph(*PEEKED, *SIDES, *none, *steps, small, outputs=["small"])).ops[1]
    assert [op._step.size(*size) for size in ((40, 2700), (3, 250), (48, 96))] == [(48, 3240), (48, 4000), (48, 96)]


def test_sizes_that_are_multiples_become_a_rule_with_multiples():
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


def divided(scale, *, cut=False):
    """Return a graph that resizes to the image's sides times a scale, rounded to multiples of 32.

    ``cut`` first truncates the sides to whole pixels.
    """
    steps = list(scale)
    for side in "wh":
        steps += [(f"{side} 1", "mul(&0 &1)", side, "scale"), (f"{side} 2", "floor(&0)", f"{side} 1")]
        steps += [
            (f"{side} 3", "fdiv(&0 $0:int32)", f"{side} {2 if cut else 1}", 32),
            (f"{side} 4", "add(&0 $0:float32)", f"{side} 3", 0.5),
            (f"{side} 5", "floor(&0)", f"{side} 4"),
            (f"{side} 6", "mul(&0 $0:int32)", f"{side} 5", 32),
            (f"{side} 7", "max(&0 $0:float32)", f"{side} 6", 32.0),
        ]
    small = operator("Resize", ["pixels"], ["small"], {"resize_x": "w 7", "resize_y": "h 7"})
    return graph(*PEEKED, *SIDES, *calculated(*steps), small, outputs=["small"])


def over(side, size):
    """Return steps that compute the scale at which the longer side (``max``) or the shorter side (``min``) has this
    length.
    """
    return [("side", f"{side}(&0 &1)", "h", "w"), ("ratio", "fdiv($0:int32 &0)", size, "side")]


SHRUNK = ("scale", "min(&0 $0:float32)", "ratio", 1.0)
GROWN = ("scale", "max(&0 $0:float32)", "ratio", 1.0)


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (divided([*over("max", 960), SHRUNK]), {"size": 960, "side": "longer", "enlarge": False}),
        (divided([*over("max", 960), SHRUNK], cut=True), {"size": 960, "side": "longer", "enlarge": False}),
        (divided([*over("max", 1000), SHRUNK]), {"size": 1000, "side": "longer", "enlarge": False}),
        (divided([*over("min", 736), GROWN]), {"size": 736, "side": "shorter", "shrink": False}),
    ],
)
def test_sizes_of_paddleocrs_detector_become_a_rule_with_one_scale(data, fields):
    assert from_dali(data).ops[1] == pp.resize(mode="scale", multiple=32, like="dali", **fields)


@pytest.mark.parametrize(
    ("scale", "fields"),
    [
        ([*over("max", 640), SHRUNK], {"size": 640, "side": "longer", "enlarge": False}),
        (
            [
                *(*over("min", 800), ("longer", "max(&0 &1)", "h", "w"), ("most", "fdiv($0:int32 &0)", 1333, "longer")),
                ("scale", "min(&0 &1)", "ratio", "most"),
            ],
            {"size": 800, "max_size": 1333, "rounding": "half_away32"},
        ),
    ],
)
def test_sizes_with_one_scale_become_a_rule_with_dalis_fraction_of_a_pixel(scale, fields):
    steps = [*scale, *((f"{side} 1", "mul(&0 &1)", side, "scale") for side in "wh")]
    small = operator("Resize", ["pixels"], ["small"], {"resize_x": "w 1", "resize_y": "h 1"})
    pipeline = from_dali(graph(*PEEKED, *SIDES, *calculated(*steps), small, outputs=["small"]))
    op = pp.resize(mode="scale", like="dali", subpixel=True, **fields)
    assert pipeline.ops[1] == op
    # Each operation is in float32, as the graph specifies. DALI's own resize_shorter computes 388 rows.
    if "rounding" in fields:
        assert op._step.size(350, 1204) == (387, 1333)
        assert pp.resize(800, max_size=1333, mode="scale", like="dali")._step.size(350, 1204) == (388, 1333)


FORMS = (
    *({"size": 59}, {"size": 59, "side": "longer"}, {"size": 59, "max_size": 99}, {"height": 48}),
    *({"width": 48, "max_size": 200}, {"height": 118, "width": 59, "mode": "fit"}),
    *({"height": 118, "width": 59, "mode": "cover"}, {"height": 118, "width": 59}),
    *(
        {"size": size, "side": side, "mode": "scale", "max_size": most, "multiple": multiple} | scales
        for size, side, most, multiple, scales in product(
            (59, 800), ("shorter", "longer"), (None, 1333), (None, 32), ({}, {"enlarge": False}, {"shrink": False})
        )
    ),
)


@pytest.mark.parametrize("rounding", ["half_away", "half_away32", "down", "half_even", "up"])
def test_sizes_of_many_images_at_once_equal_those_of_each(rounding):
    drawn = np.exp(np.random.default_rng(0).uniform(0, np.log(5000), (300, 2))).astype(int)
    drawn = np.concatenate([drawn, [(350, 1204), (271, 542), (54, 108), (276, 1104), (100, 100)]])
    seen = 0
    for fields, subpixel in product(FORMS, (None, False, True)):
        try:
            step = pp.resize(like="dali", rounding=rounding, subpixel=subpixel, **fields)._step
        except pp.PipelineError:  # this combination of fields is not valid
            continue
        assert sizes.is_array_rule(step)
        many = drawn.astype(np.float64)
        assert np.array_equal(sizes.sizes(step, many), [step.size(*size) for size in drawn.tolist()]), fields
        assert np.array_equal(sizes.sides(step, many), [step.sides(*size) for size in drawn.tolist()]), fields
        seen += 1
    assert seen > 10


def test_a_rule_that_fails_at_a_single_size_is_rejected_with_that_size():
    """For images of 1237 columns, the width is one pixel larger. No list of common sizes contains 1237."""
    assert not (values.SIZES[:, 1] == 1237).any()
    more = calculated(
        *(
            ("off", "sub(&0 $0:float32)", "w", 1237.0),
            ("far", "abs(&0)", "off"),
            ("near", "sub($0:float32 &0)", 1.0, "far"),
        ),
        *(("one", "max(&0 $0:float32)", "near", 0.0), ("more", "add(&0 &1)", "width 3", "one")),
    )
    resize = operator("Resize", ["pixels"], ["small"], {"resize_x": "more", "resize_y": "height 3"})
    data = graph(*PEEKED, *SIDES, *SCALED, *more, resize, outputs=["small"])
    assert " x 1237 pixels become " in refusal(from_dali, data)


def test_a_dali_scale_is_float32_if_a_side_is_halfway_between_two_multiples():
    """In Python, ``int(276 * (960 / 1104))`` is 240, which is rounded to 256. In float32, it is 239.99998, which is
    rounded to 224.
    """
    how = {"mode": "scale", "multiple": 32, "enlarge": False}
    sides = [
        pp.resize(960, "longer", like=like, rounding=rounding, **how)._step.size(276, 1104)
        for like, rounding in (("dali", None), ("opencv", "half_even"))
    ]
    assert sides == [(224, 960), (256, 960)]


def test_a_scale_limited_by_max_size_is_float64_in_dali():
    """In float32, 29 / 108 would scale 54 to 14.4999990, but DALI computes 15 rows."""
    assert pp.resize(28, max_size=29, mode="scale", like="dali")._step.size(54, 108) == (15, 29)


@pytest.mark.parametrize(
    ("op", "size"),
    [
        (pp.resize(59, like="dali"), (100, 100)),
        (pp.resize(59, "longer", like="dali"), (100, 100)),
        (pp.resize(59, max_size=99, mode="scale", like="dali", subpixel=True), (100, 100)),
        (pp.resize(height=118, width=59, mode="fit", like="dali"), (200, 100)),
    ],
)
def test_given_sizes_are_kept_with_one_scale(op, size):
    """In float32, 59 / 100 scales 100 to 58.999996, for which ``nearest`` selects a different pixel."""
    rows, columns = op._step.extents(*size, (59 * size[0] // 100, 59))
    assert (rows.length, columns.length) == size


def test_sizes_that_do_not_follow_a_rule_are_rejected_with_an_example():
    more = calculated(("more", "add(&0 $0:float32)", "width 3", 7.0))
    sides = {"resize_x": "more", "resize_y": "height 3"}
    data = graph(*PEEKED, *SIDES, *SCALED, *more, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    assert refusal(from_dali, data).endswith(
        '"Resize": its size is computed in a way that the op resize does not support; for example, '
        "480 x 640 pixels become 480 x 647"
    )
    less = calculated(("less", "sub(&0 $0:float32)", "height 3", 11.0))
    sides = {"resize_x": "width 3", "resize_y": "less"}
    data = graph(*PEEKED, *SIDES, *SCALED, *less, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    assert (
        "its height or width is 0 for some images, and DALI then computes it from the other side, which is"
        in refusal(from_dali, data)
    )
    half = calculated(*((f"{side} half", "mul(&0 $0:float32)", side, 0.5) for side in "wh"))
    sides = {"resize_x": "w half", "resize_y": "h half"}
    data = graph(*PEEKED, *SIDES, *half, operator("Resize", ["pixels"], ["small"], sides), outputs=["small"])
    assert refusal(from_dali, data).endswith(
        "its size is computed in a way that the op resize does not support; for example, 480 x 640 pixels become "
        "240 x 320"
    )
    data = graph(*PEEKED, *SIDES, operator("Resize", ["pixels"], ["small"], {"size": "w"}), outputs=["small"])
    assert '"size": (computed for each image) is supported only if it has a height and a width, and the' in refusal(
        from_dali, data
    )


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
def test_an_output_of_numbers_becomes_an_equivalent_output(steps, output):
    small = operator("Resize", ["pixels"], ["small"], resize_x=30.0, resize_y=20.0)
    pipeline = from_dali(graph(*PEEKED, *SIDES, small, *steps, outputs=["small", "size"]))
    last = pipeline.ops[-1]
    assert (msgspec.structs.replace(last, name=None, from_=None), last.name) == (output, "size")


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (
            [],
            '"shape": its float32 values of shape [3] are not equal to an output of pixprep; supported outputs',
        ),  # number of channels of the image file
        (calculated(("shape", "mul(&0 $0:int32)", "same", 2)), '"shape": its float32 values of'),
        (
            [operator("Slice", ["same"], ["shape"], start=[2], shape=[2], axes=[0])],
            "selects 2 numbers from index 2, but its input has only 3",
        ),
        (
            [operator("_TensorSubscript", ["same"], ["shape"], at_0=7, num_subscripts=1)],
            "has a subscript that exceeds the 3",
        ),
        (
            calculated(("shape", "gt(&0 &0)", "same")),
            "compares numbers, which is not supported: serialize a graph with a single",
        ),
        (calculated(("shape", "exp(&0)", "same")), "'exp(&0)' is not supported; supported functions: add, sub, mul"),
        ([operator("Constant", [], ["shape"], fdata=[1.0] * 65)], "is supported only for 1 to 64 finite numbers"),
    ],
)
def test_other_numbers_are_rejected(steps, why):
    small = operator("Resize", ["pixels"], ["small"], resize_x=30.0, resize_y=20.0)
    assert why in refusal(from_dali, graph(*PEEKED, small, *steps, outputs=["small", "shape"]))


def test_the_shape_of_a_decoded_image_is_its_size_and_its_channels():
    shape = operator("Shapes", ["pixels"], ["shape"], dtype=6)
    small = operator("Resize", ["pixels"], ["small"], resize_x=30.0, resize_y=20.0)
    pipeline = from_dali(graph(*DECODED, small, shape, outputs=["small", "shape"]))
    assert pipeline.ops[-1] == pp.original_size(dtype="int32", order="hwc", name="shape", from_="branch_0")
    with pp.Engine(pipeline, threads=1) as engine:
        assert engine.run_batch([png(scene(33, 44))])["shape"].tolist() == [[33, 44, 3]]


def test_a_resize_provides_the_size_before_it():
    small = operator("Resize", ["pixels"], ["small", "before"], resize_x=30.0, resize_y=20.0, save_attrs=True)
    assert from_dali(graph(*DECODED, small, outputs=["small", "before"])).ops[-1].name == "before"


# affine maps


def test_a_transform_about_the_centre_of_an_image_of_fixed_size_is_constant():
    turn = ("Rotation", [], "r", {"angle": 90.0, "computed": {"center": "middle"}})
    (a, b, x), (c, d, y) = from_dali(mapped(turn)).ops[2].matrix
    assert (a, b, x, c, d, y) == pytest.approx((0, -1, 20 + 25, 1, 0, 25 - 20), abs=1e-5)
    assert refusal(from_dali, mapped(turn, sized=False)).endswith(
        "depends on the size of the image, which is not supported: resize to a height and a width first"
    )
