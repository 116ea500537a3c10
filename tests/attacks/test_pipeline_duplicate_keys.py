"""Attack: a field that stands twice, so that two readers see two pipelines; or 100,000 of them.

Defence: every object of the file is looked through for doubles, in linear time.
Outcome: refused. Before the mend, finding the double took minutes of 1 MiB of fields.
"""

import time

import pytest

import pixprep as pp
from attacks.pipelines import HEAD, TAIL


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace('"pixprep/1"', '"pixprep/1", "format": "pixprep/1"') + TAIL,
        HEAD + '{"op": "resize", "op": "flip"}, ' + TAIL,
        HEAD + '{"op": "flip", "axis": "vertical", "\\u0061xis": "horizontal"}, ' + TAIL,
    ],
    ids=["the format", "the op", "an escaped name"],
)
def test_a_field_that_stands_twice_is_refused(text):
    with pytest.raises(pp.PipelineError, match=r"the field .* stands twice in one object"):
        pp.Pipeline.from_json(text)


def test_a_field_that_stands_in_two_objects_is_none():
    assert pp.Pipeline.from_json(HEAD + '{"op": "flip", "axis": "vertical"}, ' * 2 + TAIL).outputs


def test_a_double_among_a_hundred_thousand_fields_is_found_at_once():
    text = "{" + ",".join(f'"{number:05d}":1' for number in range(100_000)) + ',"99999":1}'
    assert len(text) < 1 << 20
    start = time.process_time()
    with pytest.raises(pp.PipelineError, match='the field "99999" stands twice'):
        pp.Pipeline.from_json(text)
    assert time.process_time() - start < 1
