"""An object painted into a photo lies where its box, its mask and its points say, whatever chain of ops moved it."""

import random

import numpy as np
import pytest

import pixprep as pp
from images import png

HEIGHT, WIDTH = 120, 150
LEFT, TOP, RIGHT, BOTTOM = 45, 35, 105, 85
CHAINS = 60
SLACK = 1.0
"""A pixel: a warp that enlarges would make more of one that a resize has rounded, so none does."""
MOVES = {
    "flip": lambda draw: pp.random_flip(draw.choice(["horizontal", "vertical"])),
    "rotate": lambda draw: pp.random_rotate(draw.uniform(1, 40), draw.random() < 0.5),
    "affine": lambda draw: pp.random_affine(15, (0.1, 0.1), (0.7, 1.0), draw.uniform(0, 10)),
    "perspective": lambda draw: pp.random_perspective(draw.uniform(0.1, 0.4), 1.0),
    "zoom": lambda draw: pp.random_zoom_out(0, (1.0, draw.uniform(1.1, 1.5)), 0.7),
    "shortest": lambda draw: pp.random_shortest_size((96, draw.randint(97, 150))),
    "jitter": lambda draw: pp.scale_jitter(120, 120, (0.8, draw.uniform(0.9, 1.4))),
    "crop": lambda draw: pp.random_crop(draw.randint(88, 100), pad_if_needed=True),
    "apply": lambda draw: pp.random_apply([pp.random_flip(p=1.0), pp.random_rotate(draw.uniform(1, 20))], p=0.5),
    "choice": lambda draw: pp.random_choice([pp.random_rotate(draw.uniform(1, 30)), [pp.random_flip(p=1.0)], []]),
}
STRAY = 2
"""Pixels of a mask's edge that may lie further off: a mask is resized by nearest, an image by bilinear."""
TURNS = {"rotate", "affine", "perspective", "apply", "choice"}
SIZERS = ("zoom", "shortest", "jitter", "crop")


def chain(seed):
    """(moves, ops of the end, whether a box stays tight): one move resizes, crops or pads; serving resizes instead."""
    draw = random.Random(seed)
    names = draw.sample([name for name in MOVES if name not in SIZERS], draw.randint(1, 2))
    sizer = draw.choice(SIZERS)
    names.insert(len(names) if sizer == "crop" else 0, sizer)  # what a crop cuts off no later turn brings back
    serving = pp.resize(draw.randint(80, 140), only="serving"), pp.center_crop(draw.randint(70, 88))
    return [MOVES[name](draw) for name in names], serving, len(TURNS & {*names}) < 2


def sample():
    """A grey photo with one green rectangle, and what is said of it."""
    image = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    image[TOP:BOTTOM, LEFT:RIGHT] = (0, 255, 0)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[TOP:BOTTOM, LEFT:RIGHT] = 1
    corners = [[LEFT, TOP], [RIGHT, TOP], [RIGHT, BOTTOM], [LEFT, BOTTOM]]
    box = [LEFT, TOP, RIGHT, BOTTOM]
    return {"image": png(image), "boxes": [box], "labels": [1], "points": [corners], "mask": mask}


def samples_of(seed, side):
    moves, serving, is_tight = chain(seed)
    ends = [pp.boxes(), pp.points(), pp.mask(), pp.tensor(dtype="uint8")]
    pipeline = pp.Pipeline([pp.decode(), *moves, *serving, *ends])
    pipeline = pipeline.for_serving() if side == "serving" else pipeline.for_training()
    with pp.Loader([sample()] * 2, pipeline, batch_size=1, seed=seed) as loader:
        yield from ((batch, is_tight or side == "serving") for batch in loader)


def green(batch):
    """Pixels of the object: those nearer to its colour than to the photo's and to a black margin's."""
    red, level, blue = np.asarray(batch["tensor"][0]).astype(int)
    return (level > 170) & (red < 50) & (blue < 50)


def span(seen):
    rows, columns = np.nonzero(seen)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], float)


def inside(corners, shape, grow):
    """Pixels whose middle lies in a convex polygon that is larger by ``grow`` pixels on each side."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    turned = np.sign(sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(corners, np.roll(corners, -1, 0), strict=True)))
    within = np.ones(shape, bool)
    for start, end in zip(corners, np.roll(corners, -1, 0), strict=True):
        (dx, dy), length = end - start, np.hypot(*(end - start))
        within &= turned * (dx * (y - start[1]) - dy * (x - start[0])) / length >= -grow
    return within


def astray(batch, is_tight, by=0):
    """Which of the annotations, moved to the right by so many pixels, do not lie where the object is seen.

    Once turned, a box has room around the object, which the next turn turns with it: such a box holds the object.
    """
    seen = green(batch)
    if seen.sum() < 50:
        return None
    wrong = set()
    shift = np.array([by, 0, by, 0])
    (box,) = batch["boxes"][0] + shift
    corners = np.asarray(batch["points"][0][0], float) + shift[:2]
    mask = np.roll(np.asarray(batch["mask"][0]) == 1, by, 1)
    height, width = seen.shape
    is_whole = (corners - shift[:2] >= 0).all() and (corners <= [width + by, height]).all()
    beyond = (box - span(seen)) * (1, 1, -1, -1)  # of each side: over 0 where the object is seen outside of the box
    if (beyond > SLACK).any() or (is_tight and is_whole and (beyond < -SLACK).any()):
        wrong.add("boxes")
    if (seen & ~inside(corners, seen.shape, SLACK)).any() or (inside(corners, seen.shape, -SLACK) & ~seen).any():
        wrong.add("points")
    stray = (seen & ~grown(mask))[1:-1, 1:-1].sum() + (mask & ~grown(seen)).sum()
    if stray > STRAY:
        wrong.add("mask")
    return wrong


def grown(mask, by=int(SLACK)):
    """The mask and every pixel that lies so near to it."""
    padded = np.pad(mask, by)
    shifts = [(y, x) for y in range(2 * by + 1) for x in range(2 * by + 1)]
    return np.any([padded[y : y + mask.shape[0], x : x + mask.shape[1]] for y, x in shifts], 0)


@pytest.mark.parametrize("side", ["training", "serving"])
def test_an_object_lies_where_its_annotations_say(side):
    found = [(seed, astray(*each)) for seed in range(CHAINS) for each in samples_of(seed, side)]
    judged = [(seed, wrong) for seed, wrong in found if wrong is not None]
    assert len(judged) > 0.8 * len(found)
    assert [each for each in judged if each[1]] == []


@pytest.mark.parametrize("side", ["training", "serving"])
def test_annotations_that_are_five_pixels_off_are_found(side):
    found = [astray(*each, by=5) for seed in range(6) for each in samples_of(seed, side)]
    assert all({"points", "mask", "boxes"} <= wrong for wrong in found if wrong is not None), found
