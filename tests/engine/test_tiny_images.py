"""Tests that images of 1 to 4 pixels per side, with random ops at the limits of their fields, give a tensor or fail
alone.
"""

import json
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.pipeline import ops
from pixprep.pipeline.ops import limits
from pixprep.plan.draws.philox import Numbers
from support.images import noise

BELOW_1 = 1 - 2**-32
LONGEST = 64
"""Maximum side length of results and of padding."""


def one_of(*values):
    return st.sampled_from(values)


def of_limit(limit, kind):
    """Return values of a field within its limits: the minimum, the maximum, and values between them. Pairs are
    ascending.
    """
    if isinstance(limit, limits.Colour):
        return one_of(0, 255, (0, 255, 7))
    least, most = limit.minimum, limit.maximum
    if limit == get_args(limits.Length)[1]:
        return one_of(1, 2, 4, 7, LONGEST)
    if isinstance(limit, limits.OrderedPair):
        least = max(least, 5e-324) if limit.is_over else least
    numbers = [least, min(max(least, 1), most), (least + most) / 2, most]
    one = one_of(*dict.fromkeys(int(number) if kind is int else float(number) for number in numbers))
    pair = st.tuples(one, one).map(sorted)
    if isinstance(limit, limits.Within):
        return st.one_of(*[st.tuples(*[one] * count) for count in limit.lengths]) if limit.lengths else one
    if isinstance(limit, limits.Spread):
        several = {1: one_of(0, min(-least, most)), 2: pair, 4: st.builds(lambda x, y: [*x, *y], pair, pair)}
        return st.one_of(*[several[count] for count in limit.lengths])
    return pair


def of_kind(hint):
    """Return values that match a field's annotation, or None if the annotation has no limits."""
    kinds, annotated = get_args(hint), getattr(hint, "__metadata__", ())
    if annotated:
        return of_limit(annotated[0], kinds[0])
    if get_origin(hint) is Literal:
        return one_of(*kinds)
    if hint in (bool, NoneType):
        return {bool: st.booleans(), NoneType: st.none()}[hint]
    found = [each for each in map(of_kind, kinds) if each is not None]
    return st.one_of(found) if found and get_origin(hint) is not tuple else None


FLIP = {"op": "random_flip"}
LISTS = one_of(
    [FLIP], [{"op": "random_size_crop", "min_size": 1, "max_size": 2}], [FLIP, {"op": "random_rotate", "degrees": 9}]
)
FACTORS = one_of(None, (0.0, 0.0), (0.0, 1.0), (1.0, 1000.0))
SIZES = one_of(1, 2, (1, 7, 16), LONGEST)
OTHERS = {
    "ops": st.lists(LISTS, min_size=1, max_size=3),
    "random_apply.ops": LISTS,
    "random_order.ops": st.lists(one_of(FLIP, {"op": "random_gray", "p": 0.5}), min_size=1, max_size=3),
    "weights": st.none(),
    "padding": one_of(0, 1, (16384, 0), (0, 16384, 1, 0)),
    "random_shortest_size.min_size": SIZES,
    "min_scale": one_of(5e-324, 0.3),
    "max_scale": one_of(0.3, 1.0),
    "min_aspect_ratio": one_of(5e-324, 0.5),
    "max_aspect_ratio": one_of(0.5, 1000.0),
    "sampler_options": one_of(None, (0.0,), (0.9,), (1000.0,)),
    **dict.fromkeys(("brightness", "contrast", "saturation"), FACTORS),
    "hue": one_of(None, (-0.5, -0.5), (-0.5, 0.5), (0.0, 0.5)),
    "kernel_size": one_of(0, 1, 3, 7, 255, (1, 7)),
    "count": one_of(1, 64, (1, 3), (3, 3)),
    **dict.fromkeys(
        ("coarse_dropout.hole_height", "coarse_dropout.hole_width"), one_of((0.0, 0.9), (0.5, 0.5), (1, 9))
    ),
    "value": one_of(0.0, "random", "random_color", (1.0, 0.5, 0.0)),
    "rand_augment.magnitude": one_of(0, 1, 30),
    "magnitude_std": one_of(0.0, "uniform", 100.0),
    "chain_depth": one_of(-1, 1, 5),
}
"""Minimum and maximum of fields whose annotations have no limits, or of ops whose limits differ from the annotation."""


def strategies(name):
    """Return a strategy for the values of each field of a random op."""
    hints = get_type_hints(ops.OPS[name], include_extras=True)
    found = {}
    for field in ops.OPS[name].__struct_fields__:
        if field not in ("name", "from_", "only"):
            limited = OTHERS.get(f"{name}.{field}", of_kind(hints[field]))
            found[field] = OTHERS[field] if limited is None else limited
    return found


RANDOM = [name for name, each in ops.OPS.items() if each.home == "training"]
BOXES = one_of(
    [], [[0, 0, 1, 1]], [[0.5, 0.5, 0.5, 0.5]], [[1, 1, 0, 0]], [[-1e9, -1e9, 1e9, 1e9]], [[0, 0, 2, 2], [1, 0, 4, 3]]
)
CHAINS = {
    "at once": lambda op: [op, {"op": "center_crop", "height": 2, "width": 3}],
    "enlarged": lambda op: [{"op": "pad", "square": True}, op, {"op": "resize", "height": 5, "width": 7}],
    "resized": lambda op: [{"op": "resize", "height": 1, "width": 3}, op, {"op": "center_crop", "height": 2}],
    "at last": lambda op: [
        {"op": "resize", "height": 1, "width": 3},
        {"op": "normalize", "mean": 0.5, "std": 0.5, "scale": 255.0},
        op,
    ],
}


class Same(Numbers):
    """Generator whose random parameters for a sample are all equal. They include the ends of the range."""

    def __init__(self, value):
        super().__init__(0, 0, 0, 0, {})
        self._value = value

    def blocks(self, key, begin, count):
        del key, begin
        return np.full((count, 4), self._value)


@st.composite
def pipelines(draw, name):
    """Return a pipeline that contains this op with any valid values of its fields."""
    op = {"op": name} | {field: draw(values) for field, values in strategies(name).items()}
    chain = CHAINS[draw(one_of(*CHAINS))](op)
    text = json.dumps({"format": "pixprep/1", "ops": [{"op": "pixels"}, *chain, {"op": "tensor"}]})
    try:
        return pp.Pipeline.from_json(text).for_training()
    except pp.PipelineError:  # the op is not allowed at this position in the chain, or its values contradict each other
        reject()


MANY = pytest.param(400, marks=pytest.mark.slow(reason="50 times the examples of the same code paths take a minute"))


@pytest.mark.parametrize("examples", [8, MANY])
@pytest.mark.parametrize("name", RANDOM)
def test_an_image_never_fails_its_batch(name, examples):
    sides, values = st.tuples(st.integers(1, 4), st.integers(1, 4)), one_of(0.0, 0.3, 0.49, 0.7, BELOW_1)
    tried = given(pipelines(name), sides, st.integers(0, 99), BOXES, values)(try_batch)
    few = [HealthCheck.filter_too_much, HealthCheck.too_slow]  # many combinations of fields contradict each other
    settings(max_examples=examples, derandomize=True, suppress_health_check=few)(tried)()


def try_batch(pipeline, sides, seed, boxes, value):
    """Run a tiny image and a photo in one batch. ``value`` replaces all random numbers of the tiny image."""
    tiny, photo = noise(*sides), noise(300, 280)
    (drawn,) = pipeline.plan.draw(seed=seed, epoch=0, indices=[0])
    place, extreme = (
        pipeline.plan.placing(numbers, {"boxes": np.array(boxes, np.float32)}) for numbers in (drawn, Same(value))
    )
    with pp.Engine(pipeline, threads=1) as engine:
        alone = engine.run_batch([photo], places=[place])
        batch = engine.run_batch([tiny, photo, tiny], places=[place, place, extreme])
    assert all(np.isfinite(each).all() for each in batch.outputs["tensor"])
    assert np.array_equal(batch.outputs["tensor"][1], alone.outputs["tensor"][0])
    assert str(batch.errors[1]) == str(alone.errors[0])


@pytest.mark.parametrize(
    ("size", "ratio", "why"),
    [((3, 1), (2, 3), "2 to 3"), ((1, 1), (4, 4), "4 to 4"), ((1, 4), (0.05, 0.1), "0.05 to 0.1")],
)
def test_an_image_without_a_valid_crop_fails_alone(size, ratio, why):
    """torchvision raises an error for such a tensor, and returns a black PIL image."""
    crop = pp.random_resized_crop(2, scale=(1, 1), ratio=ratio)
    pipeline = pp.Pipeline([pp.pixels(), crop, pp.center_crop(2), pp.tensor()]).for_training()
    places = [pipeline.plan.placing(numbers) for numbers in pipeline.plan.draw(seed=0, epoch=0, indices=range(2))]
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([noise(*size), noise(32, 32)], places=places)
    assert str(batch.errors[0]) == f"[DOES_NOT_FIT] {size[0]} x {size[1]} pixels have no window of the ratio {why}"
    assert batch.errors[1] is None
    assert batch.outputs["tensor"][1].any()


def test_a_one_pixel_image_is_its_own_crop_if_half_a_pixel_rounds_up():
    """Python rounds 1.5 to 2 and 0.5 to 0. For 1 x 1 pixels and the ratio 0.6, torchvision's fallback is therefore the
    pixel itself.
    """
    crop = pp.random_resized_crop(2, scale=(0.01, 0.01), ratio=(0.6, 0.6))
    red = np.full((1, 1, 3), (200, 0, 0), np.uint8)
    assert pp.apply(crop, red).tolist() == [[[200, 0, 0]] * 2] * 2
