"""Clips and classifiers: an image's made one of clips, a clip's as it is, and what does not fit."""

import io
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import pixprep as pp
from images import photo
from pixprep.cli.parser import main
from pixprep.errors import PipelineError
from pixprep.preview import still
from pixprep.repository import build, check, try_out

FRAMES, SIDE = 4, 8
RNG = np.random.default_rng(1)


def pipeline(layout="tchw", *, frames=FRAMES, size=SIDE, dtype="float32"):
    ops = [pp.resize(height=size, width=size), pp.normalize(mean=0.5, std=0.5), pp.tensor(layout=layout, dtype=dtype)]
    return pp.Pipeline([pp.decode_video(frames=frames), *ops])


def value(name, shape, type_=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type_, shape)


def save(path, shape, *, opset=18, outputs=None, type_=TensorProto.FLOAT, weights=None):
    """A network that is not linear: a mean over its frames is none of its inputs'.

    Its two outputs are of its input flattened: ``scores`` (5), and ``squares``, which an If gives that reads ``scores``
    from outside.
    """
    n_values = int(np.prod([side if isinstance(side, int) and side > 0 else SIDE for side in shape[1:]]))
    dtype = helper.tensor_dtype_to_np_dtype(type_)
    weights = RNG.normal(size=(n_values, 5)).astype(dtype) if weights is None else weights
    square = helper.make_graph(
        [helper.make_node("Mul", ["scores", "scores"], ["inner"])], "s", [], [value("inner", None, type_)]
    )
    nodes = [
        helper.make_node("Flatten", ["input"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["linear"]),
        helper.make_node("Relu", ["linear"], ["scores"]),
        helper.make_node("If", ["yes"], ["squares"], then_branch=square, else_branch=square),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [value("input", shape, type_)],
        outputs or [value("scores", ["batch", 5], type_), value("squares", ["batch", 5], type_)],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.ones((), bool), "yes")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def run(path, array):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (input_,) = session.get_inputs()
    return dict(
        zip([output.name for output in session.get_outputs()], session.run(None, {input_.name: array}), strict=True)
    )


def config(repository, model):
    return (repository / model / "config.pbtxt").read_text()


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(
    ("layout", "shape"),
    [("tchw", ["batch", 3, SIDE, SIDE]), ("thwc", ["n", SIDE, SIDE, 3]), ("tchw", [None, 3, "height", "width"])],
)
def test_the_outputs_are_the_means_over_the_frames_of_each_clip(tmp_path, layout, shape, opset):
    images = save(tmp_path / "images.onnx", shape, opset=opset)
    build(tmp_path / "models", pipeline=pipeline(layout), onnx=images, average_frames=True)
    clips = RNG.normal(size=(3, *pipeline(layout).outputs["tensor"].spec.shape)).astype(np.float32)
    found = run(tmp_path / "models" / "classifier" / "1" / "model.onnx", clips)
    apart = run(images, clips.reshape(-1, *clips.shape[2:]))
    assert list(found) == ["scores", "squares"]
    for name, array in found.items():
        np.testing.assert_allclose(array, apart[name].reshape(3, FRAMES, 5).mean(axis=1), rtol=1e-5)
    # control: a mean over clips in place of frames, and the classifier of a mean frame
    assert not np.allclose(found["scores"], apart["scores"].reshape(FRAMES, 3, 5).mean(axis=0), rtol=1e-2)
    assert not np.allclose(found["scores"], run(images, clips.mean(axis=1))["scores"], rtol=1e-2)


def test_half_precision_stays_what_it_is(tmp_path):
    images = save(tmp_path / "images.onnx", ["n", 3, SIDE, SIDE], type_=TensorProto.FLOAT16)
    build(tmp_path / "models", pipeline=pipeline(dtype="float16"), onnx=images, average_frames=True)
    clips = RNG.normal(size=(1, FRAMES, 3, SIDE, SIDE)).astype(np.float16)
    found = run(tmp_path / "models" / "classifier" / "1" / "model.onnx", clips)["scores"]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found[0], run(images, clips[0])["scores"].mean(axis=0), rtol=1e-2)


def test_the_repository_has_clips_in_it_and_nothing_to_complain_of(tmp_path):
    images = save(tmp_path / "images.onnx", ["batch", 3, SIDE, SIDE])
    built = build(tmp_path / "models", pipeline=pipeline(), onnx=images, average_frames=True, classifier="tensorrt")
    assert [problem.where for problem in check(tmp_path / "models")] == ["classifier/1/model.plan"]  # made elsewhere
    dims = f"dims: [ {FRAMES}, 3, {SIDE}, {SIDE} ]"
    for model in ("preprocess", "classifier"):
        assert dims in config(tmp_path / "models", model)
    for model in ("preprocess", "classifier", "ensemble"):
        assert f"max_batch_size: {64 // FRAMES}\n" in config(tmp_path / "models", model)
    for model in ("preprocess", "ensemble"):
        assert f'parameters {{ key: "frames" value {{ string_value: "{FRAMES}" }} }}' in config(
            tmp_path / "models", model
        )
    assert "format:" not in config(tmp_path / "models", "classifier")  # NCHW is of images
    assert f"--maxShapes=input:16x{FRAMES}x3x{SIDE}x{SIDE}" in built.notes[-1]


def test_a_batch_of_ones_own_is_that_of_all_three_models(tmp_path):
    images = save(tmp_path / "images.onnx", ["batch", 3, SIDE, SIDE])
    build(tmp_path / "models", pipeline=pipeline(), onnx=images, average_frames=True, max_batch_size=3)
    for model in ("preprocess", "classifier", "ensemble"):
        assert "max_batch_size: 3\n" in config(tmp_path / "models", model)


def test_weights_beside_the_file_are_copied_along(tmp_path):
    images = save(tmp_path / "images.onnx", ["batch", 3, SIDE, SIDE])
    whole = run(images, clip := RNG.normal(size=(FRAMES, 3, SIDE, SIDE)).astype(np.float32))["scores"].mean(axis=0)
    onnx.save(onnx.load(images), images, save_as_external_data=True, location="weights.bin", size_threshold=1024)
    build(tmp_path / "models", pipeline=pipeline(), onnx=images, average_frames=True)
    found = run(tmp_path / "models" / "classifier" / "1" / "model.onnx", clip[None])["scores"]
    np.testing.assert_allclose(found[0], whole, rtol=1e-5)


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("tchw", ["batch", FRAMES, 3, SIDE, SIDE]),
        ("thwc", ["batch", FRAMES, SIDE, SIDE, 3]),
        ("cthw", ["batch", 3, FRAMES, SIDE, SIDE]),
        ("cthw", ["batch", 3, "frames", "height", "width"]),
    ],
)
def test_a_model_of_clips_is_served_as_it_is(tmp_path, layout, shape):
    clips = save(tmp_path / "clips.onnx", shape, weights=np.zeros((FRAMES * 3 * SIDE**2, 5), np.float32))
    build(tmp_path / "models", pipeline=pipeline(layout), onnx=clips)
    assert check(tmp_path / "models") == []
    assert (tmp_path / "models" / "classifier" / "1" / "model.onnx").read_bytes() == clips.read_bytes()
    dims = ", ".join(map(str, pipeline(layout).outputs["tensor"].spec.shape))
    assert f"dims: [ {dims} ]" in config(tmp_path / "models", "classifier")


GIVES = f'the pipeline gives [{FRAMES}, 3, {SIDE}, {SIDE}], the model\'s "input" wants'
IMAGES = (
    f'the pipeline gives clips, [{FRAMES}, 3, {SIDE}, {SIDE}], and the model\'s "input" takes images, '
    f"[3, {SIDE}, {SIDE}]: --average-frames runs it on each frame and averages what it gives; or export the model with "
    f"[batch, {FRAMES}, 3, {SIDE}, {SIDE}]"
)
CTHW = (
    f'the pipeline gives [3, {FRAMES}, {SIDE}, {SIDE}], the model\'s "input" wants [3, {SIDE}, {SIDE}] for each frame'
)


@pytest.mark.parametrize(
    ("given", "shape", "average", "message"),
    [
        (pipeline(), ["n", 3, SIDE, SIDE], False, IMAGES),
        (pipeline(), [1, 3, SIDE, SIDE], False, IMAGES),
        (
            pipeline(),
            [FRAMES, 3, SIDE, SIDE],
            False,
            f'input "input" has no batch dimension: export the model with [batch, {FRAMES}, 3, {SIDE}, {SIDE}]',
        ),
        (
            pipeline(),
            [1, 3, SIDE, SIDE],
            True,
            'the batch of input "input" is fixed at 1: export the model with a free first dimension',
        ),
        (
            pipeline(),
            ["n", FRAMES, 3, SIDE, SIDE],
            True,
            f'input "input" takes clips itself, [-1, {FRAMES}, 3, {SIDE}, {SIDE}]: leave --average-frames out',
        ),
        (
            pipeline(),
            ["n", SIDE, SIDE, 3],
            True,
            f'{GIVES} [{SIDE}, {SIDE}, 3] for each frame: set tensor layout to "thwc"',
        ),
        (pipeline(), ["n", 3, 16, 16], True, f"{GIVES} [3, 16, 16] for each frame: set resize to 16"),
        (
            pipeline(),
            ["n", 1, SIDE, SIDE],
            True,
            f'{GIVES} [1, {SIDE}, {SIDE}] for each frame: set decode_video color to "gray"',
        ),
        (pipeline("cthw"), ["n", 3, SIDE, SIDE], True, f'{CTHW}: set tensor layout to "tchw"'),
        (
            pipeline("cthw", frames=3),
            ["n", "c", "h", "w"],
            True,
            f'the pipeline gives [3, 3, {SIDE}, {SIDE}], the model\'s "input" wants [-1, -1, -1] for each frame: '
            'set tensor layout to "tchw"',
        ),
        (
            pipeline(),
            ["n", 3, FRAMES, SIDE, SIDE],
            False,
            f'{GIVES} [3, {FRAMES}, {SIDE}, {SIDE}]: set tensor layout to "cthw"',
        ),
        (
            pipeline(),
            ["n", 16, 3, SIDE, SIDE],
            False,
            f"{GIVES} [16, 3, {SIDE}, {SIDE}]: set decode_video frames to 16",
        ),
        (
            pipeline(),
            ["n", 3, 6, 9, 9],
            False,
            f'{GIVES} [3, 6, 9, 9]: set tensor layout to "cthw" and set decode_video frames to 6 and set resize to 9',
        ),
        (
            pp.presets.imagenet(),
            ["n", 3, 224, 224],
            True,
            '--average-frames: "tensor" is no tensor of a clip: begin with decode_video',
        ),
        (
            pp.presets.imagenet(),
            ["n", 16, 3, 224, 224],
            False,
            'the pipeline gives [3, 224, 224], the model\'s "input" wants [16, 3, 224, 224]: '
            "begin with decode_video, for a model of clips",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(tmp_path, given, shape, average, message):
    path = save(tmp_path / "my.onnx", shape, weights=np.zeros((1, 5), np.float32))
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=given, onnx=path, average_frames=average)
    assert str(caught.value) == f"my.onnx: {message}"
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            value("scores", ["n", 5], TensorProto.INT64),
            "is INT64, of which there is no mean: export the model without it",
        ),
        (value("input", ["n", 3, SIDE, SIDE]), "is an input, too: export the model without it"),
        (value("scores", ["n", "k"]), "has dims of free length, [-1, -1]: export the model with fixed ones"),
    ],
)
def test_an_output_without_a_mean_is_refused(tmp_path, output, message):
    path = save(tmp_path / "my.onnx", ["n", 3, SIDE, SIDE], outputs=[output])
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", pipeline=pipeline(), onnx=path, average_frames=True)
    assert str(caught.value) == f'my.onnx: output "{output.name}" {message}'


def averages(tmp_path, path):
    """Whether the file that is written is a valid one, and gives the means of the scores that ``path`` gives."""
    build(tmp_path / "models", pipeline=pipeline(), onnx=path, average_frames=True)
    written = tmp_path / "models/classifier/1/model.onnx"
    onnx.checker.check_model(written, full_check=True)
    clips = RNG.normal(size=(2, FRAMES, 3, SIDE, SIDE)).astype(np.float32)
    expected = [run(path, clip)["scores"].mean(axis=0) for clip in clips]
    return np.allclose(run(written, clips)["scores"], expected, rtol=1e-5)


def test_a_file_of_an_old_ir_version_stays_a_valid_one(tmp_path):
    path = save(tmp_path / "my.onnx", ["batch", 3, SIDE, SIDE], opset=8)
    model = onnx.load(path)
    model.ir_version = 3
    model.graph.input.extend([value("weights", [3 * SIDE**2, 5]), value("yes", [], TensorProto.BOOL)])
    onnx.save(model, path)
    assert averages(tmp_path, path)


@pytest.mark.parametrize("name", ["input_of_frames", "scores_shape", "squares_axes"])
def test_names_inside_a_graph_of_a_node_are_not_given_again(tmp_path, name):
    path = save(tmp_path / "my.onnx", ["batch", 3, SIDE, SIDE])
    model = onnx.load(path)
    for attribute in model.graph.node[-1].attribute:
        attribute.g.node[0].output[0] = attribute.g.output[0].name = name
    onnx.save(model, path)
    assert averages(tmp_path, path)


@pytest.mark.parametrize("opsets", [[helper.make_opsetid("", 4)], [helper.make_opsetid("com.acme", 1)], []])
def test_an_opset_that_is_too_old_is_refused(tmp_path, opsets):
    path = save(tmp_path / "my.onnx", ["n", 3, SIDE, SIDE])
    model = onnx.load(path)
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PipelineError, match=r"^my\.onnx: is of opset [04], too old for --average-frames: "):
        build(tmp_path / "models", pipeline=pipeline(), onnx=path, average_frames=True)


def test_a_plan_is_not_wrapped(tmp_path):
    (tmp_path / "model.plan").write_bytes(b"plan")
    path = save(tmp_path / "my.onnx", ["n", 3, SIDE, SIDE])
    with pytest.raises(PipelineError, match="leave --plan out, and make the plan of the file that is written"):
        build(
            tmp_path / "models",
            pipeline=pipeline(),
            onnx=path,
            plan=tmp_path / "model.plan",
            classifier="tensorrt",
            average_frames=True,
        )


def test_a_model_that_normalizes_too_is_noted_behind_clips_as_behind_images(tmp_path):
    layers = [
        helper.make_node("Div", ["input", "scale"], ["small"]),
        helper.make_node("Flatten", ["small"], ["scores"]),
    ]
    size = 3 * SIDE**2
    graph = helper.make_graph(
        layers,
        "normalizes",
        [value("input", ["n", 3, SIDE, SIDE])],
        [value("scores", ["n", size])],
        [numpy_helper.from_array(np.array(255, np.float32), "scale")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "my.onnx")
    built = build(tmp_path / "models", pipeline=pipeline(), onnx=tmp_path / "my.onnx", average_frames=True)
    assert any(
        note.startswith('my.onnx: Div "small" normalizes the input, and so does the pipeline') for note in built.notes
    )


def test_a_preview_shows_a_photo_as_a_clip_that_stands_still_and_a_clip_itself(tmp_path):
    pytest.importorskip("av")
    from clips import clip  # noqa: PLC0415  (PyAV's)

    means = np.kron(np.eye(3), np.full((SIDE**2, 1), 1 / SIDE**2)).astype(np.float32)
    path = save(tmp_path / "my.onnx", ["n", 3, SIDE, SIDE], weights=np.hstack([means, means[:, :2]]))
    labels = tmp_path / "labels.txt"
    labels.write_text("red\ngreen\nblue\nred again\ngreen again\n")
    model = onnx.load(path)
    del model.graph.output[1]
    onnx.save(model, path)
    build(tmp_path / "models", pipeline=pipeline(), onnx=path, average_frames=True, labels=labels)
    encoded = clip("h264.mp4", 30)
    with pp.Engine(pipeline()) as engine:
        tensor = engine.run_batch([encoded])["tensor"]
    scores = run(tmp_path / "models" / "classifier" / "1" / "model.onnx", tensor)["scores"][0].astype(np.float64)
    shares = np.exp(scores) / np.exp(scores).sum()
    names = labels.read_text().splitlines()
    best = ", ".join(f"{names[index]} {shares[index]:.2f}" for index in np.argsort(-shares, kind="stable")[:3])
    *_, last = try_out(tmp_path / "models", encoded)
    assert last == f'"scores": {best}'
    first, *_, last = try_out(tmp_path / "models", photo("china"))
    assert first.startswith('"tensor": ')
    assert last.startswith('"scores": ')
    with pytest.raises(pp.ImageError, match="TRUNCATED"):
        list(try_out(tmp_path / "models", encoded[: len(encoded) // 2]))


def test_a_preview_is_of_the_middle_frame_of_a_clip(tmp_path, capsys):
    pytest.importorskip("av")
    from clips import clip, number  # noqa: PLC0415  (PyAV's)

    encoded = clip("h264.mp4", 30)
    assert number(np.asarray(Image.open(io.BytesIO(still(pipeline(), encoded))))) == 15
    assert still(pipeline(), photo("china")) == photo("china")
    assert still(pp.presets.imagenet(), encoded) == encoded  # which it then refuses
    (tmp_path / "clip.mp4").write_bytes(encoded)
    pipeline().save(tmp_path / "clips.json")
    words = ["--image", str(tmp_path / "clip.mp4"), "--output", str(tmp_path / "stages.png")]
    assert main(["explain", str(tmp_path / "clips.json"), *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith('"tensor": ')
    assert (tmp_path / "stages.png").read_bytes().startswith(b"\x89PNG")


def test_without_pyav_a_preview_says_so_and_the_build_is_whole(tmp_path):
    save(tmp_path / "my.onnx", ["n", 3, SIDE, SIDE])
    (tmp_path / "clip.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    pipeline().save(tmp_path / "clips.json")
    program = "import sys; sys.modules['av'] = None; from pixprep.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["--pipeline", "clips.json", "--onnx", "my.onnx", "--average-frames", "--image", "clip.mp4"]
    done = subprocess.run(
        [sys.executable, "-c", program, "build", *options], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert '  not shown: decode_video needs PyAV: pip install "pixprep[video]"\n' in done.stderr
    assert len(done.stdout.splitlines()) == 7
