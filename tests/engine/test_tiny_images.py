"""Images of 1 to 4 pixels a side, random ops at the ends of their fields: a tensor, or an error of that image alone."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.pipeline import ops
from pixprep.plan.draws.philox import Numbers
from support.images import noise

LEAST, BELOW_1 = 5e-324, 1 - 2**-32


def ends(*values):
    """From and to."""
    return st.sampled_from([(low, high) for low, high in product(values, repeat=2) if low <= high])


def one_of(*values):
    return st.sampled_from(values)


SIDES, P = one_of(1, 2, 4), one_of(0.0, 0.5, 1.0)
LIKES, FILLS = one_of("pillow", "torchvision"), one_of(0, 255, (0, 255, 7))
RATIOS, FACTORS = ends(1e-3, 0.5, 1.0, 2.0, 1000.0), st.none() | ends(0.0, 1.0, 1000.0)
WARP = {"filter": one_of("nearest", "bilinear"), "fill": FILLS, "like": LIKES}
CENTERED = WARP | {"center": one_of(None, (0.0, 0.0), (-16384.0, 16384.0))}
FLIP = {"op": "random_flip"}
LISTS = one_of(
    [FLIP], [{"op": "random_size_crop", "min_size": 1, "max_size": 2}], [FLIP, {"op": "random_rotate", "degrees": 9}]
)
FIELDS = {
    "random_size_crop": {"min_size": one_of(1, 2, 4), "max_size": one_of(1, 4, 64), "p": P},
    "random_choice": {"ops": st.lists(LISTS, min_size=1, max_size=3), "p": P},
    "random_apply": {"ops": LISTS, "p": P},
    "random_order": {"ops": st.lists(one_of(FLIP, {"op": "random_gray", "p": 0.5}), min_size=1, max_size=3)},
    "random_resized_crop": {
        "height": SIDES,
        "width": SIDES,
        "scale": ends(LEAST, 0.08, 1.0),
        "ratio": RATIOS,
        "filter": one_of("nearest", "bilinear", "bicubic", "area"),
        "like": one_of("pillow", "torchvision", "torch", "opencv", "tensorflow", "dali"),
    },
    "random_crop": {
        "height": SIDES,
        "width": SIDES,
        "padding": one_of(0, 1, (16384, 0), (0, 16384, 1, 0)),
        "pad_if_needed": st.booleans(),
        "fill": FILLS,
        "padding_mode": one_of("constant", "edge", "reflect", "symmetric"),
    },
    "random_shortest_size": {
        "min_size": one_of(1, 2, (1, 7, 16), 64),
        "max_size": one_of(None, 1, 3, 64),
        "filter": one_of("nearest", "bilinear", "bicubic", "area"),
        "like": one_of("pillow", "torchvision", "torch", "opencv", "tensorflow", "dali"),
    },
    "random_resize": {
        "min_size": one_of(1, 7),
        "max_size": one_of(8, 64),
        "filter": one_of("nearest", "bilinear", "bicubic", "area"),
        "like": one_of("pillow", "torchvision", "torch", "opencv", "tensorflow", "dali"),
    },
    "scale_jitter": {
        "height": one_of(None, 1, 7, 64),
        "width": one_of(None, 1, 64),
        "scale_range": ends(LEAST, 1.0, 16.0),
        "filter": one_of("nearest", "bilinear", "bicubic", "area"),
        "like": one_of("pillow", "torchvision", "torch", "opencv", "tensorflow", "dali"),
    },
    "random_flip": {"axis": one_of("horizontal", "vertical"), "p": P},
    "random_zoom_out": {"fill": FILLS, "side_range": ends(1.0, 1.5, 16.0), "p": P},
    "random_iou_crop": {
        "min_scale": one_of(LEAST, 0.3),
        "max_scale": one_of(0.3, 1.0),
        "min_aspect_ratio": one_of(LEAST, 0.5),
        "max_aspect_ratio": one_of(0.5, 1000.0),
        "sampler_options": one_of(None, (0.0,), (0.9,), (1000.0,)),
        "trials": one_of(1, 40),
    },
    "random_gray": {"p": P, "like": LIKES},
    "random_posterize": {"bits": one_of(1, 8), "p": P},
    "random_solarize": {"threshold": one_of(0.0, 127.5, 255.0), "p": P},
    "random_autocontrast": {"p": P, "like": LIKES},
    "random_equalize": {"p": P},
    "random_invert": {"p": P},
    "color_jitter": {
        "brightness": FACTORS,
        "contrast": FACTORS,
        "saturation": FACTORS,
        "hue": st.none() | ends(-0.5, 0.0, 0.5),
        "like": LIKES,
        "p": P,
    },
    "random_hue_saturation_value": {"hue": one_of(0.0, 20.0, (-180.0, 180.0)), "p": P},
    "coarse_dropout": {"count": one_of((1, 2), (3, 3)), "hole_height": one_of((0.0, 0.9), (0.5, 0.5)), "p": P},
    "random_brightness_contrast": {"brightness": one_of(0.0, 3.0), "contrast": one_of((-1.0, -1.0), 0.2), "p": P},
    "random_rotate": CENTERED
    | {"degrees": one_of(0.0, 180.0, 3600.0, (90.0, 90.0), (44.9, 45.1)), "expand": st.booleans()},
    "random_affine": CENTERED
    | {
        "degrees": one_of(0.0, 3600.0, (90.0, 90.0)),
        "translate": one_of(None, (0.0, 0.0), (1.0, 1.0)),
        "scale": st.none() | ends(1e-3, 1.0, 1000.0),
        "shear": one_of(None, 0.0, 89.0, (89.0, 89.0, -89.0, -89.0)),
        "like": one_of("pillow", "torchvision", "opencv"),
        "padding_mode": one_of(None, "constant", "edge", "reflect", "symmetric"),
    },
    "random_warp": {
        "degrees": one_of(0.0, 3600.0, (90.0, 90.0)),
        "translate": one_of(None, (-1.0, 1.0, 0.5, 1.0)),
        "scale": one_of(None, (1e-3, 1000.0, 1e-3, 1000.0)),
        "shear": one_of(None, (89.0, 89.0, 0.0, 0.9), (-44.0, 44.0, -45.0, 45.0)),
        "p": P,
    },
    "random_warp_perspective": {"scale": one_of((0.0, 0.0), (0.05, 0.1), (1.0, 1.0)), "p": P},
    "random_perspective": WARP | {"distortion_scale": one_of(0.0, 0.5, 1.0), "p": P},
    "elastic": {
        "alpha": one_of(0.0, 50.0, 100000.0, (0.0, 3.0)),
        "sigma": one_of(0.0, 0.01, 0.2, (0.3, 5.0)),
        "filter": one_of("nearest", "bilinear"),
        "fill": FILLS,
        "p": P,
    },
    "random_photometric_distort": {"contrast": FACTORS, "hue": st.none() | ends(-0.5, 0.5), "like": LIKES, "p": P},
    "random_sharpness": {"factor": one_of(0.0, 1.0, 1000.0), "p": P, "like": LIKES},
    "random_gaussian_blur": {
        "kernel_size": one_of(0, 1, 3, 7, 255, (1, 7)),
        "sigma": ends(0.01, 1.0, 36.0, 1000.0),
        "p": P,
        "like": one_of("torchvision", "opencv"),
    },
    "random_erasing": {
        "p": P,
        "scale": ends(0.0, 0.02, 1.0),
        "ratio": RATIOS,
        "value": one_of(0.0, "random", "random_color", (1.0, 0.5, 0.0)),
        "count": one_of(1, 64, (1, 3)),
    },
    "rand_augment": WARP | {"num_ops": one_of(0, 1, 20), "magnitude": one_of(0, 1, 30)},
    "trivial_augment": WARP | {"num_magnitude_bins": one_of(2, 31, 1000)},
    "auto_augment": {
        "policy": one_of("imagenet", "cifar10", "svhn", "original", "originalr", "v0", "v0r"),
        "filter": one_of("nearest", "bilinear", "bicubic", "random"),
        "fill": FILLS,
    },
    "aug_mix": {
        "severity": one_of(1, 3, 10),
        "mixture_width": one_of(1, 3, 20),
        "chain_depth": one_of(-1, 1, 5),
        "alpha": one_of(0.05, 1.0, 100.0),
        "all_ops": st.booleans(),
        "filter": one_of("nearest", "bilinear"),
        "fill": FILLS,
    },
    "timm_rand_augment": {
        "num_ops": one_of(0, 1, 15),
        "magnitude": one_of(0.0, 9.0, 100.0),
        "magnitude_std": one_of(0.0, "uniform", 100.0),
        "magnitude_max": one_of(0.0, 10.0, 100.0),
        "p": P,
        "increasing": st.booleans(),
        "weighted": st.booleans(),
        "filter": one_of("nearest", "bilinear", "bicubic"),
        "fill": FILLS,
    },
}
"""For each random op its fields: what is allowed least and most, and between."""
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
    """Numbers of a sample that are all alike: at the ends, too."""

    def __init__(self, value):
        super().__init__(0, 0, 0, 0, {})
        self._value = value

    def blocks(self, key, begin, count):
        del key, begin
        return np.full((count, 4), self._value)


@st.composite
def pipelines(draw, name):
    """A pipeline with this op, whatever the values of its fields."""
    op = {"op": name} | {field: draw(values) for field, values in FIELDS[name].items()}
    chain = CHAINS[draw(one_of(*CHAINS))](op)
    text = json.dumps({"format": "pixprep/1", "ops": [{"op": "pixels"}, *chain, {"op": "tensor"}]})
    try:
        return pp.Pipeline.from_json(text).for_training()
    except pp.PipelineError:  # not there in the chain, or values that contradict each other
        reject()


def test_every_random_op_is_tried():
    assert {name for name, each in ops.OPS.items() if each.home == "training"} == FIELDS.keys()


MANY = pytest.param(400, marks=pytest.mark.slow(reason="50 times the examples of the same paths: a minute"))


@pytest.mark.parametrize("examples", [8, MANY])
@pytest.mark.parametrize("name", FIELDS)
def test_no_image_ends_a_batch_for_its_neighbours(name, examples):
    sides, values = st.tuples(st.integers(1, 4), st.integers(1, 4)), one_of(0.0, 0.3, 0.49, 0.7, BELOW_1)
    tried = given(pipelines(name), sides, st.integers(0, 99), BOXES, values)(try_batch)
    few = [HealthCheck.filter_too_much]  # most sides of random_shortest_size contradict each other
    settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=few)(tried)()


def try_batch(pipeline, sides, seed, boxes, value):
    """A tiny image and a photo in one batch; ``value``: all random numbers of another place."""
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
def test_an_image_without_a_window_is_refused_alone(size, ratio, why):
    """torchvision raises for a tensor, and makes a PIL image black."""
    crop = pp.random_resized_crop(2, scale=(1, 1), ratio=ratio)
    pipeline = pp.Pipeline([pp.pixels(), crop, pp.center_crop(2), pp.tensor()]).for_training()
    places = [pipeline.plan.placing(numbers) for numbers in pipeline.plan.draw(seed=0, epoch=0, indices=range(2))]
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([noise(*size), noise(32, 32)], places=places)
    assert str(batch.errors[0]) == f"[DOES_NOT_FIT] {size[0]} x {size[1]} pixels have no window of the ratio {why}"
    assert batch.errors[1] is None
    assert batch.outputs["tensor"][1].any()


def test_an_image_of_one_pixel_is_its_own_window_where_half_a_pixel_rounds_up():
    """Python rounds 1.5 to 2 and 0.5 to 0: of 1 x 1 pixels and the ratio 0.6 torchvision's fallback is the pixel."""
    crop = pp.random_resized_crop(2, scale=(0.01, 0.01), ratio=(0.6, 0.6))
    red = np.full((1, 1, 3), (200, 0, 0), np.uint8)
    assert pp.apply(crop, red).tolist() == [[[200, 0, 0]] * 2] * 2
