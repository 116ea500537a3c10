"""Tests random choices: the result must equal that of the chosen ops without the choice."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.verify.drawn import settled, steps
from pixprep.show.words import explain
from support.images import jpeg, scene

PHOTOS = [jpeg(scene(90 + 4 * i, 120 - 3 * i)) for i in range(6)]
SAMPLES = [{"image": PHOTOS[i % 6], "boxes": [[9, 8, 40, 30], [50, 20, 80, 60]], "labels": [1, 2]} for i in range(60)]
CROP = pp.random_resized_crop(32, scale=(0.4, 1.0), p=0.9)
CHAINS = {
    "geometry": [pp.random_choice([CROP, [pp.resize(40), pp.random_crop(32)], []], weights=[1, 2, 1])],
    "filters": [
        pp.random_choice([pp.random_resized_crop(32, filter=each) for each in ("nearest", "bilinear", "bicubic")])
    ],
    "detr": [
        pp.random_choice(
            [
                pp.random_shortest_size((48, 64), 80),
                [pp.random_shortest_size((50, 60)), pp.random_size_crop(30, 55), pp.random_shortest_size((48, 64), 80)],
            ]
        )
    ],
    "levels": [
        pp.random_order([pp.invert(), [pp.color_jitter(brightness=0.5), pp.posterize(3)], pp.gaussian_blur(3, 1.0)]),
        pp.random_choice([pp.random_rotate(20), pp.random_affine(10, p=0.5), pp.solarize(99)], p=0.75),
    ],
    "nested": [
        pp.random_apply([pp.random_choice([pp.random_flip(p=1.0), pp.random_apply([pp.invert()], p=0.5)])], p=0.8),
        pp.random_order([pp.random_flip("vertical"), pp.random_crop(60, p=0.5)]),
    ],
    "boxes": [pp.random_apply([pp.random_zoom_out(p=1.0), pp.random_iou_crop()], p=0.7), pp.random_rotate(9, p=0.5)],
    "resizes": [pp.random_shortest_size((32, 48), p=0.5), pp.rand_augment(p=0.5)],
    "erasing": [pp.random_apply([pp.autocontrast(), pp.random_erasing(p=1.0)], p=0.5)],
}


def loader(ops, **options):
    made = [pp.decode(), *ops, pp.center_crop(96), pp.boxes(), pp.tensor(only="training")]
    return pp.Loader(SAMPLES, pp.Pipeline(made).for_training(), batch_size=60, seed=5, **options)


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("boxes", "erasing")])
def test_a_choice_equals_its_chosen_ops(name):
    """Each sample is compared with a fixed pipeline. Chains with a canvas, a crop by boxes or an erase are excluded,
    because these have no fixed op.
    """
    one = loader(CHAINS[name])
    (batch,) = one
    for row, draws in enumerate(batch.draws):
        *_, (_, _, last) = steps(settled(one.pipeline, draws), SAMPLES[row]["image"])
        assert np.array_equal(last["tensor"][0], batch["tensor"][row]), draws


@pytest.mark.parametrize("ops", CHAINS.values(), ids=CHAINS)
def test_a_sample_is_replayed_whatever_was_chosen(ops):
    one = loader(ops)
    (batch,) = one
    for row in (0, 17, 41):
        again = one.replay(0, row)
        assert again.draws[0] == batch.draws[row]
        assert np.array_equal(again["tensor"][0], batch["tensor"][row])
        assert np.array_equal(again["boxes"][0], batch["boxes"][row])
    others = next(iter(loader(ops, threads=1)))
    assert [*others.draws] == [*batch.draws]


@pytest.mark.parametrize("kind", [pp.random_apply, pp.random_choice, pp.random_order])
@pytest.mark.parametrize(
    "op", [pp.warp(matrix=((1, 0, 0), (0, 1, 0)), height=40, width=50), pp.rotate(90, expand=True)]
)
def test_an_op_that_changes_the_size_is_not_a_step_on_pixel_values(kind, op):
    """The tensor of each sample must have the size that the chosen op produces."""
    ops = [
        pp.decode(),
        pp.resize(height=30, width=44),
        kind([op, pp.invert()]),
        pp.tensor(max_size=99, only="training"),
    ]
    pipeline = pp.Pipeline(ops).for_training()
    (batch,) = pp.Loader(SAMPLES, pipeline, batch_size=60)
    sizes = {each.shape[1:] for each in batch["tensor"]}
    done = (40, 50) if isinstance(op, pp.warp) else (44, 30)
    assert sizes == ({done} if kind is pp.random_order else {done, (30, 44)})


def test_neither_parts_nor_p_change_the_numbers_of_other_ops():
    def draws(*ops):
        plan = pp.Pipeline([pp.decode(), *ops, pp.center_crop(4), pp.tensor(only="training")]).for_training().plan
        return [plan.placing(each)(50, 60).draws for each in plan.draw(seed=2, epoch=1, indices=range(40))]

    turn, jitter = pp.random_rotate(30), pp.color_jitter(brightness=0.5)
    alone = draws(turn)
    for row, each in enumerate(draws(jitter, pp.random_rotate(30, p=0.5))):
        assert each.get("random_rotate#0", alone[row]["random_rotate#0"]) == alone[row]["random_rotate#0"]
    key = "random_choice#0.0.random_rotate#0"
    some, others = draws(pp.random_choice([turn, []])), draws(pp.random_choice([[turn, jitter], pp.invert(), jitter]))
    pairs = [(a[key], b[key]) for a, b in zip(some, others, strict=True) if key in a and key in b]
    assert pairs
    assert all(a == b for a, b in pairs)


def test_boxes_and_masks_follow_the_chosen_ops():
    mask = np.zeros((60, 80), np.uint8)
    mask[10:30, 20:60] = 1
    source = [{"image": jpeg(scene(60, 80)), "boxes": [[20, 10, 60, 30]], "labels": [1], "mask": mask}] * 40
    choice = pp.random_choice(
        [pp.resize(height=30, width=40), [pp.crop(5, 10, 50, 60), pp.resize(height=25, width=30)]]
    )
    ops = [pp.decode(), choice, pp.random_flip(), pp.boxes(), pp.mask(), pp.tensor(only="training")]
    with pp.Loader(source, pp.Pipeline(ops).for_training(), batch_size=40) as one:
        (batch,) = one
    assert {each.shape for each in batch["tensor"]} == {(3, 30, 40), (3, 25, 30)}
    for boxes, labels in zip(batch["boxes"], batch["mask"], strict=True):
        rows, columns = np.nonzero(labels == 1)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert np.abs(boxes[0] - found).max() <= 0.5


def test_apply_samples_the_same_as_a_loader():
    pixels = scene(90, 120)
    ops = [*CHAINS["geometry"], *CHAINS["levels"]]
    ops += [pp.center_crop(50)]
    made = pp.Pipeline([pp.pixels(), *ops, pp.tensor(dtype="uint8", layout="hwc", only="training")]).for_training()
    with pp.Loader([{"image": pixels}] * 20, made, batch_size=20, seed=3) as one:
        (batch,) = one
    for index, tensor in enumerate(batch["tensor"]):
        assert np.array_equal(pp.apply(ops, pixels, seed=3, index=index), tensor)


def test_explain_lists_the_ops_of_a_choice():
    made = pp.Pipeline([pp.decode(), *CHAINS["geometry"], pp.center_crop(8), pp.boxes(), pp.tensor()]).for_training()
    text = explain(made)
    assert "where random_choice#0 chooses 1" in text
    assert "crop a random window of 32 x 32" in text
    assert "ops [random_resized_crop, [resize, random_crop], []]" in text
