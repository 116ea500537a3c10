"""Mistakes of an author: of one op, and of ops that do not go together."""

import numpy as np

from support.refusals import refusal, refusals


@refusals("pipeline")
def test_a_mistake_is_refused_in_whole_words(call, words):
    assert refusal(call, np=np) == words
