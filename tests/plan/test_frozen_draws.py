"""Draws never change: a seed repeats a training, even after an update of pixprep."""

import json

import pytest

from pixprep.pipeline.ops import OPS
from pixprep.pipeline.ops.op import Drawn
from plan.frozen_draws import FROZEN, OPTIONS, frozen, remade


def test_draws_are_those_that_are_frozen():
    """Also in their order: colours are changed in it. tests/golden/remake_draws.py adds cases, and changes none."""
    old, new = json.loads(FROZEN.read_text(encoding="utf-8")), frozen()
    changed = {
        name: (each, new.get(name)) for name, each in old.items() if json.dumps(each) != json.dumps(new.get(name))
    }
    assert not changed
    assert new.keys() == old.keys(), "run tests/golden/remake_draws.py"


def test_every_op_that_draws_is_frozen():
    assert {name for name, op in OPS.items() if issubclass(op, Drawn)} | {"decode_video"} == set(OPTIONS)


def test_a_frozen_draw_changes_only_where_that_is_meant():
    old = {"flip": {"draws": [{"a": 1, "b": 2}]}, "crop": {"draws": [3]}}
    other = {"flip": {"draws": [{"b": 2, "a": 1}]}, "crop": {"draws": [3]}, "new": {}}
    for new in (other, {"crop": {"draws": [3]}}):
        with pytest.raises(SystemExit, match=r"because these draws would change: flip$"):
            remade(old, new)
        assert remade(old, new, ["flip"]) == new
    assert remade(old, old | {"new": {}}) == old | {"new": {}}
