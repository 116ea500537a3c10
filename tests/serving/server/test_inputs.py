"""Tests of per-request inputs in a real Triton server: the responses to all kinds of requests, and an ensemble with two
stages.
"""

import io
import json
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.importers.transformers import from_transformers
from pixprep.serving.embedded import client, perf
from pixprep.serving.embedded.request import sample
from pixprep.serving.page.answer import Photos
from support import detectors
from support.images import photo, png, read
from support.serving import address, infer, run_program, write_pipeline

pytestmark = pytest.mark.server

DOC = (Path(__file__).parents[3] / "docs" / "boxes.md").read_text(encoding="utf-8")
EXAMPLE = Path(__file__).parents[3] / "client_examples" / "boxes.py"
TAIL = [pp.resize(height=24, width=30), pp.tensor(dtype="uint8")]
CROPS = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.transform(), *TAIL])
TURNS = pp.Pipeline([pp.decode(), pp.flip(when="turn"), pp.pad(square=True, fill="paint"), *TAIL])
ROTATED = pp.Pipeline([pp.decode(), TAIL[0], pp.rotate(angle="degrees", filter="bilinear", fill=(1, 2, 3)), TAIL[1]])
WINDOWS = pp.Pipeline([pp.decode(), pp.crop("AT[1]", "AT", "H", "W", max_size=99), TAIL[1]])
QUADS = pp.Pipeline([pp.decode(), pp.warp(quad="corners", height=24, width=30), pp.transform(matrix=True), TAIL[1]])
MATRICES = pp.Pipeline([pp.decode(), pp.warp(matrix="moves", height=24, width=30), TAIL[1]])
PERSONS = from_transformers({"image_processor_type": "VitPoseImageProcessor", "size": {"height": 24, "width": 30}})
FLOATS = pp.Pipeline(
    [pp.pixels(dtype="float32", layout="chw"), pp.crop("Y", "X", 24, 30, unit="free", rounding="down"), TAIL[1]]
)
BOXES = [[0, 0, 640, 427], [10.4, 20, 200.6, 90], [-5, 300, 60, 9999]]
BYTES = 'backend: "pixprep"\ninput { name: "photo" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
NUMBERS = (
    'backend: "pixprep"\ninput { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
    'input { name: "AT" data_type: TYPE_INT32 dims: [ 2 ] }\ninput { name: "H" data_type: TYPE_INT64 dims: [ 1 ] }\n'
    'parameters { key: "examples" value { string_value: "{\\"H\\":[32],\\"W\\":[32]}" } }\n'
)
PARAMETERS = (
    'backend: "pixprep"\nparameters { key: "on_error" value { string_value: "zero" } }\n'
    'parameters { key: "max_boxes" value { string_value: "4" } }\n'
    'parameters { key: "max_box_pixels" value { string_value: "200000" } }\n'
    "instance_group { count: 2 kind: KIND_CPU }\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    models = tmp_path_factory.mktemp("inputs") / "models"
    write_pipeline(models, "crops.pixprep", CROPS)
    write_pipeline(models, "turns.pixprep", TURNS)
    write_pipeline(models, "rotated.pixprep", ROTATED)
    write_pipeline(models, "windows", WINDOWS, NUMBERS)
    write_pipeline(models, "floats.pixprep", FLOATS)
    write_pipeline(models, "quads.pixprep", QUADS)
    write_pipeline(models, "matrices.pixprep", MATRICES)
    write_pipeline(models, "persons.pixprep", PERSONS)
    write_pipeline(models, "bytes", CROPS, BYTES)
    write_pipeline(models, "zero", CROPS, PARAMETERS)
    return models


def image(*shape, encoded=None):
    array = np.empty(shape or (1,), np.object_)
    array[...] = encoded or photo()
    return array


def floats(boxes):
    return np.array(boxes, np.float32).reshape(-1, 4)


def run(pipeline, **inputs):
    with pp.Engine(pipeline) as engine:
        return engine.run_batch([photo()], inputs=inputs)


def test_each_box_gives_the_engines_tensor_bit_for_bit(triton):
    expected = run(CROPS, boxes=[BOXES])
    for boxes in (BOXES, BOXES[:1]):
        answer = infer(triton, "crops.pixprep", image=image(), boxes=floats(boxes))
        for name in ("tensor", "transform"):
            assert np.array_equal(answer.as_numpy(name), expected[name][: len(boxes)]), name
    as_bytes = infer(triton, "bytes", photo=np.frombuffer(photo(), np.uint8), boxes=floats(BOXES))
    assert np.array_equal(as_bytes.as_numpy("tensor"), expected["tensor"])


def test_other_inputs_are_batched_with_their_images(triton):
    turn, paint = np.array([[True], [False], [True]]), np.array([[9, 200, 7], [0, 0, 0], [0, 0, 0]], np.uint8)
    answer = infer(triton, "turns.pixprep", image=image(3, 1), turn=turn, paint=paint).as_numpy("tensor")
    with pp.Engine(TURNS) as engine:
        expected = engine.run([photo()] * 3, inputs={"turn": turn, "paint": paint})
    assert np.array_equal(answer, np.stack(expected))
    assert len({tensor.tobytes() for tensor in answer}) == 3


def test_each_image_has_its_angle_and_an_invalid_one_fails_its_request_alone(triton):
    angles = np.array([[0], [90], [-33.3]], np.float32)
    answer = infer(triton, "rotated.pixprep", image=image(3, 1), degrees=angles).as_numpy("tensor")
    for (angle,), tensor in zip(angles.tolist(), answer, strict=True):
        fixed = pp.rotate(angle=angle, filter="bilinear", fill=(1, 2, 3))
        with pp.Engine(pp.Pipeline([pp.decode(), TAIL[0], fixed, TAIL[1]])) as engine:
            assert np.array_equal(tensor, engine.run([photo()])[0])
    assert len({tensor.tobytes() for tensor in answer}) == 3
    with pytest.raises(
        InferenceServerException, match=r'\[BAD_INPUT\] image 1 of 1: "degrees", row 1 of 1: all numbers must be finite'
    ):
        infer(triton, "rotated.pixprep", image=image(1, 1), degrees=np.array([[NAN]], np.float32))
    with pytest.raises(InferenceServerException, match="expects 'FP32'"):
        infer(triton, "rotated.pixprep", image=image(1, 1), degrees=np.array([[True]]))


def test_the_regions_of_a_photo_are_sent_as_corners_and_matrices(triton):
    corners = np.array([[[30, 20], [200, 40], [190, 150], [10, 140]], [[5, 5], [90, 5], [90, 60], [5, 60]]], np.float32)
    answer = infer(triton, "quads.pixprep", image=image(), corners=corners)
    expected = run(QUADS, corners=[corners])
    assert np.array_equal(answer.as_numpy("tensor"), expected["tensor"])
    assert np.array_equal(answer.as_numpy("transform"), expected["transform"])
    moves = np.array([[[1.5, 0.1, -30], [0.2, 1.1, 4]]])
    answer = infer(triton, "matrices.pixprep", image=image(), moves=moves).as_numpy("tensor")
    assert np.array_equal(answer, run(MATRICES, moves=[moves])["tensor"])
    boxes = np.array([[412.8, 157.61, 53.05, 138.01], [-3, 20, 200.6, 90]])
    answer = infer(triton, "persons.pixprep", image=image(), boxes=boxes).as_numpy("tensor")
    assert np.array_equal(answer, run(PERSONS, boxes=[boxes])["tensor"])
    corners[1, :, 1] = 5
    with pytest.raises(
        InferenceServerException, match=r'"corners", row 2 of 2: three of the four corners are collinear'
    ):
        infer(triton, "quads.pixprep", image=image(), corners=corners)


def test_each_image_has_its_crop_in_the_types_of_the_configuration(triton):
    def ask(at, heights, widths):
        count = len(at)
        photos = np.stack([np.frombuffer(photo(), np.uint8)] * count)
        sides = {"H": np.array(heights, np.int64).reshape(-1, 1), "W": np.array(widths, np.float32).reshape(-1, 1)}
        return infer(triton, "windows", DALI_INPUT_0=photos, AT=np.array(at, np.int32), **sides).as_numpy("tensor")

    def fixed(left, top, height, width):
        ops = [pp.decode(), pp.crop(top, left, height, width), TAIL[1]]
        return pp.Engine(pp.Pipeline(ops)).run([photo()])[0]

    (alone,) = ask([[7, 40]], [99], [20])
    assert np.array_equal(alone, fixed(7, 40, 99, 20))
    both = ask([[7, 40], [0, 3]], [9, 50], [20, 11])
    assert both.shape == (2, 3, 50, 20)
    assert np.array_equal(both[0, :, :9], fixed(7, 40, 9, 20))
    assert np.array_equal(both[1, :, :, :11], fixed(0, 3, 50, 11))
    assert not both[0, :, 9:].any()
    for at, height, words in (
        ([7, -1], 9, '"AT", row 1 of 1: 7, -1: -1 must be'),
        ([7, 4], 100, '"H", row 1 of 1: 100 must be'),
    ):
        with pytest.raises(InferenceServerException, match=re.escape(f"[BAD_INPUT] image 1 of 1: {words}")):
            ask([at], [height], [20])


def test_float32_frames_with_channels_first(triton):
    pixels = np.asarray(pp.apply([pp.resize(height=60, width=70)], np.asarray(read(photo()))))
    sent = np.stack([pixels.transpose(2, 0, 1)] * 2).astype(np.float32)
    shares = {"X": np.array([[0], [0.99]], np.float32), "Y": np.array([[0.5], [1]], np.float32)}
    answer = infer(triton, "floats.pixprep", image=sent, **shares).as_numpy("tensor")
    for tensor, (top, left) in zip(answer, [(18, 0), (36, 39)], strict=True):
        assert np.array_equal(tensor.transpose(1, 2, 0), pixels[top : top + 24, left : left + 30])
    with pytest.raises(InferenceServerException, match="float32 pixels must be integers from 0 to 255"):
        infer(triton, "floats.pixprep", image=sent / 255, **shares)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        ([BOXES[0], [0, 0, INF, 9]], '[BAD_INPUT] image 1 of 1: "boxes", row 2 of 2: all numbers must be'),
        ([[640, 0, 1e38, 9]], '[DOES_NOT_FIT] image 1 of 1: "boxes", row 1 of 1: 640, 0, 1e+38, 9 is outside'),
        ([BOXES[0]] * 1_000_000, '[BAD_INPUT] image 1 of 1: 1,000,000 rows of "boxes"; the limit is 64 (param'),
    ],
    ids=["infinite", "outside", "a million"],
)
def test_an_invalid_box_is_rejected_by_its_index_and_the_next_request_is_served(triton, boxes, words):
    with pytest.raises(InferenceServerException) as caught:
        infer(triton, "crops.pixprep", image=image(), boxes=floats(boxes))
    assert caught.value.message().startswith(words)
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert len(infer(triton, "crops.pixprep", image=image(), boxes=floats(BOXES)).as_numpy("tensor")) == 3


WRONG = {
    "another type": ({"boxes": np.ones((1, 4))}, "data-type is 'FP64', but model 'crops.pixprep' expects 'FP32'"),
    "three numbers": ({"boxes": np.ones((2, 3), np.float32)}, "unexpected shape for input 'boxes'"),
    "flat": ({"boxes": np.ones(4, np.float32)}, "unexpected shape for input 'boxes'"),
    "two photos": ({"image": image(2), "boxes": floats(BOXES)}, "unexpected shape for input 'image'"),
    "missing": ({}, "missing required input(s) ['boxes']"),
    "another name": ({"box": floats(BOXES)}, "unexpected inference input 'box'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_requests_that_tritons_core_rejects_never_reach_the_model(triton, case):
    arrays, words = WRONG[case]
    with pytest.raises(InferenceServerException, match=re.escape(words)):
        infer(triton, "crops.pixprep", **{"image": image()} | arrays)


def test_inputs_with_a_wrong_number_of_rows_are_rejected(triton):
    paint = np.zeros((2, 3), np.uint8)
    with pytest.raises(InferenceServerException, match="input 'turn' batch size does not match other inputs"):
        infer(triton, "turns.pixprep", image=image(2, 1), turn=np.array([[True]]), paint=paint)


def test_on_error_zero_keeps_the_valid_boxes_and_reports_the_reason(triton):
    boxes = floats([[10, 20, 200, 90], [700, 0, 720, 9], [0, 0, 640, 427], [3, 4, 60, 70]])
    answer = infer(triton, "zero", image=image(), boxes=boxes)
    tensors, status = answer.as_numpy("tensor"), [words.decode() for (words,) in answer.as_numpy("status")]
    assert [tensor.any() for tensor in tensors] == [True, False, False, True]
    assert status == [
        "",
        '[DOES_NOT_FIT] "boxes", row 2 of 4: 700, 0, 720, 9 is outside the image of 427 x 640 pixels',
        '[TOO_MANY_PIXELS] "boxes", row 3 of 4: it covers 273,280 pixels, but only 186,700 of 200,000 are left '
        "for the boxes of an image (parameter max_box_pixels)",
        "",
    ]
    assert np.array_equal(tensors[3], run(CROPS, boxes=[boxes[3:]])["tensor"][0])
    for encoded, those, count, words in (
        (photo(), boxes[[0] * 5], 1, '[BAD_INPUT] 5 rows of "boxes"; the limit is 4 (parameter max_boxes)'),
        (photo(), boxes[:0], 1, '[EMPTY] "boxes" has no rows, so the image has no tensors (parameter no_rows)'),
        (b"x", boxes, 4, "[UNKNOWN_FORMAT] not "),
    ):
        answer = infer(triton, "zero", image=image(encoded=encoded), boxes=those)
        status = answer.as_numpy("status")
        assert not answer.as_numpy("tensor").any()
        assert all(each.decode().startswith(words) for (each,) in status)
        assert len(status) == len(answer.as_numpy("tensor")) == count


def test_a_photo_without_boxes_gets_an_error_that_names_them(server):
    headers = {"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{server.http_url}/v2/models/crops.pixprep/infer", photo(), headers)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=120)
    assert "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs" in caught.value.read().decode()


def test_the_supervisor_sends_examples_of_the_inputs(server):
    for model in ("crops.pixprep", "turns.pixprep", "rotated.pixprep", "bytes", "zero", "windows", "floats.pixprep"):
        assert server.control.infer(model, sample(server.control.config(model)), timeout_s=120) == 200
    for model in ("quads.pixprep", "matrices.pixprep", "persons.pixprep"):
        assert server.control.infer(model, sample(server.control.config(model)), timeout_s=120) == 200
    headers, body = sample(server.control.config("crops.pixprep"))
    broken = headers, body.replace(b"\xff\xd8\xff", b"\xff\xff\xff")
    assert server.control.infer("crops.pixprep", broken, timeout_s=120) == 400


@pytest.mark.parametrize("model", ["windows", "floats.pixprep"])
def test_the_page_uses_the_pipelines_examples_of_inputs(server, tmp_path, model):
    page = Photos([model], folder=server.snapshot.folder, http_url=server.http_url, grpc_url=server.grpc_url)
    answer = page.answer(model, [photo()], names=["photo.jpg"])
    size = [3, 32, 32] if model == "windows" else [3, 24, 30]
    assert [output["shape"] for output in answer["outputs"]] == [size]
    (tmp_path / "photo.jpg").write_bytes(photo())
    (tmp_path / "program.py").write_text(answer["lines"]["python"])
    said = run_program(tmp_path / "program.py", cwd=tmp_path).stdout
    assert f"tensor (1, {', '.join(map(str, size))})" in said


@pytest.mark.parametrize("model", ["crops.pixprep", "turns.pixprep"])
def test_the_page_sends_examples_and_its_commands_run(server, tmp_path, model):
    page = Photos([model], folder=server.snapshot.folder, http_url=server.http_url, grpc_url=server.grpc_url)
    assert [each["name"] for each in page.models()] == [model]
    answer = page.answer(model, [photo()], names=["photo.jpg"])
    assert [3, 24, 30] in [output["shape"] for output in answer["outputs"]]
    (tensor,) = page.stages(model, photo())["tensors"]
    assert tensor["shape"] == [3, 24, 30]
    (tmp_path / "photo.jpg").write_bytes(photo())
    (tmp_path / "program.py").write_text(answer["lines"]["python"])
    assert "tensor (1, 3, 24, 30)" in run_program(tmp_path / "program.py", cwd=tmp_path).stdout
    command = shlex.split(answer["lines"]["shell"])
    assert command[:2] == ["pixprep", "send"]
    sent = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "3, 24, 30]" in sent.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.jpg").write_bytes(photo())
    (tmp_path / "b.jpg").write_bytes(photo("flower"))
    return tmp_path


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_send_assigns_each_file_its_rows(server, folder, protocol):
    url = address(server, protocol)
    boxes = {"a.jpg": BOXES, str(folder / "b.jpg"): BOXES[1]}
    files = [folder / "a.jpg", folder / "b.jpg"]
    one, other = client.send(files, url=url, protocol=protocol, model="crops.pixprep", inputs={"boxes": boxes})
    assert np.array_equal(one.outputs["tensor"], run(CROPS, boxes=[BOXES])["tensor"])
    assert other.outputs["tensor"].shape == (1, 3, 24, 30)
    given = {"turn": True, "paint": {"a.jpg": [1, 2, 3], "b.jpg": [4, 5, 6]}}
    both = [*client.send(files, url=url, protocol=protocol, model="turns.pixprep", batch=2, inputs=given)]
    assert [answer.outputs["tensor"][:, 0, 0].tolist() for answer in both] == [[1, 2, 3], [4, 5, 6]]
    assert client.health(url=url, protocol=protocol, model="crops.pixprep") > 0


MISTAKES = [
    (
        "crops.pixprep",
        {},
        'the model requires input "boxes" (FP32 [n, 4]) with each image, such as --input boxes=[[0,0,16384,16384]]',
    ),
    ("crops.pixprep", {"box": []}, 'the model does not have an input "box"; its numeric inputs are boxes'),
    ("crops.pixprep", {"boxes": [[1, 2]]}, 'input "boxes" must be FP32 [n, 4], such as [[0, 0, 16384, 16384]]'),
    (
        "crops.pixprep",
        {"boxes": {"c.jpg": []}},
        'input "boxes" has no values for FOLDER/a.jpg; it has values for c.jpg',
    ),
    ("turns.pixprep", {"turn": 3, "paint": [1, 2, 3]}, 'input "turn" must be BOOL [n, 1], such as [[false]]'),
    ("turns.pixprep", {"turn": True, "paint": [1, 2, 300]}, 'input "paint" must be UINT8 [n, 3], such as [[0, 0, 0]]'),
    ("turns.pixprep", {"turn": [True] * 2, "paint": [1, 2, 3]}, 'input "turn" has 2 rows: pass one row per image'),
    ("rotated.pixprep", {"degrees": "left"}, 'input "degrees" must be FP32 [n, 1], such as [[0]]'),
]


@pytest.mark.parametrize(("model", "inputs", "words"), MISTAKES, ids=[words for *_, words in MISTAKES])
def test_send_reports_invalid_inputs_before_it_sends(server, folder, model, inputs, words):
    with pytest.raises(pp.PixprepError) as caught:
        [*client.send([folder / "a.jpg"], url=address(server), model=model, inputs=inputs)]
    assert str(caught.value) == words.replace("FOLDER", str(folder))


def test_boxes_do_not_share_a_request(server, folder):
    files = [folder / "a.jpg", folder / "b.jpg"]
    with pytest.raises(pp.PixprepError, match="accepts 1 image per request"):
        [*client.send(files, url=address(server), model="crops.pixprep", batch=2, inputs={"boxes": BOXES})]


def test_the_commands_accept_inputs(server, folder, capsys):
    url = ["--url", address(server), "--model", "crops.pixprep"]
    (folder / "boxes.json").write_text(json.dumps({"a.jpg": BOXES}))
    for given in (json.dumps(BOXES), folder / "boxes.json"):
        assert main(["send", str(folder / "a.jpg"), "--json", "--input", f"boxes={given}", *url]) == 0
        assert json.loads(capsys.readouterr().out)["outputs"]["tensor"]["shape"] == [3, 3, 24, 30]
    assert main(["send", str(folder / "a.jpg"), "--input", "boxes=nowhere.json", *url]) == 1
    assert (
        "boxes=nowhere.json: the value is neither JSON nor the path of an existing JSON file" in capsys.readouterr().err
    )
    (folder / "boxes.json").write_text("[1,")
    assert main(["send", str(folder / "a.jpg"), "--input", f"boxes={folder / 'boxes.json'}", *url]) == 1
    assert "boxes.json: not valid JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "inputs"),
    [("crops.pixprep", {"boxes": BOXES}), ("turns.pixprep", {"turn": [[True]], "paint": [[1, 2, 3]]})],
)
def test_bench_measures_with_inputs(server, model, inputs):
    url = address(server)
    (row,) = perf.measure([photo()], url=url, model=model, concurrency=[2], seconds=0.4, inputs=inputs)
    assert row.images_per_s > 0


# Tests of two stages in one ensemble, as in docs/boxes.md.


RED, BLUE = (130, 90, 290, 330), (380, 180, 510, 410)
COLOURS = """<ir_version: 8, opset_import: ["": 18]>
means (float[batch, 3, 64, 64] crops) => (float[batch, 3] scores) {
    sides = Constant <value_ints = [2, 3]> ()
    scores = ReduceMean <keepdims = 0> (crops, sides)
}"""


EYES = pp.warp(points="eyes", template=((8, 8), (56, 8), (32, 56)), height=64, width=64)
ROWS = """
def rows(output0, transform, original_size):
    l, t, r, b = boxes_of(output0, transform, original_size).reshape(-1, 4).T
    return {"eyes": np.array([[l, t], [r, t], [(l + r) / 2, b]]).transpose(2, 0, 1)}
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


def commands(folder, *models):
    """Run the page's commands, which build these models, in a folder."""
    lines = re.findall(r"^pixprep ((?:import|build) .*)$", DOC.replace("\\\n", ""), re.MULTILINE)
    for line in lines:
        if any(model in line for model in models):
            words = [str(folder / word) if "." in word or word == "models" else word for word in line.split()]
            assert main(words) == 0, line


@pytest.fixture(scope="module")
def two_stages(tmp_path_factory):
    """Return a folder with the photo, and with a repository that contains both ensembles of the page."""
    folder = tmp_path_factory.mktemp("stages")
    (folder / "photo.png").write_bytes(png(detectors.photo(480, 640, red=RED, blue=BLUE)))
    (folder / "gray.png").write_bytes(png(np.full((480, 640, 3), 120, np.uint8)))
    crops, *_ = blocks("json")
    (folder / "crops.json").write_text(crops)
    (folder / "colours.txt").write_text("red\ngreen\nblue\n")
    onnx.save(onnx.parser.parse_model(COLOURS), folder / "colours.onnx")
    detectors.save(folder / "model.onnx")
    (folder / "pick.py").write_text(blocks("python")[1])
    commands(folder, "crops.json", "detect.json", "model.onnx")
    models = folder / "models"
    pp.Pipeline([pp.decode(), EYES, pp.normalize(), pp.tensor()]).save(folder / "aligned.json")
    (folder / "aligned.py").write_text(f"{blocks('python')[1].replace('def rows', 'def boxes_of')}\n{ROWS}")
    files = ["--pipeline", "aligned.json", "--onnx", "colours.onnx", "--boxes-by", "aligned.py"]
    places = [str(folder / word) if "." in word else word for word in files]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        assert main(["build", *places, "--name", "aligned", "--boxes-from", "detect", "--output", str(models)]) == 0
    assert "clients must send" not in out.getvalue()  # no message asks for changes to clients that send a photo
    assert main(["check", str(models)]) == 0
    return folder


@pytest.fixture
def stages(shared, two_stages):
    """Return the folder, and the server that serves its repository."""
    return two_stages, shared(two_stages / "models")


def shown(printed):
    return re.sub(r"[\d.]+ ms", "MS ms", printed)


@pytest.mark.parametrize("number", [0, 1])
def test_the_page_shows_the_output_of_send(stages, number, capsys, monkeypatch):
    folder, server = stages
    session = re.findall(r"^\$ pixprep (send .*)\n((?:.*\n)*?)^```", DOC, re.MULTILINE)[number]
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main([*shlex.split(session[0]), "--url", address(server)]) == 0
    assert shown(capsys.readouterr().out) == session[1]


@pytest.mark.parametrize("language", ["python", "sh"])
def test_the_pages_clients_get_the_labels(stages, language):
    folder, server = stages
    program = blocks(language)[0].replace("localhost:8000", address(server))
    command = [sys.executable, "-c", program] if language == "python" else ["/bin/sh", "-e", "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if language == "python":
        assert done.stdout == "['red', 'blue']\n"
    else:
        (scores,) = json.loads(done.stdout)["outputs"]
        assert scores["shape"] == [2, 3]
        assert np.reshape(scores["data"], (2, 3)).argmax(axis=1).tolist() == [0, 2]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_labels_equal_those_of_fixed_crops_for_any_source_of_boxes(stages, protocol):
    folder, server = stages
    url = address(server, protocol)
    photo = [folder / "photo.png"]
    (given,) = client.send(photo, url=url, protocol=protocol, inputs={"boxes": [RED, BLUE]})
    (found,) = client.send(photo, url=url, protocol=protocol, model="things")
    for answer in (given, found):
        assert answer.error is None
    assert np.abs(found.outputs["boxes"] - (RED, BLUE)).max() < 1
    for scores in (given.outputs["scores"], found.outputs["scores"]):
        assert scores.shape == (2, 3)
        for (left, top, right, bottom), row in zip((RED, BLUE), scores, strict=True):
            crop = [pp.decode(), pp.crop(top, left, bottom - top, right - left)]
            with pp.Engine(pp.Pipeline([*crop, pp.resize(height=64, width=64), pp.normalize(), pp.tensor()])) as engine:
                (tensor,) = engine.run([photo[0].read_bytes()])
            assert np.allclose(row, tensor.mean(axis=(1, 2)), atol=1e-5)


def test_detections_can_become_points(stages):
    folder, server = stages
    (found,) = client.send([folder / "photo.png"], url=address(server), model="aligned")
    assert found.error is None
    left, top, right, bottom = np.array([RED, BLUE]).T
    eyes = np.array([[left, top], [right, top], [(left + right) / 2, bottom]]).transpose(2, 0, 1)
    assert np.abs(found.outputs["eyes"] - eyes).max() < 1
    with pp.Engine(pp.Pipeline([pp.decode(), EYES, pp.normalize(), pp.tensor()])) as engine:
        photo = (folder / "photo.png").read_bytes()
        tensors = engine.run_batch([photo], inputs={"eyes": [found.outputs["eyes"]]})["tensor"]
    assert np.allclose(found.outputs["scores"], tensors.mean(axis=(2, 3)), atol=1e-5)
    assert found.outputs["scores"].argmax(axis=1).tolist() == [0, 2]
    (nothing,) = client.send([folder / "gray.png"], url=address(server), model="aligned")
    assert (nothing.error, nothing.outputs["eyes"].shape) == (None, (0, 3, 2))
    assert nothing.outputs["scores"].shape[0] == 0


def test_no_detections_give_no_rows_and_boxes_above_the_limit_are_rejected(stages):
    folder, server = stages
    url = address(server)
    for classes in (0, 2):
        (nothing,) = client.send([folder / "gray.png"], url=url, model="things", classes=classes)
        assert nothing.error is None
        assert nothing.outputs["boxes"].shape == (0, 4)
        assert nothing.outputs["scores"].shape[0] == 0
    (refused,) = client.send([folder / "gray.png"], url=url, inputs={"boxes": []})
    assert '[EMPTY] image 1 of 1: "boxes" has no rows, so the image has no tensors (parameter no_rows)' in refused.error
    (most,) = client.send([folder / "photo.png"], url=url, inputs={"boxes": [RED] * 64})
    assert most.outputs["scores"].shape == (64, 3)
    (many,) = client.send([folder / "photo.png"], url=url, inputs={"boxes": [RED] * 65})
    assert '[BAD_INPUT] image 1 of 1: 65 rows of "boxes"; the limit is 64 (parameter max_boxes)' in many.error


def test_a_build_limits_boxes_to_the_batch_of_the_classifier(stages, tmp_path, capsys):
    folder, _ = stages
    files = ["--pipeline", str(folder / "crops.json"), "--onnx", str(folder / "colours.onnx")]
    models = tmp_path / "models"
    assert main(["build", *files, "--output", str(models), "--max-batch-size", "5", "--on-error", "zero"]) == 0
    capsys.readouterr()
    preprocess, classifier, ensemble = (
        (models / name / "config.pbtxt").read_text() for name in ("preprocess", "classifier", "ensemble")
    )
    assert "max_batch_size: 0\n" in preprocess
    assert 'parameters { key: "max_boxes" value { string_value: "5" } }' in preprocess
    assert "dynamic_batching" not in preprocess
    assert "max_batch_size: 5\n" in classifier
    assert "max_batch_size: 0\n" in ensemble
    dims = re.findall(r'name: "(\w+)"\n.*\n  dims: \[ (.*) \]', ensemble)
    assert dims == [("image", "1"), ("boxes", "-1, 4"), ("scores", "-1, 3"), ("status", "-1, 1")]
    assert main(["check", str(models)]) == 0
    assert main(["build", *files, "--output", str(models)]) == 0  # building again gives the same result
    assert 'string_value: "5"' in (models / "preprocess" / "config.pbtxt").read_text()


def example(stages, *words):
    folder, server = stages
    return run_program(EXAMPLE, "photo.png", *words, "--url", address(server), cwd=folder)


def test_the_example_prints_the_class_of_each_box(stages):
    done = example(stages, "130,90,290,330", "380,180,510,410", "--labels", "colours.txt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("  0.9020  red  [130.0, 90.0, 290.0, 330.0]\n  0.9020  blue  [380.0, 180.0, 510.0, 410.0]\n")


def test_the_example_names_a_rejected_box_in_one_line(stages):
    done = example(stages, "130,90,290,330", "900,0,950,9")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "boxes.py: [400] in ensemble 'ensemble', [DOES_NOT_FIT] image 1 of 1: \"boxes\", row 2 of 2"
    )
    assert len(done.stderr.splitlines()) == 1
