"""Tests that chains of mosaic, affine transform and mixup equal those of YOLOX, Ultralytics and mmdetection (RTMDet).

The random parameters of a Loader are passed to the code of the libraries, for 300 images per library.
"""

import copy
import math
import random
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import pixprep as pp
from pixprep.training.mixer import Request
from support.class_text import definitions

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: mosaics were not compared")

SIDE, COUNT = 64, 60
EPOCHS = 5
SIZES = [(64, 48), (128, 96), (32, 64), (64, 64), (16, 32), (256, 64), (40, 64)]
"""Sizes of the photos. The resize to fit scales both sides of these sizes by exactly the same factor."""
FIT = pp.resize(height=SIDE, width=SIDE, mode="fit", like="opencv")


def photos():
    """Yield noise photos with three boxes each."""
    for index in range(COUNT):
        rng = np.random.default_rng(index)
        height, width = SIZES[index % len(SIZES)]
        corners = rng.uniform(0, 0.6, (3, 2))
        boxes = np.hstack([corners, corners + rng.uniform(0.05, 0.4, (3, 2))]) * (width, height, width, height)
        image = rng.integers(0, 256, (height, width, 3), np.uint8)
        yield {"image": image, "boxes": boxes.astype(np.float32), "labels": np.arange(3) + 3 * index}


PHOTOS = list(photos())


def batches(chain, boxes, **options):
    """Yield (epoch, index, history, image, boxes, labels) for each image of five epochs."""
    pipeline = pp.Pipeline([pp.pixels(), boxes, pp.tensor(layout="hwc", dtype="uint8", max_size=256, only="training")])
    options = {"batch_size": 6, "shuffle": True, "seed": 5, "threads": 1, "mix": chain} | options
    with pp.Loader(PHOTOS, pipeline.for_training(), **options) as loader:
        for epoch in range(EPOCHS):
            for batch in loader:
                for row in range(len(batch)):
                    fields = (batch[name][row] for name in ("index", "mix", "tensor", "boxes", "labels"))
                    yield epoch, *fields


def uniforms(op, epoch, index):
    """Return the random numbers that the third stage of a chain draws for a sample, with the shape (blocks, 4)."""
    plan = pp.Pipeline([pp.pixels(), op, pp.tensor(max_size=256, only="training")]).for_training().plan
    (step,) = plan.random_steps
    attempt = Request(int(index), attempt=0).stage_key(3)
    return plan.draw(seed=5, epoch=epoch, indices=[int(index)], attempts=attempt)[0].blocks(step.key, 0, step.blocks)


class Values:
    """Replaces Python's ``random``, and returns given values in order."""

    def __init__(self, values=()):
        self.values = list(values)

    def random(self, *_):
        """Return the next value."""
        return self.values.pop(0)

    uniform = randint = random


def assert_same_boxes(ours, labels, theirs, their_labels, matrix, *, is_exact=True):
    """Assert that boxes with the same label are equal in pixprep and the library.

    The libraries map the corners of boxes with the matrix for the centers of pixels, so their boxes are shifted by up
    to half a pixel. They keep boxes without area, which pixprep removes; a rotation may give an area to such a box.

    Args:
        ours: Boxes of the Loader, xyxy.
        labels: Their labels.
        theirs: Boxes of the library.
        their_labels: Their labels.
        matrix: Affine matrix, (2, 3).
        is_exact: Whether both must keep the same boxes, except those that are narrower than a pixel.
    """
    shift = np.tile(0.5 - matrix[:, :2] @ (0.5, 0.5), 2)
    by_label = dict(zip(their_labels.tolist(), theirs, strict=True))
    for box, label in zip(ours, labels.tolist(), strict=True):
        if not is_exact and label not in by_label:
            continue
        their = by_label[label]
        is_cut = (their <= 0) | (their >= SIDE)
        assert (np.abs(box - (their + shift).clip(0, SIDE)) <= np.where(is_cut, np.abs(shift), 0) + 1e-3).all()
    if is_exact:
        large = (theirs[:, 2:] - theirs[:, :2] > 1.1).all(axis=1)
        assert {*their_labels[large].tolist()} <= {*labels.tolist()}


YOLOX_PARTNER = [
    [FIT, pp.pad(SIDE, SIDE, fill=114, anchor="top_left")],
    [
        *(pp.scale_jitter(scale_range=(0.5, 1.5), like="opencv"), pp.random_flip()),
        *(pp.pad(SIDE, SIDE, fill=0, anchor="top_left", larger="keep"), pp.random_crop(SIDE, SIDE)),
    ],
]


@pytest.mark.parametrize(("degrees", "shear"), [(0.0, 0.0), (10.0, 2.0)])
def test_a_chain_equals_yolox(degrees, shear):
    values = Values()
    shared = {"np": np, "cv2": cv2, "random": values}
    names = "get_aug_params", "get_affine_matrix", "apply_affine_to_bboxes", "random_affine"
    augment = definitions("yolox/data/data_augment.py", *names, **shared, math=math)
    adjust = definitions("yolox/utils/boxes.py", "adjust_box_anns", np=np).adjust_box_anns
    names = "get_mosaic_coordinate", "MosaicDetection"
    modules = {**shared, "Dataset": object, "random_affine": augment.random_affine, "adjust_box_anns": adjust}
    library = definitions("yolox/data/datasets/mosaicdetection.py", *names, **modules)

    class Source(list):
        input_dim = SIDE, SIDE

        def pull_item(self, index):
            labels = np.hstack([self[index]["boxes"], self[index]["labels"][:, None]])
            return self[index]["image"].copy(), labels.astype(float), None, index

        def load_anno(self, index):
            return self.pull_item(index)[1]

    mosaics = object.__new__(library.MosaicDetection)
    vars(mosaics).update(
        _dataset=Source(PHOTOS), input_dim=(SIDE, SIDE), degrees=degrees, translate=0.1, shear=shear, scale=(0.5, 1.5),
        mixup_scale=(0.5, 1.5), enable_mosaic=True, enable_mixup=True, mosaic_prob=1.0, mixup_prob=1.0,
        preproc=lambda image, labels, _: (image, labels),
    )  # fmt: skip
    warp = pp.random_warp(
        degrees, (-0.1, 0.1) * 2, (0.5, 1.5) * 2, (-shear, shear) * 2, keep_ratio=True, like="yolox",
        height=SIDE, width=SIDE, fill=114,
    )  # fmt: skip
    chain = [FIT, pp.Mosaic(height=SIDE), warp, pp.MixUp(p=0.8, partner=YOLOX_PARTNER)]
    mixed = 0
    for epoch, index, (mosaic, affine, mixup), image, boxes, labels in batches(chain, pp.boxes(min_size=0)):
        (angle, x, y, scale), (_, lean_x, lean_y, _) = uniforms(warp, epoch, index).tolist()
        numbers = [-degrees + 2 * degrees * angle, 0.5 + scale]
        numbers += [-shear + 2 * shear * u for u in (lean_x, lean_y)] + [-0.1 + 0.2 * u for u in (x, y)]
        values.values = list(numbers)
        matrix, _ = augment.get_affine_matrix((SIDE, SIDE), degrees, 0.1, (0.5, 1.5), shear)
        assert np.array_equal(matrix.ravel(), affine["draws"]["random_warp#0"]["matrix"])
        of = [each["index"] for each in mosaic["of"]]
        values.values = [0.0, *(at + 0.5 for at in mosaic["mosaic"]), *of, *numbers, 0.0 if mixup else 2.0]
        mosaics.enable_mixup = bool(mixup)
        if mixup:
            (other,) = mixup["of"]
            size, flip, crop = other["mix"][0]["draws"].values()
            offsets = [crop[at] for at, side in (("top", "height"), ("left", "width")) if size[side] > SIDE]
            values.values[-1:] = [0.0, size["height"] / SIDE, float(flip["flip"]), other["index"], *offsets]
        found, theirs, *_ = mosaics.__getitem__(int(index))
        assert np.array_equal(image, found)
        mixed += bool(mixup)
        numbers = np.array([*PHOTOS[mixup["of"][0]["index"]]["labels"]] if mixup else [])
        if len({*theirs[:, 4]}) < len(theirs):  # a photo occurs twice, so labels do not identify its boxes
            continue
        own, its = ~np.isin(labels, numbers), ~np.isin(theirs[:, 4], numbers)
        for ours, their, by in ((own, its, matrix), (~own, ~its, np.eye(2, 3))):
            assert_same_boxes(boxes[ours], labels[ours], theirs[their, :4], theirs[their, 4], by, is_exact=degrees == 0)
    assert mixed > 0.6 * COUNT * EPOCHS


@pytest.fixture
def ultralytics(tmp_path, monkeypatch):
    """Return Ultralytics' classes for augmentations and boxes.

    Ultralytics is imported in this fixture, because it writes its settings into a folder on import.
    """
    if any(find_spec(name) is None for name in ("torch", "ultralytics")):
        pytest.skip("NO ULTRALYTICS: mosaics were not compared")
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("YOLO_AUTOINSTALL", "false")
    return import_module("ultralytics.data.augment"), import_module("ultralytics.utils.instance").Instances


def fitted(index):
    """Return a photo and its boxes after a resize to fit ``SIDE`` pixels."""
    one = PHOTOS[index]
    height, width = one["image"].shape[:2]
    scale = SIDE / max(height, width)
    image = cv2.resize(one["image"], (round(width * scale), round(height * scale)))
    return {**one, "image": image, "boxes": one["boxes"] * np.float32(scale)}


def ultralytics_labels(instances, index):
    """Return a photo and its boxes as Ultralytics loads them."""
    one = fitted(index)
    boxes = instances(one["boxes"], np.zeros((0, 1000, 2), np.float32), None, "xyxy", normalized=False)
    size = one["image"].shape[:2]
    shapes = {"ori_shape": size, "resized_shape": size}
    return {"img": one["image"], "cls": one["labels"][:, None], "instances": boxes, "im_file": "a.jpg", **shapes}


def ultralytics_mosaic(library, index, history):
    """Return Ultralytics' mosaic after its affine transform, with the random parameters of a Loader."""
    augment, instances = library
    mosaic, affine = history
    made = augment.Mosaic(SimpleNamespace(cache=None), imgsz=SIDE, p=1.0, n=4)
    labels = ultralytics_labels(instances, index)
    partners = [ultralytics_labels(instances, each["index"]) for each in mosaic["of"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "uniform", Values([at + 0.5 for at in mosaic["mosaic"]]).uniform)
        patch.setattr(augment.Mosaic, "get_indexes", lambda _: [0] * 3, raising=False)
        patch.setattr(augment.BaseMixTransform, "get_params", lambda *_: {})
        labels["mix_labels"] = partners
        params = made.get_params(labels)
    labels = made.apply_instances(made.apply_image(labels, params), params)
    warp = augment.RandomPerspective(size=(SIDE, SIDE))
    matrix = np.vstack([np.reshape(affine["draws"]["random_warp#0"]["matrix"], (2, 3)), [0, 0, 1]]).astype(np.float32)
    params = {"M": matrix, "scale": float(matrix[0, 0]), "orig_shape": labels["img"].shape[:2], "size": (SIDE, SIDE)}
    return warp.apply_instances(warp.apply_image(labels, params), params), matrix[:2].astype(float)


def test_a_chain_equals_ultralytics(ultralytics):
    augment, _ = ultralytics
    warp = pp.random_warp(
        0, (-0.1, 0.1) * 2, (0.5, 1.5) * 2, keep_ratio=True, like="ultralytics", height=SIDE, width=SIDE, fill=114
    )
    fit = pp.resize(SIDE, side="longer", rounding="up", like="opencv")
    chain = [fit, pp.Mosaic(height=SIDE), warp, pp.MixUp(p=0.5, alpha=32.0)]
    mixed = differing = kept = 0
    for epoch, index, (*history, mixup), image, boxes, labels in batches(chain, pp.boxes(min_size=2, min_visible=0.1)):
        (_, x, y, scale), _ = uniforms(warp, epoch, index).tolist()
        drawn = [0.0, 0.0, 0.0, 0.5 + scale, 0.0, 0.0, 0.4 + 0.2 * x, 0.4 + 0.2 * y]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(random, "uniform", Values(drawn).uniform)
            expected, _ = augment.RandomPerspective()._compute_affine_matrix(
                np.zeros((2 * SIDE, 2 * SIDE)), (SIDE, SIDE)
            )
        ours = np.reshape(history[1]["draws"]["random_warp#0"]["matrix"], (2, 3))
        np.testing.assert_allclose(ours, expected[:2], rtol=3e-7, atol=1e-5)
        found, matrix = ultralytics_mosaic(ultralytics, int(index), history)
        if mixup:
            (of,) = mixup["of"]
            other, other_matrix = ultralytics_mosaic(ultralytics, of["index"], of["mix"])
            count = len(found["cls"])
            mix = augment.MixUp(None, p=1.0)
            found["mix_labels"] = [other]
            found = mix.apply_instances(mix.apply_image(found, {"r": mixup["mixup"]}), {"r": mixup["mixup"]})
            mixed += 1
        assert np.array_equal(image, found["img"])
        theirs, their_labels = found["instances"].bboxes, found["cls"][:, 0]
        if mixup:
            if len({*their_labels}) < len(their_labels):
                continue  # a photo occurs twice, so labels do not identify its boxes
            own, its = np.isin(labels, their_labels[:count]), np.arange(len(their_labels)) < count
            assert_same_boxes(boxes[~own], labels[~own], theirs[~its], their_labels[~its], other_matrix, is_exact=False)
            own_boxes, own_labels, theirs, their_labels = boxes[own], labels[own], theirs[its], their_labels[its]
        else:
            own_boxes, own_labels = boxes, labels
        if len({*their_labels}) == len(their_labels):
            assert_same_boxes(own_boxes, own_labels, theirs, their_labels, matrix, is_exact=False)
            differing += len({*own_labels} ^ {*their_labels})
            kept += len(own_labels)
    assert differing < 0.02 * kept  # only boxes close to the limits of size and visible fraction
    assert 0.3 * COUNT * EPOCHS < mixed < 0.7 * COUNT * EPOCHS


class Boxes(np.ndarray):
    """Boxes with the methods of mmdetection's ``HorizontalBoxes`` that its mosaics call."""

    def rescale_(self, factors):
        self *= np.tile(factors, 2).astype(self.dtype)

    def translate_(self, distances):
        self += np.tile(distances, 2).astype(self.dtype)

    def clip_(self, size):
        self[:] = self.clip(0, np.array([size[1], size[0]] * 2, self.dtype))

    def is_inside(self, size):
        inside = (self[:, 0] < size[1]) & (self[:, 2] > 0) & (self[:, 1] < size[0]) & (self[:, 3] > 0)
        return SimpleNamespace(numpy=lambda: np.asarray(inside))

    def clone(self):
        return self.copy()

    @staticmethod
    def cat(boxes, dim=0):
        return np.concatenate(boxes, dim).view(Boxes)


def test_a_chain_with_caches_equals_mmdetection():
    """The pipeline is that of RTMDet, with a fixed crop in place of its random resize and crop."""
    values = Values()
    shared = {
        "np": np, "copy": copy, "random": values, "BaseTransform": object, "List": list, "Tuple": tuple,
        "mmcv": SimpleNamespace(imresize=cv2.resize), "Sequence": list,
        "log_img_scale": lambda *_, **__: None,
    }  # fmt: skip
    names = "Mosaic", "CachedMosaic", "CachedMixUp"
    library = definitions("mmdet/datasets/transforms/transforms.py", *names, **shared)
    chain = [FIT, pp.Mosaic(height=SIDE, recent=8), pp.center_crop(SIDE), pp.MixUp(recent=5)]
    mixed, last = 0, None
    for epoch, index, (mosaic, mixup), image, boxes, labels in batches(chain, pp.boxes()):
        if epoch != last:  # a Loader begins each epoch with empty caches
            last, done = epoch, []
            mosaics = library.CachedMosaic((SIDE, SIDE), max_cached_images=8, random_pop=False)
            mixups = library.CachedMixUp((SIDE, SIDE), (1, 1), flip_ratio=1.0, max_cached_images=5, random_pop=False)
        done.append(int(index))
        one = fitted(index)
        results = {
            "img": one["image"], "gt_bboxes": one["boxes"].view(Boxes), "gt_bboxes_labels": one["labels"],
            "gt_ignore_flags": np.zeros(3, bool),
        }  # fmt: skip
        values.values = [0.5]
        if mosaic:
            values.values += [done[-8:].index(each["index"]) for each in mosaic["of"]]
            values.values += [(at + 0.5) / SIDE for at in reversed(mosaic["mosaic"])]
        results = mosaics.transform(results)
        assert (len(done) > 4) == bool(mosaic)
        top, left = (round((side - SIDE) / 2) for side in results["img"].shape[:2])
        padded = np.pad(results["img"], ((SIDE, SIDE), (SIDE, SIDE), (0, 0)))
        results["img"] = padded[top + SIDE : top + 2 * SIDE, left + SIDE : left + 2 * SIDE]
        results["gt_bboxes"].translate_([-left, -top])
        results["gt_bboxes"].clip_((SIDE, SIDE))
        kept = np.asarray(results["gt_bboxes"][:, 2:] - results["gt_bboxes"][:, :2] >= 1).all(axis=1)
        results |= {name: results[name][kept] for name in ("gt_bboxes", "gt_bboxes_labels", "gt_ignore_flags")}
        if mixup:
            values.values = [0.5, done[-5:].index(mixup["of"][0]["index"]), 1.0, 0.5]
            results = mixups.transform(results)
            mixed += 1
        else:  # if the other image has no boxes, the library draws again, but pixprep keeps the image
            mixups.results_cache = [*mixups.results_cache, copy.deepcopy(results)][-5:]
        assert np.array_equal(image, results["img"].astype(np.uint8))
        theirs, their_labels = np.asarray(results["gt_bboxes"]), results["gt_bboxes_labels"]
        order, their_order = np.lexsort((boxes[:, 0], labels)), np.lexsort((theirs[:, 0], their_labels))
        assert labels[order].tolist() == their_labels[their_order].tolist()
        np.testing.assert_allclose(boxes[order], theirs[their_order], atol=1e-3)
    assert mixed > 0.8 * COUNT * EPOCHS
