"""Tests the messages about mistakes of pipeline authors, in a single op and in combinations of ops."""

from pipeline import test_operators
from support.refusals import refusal, refusals


def a_list(pixels, *, strength: list[int]):  # noqa: ARG001
    return pixels


def wrong_default(pixels, *, strength: int = 0.5):  # noqa: ARG001
    return pixels


OPERATORS = {
    name: getattr(test_operators, name)
    for name in ("HEAD", "PHOTO", "means", "noise", "same", "scaled", "twice", "unwarp")
}


@refusals("pipeline")
def test_a_mistake_raises_the_expected_message(call, words):
    assert refusal(call, a_list=a_list, wrong_default=wrong_default, **OPERATORS) == words
