"""Tests mosaic and copy-paste: every pixel, box and mask must be at the position that ``batch["mix"]`` specifies."""

import numpy as np
import pytest

import pixprep as pp
from support.loading import same

SIDE, COUNT = 32, 12


def pipeline(*, pad=None, layout="chw", dtype="float32", **options):
    boxes = pp.boxes(pad=pad, **options)
    ops = [pp.pixels(), pp.center_crop(height=SIDE, width=SIDE), boxes, pp.masks(), pp.mask()]
    return pp.Pipeline(
        [*ops, pp.normalize(mean=0, std=1, scale=1), pp.tensor(layout=layout, dtype=dtype)]
    ).for_training()


def photos(count=COUNT, objects=3):
    """Return photos of dark noise with bright rectangles as objects.

    The red value of an object is 100 plus its number among the objects of all photos.
    """
    rng = np.random.default_rng(5)
    for index in range(count):
        image = rng.integers(0, 90, (SIDE, SIDE, 3), np.uint8)
        masks, boxes, labels = [], [], []
        for number in range(index * objects, (index + 1) * objects):
            top, left = rng.integers(0, SIDE - 6, 2)
            bottom, right = top + rng.integers(3, 6), left + rng.integers(3, 6)
            mask = np.zeros((SIDE, SIDE), np.uint8)
            mask[top:bottom, left:right] = 1
            image[top:bottom, left:right, 0] = 100 + number
            masks = [old * (1 - mask) for old in masks] + [mask]
            boxes.append((left, top, right, bottom))
            labels.append(100 + number)
        fields = {"boxes": np.array(boxes, np.float32), "labels": np.array(labels), "masks": np.array(masks)}
        yield {"image": image, "mask": image[..., 0], **fields, "box_double": 2 * np.array(labels)}


def loader(mix, made=None, **options):
    source = list(photos())
    return pp.Loader(source, made or pipeline(), **{"batch_size": 6, "threads": 1, "seed": 3, "mix": mix} | options)


def check(batch):
    """Raise an error if a box or a mask does not match the object that the pixels show."""
    for row in range(len(batch)):
        red = batch["tensor"][row, 0]
        assert (batch["mask"][row] == red).all()
        assert (batch["box_double"][row] == 2 * batch["labels"][row]).all()
        assert set(np.unique(red[red >= 100])) <= set(batch["labels"][row].tolist())
        for box, label, mask in zip(*(batch[name][row] for name in ("boxes", "labels", "masks")), strict=True):
            left, top, right, bottom = box.astype(int)
            outside = mask.copy()
            outside[top:bottom, left:right] = 0
            assert outside.sum() == 0
            assert mask.sum() > 0 or (red[top:bottom, left:right] >= 100).all()  # other objects cover this one
            assert (red[mask > 0] == label).all()


@pytest.mark.parametrize("layout", ["chw", "hwc", "w1ch"])
def test_a_mosaic_shows_four_images_around_its_centre(layout):
    with loader(pp.Mosaic(), pipeline(layout=layout)) as mosaics, loader(None, pipeline(layout=layout)) as plain:
        for batch, before in zip(mosaics, plain, strict=True):
            images = {index: before["tensor"][row] for row, index in enumerate(before["index"].tolist())}
            axes = [1 + layout.index(axis) for axis in "hw"]
            shown = np.moveaxis(batch["tensor"], axes, (1, 2))
            for row, words in enumerate(batch["mix"]):
                (y, x), first = words["mosaic"], words["of"][0]
                assert (first, len({*words["of"]})) == (batch["index"][row], 4)
                for at in np.ndindex(SIDE, SIDE):
                    below, right = at[0] >= y, at[1] >= x
                    tile = np.moveaxis(images[words["of"][2 * below + right]], [axis - 1 for axis in axes], (0, 1))
                    inner = at[0] - y + SIDE * (not below), at[1] - x + SIDE * (not right)
                    assert (shown[row][at] == tile[inner]).all()


@pytest.mark.parametrize("mix", [pp.Mosaic(), pp.Mosaic(p=0.5), pp.CopyPaste(), pp.CopyPaste(p=0.3)])
def test_boxes_and_masks_match_their_objects(mix):
    with loader(mix) as ours:
        done = 0
        for _ in range(3):
            for batch in ours:
                check(batch)
                done += sum(map(bool, batch["mix"]))
        assert 0.6 * mix.p * 3 * COUNT < done <= 3 * COUNT * min(1, 1.5 * mix.p)


def test_copy_paste_removes_hidden_areas_from_masks():
    with loader(pp.CopyPaste()) as pasting, loader(None) as plain:
        hidden = 0
        for batch, before in zip(pasting, plain, strict=True):
            rows = {index: row for row, index in enumerate(before["index"].tolist())}
            for row, words in enumerate(batch["mix"]):
                other = rows[words["of"]] if words else None
                new = before["masks"][other][words["pasted"]].any(axis=0) if words else np.zeros((SIDE, SIDE), bool)
                source = before["tensor"][other] if words else 0
                assert (batch["tensor"][row] == np.where(new, source, before["tensor"][row])).all()
                left = [mask for mask in before["masks"][row] * ~new if mask.any()]
                hidden += len(before["masks"][row]) - len(left)
                assert len(batch["boxes"][row]) >= len(left)
        assert hidden


@pytest.mark.parametrize("mix", [pp.Mosaic(), pp.CopyPaste()])
def test_padded_and_normalized_boxes_are_equal(mix):
    made = pipeline(pad=40, normalized=True, format="cxcywh")
    with loader(mix) as plain, loader(mix, made) as padded:
        for one, other in zip(plain, padded, strict=True):
            assert (one["tensor"] == other["tensor"]).all()
            for row, boxes in enumerate(one["boxes"]):
                count = len(boxes)
                expected = pp.boxes_to_tensor(boxes, (1, 1, 0, 0))
                middle, sides = (expected[:, :2] + expected[:, 2:]) / 2, expected[:, 2:] - expected[:, :2]
                np.testing.assert_allclose(other["boxes"][row, :count] * SIDE, np.hstack([middle, sides]), atol=1e-4)
                assert (other["boxes"][row, count:] == -1).all()
                assert (other["labels"][row, :count] == one["labels"][row]).all()
                assert (other["labels"][row, count:] == -1).all()
                assert (other["masks"][row, :count] == one["masks"][row]).all()


def test_small_and_mostly_hidden_boxes_are_removed():
    with loader(pp.Mosaic()) as all_, loader(pp.Mosaic(), pipeline(min_size=3, min_visible=0.5)) as some:
        counts = [sum(len(boxes) for batch in each for boxes in batch["boxes"]) for each in (all_, some)]
    with loader(pp.Mosaic(), pipeline(min_size=3, min_visible=0.5)) as some:
        for batch in some:
            check_sides = np.concatenate(batch["boxes"])
            assert (check_sides[:, 2:] - check_sides[:, :2] >= 3).all()
    assert 0 < counts[1] < counts[0]
    with loader(pp.Mosaic(), pipeline(min_area=20)) as some:
        sides = np.concatenate([boxes[:, 2:] - boxes[:, :2] for batch in some for boxes in batch["boxes"]])
    assert 0 < len(sides) < counts[0]
    assert (sides.prod(axis=1) >= 20).all()


@pytest.mark.parametrize("mix", [pp.Mosaic(p=0.7), pp.CopyPaste(p=0.7)])
def test_a_resumed_epoch_repeats_the_same_combinations(mix):
    with loader(mix, shuffle=True, batch_size=4) as whole, loader(mix, shuffle=True, batch_size=4) as again:
        batches = iter(whole)
        next(batches)
        state = whole.state_dict()
        again.load_state_dict(state)
        for one, other in zip(batches, again, strict=True):
            assert same(one, other)
            assert one["mix"] == other["mix"]
            assert all(map(np.array_equal, one["boxes"], other["boxes"]))


@pytest.mark.parametrize("mix", [pp.Mosaic(), pp.CopyPaste()], ids=["mosaic", "copy-paste"])
def test_an_image_with_more_boxes_than_rows_is_unchanged(mix, caplog):
    stayed = []
    with loader(None, pipeline()) as plain, loader(mix, pipeline()) as free, loader(mix, pipeline(pad=4)) as padded:
        for before, other, batch in zip(plain, free, padded, strict=True):
            for row, words in enumerate(other["mix"]):
                count = len(other["boxes"][row])
                stays = count > 4 or not words
                assert batch["mix"][row] == ({} if stays else words)
                expected = before if stays else other
                assert np.array_equal(batch["tensor"][row], expected["tensor"][row])
                assert np.array_equal(batch["mask"][row], expected["mask"][row])
                rows = len(expected["boxes"][row])
                assert np.array_equal(batch["boxes"][row][:rows], expected["boxes"][row])
                assert batch["labels"][row].tolist() == expected["labels"][row].tolist() + [-1] * (4 - rows)
                stayed.append(count > 4)
    assert {*stayed} == {True, False}
    words = (
        f'{type(mix).__name__}: images with more boxes than "pad": 4 remain unchanged: increase "pad" of the op boxes'
    )
    assert caplog.messages.count(words) == 1


def test_attributes_of_only_some_boxes_are_rejected():
    source = list(photos())
    del source[4]["box_double"]
    refused = pytest.raises(pp.DataError, match='some samples have no "box_double"')
    with pp.Loader(source, pipeline(), batch_size=6, mix=pp.Mosaic()) as ours, refused:
        list(ours)
