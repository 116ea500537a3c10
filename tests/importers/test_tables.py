"""Tests the tables of imports. Each line contains a source, and either the resulting ops or the error message."""

from support.refusals import PUBLIC, refusal, refusals
from support.sources import NAMES


@refusals("importers", "imports.txt", "ops")
def test_a_source_becomes_its_ops(call, ops):
    assert eval(call, PUBLIC | NAMES) == eval(ops, PUBLIC)  # noqa: S307 - lines of our own


@refusals("importers")
def test_a_mistake_raises_the_expected_message(call, words):
    assert refusal(call, **NAMES) == words
