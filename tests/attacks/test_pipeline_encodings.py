"""Attack: a file that is not UTF-8, or says what UTF-8 cannot: a BOM, UTF-16, NUL, halves of surrogate pairs.

Defence: bytes are read as UTF-8 or not at all; messages show strings in ASCII.
Outcome: refused in words that can be printed. Before the mend a lone surrogate in place of a choice, or in ``origin``,
was a UnicodeEncodeError.
"""

import pytest

import pixprep as pp
from attacks.pipelines import VALID, with_op

ORIGIN = (
    '{"format": "pixprep/1", "origin": {"library": "timm", "version": "1", %s}, "ops": ' + VALID.partition('"ops": ')[2]
)
TEXTS = {
    "a BOM": VALID.encode("utf-8-sig"),
    "UTF-16 with a BOM": VALID.encode("utf-16"),
    "UTF-16": VALID.encode("utf-16-le"),
    "UTF-32": VALID.encode("utf-32"),
    "Latin-1": VALID.replace("decode", "décode").encode("latin-1"),
    "overlong UTF-8": VALID.encode().replace(b"d", b"\xc1\xa4", 1),
    "UTF-8 surrogates": VALID.encode().replace(b"decode", b"\xed\xa0\x80"),
    "NUL at the end": VALID.encode() + b"\0",
    "NUL in a string": VALID.encode().replace(b"decode", b"deco\0de"),
    "an escaped NUL": VALID.replace("decode", "decode\\u0000"),
    "a surrogate for an op": VALID.replace("decode", "\\ud800"),
    "a surrogate for a field": VALID.replace('"height"', '"\\ud800"'),
    "a surrogate for a choice": with_op('"op": "flip", "axis": "\\ud800"'),
    "a surrogate for a name": with_op('"op": "flip", "name": "\\ud800"'),
    "a surrogate for an earlier op": with_op('"op": "flip", "from": "\\ud800"'),
    "a surrogate in the origin": ORIGIN % '"name": "\\ud800", "profile": "pillow"',
    "a surrogate for a profile": ORIGIN % '"name": "x", "profile": "\\ud800"',
    "a surrogate for a field of the origin": ORIGIN % '"name": "x", "profile": "pillow", "\\ud800": 1',
    "a raw surrogate": VALID.replace("decode", "\ud800"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_not_plain_utf_8_is_refused_in_words_that_can_be_printed(text):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text)
    assert str(caught.value).encode().isascii()
    assert str(caught.value).isprintable()


def test_the_same_texts_unspoiled_are_read():
    assert pp.Pipeline.from_json(VALID.encode()).outputs
    assert pp.Pipeline.from_json(ORIGIN % '"name": "é", "profile": "pillow"').origin.name == "é"
