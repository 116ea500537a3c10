"""Tests that masks follow their image's geometry: every label, the padding, the file formats, and masks together with
boxes.
"""

import io
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.annotations import annotated, columns
from pixprep.show.words import explain
from support.forged import chunk
from support.forged import png as forged
from support.images import jpeg, scene, with_exif

SIZE = (37, 53)
MASK = np.random.default_rng(8).integers(0, 200, SIZE, np.uint8)


def plan_of(*ops):
    return pp.Pipeline([pp.decode(), pp.center_crop(*SIZE), *ops, pp.tensor(only="training")]).for_training().plan


def run_sample(*ops, sample=None, index=0):
    """Return the result of the plan for a sample, and the random parameters of this sample."""
    sample = {"mask": MASK} if sample is None else sample
    plan = plan_of(*ops)
    (numbers,) = plan.draw(seed=1, epoch=0, indices=[index])
    placed = plan.placing(numbers, sample)(*SIZE)
    return annotated(plan, placed, sample), placed.draws


NEAREST = {"filter": "nearest", "like": "torchvision"}
CHAINS = {
    "window, resize, flip": [pp.random_resized_crop(24, 31, **NEAREST), pp.random_flip()],
    "margin before a resize": [
        *(pp.random_flip(), pp.random_zoom_out(p=1.0), pp.resize(height=20, width=44, **NEAREST)),
        pp.crop(1, 2, 15, 40),
    ],
    "margin after a resize": [pp.resize(height=20, width=30, **NEAREST), pp.pad(25, 34), pp.flip("vertical")],
    "rotation, crop": [pp.random_rotate(90), pp.center_crop(31)],
}
"""Geometries with torchvision's nearest neighbor, which masks use."""


@pytest.mark.parametrize(("dtype", "ignore"), [("uint8", 255), ("int64", 255), ("int64", -100)])
@pytest.mark.parametrize("name", CHAINS)
def test_each_label_follows_its_pixel(name, dtype, ignore):
    """The photo has the labels as pixel values, none of which is 0, and black margins."""
    labels, seen = MASK | 1, 0
    for index in range(12):
        fields, _ = run_sample(*CHAINS[name], pp.mask(dtype=dtype, ignore=ignore), index=index, sample={"mask": labels})
        photo = pp.apply(CHAINS[name], np.repeat(labels[:, :, None], 3, axis=2), seed=1, epoch=0, index=index)[:, :, 0]
        assert fields["mask"].dtype == dtype
        assert np.array_equal(fields["mask"], np.where(photo == 0, ignore, photo.astype(int)))
        seen += np.count_nonzero(photo == 0)
    assert (seen > 0) == (name != "window, resize, flip")


def test_labels_follow_a_subpixel_resize_like_dali():
    geometry, moved = [pp.resize(17, like="dali", filter="nearest"), pp.center_crop(9)], 0
    for size in [(height, width) for height in range(19, 60, 5) for width in range(20, 90, 3)]:
        mask = np.random.default_rng(size).integers(0, 200, size, np.uint8)
        sides = []
        for resize in (geometry[0], pp.resize(17, like="dali", filter="nearest", subpixel=False)):
            ops = [pp.decode(), resize, geometry[1], pp.mask(), pp.tensor(only="training")]
            plan = pp.Pipeline(ops).for_training().plan
            (numbers,) = plan.draw(seed=1, epoch=0, indices=[0])
            sides.append(annotated(plan, plan.placing(numbers, {"mask": mask})(*size), {"mask": mask})["mask"])
        with pp.Engine(pp.Pipeline([pp.decode(), *geometry, pp.tensor(dtype="uint8", layout="hwc")])) as engine:
            assert np.array_equal(sides[0], engine.run([stored(np.dstack([mask] * 3))])[0][:, :, 0]), size
        moved += not np.array_equal(*sides)
    assert moved > 20


@pytest.mark.parametrize(
    "part",
    [
        {"like": "dali", "roi": (3.2, 40.7, 17.9, 11.1)},
        {"like": "dali", "roi": (18.6, 0, 2, 20.5)},
        {"roi": (3.2, 11.1, 17.9, 40.7)},
        {"mode": "crop"},
    ],
)
def test_labels_follow_the_resized_region(part):
    mask = np.random.default_rng(1).integers(0, 200, (19, 43), np.uint8)
    ops = [pp.decode(), pp.resize(height=31, width=24, filter="nearest", **part), pp.flip()]
    plan = pp.Pipeline([*ops, pp.mask(), pp.tensor(only="training")]).for_training().plan
    (numbers,) = plan.draw(seed=1, epoch=0, indices=[0])
    labels = annotated(plan, plan.placing(numbers, {"mask": mask})(*mask.shape), {"mask": mask})["mask"]
    with pp.Engine(pp.Pipeline([*ops, pp.tensor("uint8", "hwc")])) as engine:
        assert np.array_equal(labels, engine.run([stored(np.dstack([mask] * 3))])[0][:, :, 0])


def test_colour_ops_and_erasing_do_not_change_labels():
    plain, _ = run_sample(pp.random_resized_crop(24), pp.mask())
    ops = [pp.random_resized_crop(24), pp.color_jitter(0.9), pp.random_solarize(128, p=1.0), pp.random_gaussian_blur(5)]
    after, _ = run_sample(*ops, pp.mask())
    assert np.array_equal(plain["mask"], after["mask"])
    ops = [pp.decode(), pp.random_resized_crop(24), pp.mask(), pp.normalize(), pp.random_erasing(p=1.0)]
    plan = pp.Pipeline([*ops, pp.tensor(only="training")]).for_training().plan
    (numbers,) = plan.draw(seed=1, epoch=0, indices=[0])
    sample = {"mask": MASK}
    assert np.array_equal(annotated(plan, plan.placing(numbers, sample)(*SIZE), sample)["mask"], plain["mask"])


def test_a_policy_moves_a_mask_like_the_image():
    """The photo's pixels are black or white by the parity of their labels, so nearest sampling shows where each label
    moved.
    """
    black_and_white = np.repeat((MASK % 2 * 255)[:, :, None], 3, axis=2)
    moved = 0
    for index in range(40):
        op = pp.trivial_augment(filter="nearest")
        fields, words = run_sample(op, pp.mask(ignore=0), index=index, sample={"mask": MASK % 2})
        (step,) = words["trivial_augment#0"]["ops"]
        if step["op"] in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"):
            tensor = pp.apply([op], black_and_white, seed=1, epoch=0, index=index)
            assert np.array_equal(fields["mask"], tensor[:, :, 0] // 255), step
            moved += 1
        else:
            assert np.array_equal(fields["mask"], MASK % 2), step
    assert moved > 5


# ------------------------------------------------------------------------------------------------ formats of masks


def stored(values, mode=None, bits=None):
    """Return a PNG that stores labels."""
    file, options = io.BytesIO(), {} if bits is None else {"bits": bits}
    image = Image.fromarray(values) if mode is None else Image.new(mode, values.shape[::-1])
    if mode is not None:
        image.putdata(values.ravel().tolist())
        image.putpalette([level * 7 % 256 for level in range(3 * (1 << (bits or 8)))])
    image.save(file, "PNG", **options)
    return file.getvalue()


def gray_of_bits(values, bits):
    """Return a gray PNG of 1, 2 or 4 bits per pixel, which Pillow cannot write."""
    digits = (values[:, :, None] >> np.arange(bits - 1, -1, -1) & 1).reshape(len(values), -1)
    rows = np.packbits(np.pad(digits, ((0, 0), (8, 0))).astype(np.uint8), axis=1)  # each row begins with a zero byte
    return forged(*values.shape, chunk(b"IDAT", zlib.compress(rows.tobytes())), depth=bits, color=0)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (MASK.tolist(), MASK),
        (MASK.astype(np.int32), MASK),
        (MASK > 99, MASK > 99),
        (Image.fromarray(MASK), MASK),
        (stored(MASK), MASK),
        (memoryview(stored(MASK)), MASK),
        (stored(MASK, "P"), MASK),
        (stored(MASK % 16, "P", bits=4), MASK % 16),
        (stored(MASK % 4, "P", bits=2), MASK % 4),
        *((gray_of_bits(MASK % (1 << bits), bits), MASK % (1 << bits)) for bits in (1, 2, 4)),
        (stored(MASK.astype(np.uint16)), MASK),
    ],
    ids=[
        *("list", "int32", "bool", "Pillow", "gray", "memoryview", "palette", "palette of 4 bits", "palette of 2 bits"),
        *("gray of 1 bit", "gray of 2 bits", "gray of 4 bits", "gray of 16 bits"),
    ],
)
def test_a_mask_can_have_any_of_these_formats(mask, expected):
    fields, _ = run_sample(pp.mask(), sample={"mask": mask})
    assert fields["mask"].dtype == np.uint8
    assert np.array_equal(fields["mask"], expected)


def test_labels_over_255_need_int64():
    wide = MASK.astype(np.uint16) * 300
    fields, _ = run_sample(pp.mask(dtype="int64"), sample={"mask": stored(wide)})
    assert np.array_equal(fields["mask"], wide)


# ------------------------------------------------------------------------------------------------ masks of objects


def test_masks_of_objects_follow_their_boxes():
    objects = np.stack([MASK > 50, MASK > 100, MASK > 150])
    sample = {"boxes": [[1, 1, 9, 9], [40, 1, 50, 9], [2, 2, 8, 30]], "labels": [1, 2, 3], "masks": objects}
    fields, _ = run_sample(pp.crop(0, 0, 37, 20), pp.boxes(), pp.masks(), sample=sample)
    assert fields["labels"].tolist() == [1, 3]
    assert fields["masks"].dtype == np.uint8
    assert np.array_equal(fields["masks"], objects[[0, 2], :, :20])
    fields, _ = run_sample(pp.crop(0, 0, 37, 20), pp.boxes(pad=3), pp.masks(), sample=sample)
    assert np.array_equal(fields["masks"], [*objects[[0, 2], :, :20], np.zeros((37, 20))])
    fields, _ = run_sample(pp.pad(40, 60), pp.masks(), sample=sample)
    assert np.array_equal(fields["masks"], np.pad(objects, ((0, 0), (1, 2), (3, 4))))
    fields, _ = run_sample(pp.rotate(180), pp.masks(), sample={"masks": objects[:0]})
    assert fields["masks"].shape == (0, *SIZE)


# ------------------------------------------------------------------------------------------------------ the batch


PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(24, 20),
        pp.random_flip(),
        pp.mask(),
        pp.tensor(dtype="uint8", only="training"),
    ]
).for_training()


def photos(folder, count=6):
    """Return a list of samples whose images and masks are files. Each label equals the image's pixel value at the same
    position.
    """
    samples = []
    for index in range(count):
        levels = np.full((40 + index, 50, 3), 10 * index, np.uint8)
        levels[:, 25:] += 5
        (folder / f"{index}.jpg").write_bytes(jpeg(levels, quality=100))
        (folder / f"{index}.png").write_bytes(stored(levels[:, :, 0]))
        samples.append({"image": folder / f"{index}.jpg", "mask": folder / f"{index}.png"})
    return samples


def test_a_loader_returns_masks_as_one_array_and_replays_them(tmp_path, caplog):
    with pp.Loader(photos(tmp_path), PIPELINE, batch_size=3, shuffle=True) as loader:
        for batch in loader:
            assert batch["mask"].shape == (3, 24, 20)
            assert batch["mask"].dtype == np.uint8
            near = np.abs(batch["tensor"][:, 0].astype(int) - batch["mask"]) <= 1
            assert near.mean() > 0.9  # the filter blends pixel values at edges
            for row, index in enumerate(batch["index"]):
                assert np.array_equal(loader.replay(0, int(index))["mask"][0], batch["mask"][row])
    assert "no op moves" not in caplog.text


def test_masks_of_different_sizes_are_a_list(tmp_path):
    ops = [pp.decode(), pp.mask(name="whole"), pp.resize(height=24, width=20), pp.mask(name="target"), pp.tensor()]
    with pp.Loader(photos(tmp_path), pp.Pipeline(ops).for_training(), batch_size=6) as loader:
        (batch,) = loader
    assert [each.shape for each in batch["whole"]] == [(40 + index, 50) for index in range(6)]
    assert batch["target"].shape == (6, 24, 20)
    assert "mask" not in batch.fields


def test_an_unreadable_mask_breaks_only_its_sample(tmp_path):
    samples = photos(tmp_path)
    samples[2]["mask"] = Path(tmp_path / "missing.png")
    with pp.Loader(samples[:5], PIPELINE, batch_size=5, on_error="skip", max_errors=1.0) as loader:
        (batch,) = loader
        assert sorted(batch["index"].tolist()) == [0, 1, 3, 4]
        (broken,) = loader.errors
    assert broken.error.reason == "UNREADABLE"
    assert '2.jpg, "mask"' in str(broken.error)
    assert batch["mask"].shape == (4, 24, 20)
    with (
        pp.Loader([{"image": samples[0]["image"]}], PIPELINE, batch_size=1) as loader,
        pytest.raises(pp.PipelineError, match='requires "mask", but the samples of its source do not contain it'),
    ):
        next(iter(loader))


def test_masks_are_read_by_several_threads_at_once():
    both = threading.Barrier(2)

    class Waiting:
        shape = SIZE

        def __array__(self, *_, **__):
            both.wait(20)
            return MASK

    image = jpeg(scene(*SIZE))
    batches = []
    for mask, threads in ((Waiting(), 2), (MASK, 1)):
        samples = [{"image": image, "mask": mask}] * 2
        with pp.Loader(samples, PIPELINE, batch_size=2, threads=threads, seed=3) as loader:
            batches += loader
    assert np.array_equal(*(batch["mask"] for batch in batches))


def test_a_rotated_photo_uses_the_mask_of_the_oriented_photo():
    photo = with_exif(6)  # the stored image is 24 x 40
    pipeline = pp.Pipeline(
        [pp.decode(), pp.mask(name="whole"), pp.center_crop(8), pp.mask(), pp.tensor()]
    ).for_training()
    with pp.Loader([{"image": photo, "mask": np.zeros((40, 24), np.uint8)}], pipeline, batch_size=1) as loader:
        (batch,) = loader
        assert batch["whole"][0].shape == (40, 24)


def test_explain_states_that_labels_are_never_blended():
    ops = [pp.decode(), pp.resize(height=24, width=20), pp.mask(ignore=0), pp.masks(), pp.tensor()]
    said = explain(pp.Pipeline(ops).for_training())
    assert "mask: label of each pixel, resized by nearest neighbor, uint8, 0 outside of the image" in said
    assert "masks: mask of each object, resized by nearest neighbor, uint8, 0 outside of the image" in said


def test_an_image_without_a_result_has_only_the_ignored_label():
    plan = plan_of(pp.resize(height=6, width=7), pp.mask(ignore=9))
    together = columns(plan, [{"mask": np.zeros((6, 7), np.uint8)}, None])["mask"]
    assert together[1].tolist() == [[9] * 7] * 6


def test_a_jpeg_is_rejected_as_a_mask():
    with pytest.raises(pp.ImageError, match=r'^\[BAD_RECORD\] "mask": Pillow cannot read the file as a PNG'):
        run_sample(pp.mask(), sample={"mask": jpeg(scene(*SIZE))})
