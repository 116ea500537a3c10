"""Tests chains of mosaic, mixup and copy-paste: every pixel, box, point and mask must be at the position that
``batch["mix"]`` specifies, and every run repeats the same result.
"""

import json

import numpy as np
import pytest

import pixprep as pp
from support.images import jpeg, png, scene
from support.loading import same

SIDE, COUNT = 32, 12
LABELS = ("boxes", "labels", "masks", "points", "box_double")


def pipeline(**options):
    ops = [pp.pixels(), pp.boxes(**options), pp.points(), pp.masks(), pp.mask(), pp.target(field="depth", ignore=-1)]
    return pp.Pipeline([*ops, pp.tensor(layout="hwc", dtype="uint8", max_size=128)]).for_training()


def photos(count=COUNT, objects=3):
    """Yield photos of dark noise with bright rectangles as objects.

    The red value of an object is 100 plus its number among the objects of all photos. The target ``depth`` is the red
    value.
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
        boxes = np.array(boxes, np.float32)
        fields = {
            "boxes": boxes,
            "labels": np.array(labels),
            "masks": np.array(masks),
            "points": boxes.reshape(-1, 2, 2),
        }
        yield {
            "image": image,
            "mask": image[..., 0],
            "depth": image[..., 0] * 1.0,
            **fields,
            "box_double": 2 * np.array(labels),
        }


SOURCE = list(photos())


def loader(mix, made=None, source=SOURCE, **options):
    options = {"batch_size": 4, "threads": 1, "seed": 3, "mix": mix, "shuffle": True} | options
    return pp.Loader(source, made or pipeline(), **options)


def repeated(one, other):
    """Return whether two batches are equal, including their annotations and the parameters of the chain."""
    names = [name for name in (*LABELS, "mask", "target") if name in one]
    equal = all(np.array_equal(*pair) for name in names for pair in zip(one[name], other[name], strict=True))
    return same(one, other) and equal and one["mix"] == other["mix"]


def check(batch):
    """Assert that every annotation matches the pixels of its object."""
    for row in range(len(batch)):
        red = batch["tensor"][row][..., 0]
        inside = batch["mask"][row] != 255
        assert (batch["mask"][row][inside] == red[inside]).all()
        assert (batch["target"][row][0][inside] == red[inside]).all()
        assert (batch["target"][row][0][~inside] == -1).all()
        assert (batch["box_double"][row] == 2 * batch["labels"][row]).all()
        for box, label, mask in zip(*(batch[name][row] for name in LABELS[:3]), strict=True):
            left, top, right, bottom = box.astype(int)
            outside = mask.copy()
            outside[top:bottom, left:right] = 0
            assert outside.sum() == 0
            assert (red[mask > 0] == label).all()
            assert mask.sum() > 0 or (red[top:bottom, left:right] >= 100).all()  # other objects cover this one


def test_a_mosaic_shows_four_images_around_its_centre():
    with loader(pp.Mosaic(height=20, width=24, fill=7)) as mosaics:
        for batch in mosaics:
            check(batch)
            for row, (words,) in enumerate(batch["mix"]):
                (y, x), shown = words["mosaic"], batch["tensor"][row]
                of = [batch["index"][row], *(each["index"] for each in words["of"])]
                canvas = np.full((200, 200, 3), 7, np.uint8)
                points = []
                for number, index in enumerate(of):
                    top, left = 80 + y - SIDE * (number < 2), 80 + x - SIDE * (number % 2 == 0)
                    canvas[top : top + SIDE, left : left + SIDE] = SOURCE[index]["image"]
                    points += [*(SOURCE[index]["points"] + (left - 80, top - 80))]
                assert np.array_equal(shown, canvas[80:120, 80:128])
                corners = np.concatenate(points).reshape(-1, 2, 2)
                visible = ((corners > 0).any(1) & (corners < (48, 40)).any(1)).all(1)
                assert sorted(map(tuple, corners[visible].reshape(-1, 4))) == sorted(
                    map(tuple, batch["points"][row].reshape(-1, 4))
                )


def test_partners_are_drawn_from_the_whole_source():
    with loader(pp.Mosaic(height=SIDE)) as mosaics:
        drawn = [
            each["index"] for _ in range(12) for batch in mosaics for words in batch["mix"] for each in words[0]["of"]
        ]
    counts = np.bincount(drawn, minlength=COUNT)
    assert counts.sum() == 12 * COUNT * 3
    assert (abs(counts - 36) < 24).all()


def test_copy_paste_hides_the_objects_below():
    hidden = done = 0
    with loader(pp.CopyPaste(p=0.8)) as pasting:
        for _ in range(4):
            for batch in pasting:
                check(batch)
                for row, (words,) in enumerate(batch["mix"]):
                    if not words:
                        assert np.array_equal(batch["tensor"][row], SOURCE[batch["index"][row]]["image"])
                        continue
                    own, other = SOURCE[batch["index"][row]], SOURCE[words["of"][0]["index"]]
                    pasted = np.isin(other["labels"], batch["labels"][row])
                    new = other["masks"][pasted].any(axis=0)
                    if own is not other:
                        expected = np.where(new[:, :, None], other["image"], own["image"])
                        assert np.array_equal(batch["tensor"][row], expected)
                        hidden += (own["masks"] * new).any()
                        done += 1
    assert done > 20
    assert hidden > 3


@pytest.mark.parametrize("partner", [None, [], [pp.flip("vertical")]])
def test_mixup_keeps_the_objects_of_both_images(partner):
    made = pp.Pipeline([pp.pixels(), pp.boxes(), pp.tensor(layout="hwc", dtype="uint8", max_size=64)]).for_training()
    with loader([pp.flip(), pp.MixUp(p=0.7, alpha=2.0, partner=partner)], made) as mixing:
        mixed = 0
        for _ in range(3):
            for batch in mixing:
                for row, (words,) in enumerate(batch["mix"]):
                    own = SOURCE[batch["index"][row]]["image"][:, ::-1]
                    other = SOURCE[words["of"][0]["index"]]["image"] if words else own
                    if words and partner != []:
                        other = other[:, ::-1] if partner is None else other[::-1]
                    weight = words.get("mixup", 1.0)
                    assert np.array_equal(batch["tensor"][row], (own * weight + other * (1 - weight)).astype(np.uint8))
                    assert len(batch["boxes"][row]) == len(batch["labels"][row]) == (6 if words else 3)
                    mixed += bool(words)
    assert 15 < mixed < 36


AUGMENTED = [
    *(pp.random_flip(), pp.Mosaic(height=16, width=20), pp.random_rotate(20), pp.random_crop(24, 30)),
    *(pp.CopyPaste(p=0.6), pp.random_affine(9)),
]
CACHED = [pp.random_flip(), pp.Mosaic(height=16, recent=6), pp.random_crop(24, 24), pp.CopyPaste(recent=4), pp.flip()]


@pytest.mark.parametrize("stages", [AUGMENTED, CACHED], ids=["whole source", "recent samples"])
def test_a_chain_depends_only_on_seed_epoch_and_sample(stages):
    with loader(stages) as whole:
        expected = [list(whole) for _ in range(2)]
        assert json.loads(json.dumps(expected[0][0]["mix"])) == expected[0][0]["mix"]
        for batch in expected[1]:
            for row in range(len(batch)):
                again = whole.replay(1, int(batch["index"][row]), int(batch["attempt"][row]))
                assert np.array_equal(again["tensor"][0], batch["tensor"][row])
                assert again["mix"][0] == batch["mix"][row]
                assert np.array_equal(again["boxes"][0], batch["boxes"][row])
    with loader(stages, threads=3, prefetch=1) as other:
        assert all(map(repeated, expected[0], other))
        next(other)
        state = other.state_dict()
    with loader(stages) as resumed:
        resumed.load_state_dict(state)
        assert all(map(repeated, expected[1][1:], resumed))
    tensors = {tensor.tobytes() for batches in expected for batch in batches for tensor in batch["tensor"]}
    assert len(tensors) == 2 * COUNT


def test_the_whole_source_gives_equal_images_for_any_batch_size_and_shards():
    def rows(**options):
        with loader(AUGMENTED, **options) as ours:
            return {
                (int(i), t.tobytes()) for batch in ours for i, t in zip(batch["index"], batch["tensor"], strict=True)
            }

    assert rows() == rows(batch_size=3) == rows(batch_size=2, shard=(0, 2)) | rows(batch_size=2, shard=(1, 2))


def test_recent_partners_are_the_samples_before_an_image_in_its_shard():
    for rank in range(2):
        with loader(pp.Mosaic(height=SIDE, recent=5), shard=(rank, 2), batch_size=2) as ours:
            seen = []
            for batch in ours:
                for index, (words,) in zip(batch["index"].tolist(), batch["mix"], strict=True):
                    seen.append(index)
                    assert bool(words) == (len(seen) > 4)
                    assert {each["index"] for each in words.get("of", ())} <= {*seen[-5:]}


def test_recent_samples_are_read_once():
    class Counting(list):
        reads = 0

        def __getitem__(self, index):
            Counting.reads += 1
            return super().__getitem__(index)

    with loader(pp.Mosaic(height=SIDE, recent=12), source=Counting(SOURCE)) as ours:
        list(ours)
        assert Counting.reads == COUNT
        list(ours)
        assert Counting.reads == 2 * COUNT


def test_a_chain_ends_in_its_last_epochs():
    chain = pp.Chain([pp.Mosaic(height=SIDE), pp.random_crop(40)], until=2, then=[pp.random_crop(20)])
    with loader(chain) as ours:
        shapes = [{image.shape for batch in ours for image in batch["tensor"]} for _ in range(4)]
        assert shapes == [{(40, 40, 3)}] * 2 + [{(20, 20, 3)}] * 2
        assert ours.replay(3, 0)["mix"][0][0]["draws"].keys() == {"random_crop#0"}
        ours.set_epoch(1)
        assert next(ours)["tensor"][0].shape[0] == 40


@pytest.mark.parametrize("on_error", ["raise", "replace", "skip"])
def test_a_broken_partner_is_replaced(on_error):
    source = [{"image": jpeg(scene(40, 40, seed=index)), "name": f"photo {index}"} for index in range(COUNT)]
    source[7]["image"] = source[7]["image"][:200]
    made = pp.Pipeline([pp.decode(), pp.tensor(dtype="uint8", max_size=128)]).for_training()
    options = {"on_error": on_error, "max_errors": 1, "source": source, "mix": pp.Mosaic(height=40), "batch_size": 3}
    with loader(made=made, **options) as ours:
        if on_error == "raise":
            with pytest.raises(pp.ImageError, match="photo 7"):
                list(ours)
            return
        batches = list(ours)
        assert [each.name for each in ours.errors] == ["photo 7"]
        assert sum(map(len, batches)) == COUNT - (on_error == "skip")
        shown = {each["index"] for batch in batches for words in batch["mix"] for each in words[0]["of"]}
        assert 7 not in shown
        assert len(shown) > 8
        for batch in batches:
            again = ours.replay(0, int(batch["index"][0]), int(batch["attempt"][0]))
            assert np.array_equal(again["tensor"][0], batch["tensor"][0])


def test_files_and_cached_pixels_give_the_same_images(tmp_path):
    source, sized = [], [{**one, "size": (SIDE, SIDE)} for one in SOURCE]
    for index, one in enumerate(sized):
        for name, values in (("image", one["image"]), ("mask", one["mask"])):
            (tmp_path / f"{index}-{name}.png").write_bytes(png(np.atleast_3d(values)))
        paths = {name: tmp_path / f"{index}-{name}.png" for name in ("image", "mask")}
        source.append({**one, **paths})
    made = pp.Pipeline([pp.decode(), *pipeline().ops[1:]]).for_training()
    with loader(AUGMENTED, source=sized) as arrays, loader(AUGMENTED, made, source, cache="pixels") as files:
        for _ in range(2):
            for one, other in zip(arrays, files, strict=True):
                assert repeated(one, other)
                assert one["size"] == [(SIDE, SIDE)] * 4  # the size of the image itself, not the canvas
        assert files.stats().cached == COUNT


def test_results_of_a_chain_are_not_cached():
    made = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")]).for_training()
    source = [{"image": jpeg(scene(64, 64))}] * 4
    mix = [pp.resize(height=16, width=16), pp.MixUp()]
    with loader(mix, made, source, cache="pixels", cache_bytes=64 * 64 * 3 - 1) as ours:
        assert len([*ours]) == 1
        assert ours.stats().cached == 0


def test_a_part_of_a_box_may_be_smaller_than_a_pixel():
    made = pp.Pipeline([pp.pixels(), pp.boxes(min_size=0), pp.tensor(dtype="uint8", max_size=64)]).for_training()
    source = [{"image": SOURCE[0]["image"], "boxes": [[8, 8, 16.5, 16.75]], "labels": [3]}] * 4
    with loader([pp.crop(top=16, left=16, height=16, width=16), pp.MixUp(p=0), [pp.flip()]], made, source) as ours:
        assert [boxes.tolist() for boxes in next(ours)["boxes"]] == [[[15.5, 0, 16, 0.75]]] * 4


def test_boxes_in_the_format_of_the_pipeline():
    made = pipeline(format="cxcywh", normalized=True, pad=40)
    with loader(AUGMENTED) as plain, loader(AUGMENTED, made) as padded:
        for one, other in zip(plain, padded, strict=True):
            for row, boxes in enumerate(one["boxes"]):
                height, width = other["tensor"][row].shape[:2]
                ours = other["boxes"][row][: len(boxes)] * (width, height, width, height)
                middle, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
                np.testing.assert_allclose(ours, np.hstack([middle, sides]), atol=1e-4)
                assert (other["boxes"][row][len(boxes) :] == -1).all()


@pytest.mark.parametrize("lacking", [[0], [*range(1, COUNT)]], ids=["image", "partners"])
def test_attributes_of_only_some_boxes_are_rejected(lacking):
    source = list(photos())
    for index in lacking:
        del source[index]["box_double"]
    with (
        loader(pp.Mosaic(height=SIDE), source=source, batch_size=1, shuffle=False) as ours,
        pytest.raises(pp.DataError, match='no "box_double"'),
    ):
        next(ours)


def test_images_of_different_sizes_are_rejected():
    source = [{**one, "image": one["image"][:, : SIDE - index]} for index, one in enumerate(SOURCE)]
    made = pp.Pipeline([pp.pixels(), pp.tensor(dtype="uint8", max_size=64)]).for_training()
    with (
        loader(pp.MixUp(), made, source) as ours,
        pytest.raises(pp.PipelineError, match="MixUp: the images have different"),
    ):
        list(ours)


def test_equal_ops_of_several_stages_have_different_draws():
    made = pp.Pipeline([pp.pixels(), pp.random_flip(), pp.tensor(max_size=64)]).for_training()
    source = [{"image": photo["image"]} for photo in SOURCE] * 20
    flips = pp.random_flip()
    with loader([flips, [flips], pp.MixUp(p=0.0)], made, source, batch_size=len(source)) as flipped:
        batch = next(flipped)
    drawn = [
        [*(words["draws"]["random_flip#0"]["flip"] for words in history[:2]), placed.draws["random_flip#0"]["flip"]]
        for history, placed in zip(batch["mix"], batch.placed, strict=True)
    ]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 8
    assert (abs(counts - len(source) / 8) < 20).all()


def test_recent_samples_of_an_earlier_epoch_are_not_used():
    made = pp.Pipeline([pp.pixels(), pp.tensor(max_size=64)]).for_training()

    def tensors(epoch):
        mix = pp.Chain([], until=0, then=[pp.random_crop(24), pp.MixUp(recent=4)])
        with loader(mix, made, epoch=epoch) as mixing:
            return [[each["tensor"] for each in mixing] for _ in range(3 - epoch)]

    assert all(map(np.array_equal, tensors(0)[2], tensors(2)[0]))


def test_samples_without_objects_may_have_empty_lists():
    empty = {"image": SOURCE[0]["image"], "boxes": [], "labels": [], "points": [], "visible": []}
    some = {name: SOURCE[1][name] for name in ("image", "boxes", "labels", "points")}
    some["visible"] = np.arange(6).reshape(3, 2)
    made = pp.Pipeline([pp.pixels(), pp.boxes(), pp.points(), pp.tensor(max_size=64)]).for_training()
    with loader(pp.Mosaic(height=SIDE, center=(1, 1)), made, [empty, some], batch_size=2) as mosaics:
        for _ in range(4):
            (batch,) = mosaics
            for index, (words,), labels, points, visible in zip(
                *(batch[name] for name in ("index", "mix", "labels", "points", "visible")), strict=True
            ):
                count = int(index) + sum(each["index"] for each in words["of"])
                assert np.array_equal(labels, [*some["labels"]] * count)
                assert labels.dtype == np.int64
                assert np.array_equal(visible.reshape(-1, 2), [*some["visible"]] * count)
                assert points.size == 12 * count


@pytest.mark.parametrize("op", [pp.points(), pp.masks()], ids=["points", "masks"])
def test_fields_of_objects_are_joined_without_boxes(op):
    made = pp.Pipeline([pp.pixels(), op, pp.tensor(max_size=64)]).for_training()
    source = [{**photo, "visible": photo["points"][..., 0]} for photo in SOURCE]
    with loader(pp.Mosaic(height=SIDE), made, source) as mosaics:
        for batch in mosaics:
            for row, (words,) in enumerate(batch["mix"]):
                of = [source[index] for index in (batch["index"][row], *(each["index"] for each in words["of"]))]
                assert len(batch[type(op).__name__.lower()][row]) == 12
                for name in ("labels", "box_double", "visible"):
                    assert np.array_equal(batch[name][row], np.concatenate([each[name] for each in of]))


def test_a_field_that_may_not_belong_to_the_objects_is_rejected():
    made = pp.Pipeline([pp.pixels(), pp.points(), pp.tensor(max_size=64)]).for_training()
    source = [{**photo, "labels": [1, 4]} for photo in SOURCE]
    text = r'"labels" has the shape \(2,\), but "points" has 3 objects: .* not a field of objects, rename it'
    with loader(pp.MixUp(), made, source) as mixing, pytest.raises(pp.DataError, match=text):
        next(mixing)


def test_a_field_with_a_value_per_box_that_is_not_joined_is_reported(caplog):
    made = pp.Pipeline([pp.pixels(), pp.boxes(), pp.tensor(max_size=64)]).for_training()
    source = [{name: photo[name] for name in ("image", "boxes", "labels")} | {"kinds": ["a"] * 3} for photo in SOURCE]
    with loader(pp.Mosaic(height=SIDE), made, source) as mosaics:
        assert {len(kinds) for batch in mosaics for kinds in batch["kinds"]} == {3}
    text = 'batch["kinds"] seems to have one value per box, but does not change with the boxes: add the field'
    assert [record.message.startswith(text) for record in caplog.records] == [True]


STAGES = [pp.Mosaic(height=SIDE, p=0.5), pp.random_crop(SIDE), pp.MixUp(), [pp.random_flip()]]


def test_samples_of_a_serving_pipeline_need_no_annotations():
    made = pp.Pipeline(pipeline().ops).for_serving()
    plain = [{"image": photo["image"]} for photo in SOURCE]
    only_boxes = pp.Pipeline([pp.pixels(), pp.boxes(), pp.tensor(layout="hwc", dtype="uint8", max_size=128)])
    with (
        loader(STAGES, only_boxes.for_training()) as training,
        loader(STAGES, only_boxes.for_serving()) as serving,
        loader(STAGES, only_boxes.for_serving(), plain) as unlabeled,
    ):
        for one, other, bare in zip(training, serving, unlabeled, strict=True):
            assert repeated(one, other)
            assert all(map(np.array_equal, one["tensor"], bare["tensor"]))
            assert "boxes" not in bare
    with loader([*STAGES[:2], pp.CopyPaste()], made, plain) as bare:
        assert all(words[-1] == {} for batch in bare for words in batch["mix"])
    some = [*plain[1:], SOURCE[0]]
    with loader(STAGES[:1], made, some) as mosaics, pytest.raises(pp.DataError, match="some samples have no"):
        list(mosaics)


def test_a_source_that_draws_receives_the_attempt_of_the_image_for_its_partners():
    drawn = []

    class Drawing(list):
        def __getitem__(self, index):
            draw = pp.read.draw()
            drawn.append((draw.index, draw.attempt, draw.rng.integers(1 << 62)))
            return super().__getitem__(index)

    made = pp.Pipeline([pp.pixels(), pp.tensor(max_size=64)]).for_training()
    with loader(pp.MixUp(), made, Drawing({"image": photo["image"]} for photo in SOURCE), repeats=2) as mixing:
        for batch in mixing:
            assert {*batch["attempt"].tolist()} <= {0, 128}
    assert {attempt for _, attempt, _ in drawn} == {0, 128}
    # as a partner, a sample with the same index and attempt number has different random numbers
    assert len({*drawn}) > len({each[:2] for each in drawn})
