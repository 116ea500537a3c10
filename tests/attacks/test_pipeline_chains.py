"""Attack: 256 ops that point at each other through ``from``, so that reading or compiling doubles at each of them.

Defence: an op takes the image of one earlier op, so that a pipeline is a tree, and each output folds one path of it.
Outcome: the worst tree, 127 outputs each 127 ops deep, is read and compiled in well under a second; cycles, and ops
that point forward, are refused.
"""

import time

import pytest

import pixprep as pp


def test_the_deepest_tree_is_compiled_at_once():
    flips = [pp.flip(name=f"f{number}", from_=f"f{number - 1}" if number else None) for number in range(127)]
    crop = [pp.center_crop(8, name="crop")]
    outputs = [pp.tensor(name=f"t{number}", from_="crop") for number in range(127)]
    start = time.process_time()
    pipeline = pp.Pipeline.from_json(pp.Pipeline([pp.decode(), *flips, *crop, *outputs]).to_json())
    plan = pipeline.plan
    assert time.process_time() - start < 1
    assert len(plan.outputs) == 127


def test_a_chain_of_250_normalizations_is_compiled_at_once():
    steps = [pp.normalize(mean=0.5, std=1, scale=1, arithmetic="divide")] * 252
    start = time.process_time()
    pp.Pipeline([pp.decode(), pp.center_crop(8), *steps, pp.tensor()])
    assert time.process_time() - start < 1


@pytest.mark.parametrize("from_", ["itself", "later"])
def test_an_op_that_takes_its_own_image_or_a_later_one_is_refused(from_):
    ops = [pp.decode(), pp.flip(name="itself", from_=from_), pp.center_crop(8, name="later"), pp.tensor()]
    with pytest.raises(pp.PipelineError, match="no earlier op is named"):
        pp.Pipeline(ops)
