"""Tests object detection end to end: a real Triton server processes a photo, and the boxes match the objects in the
photo.
"""

import base64
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.serving.embedded import client
from pixprep.serving.page.answer import Photos
from support import detectors
from support.images import png, save
from support.serving import address, run_program

pytestmark = pytest.mark.server

EXAMPLE = Path(__file__).parents[3] / "client_examples" / "detect.py"
DOCS = EXAMPLE.parents[1] / "docs"
ENSEMBLES = ("ensemble", "stretch", "crop", "square")


def tasks():
    """Return the outputs and the metadata of an exported model for each task, by the name of its ensemble. Each model
    finds one object, which is 80 pixels wide.
    """
    box = [160, 120, 80, 80]
    maps = np.full((1, 80, 80), -1, np.float32)
    maps[0, 20:30, 30:50] = 1

    def rows(*more):
        return np.concatenate([[[*box, *more]], np.zeros((60, 4 + len(more)))]).T.astype(np.float32)

    names = str(dict(enumerate(detectors.NAMES)))
    return {
        "pose": (
            {"output0": rows(0.9, 100, 120, 0.8, 140, 160, 0.2)},
            {"task": "pose", "kpt_shape": "[2, 3]", "names": "{0: 'person'}"},
        ),
        "seg": ({"output0": rows(0.9, 0, 1), "output1": maps}, {"task": "segment", "names": names}),
        "named": (
            {
                "boxes": np.float32([[120, 80, 200, 160]]),
                "scores": np.float32([0.9]),
                "labels": np.int64([7]),
                "masks": maps.repeat(4, 1).repeat(4, 2).clip(0, 1)[None],
            },
            {},
        ),
    }


TASKS = tasks()


def urls(server):
    return {"http_url": server.http_url, "grpc_url": server.grpc_url}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("detect")


REST = [pp.transform(), pp.original_size(), pp.tensor()]


def build(models, onnx, pipeline, *options, name=None):
    """Build a detector in the repository. Without a pipeline, import the one of the model."""
    path = onnx.with_name("pipeline.json")
    if pipeline is None:
        assert main(["import", str(onnx), str(path)]) == 0
    else:
        pipeline.save(path)
    output = ["--classifier", "onnxruntime", "--output", str(models), *(["--name", name] if name else [])]
    before = options or ["--pipeline", str(path)]
    assert main(["build", *before, "--onnx", str(onnx), *output]) == 0


@pytest.fixture(scope="module")
def models(folder):
    """Return a repository with an imported detector, and a pipeline without a detector."""
    models = folder / "models"
    build(models, detectors.save(folder / "a" / "model.onnx"), None)
    (models / "plain" / "1").mkdir(parents=True)
    pp.presets.imagenet().save(models / "plain" / "1" / "pipeline.json")
    (models / "plain" / "config.pbtxt").write_text('backend: "pixprep"\nmax_batch_size: 8\n')
    return models


@pytest.fixture(scope="module")
def more_models(folder, models):
    """Return the same repository with eight more detectors. One is imported, and two have a pipeline written as in
    docs/detection.md.
    """
    more = folder / "more"
    shutil.copytree(models, more)
    crop = [pp.decode(), pp.resize(416, like="opencv"), pp.center_crop(384, 352), pp.normalize(), *REST]
    square = [
        pp.decode(color="bgr"),
        pp.pad(square=True, anchor="top_left"),
        pp.resize(height=320, width=320, like="opencv"),
        pp.normalize(arithmetic="multiply"),
        *REST,
    ]
    stretched = detectors.save(folder / "b" / "model.onnx", size=(288, 384), corners=True, head="RTDETRDecoder")
    build(more, stretched, None, name="stretch")
    build(more, detectors.save(folder / "c" / "model.onnx", size=(384, 352)), pp.Pipeline(crop), name="crop")
    build(more, detectors.save(folder / "d" / "model.onnx", channels="bgr"), pp.Pipeline(square), name="square")
    echo = [pp.decode(), pp.original_size(name="orig_target_sizes", dtype="int64", order="wh"), pp.resize(64)]
    echo += [pp.image_size(name="im_shape", dtype="float32"), pp.scale_factor(), pp.center_crop(64), pp.normalize()]
    sizes = {"orig_target_sizes": ("INT64", ["n", 2])} | dict.fromkeys(
        ("im_shape", "scale_factor"), ("FLOAT", ["n", 2])
    )
    model = detectors.save_echo(folder / "e" / "model.onnx", {"image": ("FLOAT", ["n", 3, 64, 64]), **sizes})
    build(more, model, pp.Pipeline([*echo, pp.tensor()]), name="sizes")
    letterbox = [pp.decode(), pp.letterbox(height=320, width=320, like="opencv"), pp.normalize(), *REST]
    for name, (outputs, metadata) in TASKS.items():
        model = detectors.save_constant(folder / name / "model.onnx", outputs, **metadata)
        shared = [] if name == "pose" else ["--preprocess", "pose_preprocess"]
        build(more, model, pp.Pipeline(letterbox), *shared, name=name)
    return more


@pytest.fixture
def larger_server(shared, more_models):
    """Return the shared server with all these detectors."""
    return shared(more_models)


def example_output(server, photo, *options, cwd):
    """Return the output of the example."""
    done = run_program(EXAMPLE, photo, "--url", address(server), *options, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def detect(server, photo, *options, cwd):
    """Run the example. Return the detections as (score, name, box), and the last line of the output."""
    *rows, last = example_output(server, photo, *options, cwd=cwd).splitlines()
    return [(float(row[:4]), row[6:22].strip(), [*map(float, row[22:].split())]) for row in rows], last


TURNS = {
    1: lambda p: p,
    3: lambda p: p[::-1, ::-1],
    6: lambda p: np.rot90(p, 1),
    7: lambda p: np.rot90(p, 2).transpose(1, 0, 2),
}
"""Return the stored pixels of a file with an EXIF orientation, for oriented pixels."""


SHAPES = [((480, 640), 1), ((641, 479), 1), ((300, 301), 1), ((900, 700), 3), ((480, 640), 6), ((500, 333), 7)]


@pytest.mark.parametrize(
    ("model", "size", "orientation"),
    [(model, *shape) for model, shape in zip(ENSEMBLES * 2, SHAPES, strict=False)],
)
def test_boxes_are_accurate_to_a_pixel_and_one_per_object(request, tmp_path, model, size, orientation):
    server = request.getfixturevalue("server" if model == "ensemble" else "larger_server")
    height, width = size
    y, x = height // 2, width // 2
    red, blue = (x - 70, y - 90, x - 6, y + 17), (x + 15, y - 40, x + 75, y + 55)
    upright = detectors.photo(height, width, red, blue)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo.png"
    path.write_bytes(save(Image.fromarray(np.ascontiguousarray(TURNS[orientation](upright))), "PNG", exif=exif))
    labels = tmp_path / "names.txt"
    labels.write_text("\n".join(detectors.NAMES))
    rows, last = detect(server, path, "--model", model, "--labels", labels, cwd=tmp_path)
    assert last == f"detected.png: 2 boxes on {height} x {width} pixels"
    assert sorted(name for _, name, _ in rows) == ["blue box", "red box"]
    for score, name, box in rows:
        assert score == pytest.approx(210 / 255, abs=0.02)
        assert np.abs(np.subtract(box, red if name == "red box" else blue)).max() < 1, name
    drawn = np.asarray(Image.open(tmp_path / "detected.png"))
    assert drawn.shape == upright.shape
    changed = (drawn != upright).any(axis=2)
    assert not changed[: y - 95].any()
    assert changed[y - 92 : y - 87, x - 60 : x - 10].any(axis=0).all()  # the upper edge of the red box is drawn


def test_the_docs_show_the_examples_output_and_picture(server, tmp_path):
    things = detectors.photo(480, 640, red=(130, 90, 290, 330), blue=(380, 180, 510, 410))
    (tmp_path / "photo.png").write_bytes(png(things))
    (tmp_path / "names.txt").write_text("\n".join(detectors.NAMES))
    shown = "$ python client_examples/detect.py photo.png --labels names.txt\n"
    shown += example_output(server, "photo.png", "--labels", "names.txt", cwd=tmp_path)
    assert f"```\n{shown}```\n" in (DOCS / "detection.md").read_text(encoding="utf-8")
    fresh, picture = (np.asarray(Image.open(folder / "detected.png")) for folder in (tmp_path, DOCS))
    assert fresh.shape == picture.shape
    assert (fresh != picture).any(axis=2).mean() < 0.01  # text rendering differs slightly between Pillow versions


def test_no_detections_give_no_boxes(server, tmp_path):
    (tmp_path / "gray.png").write_bytes(png(np.full((40, 60, 3), 120, np.uint8)))
    assert detect(server, "gray.png", cwd=tmp_path) == ([], "detected.png: 0 boxes on 40 x 60 pixels")


@pytest.mark.parametrize(
    ("model", "options", "found"),
    [
        ("pose", ["--task", "pose"], ("class 0", ["      point   200.0   160.0"])),
        ("seg", [], ("class 0", [])),
        ("named", [], ("class 7", [])),
    ],
)
def test_the_example_draws_keypoints_and_masks(larger_server, tmp_path, model, options, found):
    name, more = found
    gray = np.full((480, 640, 3), 120, np.uint8)
    (tmp_path / "gray.png").write_bytes(png(gray))
    first, *others, last = example_output(
        larger_server, "gray.png", "--model", model, *options, cwd=tmp_path
    ).splitlines()
    assert (first[:4], first[6:22].strip(), [*map(float, first[22:].split())]) == ("0.90", name, [240, 80, 400, 240])
    assert (others, last) == (more, "detected.png: 1 box on 480 x 640 pixels")
    drawn = np.asarray(Image.open(tmp_path / "detected.png"))
    # this pixel is inside the mask, below the label
    assert (drawn[120, 300] != gray[120, 300]).any() == (model != "pose")
    assert (drawn[160, 200] != gray[160, 200]).any() == (model == "pose")
    assert (drawn[200, 300] == gray[200, 300]).all()  # this pixel is inside the box, but outside the mask


@pytest.mark.parametrize(
    ("photo", "model", "message"),
    [
        (b"not an image", "ensemble", "[400] in ensemble 'ensemble', [UNKNOWN_FORMAT] image 1 of 1: not a JPEG"),
        (png(np.zeros((9, 9, 3), np.uint8)), "plain", "the outputs are tensor: mapping boxes to the photo needs"),
        (
            png(np.zeros((9, 9, 3), np.uint8)),
            "preprocess",
            "unsupported outputs tensor [3, 320, 320]: expected an output of boxes and one of mask prototypes",
        ),
    ],
)
def test_errors_are_reported_in_one_line(server, tmp_path, photo, model, message):
    (tmp_path / "photo").write_bytes(photo)
    done = run_program(EXAMPLE, "photo", "--url", address(server), "--model", model, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"detect.py: {message}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "detected.png").exists()


def test_a_detector_receives_its_additional_inputs(larger_server, folder):
    photo = folder / "even.png"
    photo.write_bytes(png(np.full((96, 128, 3), 102, np.uint8)))
    (answer,) = client.send([photo], url=address(larger_server), model="sizes", protocol="http")
    expected = [0.4, 0.4, 0.4, 128, 96, 64, 85, 64 / 96, 85 / 128]
    np.testing.assert_allclose(answer.outputs["boxes"], expected, rtol=1e-5)


def test_the_page_draws_the_detections(larger_server, more_models):
    red, blue = (130, 90, 290, 330), (380, 180, 510, 410)
    photos = Photos([*ENSEMBLES, *TASKS, "plain"], folder=more_models, **urls(larger_server))
    encoded = png(detectors.photo(480, 640, red, blue))
    answers = {model: photos.answer(model, [encoded], names=["photo.png"]) for model in ("ensemble", "stretch", *TASKS)}
    for model in ("ensemble", "stretch"):
        found = answers[model]["found"]
        assert (found["height"], found["width"], found["png"]) == (480, 640, None)
        objects = {each["label"]: each for each in found["objects"]}
        for name, (left, top, right, bottom) in zip(detectors.NAMES, (red, blue), strict=True):
            corners = [[left, top], [right, top], [right, bottom], [left, bottom]]
            assert np.abs(np.subtract(objects[name]["corners"], corners)).max() < 2
            assert objects[name]["score"] == pytest.approx(210 / 255, abs=0.02)
            assert objects[name]["points"] == []
    corners = [[240, 80], [400, 80], [400, 240], [240, 240]]  # corners of the object, which are the same for every task
    for model, label in (("pose", "person"), ("seg", "red box"), ("named", "class 7")):
        (each,) = answers[model]["found"]["objects"]
        assert each["label"] == label
        assert sorted(each["corners"]) == pytest.approx(np.array(sorted(corners)), abs=1e-3)
        assert all(output["kind"] != "numbers" or "png" not in output for output in answers[model]["outputs"])
    # the other keypoint is omitted because its score is 0.2
    assert answers["pose"]["found"]["objects"][0]["points"] == [[200, 160]]
    for model in ("seg", "named"):
        masks = np.asarray(Image.open(io.BytesIO(base64.b64decode(answers[model]["found"]["png"]))))
        rows, columns = np.nonzero(masks[..., 3])
        assert masks.shape == (480, 640, 4)
        assert (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) == pytest.approx(
            (80, 160, 240, 400), abs=6
        )
    assert photos.answer("plain", [encoded], names=["photo.png"])["found"] is None


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_detector_has_no_classes(server, folder, protocol):
    """`pixprep send` requests the top classes only of a classifier's scores. A model with a ``transform`` output is a
    detector.
    """
    url = address(server, protocol)
    photo = folder / "photo.png"
    photo.write_bytes(png(np.full((480, 640, 3), 120, np.uint8)))
    for model in ("ensemble", "preprocess"):
        (answer,) = client.send([photo], url=url, protocol=protocol, model=model, classes=5)
        assert answer.outputs["transform"].tolist() == [0.5, 0.5, 40, 0]
        assert answer.outputs["original_size"].tolist() == [480, 640]
    assert {name: array.shape for name, array in answer.outputs.items() if name == "tensor"} == {
        "tensor": (3, 320, 320)
    }
