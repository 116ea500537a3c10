"""Tests the batches of a Loader: pixels, fields, boxes, a pipeline's inputs, and random ops that can be replayed."""

import json

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from support.loading import RANDOM, encoded, expected, loader, samples


def test_a_batch_has_the_pixels_of_the_engine_and_the_fields_of_its_samples():
    with loader(shuffle=True, seed=4) as ours:
        batches = list(ours)
    assert len(batches) == len(ours) == 5
    assert sorted(index for batch in batches for index in batch["index"].tolist()) == list(range(40))
    for batch in batches:
        assert batch["tensor"].shape == (8, 3, 24, 24)
        assert batch["label"].dtype == np.int64
        for row, index in enumerate(batch["index"].tolist()):
            assert np.array_equal(batch["tensor"][row], expected(index))
            assert batch["label"][row] == index % 3
            assert batch["name"][row] == f"photo {index}"
    with pytest.raises(KeyError, match='the batch does not contain "depth"; it contains tensor, label, name, index'):
        batches[0]["depth"]


def test_a_batch_is_a_mapping_of_its_outputs_and_fields():
    with loader() as ours:
        batch = ours.example()
    assert list(batch) == ["tensor", "label", "name", "index", "attempt", "is_padding"]
    assert "label" in batch
    assert "depth" not in batch
    assert dict(batch)["label"] is batch["label"]
    assert len(batch) == 1  # the number of images


def test_paths_views_and_arrays_are_accepted_as_images(tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(0))
    source = [
        {"image": tmp_path / "a.jpg"},
        {"image": memoryview(encoded(1))},
        {"image": bytearray(encoded(2))},
        {"image": np.frombuffer(encoded(3), np.uint8)},
    ]
    with loader(source, batch_size=4) as ours:
        (batch,) = list(ours)
    for row in range(4):
        assert np.array_equal(batch["tensor"][row], expected(row))


def test_the_repr_of_a_loader_describes_it():
    with loader(shuffle=True, seed=4) as ours:
        assert repr(ours) == (
            "<Loader: 5 batches of 8, 40 samples of list, shuffle=True, seed=4, shard=(0, 1), epoch=0>"
        )
        assert repr(next(iter(ours))).startswith("<Batch: 8 images, tensor uint8 [8, 3, 24, 24], label int64 [8], ")


def test_arrays_of_equal_shape_are_stacked_unless_they_belong_to_boxes():
    source = samples(4)
    for index, sample in enumerate(source):
        sample |= {"text": np.full(5, index), "words": np.ones(1 + index), "points": np.ones((2, 3, 2), np.float32)}
    with loader(source, batch_size=2) as ours:
        batch = next(ours)
    assert batch["text"].tolist() == [[0] * 5, [1] * 5]
    assert [type(batch[name]) for name in ("words", "points")] == [list, list]


def test_the_type_of_a_field_does_not_depend_on_the_batch():
    source = samples(4)
    for index, sample in enumerate(source):
        sample |= {"area": index / 2, "boxes": np.zeros((3, 4), np.float32), "is_day": index > 1}
    del source[3]["area"]
    with loader(source, batch_size=2) as ours:
        first, second = list(ours)
    assert (first["area"].dtype, first["is_day"].dtype) == (np.float64, np.bool_)
    assert second["area"] == [1.0, None]
    assert [box.shape for box in first["boxes"]] == [(3, 4), (3, 4)]


def test_last_pad_marks_padding_samples_and_short_gives_a_smaller_batch():
    with loader(samples(11), last="pad") as ours:
        padded = list(ours)[-1]
    assert padded["index"].tolist() == [8, 9, 10, 0, 1, 2, 3, 4]
    assert padded["is_padding"].tolist() == [False] * 3 + [True] * 5
    with loader(samples(11), last="short") as ours:
        assert [len(batch) for batch in ours] == [8, 3]


def test_by_default_an_unshuffled_epoch_has_every_sample_once():
    with loader(samples(11)) as ours:
        assert [batch["index"].tolist() for batch in ours] == [[*range(8)], [8, 9, 10]]
        assert len(ours) == 2
    indices = []
    for rank in range(2):
        with loader(samples(11), shard=(rank, 2), batch_size=4) as ours:
            batches = list(ours)
        assert [len(batch) for batch in batches] == [4, 4]
        indices += [index for batch in batches for index in batch["index"][~batch["is_padding"]].tolist()]
    assert sorted(indices) == list(range(11))
    with loader(samples(11), shuffle=True) as ours:
        assert [len(batch) for batch in ours] == [8]


def test_unnoticed_padding_of_the_last_batch_is_reported(caplog):
    """A validation would count the padding samples twice."""
    with loader(samples(11), shard=(0, 2), batch_size=4) as ours:
        ours.tuples("tensor", "label", "is_padding")
        ours.tuples("is_padding")
        assert not caplog.records
        ours.tuples("tensor", "label")
    (record,) = caplog.records
    assert record.getMessage() == (
        'the last batch is padded with 5 samples that occur twice: add the name "is_padding", and exclude these '
        'samples from metrics, or use last="drop"'
    )
    for options in ({"shard": (0, 1)}, {"shuffle": True, "last": "pad"}, {"last": "drop"}, {"source": samples(16)}):
        with loader(**{"source": samples(11), "shard": (0, 2), "batch_size": 4} | options) as ours:
            ours.tuples("tensor")
    assert len(caplog.records) == 1


def test_tuples_contain_the_named_entries():
    with loader(shuffle=True) as ours:
        pairs = list(ours.tuples("tensor", "label"))
        assert len(ours.tuples("label")) == len(pairs) == 5
    assert all(images.shape == (8, 3, 24, 24) and labels.shape == (8,) for images, labels in pairs)


def test_random_parameters_are_returned_and_a_sample_can_be_replayed():
    with loader(pipeline=RANDOM, shuffle=True, seed=6) as ours:
        list(ours)
        second = list(ours)
        batch = second[2]
        assert set(batch.draws[0]) == {"random_resized_crop#0", "random_flip#0"}
        assert json.loads(json.dumps(batch.draws)) == batch.draws
        for row, index in enumerate(batch["index"].tolist()):
            again = ours.replay(1, index)
            assert np.array_equal(again["tensor"][0], batch["tensor"][row])
            assert again.draws == [batch.draws[row]]
            first = ours.replay(0, index)
            assert first.draws != again.draws


def test_random_batches_are_equal_on_any_number_of_shards_and_after_a_resume():
    with loader(pipeline=RANDOM, shuffle=True) as ours:
        whole = list(ours)
    shards = []
    for rank in range(4):
        with loader(pipeline=RANDOM, shuffle=True, shard=(rank, 4), batch_size=2, threads=1) as shard:
            next(batches := iter(shard))
            state = shard.state_dict()
            del batches
            shard.load_state_dict(state)
            shards.append(list(shard))
    for batch, *parts in zip(whole[1:], *shards, strict=True):
        assert np.array_equal(batch["tensor"], np.concatenate([part["tensor"] for part in parts]))


CORNERS = [[2, 3, 20, 25], [0, 0, 4, 4], [10, 10, 30, 28]]


def boxed(*ops, count=12):
    """Return photos with 0 to 3 boxes, and a pipeline whose ops before the tensor are given."""
    source = samples(count)
    for index, sample in enumerate(source):
        n = index % 4
        sample |= {"boxes": np.array(CORNERS[:n], np.float32).reshape(-1, 4), "labels": np.arange(n), "id": index}
    pipeline = pp.Pipeline(
        [pp.decode(), pp.random_flip(), pp.resize(height=24, width=24), *ops, pp.tensor(dtype="uint8")]
    )
    return source, pipeline.for_training()


def test_boxes_and_their_attributes_follow_the_geometry():
    source, pipeline = boxed(pp.boxes(min_size=3))
    with loader(source, pipeline=pipeline, batch_size=4, shuffle=True) as ours:
        for batch in ours:
            assert batch["id"].dtype == np.int64
            for row, index in enumerate(batch["index"].tolist()):
                boxes, (height, width) = np.array(CORNERS[: index % 4], np.float32).reshape(-1, 4), size(index)
                if batch.draws[row]["random_flip#0"]["flip"]:
                    boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
                moved = boxes * np.array([24 / width, 24 / height] * 2)
                kept = (moved[:, 2:] - moved[:, :2] >= 3).all(axis=1)
                assert np.allclose(batch["boxes"][row], moved[kept], atol=1e-4)
                assert batch["labels"][row].tolist() == np.flatnonzero(kept).tolist()


def size(index):
    return 30 + index % 7, 40 + index % 5


def test_boxes_of_a_different_name_are_not_moved_with_those_of_the_photo():
    source, pipeline = boxed(pp.boxes(name="found", min_size=3))
    with loader(source, pipeline=pipeline, batch_size=4) as ours:
        batch = next(iter(ours))
        assert "boxes" not in batch.fields
        assert list(map(len, batch["found"])) == list(map(len, batch["labels"]))


@pytest.mark.parametrize("pad", [None, 4])
def test_attributes_of_boxes_in_some_samples_are_missing_in_the_others(pad):
    source, pipeline = boxed(pp.boxes(pad=pad))
    source[3]["iscrowd"] = [0, 1, 0]
    with loader(source, pipeline=pipeline, batch_size=4) as ours:
        first, second = next(batches := iter(ours)), next(batches)
        assert "iscrowd" not in second.fields
        if pad:
            assert first["iscrowd"].tolist() == [[-1] * 4] * 3 + [[0, 1, 0, -1]]
        else:
            assert first["iscrowd"][:3] == [None] * 3
            assert first["iscrowd"][3].tolist() == [0, 1, 0]


def test_padded_boxes_are_one_array():
    source, pipeline = boxed(pp.boxes(pad=5))
    with loader(source, pipeline=pipeline, batch_size=4) as ours:
        for batch in ours:
            assert batch["boxes"].shape == (4, 5, 4)
            assert (batch["labels"] >= 0).sum(axis=1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("on_error", ["replace", "skip"])
def test_boxes_stay_with_their_images_if_samples_are_broken(on_error):
    source, pipeline = boxed(pp.boxes())
    source[2]["labels"] = np.arange(7)  # these are 7 labels for two boxes
    source[5]["size"] = (99, 99)
    source[8]["image"] = b""
    with loader(source, pipeline=pipeline, batch_size=6, on_error=on_error, max_errors=3) as ours:
        batches = list(ours)
        assert {each.index: each.error.reason for each in ours.errors} == {2: "BAD_RECORD", 5: "BAD_RECORD", 8: "EMPTY"}
        for batch in batches:
            for row, index in enumerate(batch["index"].tolist()):
                again = ours.replay(0, index, int(batch["attempt"][row]))
                assert np.array_equal(batch["boxes"][row], again["boxes"][0])
                assert np.array_equal(batch["tensor"][row], again["tensor"][0])
                assert len(batch["labels"][row]) == len(batch["boxes"][row]) == index % 4
    assert sum(map(len, batches)) == (9 if on_error == "skip" else 12)


@pytest.mark.parametrize(
    ("ops", "name", "value", "words"),
    [
        ([], "boxes", [[0, 0, 9, 9]], "refer to the original images, not to the tensors: add the op boxes"),
        (["points"], "boxes", [[0, 0, 9, 9]], "add the op boxes"),
        (["boxes"], "points", [[[5, 5]]] * 3, "add the op points"),
        (["boxes"], "keypoints", [[5, 5]], 'rename the field to "points", and add the op points'),
        (["boxes"], "mask", b"PNG", "not to the tensors: add the op mask"),
        (["boxes"], "masks", np.zeros((3, 33, 43)), "add the op masks"),
        ([], "segmentation", b"PNG", 'rename the field to "mask", and add the op mask'),
        ([], "depth", np.zeros((33, 43)), "it is not cropped"),
        ([], "parts", np.zeros((5, 33, 43)), "it is not cropped"),
        ([], "drawn", Image.new("L", (43, 33)), "it is not cropped"),
        ([], "embedding", np.zeros((43, 33)), None),
        ([], "text", "a mask", None),
        (["boxes", "points"], "boxes", CORNERS, None),
    ],
)
def test_annotations_that_are_not_moved_are_reported_once(ops, name, value, words, caplog):
    _, pipeline = boxed(*(getattr(pp, op)() for op in ops))
    annotation = {"boxes": CORNERS, "points": [[5, 5]] * 3}
    source = [{"image": encoded(3), **{op: annotation[op] for op in ops}, name: value}]
    with loader(source, pipeline=pipeline, batch_size=1) as ours:
        list(ours)
        list(ours)
    told = [record.message for record in caplog.records if record.message.startswith("no op transforms")]
    assert len(told) == (words is not None)
    if words is not None:
        assert f'no op transforms batch["{name}"], so ' in told[0]
        assert words in told[0]


def test_a_pipeline_with_boxes_reports_a_source_without_boxes():
    _, pipeline = boxed(pp.boxes())
    with (
        loader(pipeline=pipeline, on_error="replace") as ours,
        pytest.raises(pp.PipelineError, match="do not contain it"),
    ):
        list(ours)


BOXED = pp.Pipeline(
    [
        pp.decode(), pp.crop(box="boxes"), pp.random_flip(), pp.flip("vertical", when="over"),
        pp.resize(height=24, width=24), pp.tensor(dtype="uint8"),
    ]
).for_training()  # fmt: skip


def samples_with_box(count=12):
    return [
        sample | {"boxes": np.array([[1, 2, 20.4, 15 + index % 9]], np.float32), "over": index % 3 == 0}
        for index, sample in enumerate(samples(count))
    ]


def test_the_fields_of_a_sample_are_a_pipelines_inputs():
    with loader(samples_with_box(), BOXED, batch_size=4, shuffle=True, seed=3) as ours:
        batches = list(ours)
        again = [ours.replay(0, int(index)) for index in batches[0]["index"]]
    flips = set()
    for batch in batches:
        for row, index in enumerate(batch["index"].tolist()):
            is_flipped, over = batch.draws[row]["random_flip#0"]["flip"], index % 3 == 0
            flips.add((is_flipped, over))
            ops = [pp.crop(2, 1, 13 + index % 9, 19), *[pp.flip()] * is_flipped, *[pp.flip("vertical")] * over]
            plain = pp.Pipeline([pp.decode(), *ops, pp.resize(height=24, width=24), pp.tensor(dtype="uint8")])
            assert np.array_equal(batch["tensor"][row], expected(index, plain)), index
            assert batch["boxes"][row].tolist() == [[1, 2, np.float32(20.4), 15 + index % 9]]
    assert len(flips) == 4
    for row, alone in enumerate(again):
        assert np.array_equal(alone["tensor"][0], batches[0]["tensor"][row])


BROKEN_BOXES = [
    ([[1, 2, 3]], '"boxes" must be float32 [n, 4]'),
    ([[0, 0, 9, 9]] * 2, '"boxes" must have one row per image, not 2'),
    ([[900, 0, 999, 9]], "900, 0, 999, 9 is outside the image of 33 x 43 pixels"),
]


@pytest.mark.parametrize(("boxes", "words"), BROKEN_BOXES, ids=[words for _, words in BROKEN_BOXES])
def test_a_sample_with_an_invalid_box_is_a_broken_sample(boxes, words):
    source = samples_with_box()
    source[3]["boxes"] = boxes
    with loader(source, BOXED, batch_size=4, on_error="replace", max_errors=2) as ours:
        assert sum(map(len, list(ours))) == 12
        (broken,) = ours.errors
    assert broken.index == 3
    assert broken.error.detail.startswith(f"photo 3: {words}")


def test_a_source_without_a_pipelines_input_is_rejected():
    with (
        loader(samples(), BOXED) as ours,
        pytest.raises(pp.PipelineError, match=r'the pipeline has the input "boxes", float32 .n, 4.* but the source'),
    ):
        list(ours)
