"""Tests that random parameters never change: a seed reproduces a training run, even after an update of pixprep."""

import json

import pytest

from pixprep.pipeline.ops import OPS
from pixprep.pipeline.ops.op import Drawn
from plan.frozen_draws import FROZEN, OPTIONS, frozen, remade


def test_random_parameters_equal_the_frozen_ones():
    """The order of the parameters is also compared, because it determines the order of colour ops.

    tests/golden/remake_draws.py adds cases and changes none of the existing ones.
    """
    old, new = json.loads(FROZEN.read_text(encoding="utf-8")), frozen()
    changed = {
        name: (each, new.get(name)) for name, each in old.items() if json.dumps(each) != json.dumps(new.get(name))
    }
    assert not changed
    assert new.keys() == old.keys(), "run tests/golden/remake_draws.py"


def test_every_random_op_has_frozen_parameters():
    assert {name for name, op in OPS.items() if issubclass(op, Drawn)} | {"decode_video"} == set(OPTIONS)


def test_frozen_parameters_change_only_where_intended():
    old = {"flip": {"draws": [{"a": 1, "b": 2}]}, "crop": {"draws": [3]}}
    other = {"flip": {"draws": [{"b": 2, "a": 1}]}, "crop": {"draws": [3]}, "new": {}}
    for new in (other, {"crop": {"draws": [3]}}):
        with pytest.raises(SystemExit, match=r"because these draws would change: flip$"):
            remade(old, new)
        assert remade(old, new, ["flip"]) == new
    assert remade(old, old | {"new": {}}) == old | {"new": {}}
