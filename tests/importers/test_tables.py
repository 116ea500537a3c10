"""The tables of importers: on each line a source and the ops that it becomes, or the words of its refusal."""

from support.refusals import PUBLIC, refusal, refusals
from support.sources import NAMES


@refusals("importers", "imports.txt", "ops")
def test_a_source_becomes_its_ops(call, ops):
    assert eval(call, PUBLIC | NAMES) == eval(ops, PUBLIC)  # noqa: S307 - lines of our own


@refusals("importers")
def test_a_mistake_is_refused_in_whole_words(call, words):
    assert refusal(call, **NAMES) == words
