"""Attack: JSON nested so deeply that a parser, or what walks its result, runs out of stack.

Defence: the interpreter's limit of recursion, translated; nothing of ours recurses into values.
Outcome: one line, in milliseconds, whatever the depth and wherever the nest stands.
"""

import pytest

import pixprep as pp
from attacks.pipelines import HEAD, with_op

PLACES = {
    "the file": "%s",
    "the format": '{"format": %s}',
    "the origin": '{"format": "pixprep/1", "origin": %s, "ops": [{"op": "decode"}]}',
    "an op": HEAD + "%s]}",
    "an op's name": with_op('"op": %s'),
    "a word": with_op('"op": "flip", "axis": %s'),
    "a number": with_op('"op": "normalize", "mean": %s'),
    "a field that is not known": with_op('"op": "flip", "x": %s'),
}
DEPTHS = (*range(10, 900, 99), *range(900, 1010), 10_000, 170_000)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_no_depth_of_nesting_ends_in_anything_but_a_refusal(place, opening, closing):
    for depth in DEPTHS:
        with pytest.raises(pp.PipelineError) as caught:
            pp.Pipeline.from_json(PLACES[place] % (opening * depth + "1" + closing * depth))
        assert len(str(caught.value)) < 1300
