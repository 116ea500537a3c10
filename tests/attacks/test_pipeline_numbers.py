"""Attack: numbers that are none, or too large to be worked with: NaN, 1e999, a million digits, constants over float32.

Defence: JSON's words for NaN are refused, whole numbers have at most 20 digits, floats must be finite where they are
used, sizes have limits; a plan whose arithmetic overflows at level 0 or 255 is not made.
Outcome: one short line each. Before the mends a number of 4,300 digits was repeated in the message, and ``normalize``
in float32 could give a tensor of NaN as a success.
"""

import pytest

import pixprep as pp
from attacks.pipelines import HEAD, with_op

FIELDS = {
    "a side": '"op": "resize", "size": %s',
    "a level": '"op": "pad", "height": 8, "width": 8, "fill": %s',
    "a share": '"op": "center_crop", "fraction": %s',
    "a factor": '"op": "normalize", "scale": %s',
    "a deviation": '"op": "normalize", "std": %s',
    "a mean": '"op": "normalize", "mean": [0, 0, %s]',
}
NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 20, "-" + "9" * 20, "9" * 4300, "9" * 900_000)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_a_number_that_is_none_or_too_large_is_refused_in_a_short_line(field, number):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(with_op(FIELDS[field] % number))
    assert len(str(caught.value)) < 200


def test_long_lists_of_numbers_are_not_repeated_in_the_message():
    numbers = ",".join(["-1"] * 200_000)
    for field in ('"op": "normalize", "std": [%s]', '"op": "pad", "height": 8, "width": 8, "fill": [%s]'):
        with pytest.raises(pp.PipelineError) as caught:
            pp.Pipeline.from_json(with_op(field % numbers))
        assert len(str(caught.value)) < 200


def compiled(normalize, dtype="float32"):
    ops = '{"op": "center_crop", "height": 8}, {"op": "normalize", %s}, {"op": "tensor", "dtype": "%s"}]}'
    return pp.Pipeline.from_json(HEAD + ops % (normalize, dtype))


NO_FLOAT32 = 'ops[2] "normalize": "arithmetic": "{}" needs the number {}, which is none of float32: bring "scale",'


@pytest.mark.parametrize(
    ("normalize", "words"),
    [
        ('"scale": 1e300, "std": 1e300, "arithmetic": "multiply"', NO_FLOAT32.format("multiply", "1e+300")),
        ('"mean": 1, "scale": 5e-324, "arithmetic": "fused"', NO_FLOAT32.format("fused", "inf")),
        ('"mean": 1e-30, "std": 1e-50, "arithmetic": "fused"', NO_FLOAT32.format("fused", "1e-50")),
        ('"std": 1e-50, "scale": 1e-50, "arithmetic": "divide"', NO_FLOAT32.format("divide", "1e+50")),
        ('"mean": [0, 0, 1e-39], "arithmetic": "divide"', NO_FLOAT32.format("divide", "1e-39")),
        ('"scale": 1e-300, "arithmetic": "fused_multiply"', NO_FLOAT32.format("fused_multiply", "1e-300")),
        (
            '"scale": 1e38, "std": 1e38, "arithmetic": "multiply"',
            'ops[3] "tensor": normalize: a step of its arithmetic leaves the range of float32',
        ),
        (
            '"scale": 1e300}, {"op": "normalize", "scale": 1e-300, "arithmetic": "divide"',
            'ops[3] "normalize": "arithmetic": "divide" needs the number 1e+300,',
        ),
    ],
)
def test_arithmetic_that_would_give_nan_or_infinity_is_not_compiled(normalize, words):
    for dtype in ("float32", "float16"):
        with pytest.raises(pp.PipelineError) as caught:
            compiled(normalize, dtype)
        assert str(caught.value).startswith(words)


SAME = 'so that every pixel would become the same value: choose a larger "scale", or a smaller "mean" or "std"'


@pytest.mark.parametrize(
    ("normalize", "dtype", "difference"),
    [
        ('"scale": 1e-300', "float32", "0"),
        ('"scale": 1e-10', "float16", "0"),
        ('"std": 1e300', "float32", "0"),
        ('"std": 1e6', "float16", "1e-06"),
        ('"mean": 1e30', "float32", "0"),
        ('"mean": [0, 0, 1e9]', "float32", "0"),
        ('"mean": 1e30}, {"op": "normalize", "scale": 1e-30, "arithmetic": "multiply"', "float32", "0"),
    ],
)
def test_arithmetic_that_makes_every_pixel_the_same_is_not_compiled(normalize, dtype, difference):
    with pytest.raises(pp.PipelineError) as caught:
        compiled(normalize, dtype)
    assert f"normalize: black and white differ by {difference} in {dtype}, {SAME}" in str(caught.value)


@pytest.mark.parametrize(
    ("normalize", "dtype"),
    [
        ('"scale": 1e-300}, {"op": "normalize", "scale": 1e300', "float32"),  # in float64, as one
        ('"scale": 1e-35', "float32"),
        ('"mean": 1e-300', "float16"),
        ('"mean": 1e6, "scale": 1', "float32"),
    ],
)
def test_small_and_large_numbers_that_keep_the_levels_apart_are_compiled(normalize, dtype):
    (plan,) = compiled(normalize, dtype).plan.outputs.values()
    assert all(len(set(levels)) > 200 for levels in plan.table.tolist())
