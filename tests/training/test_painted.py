"""Tests that a painted object in a photo matches its box, masks, points and targets after any chain of ops.

Random chains contain every op that moves pixels, in both modes, before and after a mosaic or copy-paste.
"""

import random
from dataclasses import dataclass
from functools import cache
from typing import get_args

import numpy as np
import pytest

import pixprep as pp
from pixprep.spec import BoxFormat
from support.images import png

HEIGHT, WIDTH = 110, 150
CHAINS = 40
GREY, BLACK = (90, 90, 90), (0, 0, 0)
COLOURS = [(0, 255, 0), (0, 0, 255), (255, 0, 0), (255, 255, 0), (255, 0, 255), (0, 255, 255)]
PALETTE = np.array([GREY, BLACK, *COLOURS], float)
"""Colours of the photo, of the area outside of the photo, and of the objects.

At a boundary, a pixel is assigned to the nearest colour.
"""
PLACES = [
    (45, 35, 101, 83),
    (108, 12, 139, 74),
    (20, 40, 64, 90),
    (60, 24, 121, 60),
    (50, 30, 90, 99),
    (35, 50, 130, 85),
]
"""(Left, top, right, bottom) of the object of each colour. The first two objects do not overlap."""
PIXELS = {"mask", "masks", "nearest", "bilinear"}
"""Annotations with one value per pixel. The targets ``nearest`` and ``bilinear`` contain the labels of the mask."""
ZOOM = 1.3
"""Maximum magnification of an object relative to the photo, for objects without an outline."""


def between(draw, least, most):
    return tuple(sorted((round(draw.uniform(least, most), 3), round(draw.uniform(least, most), 3))))


def sides(draw, least=70, most=120):
    return draw.randint(least, most), draw.randint(least, most)


def random_sampling(draw):
    return {"filter": draw.choice(["nearest", "bilinear"])}


def corners(draw):
    return [(draw.randint(0, 14) + x * (WIDTH - 28), draw.randint(0, 14) + y * 80) for x, y in SQUARE]


SQUARE = (0, 0), (1, 0), (1, 1), (0, 1)


def matrix(draw):
    turn, zoom = draw.uniform(-0.3, 0.3), draw.uniform(0.8, 1.1)
    return [[zoom, turn, draw.uniform(-9, 30)], [-turn * 0.7, zoom, draw.uniform(-9, 30)]]


FLIPS = {
    "random_flip": lambda draw: pp.random_flip(draw.choice(["horizontal", "vertical"]), draw.choice([0.5, 1.0])),
    "flip": lambda draw: pp.flip(draw.choice(["horizontal", "vertical"])),
}
TURNS = {
    "random_rotate": lambda draw: pp.random_rotate(draw.uniform(1, 60), draw.random() < 0.5, **random_sampling(draw)),
    "rotate": lambda draw: pp.rotate(
        draw.choice([90, 180, 270, 33.3, -8]), draw.random() < 0.5, **random_sampling(draw)
    ),
    "random_affine": lambda draw: pp.random_affine(
        20,
        (0.1, 0.1),
        between(draw, 0.7, 1.1),
        draw.uniform(0, 15),
        **random_sampling(draw),
        like=draw.choice(["pillow", "opencv"]),
    ),
    "affine": lambda draw: pp.affine(
        draw.uniform(-30, 30), (9, -4), draw.uniform(0.7, 1.1), (draw.uniform(-9, 9), 3), **random_sampling(draw)
    ),
    "random_warp": lambda draw: pp.random_warp(
        20, (-0.1, 0.1, -0.1, 0.1), (0.7, 1.1, 0.8, 1.1), draw.uniform(0, 9), **random_sampling(draw)
    ),
    "warp": lambda draw: pp.warp(matrix=matrix(draw), height=110, width=130, **random_sampling(draw)),
    "random_warp, centered": lambda draw: pp.random_warp(
        20, (-0.1, 0.1, -0.1, 0.1), between(draw, 0.7, 1.1) * 2, keep_ratio=True, like="yolox", height=100, width=130
    ),
    "random_box_warp": lambda draw: pp.random_box_warp(
        *sides(draw), box_padding=1.5, scale=(0.9, 1.5), **random_sampling(draw)
    ),
    "random_perspective": lambda draw: pp.random_perspective(draw.uniform(0.1, 0.4), 1.0, **random_sampling(draw)),
    "perspective": lambda draw: pp.perspective(corners(draw), **random_sampling(draw)),
    "random_warp_perspective": lambda draw: pp.random_warp_perspective(
        between(draw, 0.02, 0.1), **random_sampling(draw)
    ),
    "elastic": lambda draw: pp.elastic(draw.uniform(1, 40), draw.uniform(4, 6), **random_sampling(draw)),
    "grid_distortion": lambda draw: pp.grid_distortion(draw.randint(2, 5), 0.2, **random_sampling(draw)),
    "optical_distortion": lambda draw: pp.optical_distortion(
        draw.uniform(-0.3, 0.3), draw.choice(["camera", "fisheye"]), **random_sampling(draw)
    ),
    "elastic_distortion": lambda draw: pp.elastic_distortion(
        draw.uniform(1, 40), draw.uniform(4, 6), **random_sampling(draw)
    ),
}
CROPS = {
    "random_crop": lambda draw: pp.random_crop(*sides(draw), padding=draw.choice([0, 6]), pad_if_needed=True),
    "center_crop": lambda draw: pp.center_crop(*sides(draw)),
    "crop": lambda draw: pp.crop(top=draw.randint(0, 9), left=draw.randint(0, 20), height=90, width=100),
    "random_crop, around": lambda draw: pp.random_crop(
        *sides(draw), around=draw.choice(["mask", "box", "point"]), centered=draw.random() < 0.5, pad_if_needed=True
    ),
    "random_crop, by label": lambda draw: pp.random_crop(*sides(draw, 50, 90), around="mask", by_label=True),
    "random_crop, varied": lambda draw: pp.random_crop(*sides(draw, 50, 90), max_label=0.5),
    "random_size_crop": lambda draw: pp.random_size_crop(draw.randint(60, 90), 110),
    "random_iou_crop": lambda _: pp.random_iou_crop(0.6),
    "random_zoom_out": lambda draw: pp.random_zoom_out(0, (1.0, draw.uniform(1.1, 1.5)), 0.7),
    "pad": lambda draw: pp.pad(*sides(draw, 100, 180), larger="keep", anchor=draw.choice(["center", "top_left"])),
    "pad, square": lambda _: pp.pad(square=True),
    "pad, multiple": lambda _: pp.pad(multiple=32, anchor="top_left"),
}
RESIZES = {
    "resize": lambda draw: pp.resize(draw.randint(80, 120)),
    "resize, stretched": lambda draw: pp.resize(height=draw.randint(80, 120), width=draw.randint(100, 160)),
    "resize, fitting": lambda draw: pp.resize(height=100, width=120, mode=draw.choice(["fit", "cover"])),
    "letterbox": lambda draw: pp.letterbox(*sides(draw, 90, 140), fill=0),
    "random_resized_crop": lambda draw: pp.random_resized_crop(*sides(draw), scale=(0.6, 1.0)),
    "random_sized_crop": lambda draw: pp.random_sized_crop(draw.randint(70, 120), (80, 110), ratio=1.2),
    "random_shortest_size": lambda draw: pp.random_shortest_size((80, draw.randint(81, 120))),
    "random_resize": lambda draw: pp.random_resize(80, draw.randint(81, 120)),
    "scale_jitter": lambda draw: pp.scale_jitter(110, 130, between(draw, 0.7, 1.1)),
}
FIXED_OPS = {
    name: op for name, op in (FLIPS | TURNS | CROPS | RESIZES).items() if not name.startswith(("random", "scale"))
}
FIXED_OPS = {
    name: op for name, op in FIXED_OPS.items() if name not in ("elastic", "grid_distortion", "elastic_distortion")
}


def choosing(draw):
    """Return an op that chooses between alternatives, each of which is a single op or a list of ops."""
    tables = draw.choices([FLIPS, TURNS, CROPS, RESIZES], k=draw.randint(2, 3))
    made = [table[draw.choice([*table])](draw) for table in tables]
    kind = draw.choice(["choice", "apply", "order"])
    if kind == "choice":
        return pp.random_choice([made[0], made[1:], []][: draw.randint(2, 3)], p=0.9)
    return pp.random_apply(made, 0.7) if kind == "apply" else pp.random_order(made)


RESIZING = {type(op(random.Random(0))) for op in RESIZES.values()}
TURNING = {type(op(random.Random(0))) for op in TURNS.values()}


@dataclass(frozen=True)
class Chain:
    """Random chain of ops for training or serving.

    Attributes:
        ops: Ops that move pixels, including those inside of choices.
        pipeline: Pipeline of the ops and of annotations.
        boxes: The op ``boxes``.
        mix: Augmentation between the ops, or None.
        stages: Stages of the Loader's argument ``mix``.
    """

    ops: list
    pipeline: pp.Pipeline
    boxes: pp.boxes
    mix: object
    stages: list
    seed: str

    @property
    def turns(self):
        return sum(type(op) in TURNING for op in self.ops)

    @property
    def displacements(self):
        """Return the number of ops that displace each pixel separately. Straight edges become curves between points."""
        return sum("matrix" in type(op).no_matrix for op in self.ops if hasattr(op, "no_matrix"))

    @property
    def resizes(self):
        return sum(type(op) in RESIZING for op in self.ops)

    def slack(self, zoom):
        """Return the tolerance in pixels between the visible edge and the outline.

        The first interpolation shifts the edge by up to 0.1 pixel. Without antialiasing, every further interpolation
        starts from an edge that has been rounded to whole pixels, and adds 0.7 pixel, half of a pixel's diagonal.
        """
        curved = (0.5 if self.mix is None else 1.0) * self.displacements  # a mosaic cuts off the ends of curved edges
        return 0.1 + (0.7 * max(0, self.turns + self.resizes - 1) + curved) * max(1.0, zoom)

    def slack_of_masks(self, zoom):
        """Return the tolerance of a mask.

        torchvision's nearest interpolation uses the label at the upper left of a pixel's centre, which may be up to one
        pixel away.
        """
        return self.slack(zoom) + self.resizes * max(1.0, zoom)


def flat(ops):
    for op in ops:
        yield from (
            flat(op if isinstance(op, tuple) else op.ops) if hasattr(op, "ops") or isinstance(op, tuple) else [op]
        )


def chain(seed, side, *, is_mixed=False):
    """Generate a chain for a mode. Invalid pipelines are generated again."""
    while True:
        seed = f"{seed} {side}"
        draw = random.Random(seed)
        if side == "serving":
            ops = [FIXED_OPS[draw.choice([*FIXED_OPS])](draw) for _ in range(draw.randint(1, 4))]
        else:
            tables = draw.choices([FLIPS, TURNS, CROPS, RESIZES], k=draw.randint(1, 4))
            ops = [table[draw.choice([*table])](draw) for table in tables]
            ops += [choosing(draw)] * (draw.random() < 0.3)
        draw.shuffle(ops)
        boxes = pp.boxes(format=draw.choice(get_args(BoxFormat)), normalized=draw.random() < 0.3)
        ends = [boxes, pp.points(), pp.mask(), pp.masks(), pp.tensor(dtype="uint8", max_size=512)]
        ends += [pp.target(field=name, filter=name, ignore=255, name=name) for name in ("nearest", "bilinear")]
        mix, first = None, []
        if is_mixed:
            mix = draw.choice(
                [pp.Mosaic(height=60, width=75, fill=0), pp.Mosaic(height=80, p=0.5, fill=0), pp.CopyPaste()]
            )
            count = draw.randint(0, len(ops))
            first, ops = ops[:count], ops[count:]
        stages = [*first, *[pp.center_crop(96, 104)] * isinstance(mix, pp.CopyPaste), mix]
        try:
            pp.Pipeline([pp.pixels(), *first, *ends])
            pipeline = pp.Pipeline([pp.decode(), *ops, *ends])
        except pp.PipelineError:
            continue
        pipeline = pipeline.for_serving() if side == "serving" else pipeline.for_training()
        return Chain([*flat([*first, *ops])], pipeline, boxes, mix, stages if is_mixed else None, seed)


@cache
def photo(*which):
    """Return a gray photo with objects, and its annotations."""
    image, masks = np.full((HEIGHT, WIDTH, 3), GREY, np.uint8), np.zeros((len(which), HEIGHT, WIDTH), np.uint8)
    share, outlines = np.linspace(0, 1, 16, endpoint=False)[:, None], []
    for mask, index in zip(masks, which, strict=True):
        left, top, right, bottom = PLACES[index]
        image[top:bottom, left:right], mask[top:bottom, left:right] = COLOURS[index], 1
        ends = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
        outlines.append(np.concatenate([a + share * (b - a) for a, b in zip(ends, np.roll(ends, -1, 0), strict=True)]))
    labels = np.array(which) + 1
    boxes, label_map = [PLACES[index] for index in which], (masks * labels[:, None, None]).max(0)
    fields = {"boxes": boxes, "labels": labels, "points": np.array(outlines), "masks": masks}
    fields |= dict.fromkeys(("nearest", "bilinear"), label_map.astype(np.float32))
    return {"image": png(image), "mask": label_map.astype(np.uint8), **fields}


def images(chain):
    """Yield (pixels, annotations) of each image. The pixels are (3, height, width), without the batch's padding."""
    source = [photo(0, 1)] * 2 if chain.mix is None else [photo(index) for index in range(len(COLOURS))]
    with pp.Loader(source, chain.pipeline, batch_size=len(source), seed=3, threads=1, mix=chain.stages) as loader:
        (batch,) = loader
    for row in range(len(batch)):
        shown = [
            batch["index"][row],
            *(each["index"] for each in (batch["mix"][row][-1] if chain.mix else {}).get("of", [])),
        ]
        if len({*shown}) < len(shown):
            continue  # several objects have the same colour
        pixels = np.asarray(batch["tensor"][row], float)
        height, width = batch["sizes"][row] if "sizes" in batch.fields else pixels.shape[1:]
        output_annotations = {
            name: np.asarray(values[row]) for name, values in batch.fields.items() if name in photo(0)
        }
        output_annotations |= {
            name: output_annotations[name][..., :height, :width] for name in PIXELS if name in output_annotations
        }
        output_annotations["boxes"] = corners_of(output_annotations["boxes"].astype(float), chain.boxes, height, width)
        yield pixels[:, :height, :width], output_annotations


def corners_of(boxes, op, height, width):
    """Return boxes as left, top, right and bottom in pixels."""
    x, y, z, w = boxes.T * np.array([[width], [height]] * 2 if op.normalized else 1)
    if op.format == "xywh":
        z, w = x + z, y + w
    if op.format == "cxcywh":
        x, y, z, w = x - z / 2, y - w / 2, x + z / 2, y + w / 2
    return np.stack([x, y, z, w], 1)


def palette_indices(pixels):
    """Return the palette index of each pixel."""
    return np.stack([np.square(pixels - colour[:, None, None]).sum(0) for colour in PALETTE]).argmin(0)


def inside(outline, shape):
    """Return a mask of the pixels whose centre is in a polygon. A ray from such a centre to the left crosses an odd
    number of edges.
    """
    rows, columns = np.arange(shape[0]) + 0.5, np.arange(shape[1]) + 0.5
    (ax, ay), (bx, by) = outline.T, np.roll(outline, -1, 0).T
    side, row = np.nonzero((ay[:, None] <= rows) != (by[:, None] <= rows))
    meets = ax[side] + (rows[row] - ay[side]) / (by - ay)[side] * (bx - ax)[side]
    count = np.zeros(shape, int)
    np.add.at(count, row, meets[:, None] < columns)
    return count % 2 == 1


def farthest(wrong, outline):
    """Return the maximum distance between a polygon's outline and the centres of these pixels."""
    if not wrong.any():
        return 0.0
    at = np.argwhere(wrong)[:, None, ::-1] + 0.5
    along = np.roll(outline, -1, 0) - outline
    share = ((at - outline) * along).sum(-1) / np.maximum(np.square(along).sum(-1), 1e-12)
    return float(np.sqrt(np.square(at - outline - share.clip(0, 1)[..., None] * along).sum(-1)).min(1).max())


def area(outline):
    (x, y), (next_x, next_y) = outline.T, np.roll(outline, -1, 0).T
    return abs((x * next_y - y * next_x).sum()) / 2


def span(seen):
    rows, columns = np.nonzero(seen)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], float)


def eroded(mask, by):
    """Return a mask of the pixels with at least this distance from the outside of a mask. Slivers have no such
    pixels.
    """
    padded = np.pad(mask, by)
    height, width = mask.shape
    return np.all([padded[y : y + height, x : x + width] for y in range(2 * by + 1) for x in range(2 * by + 1)], 0)


def mismatched_annotations(chain, pixels, output_annotations):
    """Return the names of the annotations that do not match the visible objects.

    Args:
        chain: Chain that moved the objects.
        pixels: Pixel values, uint8 (3, height, width).
        output_annotations: Annotations that the pipeline returned.
    """
    seen, wrong = palette_indices(pixels), set()
    is_photo = (abs(pixels - GREY[0]) < 12).all(0)
    for row, label in enumerate(output_annotations["labels"]):
        box, mask, here, zoom = (
            output_annotations["boxes"][row],
            output_annotations["mask"] == label,
            seen == label + 1,
            ZOOM,
        )
        if not np.array_equal(output_annotations["masks"][row] == 1, mask):
            wrong.add("masks")
        if not isinstance(chain.mix, pp.CopyPaste):
            outline = output_annotations["points"][row].astype(float)
            zoom, within = np.sqrt(area(outline) / area(photo(label - 1)["points"][0])), inside(outline, seen.shape)
            ends = np.concatenate([outline.min(0), outline.max(0)])
            # in a mosaic, the outline of an object that is cut off extends into other photos
            is_cut = chain.mix is not None and abs(box - ends).max() > 1.5
            shown, labelled = (here & ~within), (mask & ~within)
            if not is_cut:
                shown, labelled = shown | (is_photo & within), labelled | ((output_annotations["mask"] == 0) & within)
            if farthest(shown, outline) > chain.slack(zoom):
                wrong.add("points")
            if farthest(labelled, outline) > chain.slack_of_masks(zoom):
                wrong.add("mask")
            # a bilinear target equals the label, except near an edge, where its value is between two labels
            depth = int(np.ceil(chain.slack_of_masks(zoom) + max(1.0, zoom)))
            targets = output_annotations["nearest"][0], output_annotations["bilinear"][0]
            if not np.array_equal(targets[0], output_annotations["mask"]):
                wrong.add("nearest")
            is_outside = (output_annotations["mask"] == 0) & (
                targets[1] != 255
            )  # at a seam, a row of a mosaic may be outside of all photos
            is_inside, is_outside = eroded(mask, depth), eroded(is_outside, depth)
            if (abs(targets[1][is_inside] - label) > 1e-3).any() or (targets[1][is_outside] > 1e-3).any():
                wrong.add("bilinear")
            is_whole = not is_cut and (ends[:2] >= 0).all() and (ends[2:] <= seen.shape[::-1]).all()
            # if less than a pixel is cut off, no pixel's centre is covered
            is_whole &= not (within & (seen == 1)).any()
            smaller = (box - ends) * (1, 1, -1, -1)
            if is_whole and chain.turns < 2 and not (-0.1 - chain.displacements < smaller.min() <= smaller.max() < 1.0):
                wrong.add("boxes")
        else:
            depth = int(np.ceil(chain.slack_of_masks(zoom)))
            if ((eroded(here, depth) & ~mask) | (eroded(mask, depth) & ~here)).any():
                wrong.add("mask")
            # an object is hidden exactly as far as the mask in front of it reaches, so slivers remain
            here = eroded(here, depth)
        if here.any():
            # for each side, a positive number means that the object is visible outside of the box
            room = (box - span(here)) * (1, 1, -1, -1)
            slack = 0.5 + (chain.slack(zoom) if chain.mix is None else chain.slack_of_masks(zoom))
            is_tight = chain.turns == 0 and not isinstance(chain.mix, pp.CopyPaste)
            if (room > slack).any() or (is_tight and (room < -slack).any()):
                wrong.add("boxes")
    return wrong


def checked_images(seeds, side, *, is_mixed=False):
    """Yield (chain, pixels, annotations) for each image. Chains that do not fit a photo are skipped."""
    for seed in seeds:
        one = chain(seed, side, is_mixed=is_mixed)
        try:
            yield from ((one, *each) for each in images(one))
        except pp.ImageError as error:
            if error.reason != "DOES_NOT_FIT":
                raise


CASES = [("training", False), ("serving", False), ("training", True)]


@pytest.mark.parametrize(("side", "is_mixed"), CASES)
def test_an_object_matches_its_annotations(side, is_mixed):
    found = [
        (one, mismatched_annotations(one, *each))
        for one, *each in checked_images(range(CHAINS), side, is_mixed=is_mixed)
    ]
    assert len(found) > CHAINS * 1.6
    assert [(one.seed, one.ops, wrong) for one, wrong in found if wrong] == []
