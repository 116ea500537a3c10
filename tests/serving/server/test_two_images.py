"""Tests of a model that compares two images: the files that `build` writes, and the use of the model with `send`, the
page and clients.
"""

import numpy as np
import onnx
import onnx.parser
import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import PipelineError, PixprepError
from pixprep.serving.embedded import client, perf
from pixprep.serving.page.answer import Photos
from pixprep.serving.page.handler import cut
from pixprep.serving.repository import build, check, side_notes
from support.images import photo, png, scene
from support.serving import address, run_program

pytestmark = pytest.mark.server

SIZED = [pp.decode(), pp.resize(height=16, width=16), pp.normalize()]
LEFT = pp.Pipeline([*SIZED, pp.transform(), pp.tensor()])
RIGHT = pp.Pipeline([*SIZED[:2], pp.normalize(mean=0.5, std=0.25), pp.tensor(name="other")])
COMPARE = """<ir_version: 8, opset_import: ["": 18]>
compare (float[n, 3, 16, 16] left, float[n, 3, 16, 16] right) => (float[n, 2] distance) {
    sides = Constant <value_ints = [1, 2, 3]> ()
    difference = Sub (left, right)
    mean = ReduceMean <keepdims = 0> (difference, sides)
    axis = Constant <value_ints = [1]> ()
    one = Unsqueeze (mean, axis)
    two = Neg (one)
    distance = Concat <axis = 1> (one, two)
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a user's files and a repository of two ensembles.

    The first ensemble has two image inputs. The second one passes a single image to both inputs of the model.
    """
    folder = tmp_path_factory.mktemp("pairs")
    onnx.save(onnx.parser.parse_model(COMPARE), folder / "siamese.onnx")
    LEFT.save(folder / "a.json")
    RIGHT.save(folder / "b.json")
    (folder / "labels.txt").write_text("brighter\ndarker\n")
    for name, content in (("before", photo()), ("after", png(scene(40, 30))), ("third", png(scene(30, 30)))):
        (folder / f"{name}.jpg").write_bytes(content)
    files = [f"left={folder / 'a.json'}", "--pipeline", f"right={folder / 'b.json'}"]
    common = ["build", "--pipeline", *files, "--onnx", str(folder / "siamese.onnx"), "--output", str(folder / "models")]
    assert main([*common, "--labels", str(folder / "labels.txt"), "--max-batch-size", "4"]) == 0
    assert main([*common, "--name", "same", "--one-image"]) == 0
    return folder


@pytest.fixture
def server(shared, folder):
    return shared(folder / "models")


def expected(left, right):
    with pp.Engine(LEFT) as ours, pp.Engine(RIGHT) as theirs:
        tensors = ours.run_batch([left]).outputs["tensor"], theirs.run_batch([right]).outputs["other"]
    distance = (tensors[0] - tensors[1]).mean(axis=(1, 2, 3), dtype=np.float32)
    assert abs(distance[0]) > 0.01
    return np.array([distance[0], -distance[0]])


def test_a_repository_of_two_images_has_a_preprocess_model_for_each(folder, capsys):
    models = folder / "models"
    assert check(models) == []
    assert side_notes(models) == []
    assert {path.name for path in models.iterdir()} == {
        *("preprocess_left", "preprocess_right", "classifier", "ensemble"),
        *("same_preprocess_left", "same_preprocess_right", "same_classifier", "same"),
    }
    text = (models / "ensemble" / "config.pbtxt").read_text()
    for line in ("max_batch_size: 4", 'key: "image" value: "left_image"', 'key: "right" value: "right_other"'):
        assert line in text
    assert 'name: "left_transform"' in text
    assert 'name: "image"' in (models / "same" / "config.pbtxt").read_text()
    capsys.readouterr()
    assert main(["check", str(models), "--image", str(folder / "before.jpg")]) == 0
    assert '"distance": ' in capsys.readouterr().out


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_send_accepts_a_file_for_each_input_and_batches_pairs(folder, server, protocol):
    names = ("before", "after", "third", "before")
    paths = [folder / f"{name}.jpg" for name in names]
    url = address(server, protocol)
    answers = list(client.send(paths, url=url, protocol=protocol, batch=2))
    for answer, (left, right) in zip(answers, (paths[:2], paths[2:]), strict=True):
        assert (answer.path, answer.others, answer.error) == (left, (right,), None)
        assert np.allclose(answer.outputs["distance"], expected(left.read_bytes(), right.read_bytes()), atol=1e-5)
    (same,) = client.send(paths[:1], url=url, protocol=protocol, model="same")
    assert np.allclose(same.outputs["distance"], expected(photo(), photo()), atol=1e-5)
    with pytest.raises(
        PixprepError, match=r"compares 2 images \(left_image, right_image\): pass one file or folder for each"
    ):
        list(client.send(paths[:3], url=url, protocol=protocol))


def test_folders_are_paired_and_a_broken_file_fails_only_its_pair(folder, server, tmp_path, capsys):
    for side, contents in (("before", [photo(), b"x", photo()]), ("after", [photo()] * 3)):
        (tmp_path / side).mkdir()
        for number, content in enumerate(contents):
            (tmp_path / side / f"{number}.jpg").write_bytes(content)
    sides = [tmp_path / "before", tmp_path / "after"]
    errors = [answer.error for answer in client.send(sides, url=address(server), batch=3)]
    assert [error is None for error in errors] == [True, False, True]
    assert "[UNKNOWN_FORMAT]" in errors[1]
    (sides[1] / "2.jpg").unlink()
    with pytest.raises(PixprepError, match=r"equally many files for each; .*before has 3, .*after has 2"):
        list(client.send(sides, url=address(server)))
    pair = [str(folder / "before.jpg"), str(folder / "after.jpg")]
    assert main(["send", *pair, "--url", address(server), "--top", "1"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(" ".join(pair))


def test_health_bench_and_the_commands_of_the_page_use_both_inputs(folder, server):
    assert client.health(url=address(server)) > 0
    (row,) = perf.measure([photo()], url=address(server), concurrency=[1], seconds=0.4)
    assert row.images_per_s > 0
    page = Photos(server.ensembles, folder=server.snapshot.folder, http_url=server.http_url, grpc_url=server.grpc_url)
    assert [each["inputs"] for each in page.models()] == [("left_image", "right_image"), ("image",)]
    pair = [(folder / f"{name}.jpg").read_bytes() for name in ("before", "after")]
    said = page.answer("ensemble", pair, names=["before.jpg", "after.jpg"])
    (scores,) = [output for output in said["outputs"] if output["kind"] == "scores"]
    best = expected(*pair)
    assert [entry["label"] for entry in scores["classes"]] == (
        ["brighter", "darker"] if best[0] > best[1] else ["darker", "brighter"]
    )
    assert [page.stages("ensemble", pair[1], port=f"{side}_image")["pipeline"] for side in ("left", "right")] == [
        "preprocess_left", "preprocess_right",
    ]  # fmt: skip
    with pytest.raises(PixprepError, match="ensemble needs 2 photos: left_image, right_image"):
        page.answer("ensemble", pair[:1], names=["before.jpg"])
    (folder / "program.py").write_text(said["lines"]["python"])
    done = run_program(folder / "program.py", cwd=folder)
    assert (done.returncode, "brighter" in done.stdout) == (0, True), done.stderr
    command = f"pixprep send before.jpg after.jpg --url {server.http_url} --model ensemble"
    assert said["lines"]["shell"] == command


def test_the_photos_of_one_body_are_split_by_their_lengths():
    assert cut(b"abc", []) == [b"abc"]
    assert cut(b"abc", ["1", "2"]) == [b"a", b"bc"]
    assert [cut(b"abc", lengths) for lengths in (["1"], ["1", "3"], ["x"], ["-1", "4"])] == [None] * 4


def test_pipelines_that_do_not_match_the_inputs_are_rejected(folder, tmp_path):
    crops = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), *SIZED[1:], pp.tensor()])
    pixels = pp.Pipeline([pp.pixels(), *SIZED[1:], pp.tensor()])
    for pipelines, options, said in (
        (
            {"left": LEFT},
            {},
            'the model has the input "right", TYPE_FP32 [-1, 3, 16, 16]: also pass --pipeline right=FILE',
        ),
        ({"left": LEFT, "rigth": RIGHT}, {}, 'the model has no input "rigth"; did you mean "right"?'),
        (
            {"left": LEFT, "right": crops},
            {},
            '--pipeline right=FILE: with "boxes", the pipeline returns several tensors per photo',
        ),
        (
            {"left": LEFT, "right": pixels},
            {"one_image": True},
            "all pipelines must accept files, or all must accept pixels",
        ),
        (LEFT, {"one_image": True}, "--one-image requires several --pipeline INPUT=FILE"),
    ):
        with pytest.raises(PipelineError) as caught:
            build(tmp_path / "models", pipeline=pipelines, onnx=folder / "siamese.onnx", **options)
        assert said in str(caught.value)
    assert not (tmp_path / "models").exists()
