"""Tests that a real Triton server returns every row of outputs of variable length, both from a detector with NMS and
from a chain of a detector and a classifier.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import PixprepError
from pixprep.serving.embedded import client
from pixprep.serving.page.answer import Photos
from pixprep.serving.repository import build
from support.images import png
from support.serving import address

pytestmark = pytest.mark.server

# The brighter the photo, the more rows have a score above 0.5. A row is image, left, top, right, bottom, class, score.
_DETECTOR = """<ir_version: 8, opset_import: ["": 13]>
detector (float[1, 3, 64, 64] images) => (OUTPUTS) {
    axes = Constant <value_ints = [0]> ()
    mean = ReduceMean <axes = [1, 2, 3], keepdims = 0> (images)
    rows = Constant <value = float[3, 6] {
        0, 10, 20, 30, 40, 2,
        0, 34, 20, 60, 30, 0,
        0, 0, 2, 60, 15.9, 1}> ()
    base = Constant <value = float[3] {0.2, -0.1, -0.15}> ()
    some = Add (base, mean)
    one = Constant <value_float = 0.99> ()
    score = Min (some, one)
    half = Constant <value_float = 0.5> ()
    is_kept = Greater (score, half)
    places = NonZero (is_kept)
    kept = Squeeze (places, axes)
    found = Gather <axis = 0> (rows, kept)
    scores = Gather <axis = 0> (score, kept)
    END
}"""
_ROWS = """last = Constant <value_ints = [1]> ()
    column = Unsqueeze (scores, last)
    dets = Concat <axis = 1> (found, column)"""
_NAMED = """starts = Constant <value_ints = [1]> ()
    ends = Constant <value_ints = [5]> ()
    boxes = Slice (found, starts, ends, starts)
    fives = Constant <value_ints = [5]> ()
    column = Gather <axis = 1> (found, fives)
    numbers = Squeeze (column, starts)
    labels = Cast <to = 7> (numbers)"""
FORMS = {
    "rows": (_ROWS, "float[n_dets, 7] dets"),
    "named": (_NAMED, "float[n, 4] boxes, float[n] scores, int64[n] labels"),
}
_CLASSIFIER = """<ir_version: 8, opset_import: ["": 13]>
classifier (float[batch, 3, 16, 16] input) => (float[batch, 3] scores) {
    scores = ReduceMean <axes = [2, 3], keepdims = 0> (input)
}"""
_PROMPTED = """<ir_version: 8, opset_import: ["": 13]>
prompted (float[batch, 3, 16, 16] input, float[batch, k, 2] points, int64[batch, 2] size) => (float[batch, 2] sums) {
    axes = Constant <value_ints = [1]> ()
    sums = ReduceSum <keepdims = 0> (points, axes)
}"""
_PICK = """from pixprep.boxes import boxes_to_original


def rows(dets, transform, original_size):
    return boxes_to_original(dets[:, 1:5], transform, original_size)
"""
LEVELS = {"dark": (5, 0), "middle": (60, 1), "bright": (250, 3)}
"""Brightness of each photo (100 x 200 pixels), and number of rows that the detector returns for it."""
BOXES = np.float32([[31.25, 12.5, 93.75, 75], [106.25, 12.5, 187.5, 43.75], [0, 0, 187.5, 0]])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a repository with the detector in both forms, and a classifier for its boxes."""
    folder = tmp_path_factory.mktemp("lists")
    letterbox = [pp.decode(), pp.letterbox(64, 64), pp.normalize(), pp.transform(), pp.original_size(), pp.tensor()]
    for name, (end, outputs) in FORMS.items():
        text = _DETECTOR.replace("END", end).replace("OUTPUTS", outputs)
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
        build(folder / "models", pipeline=pp.Pipeline(letterbox), onnx=folder / f"{name}.onnx", name=name)
    onnx.save(onnx.parser.parse_model(_CLASSIFIER), folder / "classifier.onnx")
    (folder / "pick.py").write_text(_PICK)
    crops = [pp.decode(), pp.crop(box="boxes"), pp.resize(height=16, width=16), pp.normalize(), pp.tensor()]
    build(
        folder / "models",
        pipeline=pp.Pipeline(crops),
        onnx=folder / "classifier.onnx",
        name="chain",
        boxes_from="rows",
        boxes_by=folder / "pick.py",
    )
    again = {"pipeline": pp.Pipeline(crops), "onnx": folder / "classifier.onnx"}
    for name in FORMS:
        build(folder / "models", name=f"{name}_chain", boxes_from=name, **again)
    onnx.save(onnx.parser.parse_model(_PROMPTED), folder / "prompted.onnx")
    build(
        folder / "models", pipeline=pp.Pipeline(crops[:1] + crops[2:]), onnx=folder / "prompted.onnx", name="prompted"
    )
    return folder / "models"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for name, (level, _) in LEVELS.items():
        (folder / f"{name}.png").write_bytes(png(np.full((100, 200, 3), level, np.uint8)))
    return [folder / f"{name}.png" for name in LEVELS]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_lists_arrive_whole_and_may_be_empty(server, photos, protocol):
    url = address(server, protocol)
    found = {
        (model, answer.path.stem): answer.outputs
        for model in (*FORMS, "chain", *(f"{form}_chain" for form in FORMS))
        for answer in client.send(photos, url=url, protocol=protocol, model=model, classes=3)
    }
    for name, (_, count) in LEVELS.items():
        rows, named, chain = (found[model, name] for model in (*FORMS, "chain"))
        assert rows["dets"].shape == (count, 7)
        assert (named["boxes"].shape, named["labels"].shape, named["scores"].shape) == ((count, 4), (count,), (count,))
        assert np.array_equal(named["boxes"], rows["dets"][:, 1:5])
        assert named["labels"].tolist() == [2, 0, 1][:count]
        # the third box is in the padding of the letterbox, and is omitted
        assert chain["boxes"] == pytest.approx(BOXES[: min(count, 2)])
        assert len(chain["scores"]) == min(count, 2)
        for form in FORMS:  # without a user-defined function
            assert found[f"{form}_chain", name]["boxes"] == pytest.approx(BOXES[: min(count, 2)])


def test_send_prints_every_row(server, photos, capsys):
    for model in FORMS:
        assert main(["send", *map(str, photos), "--url", address(server), "--model", model, "--json"]) == 0
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for answer in answers:
            count, outputs = LEVELS[Path(answer["file"]).stem][1], answer["outputs"]
            lists = [name for name in ("dets", "boxes", "labels", "scores") if name in outputs]
            assert [len(outputs[name]) for name in lists] == [count] * (1 if model == "rows" else 3)
    assert main(["send", str(photos[-1]), "--url", address(server), "--model", "rows"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "    dets  3 rows"
    assert sum(line.startswith("    dets  [0.0, ") for line in lines) == 3


def test_the_page_shows_every_row(server, photos, models):
    page = Photos([*FORMS], folder=models, http_url=server.http_url, grpc_url=server.grpc_url)
    for path in photos:
        count = LEVELS[path.stem][1]
        shown = {name: page.answer(name, [path.read_bytes()], names=[path.name]) for name in FORMS}
        for answer in shown.values():
            assert answer["outputs"][0]["shape"][0] == count
        assert len(shown["named"]["found"]["objects"]) == min(count, 2)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_clients_send_inputs_of_any_length(server, photos, protocol):
    inputs = {"points": [[[1, 2], [3, 4], [5, 6]]], "size": [[7, 8]]}
    send = partial(client.send, url=address(server, protocol), protocol=protocol, model="prompted")
    answers = [*send(photos, inputs=inputs, batch=3), *send(photos[:1], inputs=inputs | {"points": [[[0, 1]]]})]
    assert [answer.outputs["sums"].tolist() for answer in answers] == [[9, 12]] * 3 + [[0, 1]]
    lengths = {"points": {photos[0].name: [[[1, 2]]], photos[1].name: [[[1, 2], [3, 4]]]}, "size": [[7, 8]]}
    assert [answer.outputs["sums"].tolist() for answer in send(photos[:2], inputs=lengths, batch=2)] == [[1, 2], [4, 6]]
    with pytest.raises(PixprepError, match=r'input "points" must be FP32 \[n, any, 2\]'):
        next(send(photos, inputs=inputs | {"points": [[1, 2, 3]]}))
