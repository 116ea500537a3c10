"""Tests of classifiers for clips: image classifiers that are converted to clips, models that already classify clips,
and unsuitable models.
"""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import PipelineError
from pixprep.serving.repository import build, check, try_out
from pixprep.show.preview import still
from support.images import photo

ROOT = Path(__file__).parents[2]
FRAMES, SIDE = 4, 8
RNG = np.random.default_rng(1)


def pipeline(layout="tchw", *, frames=FRAMES, size=SIDE, dtype="float32", **sampled):
    ops = [pp.resize(height=size, width=size), pp.normalize(mean=0.5, std=0.5), pp.tensor(layout=layout, dtype=dtype)]
    return pp.Pipeline([pp.decode_video(frames=frames, **sampled), *ops])


def save(path, shape, *, weights=None):
    """Save a network whose output ``scores`` has 5 values and is a linear function of the flattened input."""
    n_values = int(np.prod([side if isinstance(side, int) else SIDE for side in shape[1:]]))
    weights = RNG.normal(size=(n_values, 5)).astype(np.float32) if weights is None else weights
    text = f"""<ir_version: 8, opset_import: ["": 18]>
    small (float[{", ".join(map(str, shape))}] input) => (float[batch, 5] scores) {{
        flat = Flatten (input)
        scores = MatMul (flat, weights)
    }}"""
    return parsed(path, text, weights=weights)


def parsed(path, text, **constants):
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    onnx.save(model, path)
    return path


def run(path, array):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (input_,) = session.get_inputs()
    return dict(
        zip([output.name for output in session.get_outputs()], session.run(None, {input_.name: array}), strict=True)
    )


def config(repository, model):
    return (repository / model / "config.pbtxt").read_text()


def test_the_repository_serves_clips_without_problems(tmp_path):
    clips = save(tmp_path / "clips.onnx", ["batch", FRAMES, 3, SIDE, SIDE])
    built = build(tmp_path / "models", pipeline=pipeline(), onnx=clips, classifier="tensorrt")
    # the plan is built on a different machine
    assert [problem.where for problem in check(tmp_path / "models")] == ["classifier/1/model.plan"]
    dims = f"dims: [ {FRAMES}, 3, {SIDE}, {SIDE} ]"
    for model in ("preprocess", "classifier"):
        assert dims in config(tmp_path / "models", model)
    for model in ("preprocess", "classifier", "ensemble"):
        assert f"max_batch_size: {64 // FRAMES}\n" in config(tmp_path / "models", model)
    for model in ("preprocess", "ensemble"):
        assert f'parameters {{ key: "frames" value {{ string_value: "{FRAMES}" }} }}' in config(
            tmp_path / "models", model
        )
    # Triton's NCHW and NHWC formats only apply to images
    assert "format:" not in config(tmp_path / "models", "classifier")
    assert f"--maxShapes=input:16x{FRAMES}x3x{SIDE}x{SIDE}" in built.notes[-1]


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("tchw", ["batch", FRAMES, 3, SIDE, SIDE]),
        ("thwc", ["batch", FRAMES, SIDE, SIDE, 3]),
        ("cthw", ["batch", 3, FRAMES, SIDE, SIDE]),
        ("cthw", ["batch", 3, "frames", "height", "width"]),
    ],
)
def test_a_clip_classifier_is_served_as_it_is(tmp_path, layout, shape):
    clips = save(tmp_path / "clips.onnx", shape, weights=np.zeros((FRAMES * 3 * SIDE**2, 5), np.float32))
    build(tmp_path / "models", pipeline=pipeline(layout), onnx=clips)
    assert check(tmp_path / "models") == []
    assert (tmp_path / "models" / "classifier" / "1" / "model.onnx").read_bytes() == clips.read_bytes()
    dims = ", ".join(map(str, pipeline(layout).outputs["tensor"].spec.shape))
    assert f"dims: [ {dims} ]" in config(tmp_path / "models", "classifier")


@pytest.mark.parametrize(
    ("layout", "shape", "scores"),
    [
        ("ntchw", ["batch", FRAMES, 3, SIDE, SIDE], "[ -1, 5 ]"),
        ("ncthw", ["batch", 3, FRAMES, SIDE, SIDE], "[ -1, 5 ]"),
        ("ntchw", [10, FRAMES, 3, SIDE, SIDE], "[ 10, 5 ]"),
        ("ntchw", ["batch", 10, FRAMES, 3, SIDE, SIDE], "[ 5 ]"),
    ],
)
def test_the_evenly_spaced_clips_of_a_request_are_the_batch_of_a_clip_classifier(tmp_path, layout, shape, scores):
    path = save(tmp_path / "clips.onnx", shape)
    given = pipeline(layout, clips=10, sample={"step": 2})
    build(tmp_path / "models", pipeline=given, onnx=path)
    assert check(tmp_path / "models") == []
    dims = ", ".join(map(str, given.outputs["tensor"].spec.shape))
    assert f"dims: [ {dims} ]" in config(tmp_path / "models", "preprocess")
    assert f"dims: {scores}" in config(tmp_path / "models", "ensemble")
    clips = RNG.normal(size=given.outputs["tensor"].spec.shape).astype(np.float32)
    (found,) = run(tmp_path / "models" / "classifier" / "1" / "model.onnx", clips[None])["scores"]
    np.testing.assert_allclose(
        found, run(path, clips[None] if len(shape) == 6 else clips)["scores"].reshape(found.shape)
    )


RETURNS = f'the pipeline returns [{FRAMES}, 3, {SIDE}, {SIDE}], but input "input" of the model is'
IMAGES = (
    f'the pipeline returns clips, [{FRAMES}, 3, {SIDE}, {SIDE}], but input "input" of the model accepts images, '
    f"[3, {SIDE}, {SIDE}]: average its results over the frames as in docs/video.md, or export the "
    f"model with [batch, {FRAMES}, 3, {SIDE}, {SIDE}]"
)


@pytest.mark.parametrize(
    ("given", "shape", "message"),
    [
        (pipeline(), ["n", 3, SIDE, SIDE], IMAGES),
        (pipeline(), [1, 3, SIDE, SIDE], IMAGES),
        (
            pipeline(),
            [FRAMES, 3, SIDE, SIDE],
            f'input "input" has no batch dimension: export the model with [batch, {FRAMES}, 3, {SIDE}, {SIDE}]',
        ),
        (
            pipeline(),
            ["n", 3, FRAMES, SIDE, SIDE],
            f'{RETURNS} [3, {FRAMES}, {SIDE}, {SIDE}]: set tensor layout to "cthw"',
        ),
        (
            pipeline(),
            ["n", 16, 3, SIDE, SIDE],
            f"{RETURNS} [16, 3, {SIDE}, {SIDE}]: set decode_video frames to 16",
        ),
        (
            pipeline(),
            ["n", 3, 6, 9, 9],
            f'{RETURNS} [3, 6, 9, 9]: set tensor layout to "cthw" and set decode_video frames to 6 and set resize to '
            "height 9, width 9",
        ),
        (
            pp.presets.imagenet(),
            ["n", 16, 3, 224, 224],
            'the pipeline returns [3, 224, 224], but input "input" of the model is [16, 3, 224, 224]: '
            "begin with decode_video if the model accepts clips",
        ),
    ],
)
def test_unsuitable_models_are_rejected_with_the_fix(tmp_path, given, shape, message):
    path = save(tmp_path / "my.onnx", shape, weights=np.zeros((1, 5), np.float32))
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=given, onnx=path)
    assert str(caught.value) == f"my.onnx: {message}"
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("opset", [13, 18])
def test_the_code_in_the_docs_converts_an_image_classifier_for_clips(tmp_path, opset):
    doc = (ROOT / "docs" / "video.md").read_text(encoding="utf-8")
    (lines,) = (
        block for block in re.findall(r"^```python\n(.*?)^```", doc, re.MULTILINE | re.DOTALL) if "onnx" in block
    )
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    small (float[batch, 3, 224, 224] input) => (float[batch, 1000] logits) {{
        pool = GlobalAveragePool (input)
        flat = Flatten (pool)
        linear = MatMul (flat, shape)
        logits = Relu (linear)
    }}"""  # the mean must follow the Relu, because the order changes the result
    (images := tmp_path / "model_repository" / "classifier" / "1" / "model.onnx").parent.mkdir(parents=True)
    parsed(images, text, shape=RNG.normal(size=(3, 1000)).astype(np.float32))
    subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, check=True)
    onnx.checker.check_model(tmp_path / "clips.onnx", full_check=True)
    clips = RNG.normal(size=(2, 16, 3, 224, 224)).astype(np.float32)
    expected = [run(images, clip)["logits"].mean(axis=0) for clip in clips]
    np.testing.assert_allclose(run(tmp_path / "clips.onnx", clips)["logits"], expected, rtol=1e-4, atol=1e-5)


def test_a_preview_shows_a_photo_as_a_still_clip_and_a_clip_itself(tmp_path):
    pytest.importorskip("av")
    from support.clips import clip  # noqa: PLC0415  (PyAV's)

    means = np.kron(np.eye(3), np.full((SIDE**2, 1), 1 / SIDE**2)).astype(np.float32)
    weights = np.tile(np.hstack([means, means[:, :2]]) / FRAMES, (FRAMES, 1))
    path = save(tmp_path / "my.onnx", ["n", FRAMES, 3, SIDE, SIDE], weights=weights)
    labels = tmp_path / "labels.txt"
    labels.write_text("red\ngreen\nblue\nred again\ngreen again\n")
    build(tmp_path / "models", pipeline=pipeline(), onnx=path, labels=labels)
    encoded = clip("h264.mp4", 30)
    with pp.Engine(pipeline()) as engine:
        tensor = engine.run_batch([encoded])["tensor"]
    scores = run(tmp_path / "models" / "classifier" / "1" / "model.onnx", tensor)["scores"][0].astype(np.float64)
    probabilities = np.exp(scores) / np.exp(scores).sum()
    names = labels.read_text().splitlines()
    best = ", ".join(
        f"{names[index]} {probabilities[index]:.2f}" for index in np.argsort(-probabilities, kind="stable")[:3]
    )
    *_, last = try_out(tmp_path / "models", encoded)
    assert last == f'"scores": {best}'
    first, *_, last = try_out(tmp_path / "models", photo("china"))
    assert first.startswith('"tensor": ')
    assert last.startswith('"scores": ')
    with pytest.raises(pp.ImageError, match="TRUNCATED"):
        list(try_out(tmp_path / "models", encoded[: len(encoded) // 2]))


def test_a_preview_shows_the_middle_frame_of_a_clip(tmp_path, capsys):
    pytest.importorskip("av")
    from support.clips import clip, number  # noqa: PLC0415  (PyAV's)

    encoded = clip("h264.mp4", 30)
    assert number(np.asarray(Image.open(io.BytesIO(still(pipeline(), encoded))))) == 15
    assert still(pipeline(), photo("china")) == photo("china")
    # the clip remains unchanged, and the image pipeline later rejects it
    assert still(pp.presets.imagenet(), encoded) == encoded
    (tmp_path / "clip.mp4").write_bytes(encoded)
    pipeline().save(tmp_path / "clips.json")
    words = ["--image", str(tmp_path / "clip.mp4"), "--output", str(tmp_path / "stages.png")]
    assert main(["explain", str(tmp_path / "clips.json"), *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith('"tensor": ')
    assert (tmp_path / "stages.png").read_bytes().startswith(b"\x89PNG")


def test_without_pyav_a_preview_reports_it_and_the_build_is_complete(tmp_path):
    save(tmp_path / "my.onnx", ["n", FRAMES, 3, SIDE, SIDE])
    (tmp_path / "clip.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    pipeline().save(tmp_path / "clips.json")
    program = "import sys; sys.modules['av'] = None; from pixprep.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["--pipeline", "clips.json", "--onnx", "my.onnx", "--image", "clip.mp4"]
    done = subprocess.run(
        [sys.executable, "-c", program, "build", *options], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert '  no preview: decode_video needs PyAV: pip install "av>=17"\n' in done.stderr
    assert len(done.stdout.splitlines()) == 7
