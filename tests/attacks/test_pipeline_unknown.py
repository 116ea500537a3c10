"""Attack: a file from the future, or with words that another reader would understand differently.

Defence: whatever is not known is refused, by its place: formats, fields, ops, choices, types.
Outcome: nothing is ever skipped or guessed.
"""

import pytest

import pixprep as pp
from attacks.pipelines import VALID, with_op

TEXTS = {
    "a format with a tail": (VALID.replace("pixprep/1", "pixprep/1.0"), r"\$\.format: "),
    "a format that is a list": (VALID.replace('"pixprep/1"', '["pixprep/1"]'), r"\$\.format: "),
    "an op": (with_op('"op": "exec", "code": "import os"'), r"ops\[1\] \"exec\": no such op"),
    "a dunder": (with_op('"op": "__class__"'), r"ops\[1\] \"__class__\": no such op"),
    "a field": (with_op('"op": "flip", "__init__": 1'), r"ops\[1\] \"flip\": no such field"),
    "Python's name of a field": (with_op('"op": "flip", "from_": "x"'), r"ops\[1\] \"flip\": no such field"),
    "a number for a word": (with_op('"op": "flip", "axis": 1'), r"ops\[1\] \"flip\": axis"),
    "true for a number": (with_op('"op": "pad", "height": true, "width": 8'), r"ops\[1\] \"pad\": height"),
}


@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS)
def test_what_is_not_known_is_refused_by_its_place(text, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.Pipeline.from_json(text)
