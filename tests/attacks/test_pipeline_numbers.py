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
    "a margin": '"op": "crop", "left": 0, "height": 1, "width": 1, "top": %s',
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


@pytest.mark.parametrize(
    "normalize",
    [
        '"scale": 1e300, "std": 1e300, "arithmetic": "multiply"',
        '"scale": 1e38, "std": 1e38, "arithmetic": "multiply"',
        '"mean": 1, "scale": 5e-324, "arithmetic": "fused"',
        '"scale": 1e300}, {"op": "normalize", "scale": 1e-300, "arithmetic": "divide"',
        '"std": 1e-50, "scale": 1e-50, "arithmetic": "divide"',
    ],
)
def test_arithmetic_that_would_give_nan_or_infinity_is_not_compiled(normalize):
    ops = '{"op": "center_crop", "height": 8}, {"op": "normalize", %s}, {"op": "tensor"}]}'
    with pytest.raises(pp.PipelineError, match="leaves the range of float32"):
        pp.Pipeline.from_json(HEAD + ops % normalize)


def test_the_arithmetic_of_training_code_is_compiled():
    for arithmetic in ("float64", "divide", "multiply", "fused", "fused_multiply"):
        ops = [pp.decode(), pp.center_crop(8), pp.normalize(mean=0.5, std=0.2, arithmetic=arithmetic), pp.tensor()]
        assert pp.Pipeline(ops).plan.outputs
