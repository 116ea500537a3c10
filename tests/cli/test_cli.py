"""Tests of the command line without a server: output, streams and exit code of each command. Each mistake is reported
in one line.
"""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from PIL import Image, features

import pixprep as pp
from pixprep.cli.output import pixprep_command
from pixprep.cli.parser import command_line
from pixprep.serving.repository import build, lite0
from pixprep.show.drawing import WIDTH
from pixprep.show.pictures import stages
from pixprep.show.words import explain
from support.faces import UNASKED
from support.images import NO_IMAGE, photo
from support.refusals import refusals

COMMANDS = (
    *("demo", "build", "check", "import", "verify", "explain", "run", "data check", "preview", "batch", "serve"),
    *("send", "health", "bench", "doctor", "install-backend"),
)
# A shell makes background programs, including tests, ignore Ctrl-C. This program restores the signal.
PROGRAM = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pixprep.cli import main
sys.exit(main())
"""
NOT_AN_IMAGE = f"[UNKNOWN_FORMAT] {NO_IMAGE}"
PREVIEW = """\
preview of china.jpg, a photo that ships with pixprep:
  "tensor": -2.101 to 2.64; mean red 0.4238, green 0.5034, blue 0.6541
"""
NO_CLASS = '  "logits": every class has the same score\n'


def fill(folder):
    for name in ("flower", "china"):
        (folder / f"{name}.jpg").write_bytes(photo(name))
    (folder / "broken.jpg").write_text("not an image")
    pp.presets.imagenet().save(folder / "pipeline.json")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the user's folder, which is the working directory. It contains two photos, a broken photo and a
    pipeline.
    """
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*arguments, **options):
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, text=True, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options)


def save_onnx(path, shape="batch, 3, 224, 224", inputs=("input",)):
    """Write a classifier that only declares inputs and outputs, because these tests do not use its results."""
    takes = ", ".join(f"float[{shape}] {name}" for name in inputs)
    nodes = f"""
        flat = Flatten({inputs[0]})
        mean = ReduceMean(flat, axis)
        logits = MatMul(mean, weights)"""
    if not shape.startswith("batch"):
        nodes = "logits = Identity(weights)"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        face ({takes}) => (float[batch, 10] logits)
        <float[1, 10] weights = {{{", ".join("0" * 10)}}}, int64[1] axis = {{1}}> {{{nodes}}}""")
    onnx.save(model, path)
    return path


@pytest.fixture
def models(pixprep, folder):
    """Return a repository that ``build`` wrote for a user's own classifier."""
    save_onnx(folder / "my.onnx")
    done = pixprep("build", "--pipeline", "pipeline.json", "--onnx", "my.onnx", "--output", "models")
    assert done == (
        0,
        "models/classifier/1/model.onnx\n"
        "models/classifier/1/model.py\n"
        "models/classifier/config.pbtxt\n"
        "models/ensemble/1/.gitkeep\n"
        "models/ensemble/config.pbtxt\n"
        "models/preprocess/1/pipeline.json\n"
        "models/preprocess/config.pbtxt\n",
        PREVIEW + NO_CLASS + "next  pixprep serve --model-repository models\n",
    )
    return folder / "models"


# Tests of the help and of invalid usage.


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_ends_with_a_valid_example(pixprep, command):
    code, out, err = pixprep(*command.split(), "--help")
    assert (code, err) == (0, "")
    title, example = out.splitlines()[-2:]
    assert title == "example:"
    assert example.startswith(f"  pixprep {command}")
    code, out, err = pixprep(*example.split()[1:], "--no-such-option")
    assert (code, out) == (2, "")
    assert err.startswith(f"usage: pixprep {command} [-h] ")
    assert err.endswith(f"\npixprep {command}: error: unrecognized arguments: --no-such-option\n")


def test_the_help_of_build_is_in_groups(pixprep):
    titles = re.findall(r"^(\w+):$", pixprep("build", "--help")[1], re.MULTILINE)
    assert titles == ["options", "pipeline", "classifier", "models", "example"]


def test_only_commands_among_the_words_have_options(pixprep):
    """The help of all commands is fast, and a wrong option before a command does not hide the command's options."""
    assert command_line(["--help"]).parse_known_args(["build", "--force"])[1] == ["--force"]
    assert not command_line().parse_known_args(["build", "--force"])[1]
    error = pixprep("--no-such-option", "build", "--force")[2].splitlines()[-1]
    assert error == "pixprep build: error: unrecognized arguments: --no-such-option"


def test_help_names_every_command(pixprep):
    commands = re.findall(r"^    (\S+)", pixprep("--help")[1], re.MULTILINE)
    assert commands == [command.split()[0] for command in COMMANDS]


def test_python_m_pixprep_is_the_command():
    done = subprocess.run([sys.executable, "-m", "pixprep", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"pixprep {pp.__version__}\n"


# Tests of users' mistakes.


@pytest.fixture(scope="module")
def folder_with_mistakes(tmp_path_factory):
    """Return the folder of a user who makes mistakes. It contains photos, pipelines, ONNX files, Python files and a
    repository.
    """
    folder = tmp_path_factory.mktemp("newcomers")
    fill(folder)
    for made in ("empty", "full", "none/.git", "backends/pixprep", "photos", "saved_model"):
        (folder / made).mkdir(parents=True)
    (folder / "backends" / "pixprep" / "mine.txt").touch()
    (folder / "full" / "flower.npy").symlink_to("/dev/full")
    (folder / "unreadable.jpg").symlink_to("/proc/self/mem")  # this file can be opened, but reading it fails
    (folder / "photo.png").write_bytes(photo())
    (folder / "weights.pt").write_bytes(b"PK\3\4")
    (folder / "saved_model" / "saved_model.pb").touch()
    (folder / "photos" / "flower.jpg").write_bytes(photo())
    (folder / "list.csv").write_text("image,label\nflower.jpg,1\n")
    (folder / "semicolons.csv").write_text("path;label\nflower.jpg;1\n")
    (folder / "page.json").write_text("<!DOCTYPE html><html></html>")
    (folder / "vit").mkdir()
    (folder / "vit" / "preprocessor_config.json").write_text('{"image_processor_type": "ViTImageProcessor"}')
    (folder / "config.json").write_text("{}")
    crops = [pp.decode(), pp.crop(box="boxes"), pp.resize(height=224, width=224), pp.normalize(), pp.tensor()]
    pp.Pipeline(crops).save(folder / "crops.json")
    pp.Pipeline([crops[0], pp.warp(quad="quads", height=224, width=224), *crops[3:]]).save(folder / "quads.json")
    (folder / "pick.py").write_text("def rows(boxes):\n    return boxes\n")
    (folder / "stars.py").write_text("def rows(*found):\n    return found\n")
    (folder / "empty.txt").write_text("")
    (folder / "labels.txt").write_text("cat\n")
    save_onnx(folder / "other.onnx")
    save_onnx(folder / "pair.onnx", inputs=("left", "right"))
    save_onnx(folder / "frozen.onnx", "10, 3, 224, 224")
    (folder / "cut.onnx").write_bytes((folder / "other.onnx").read_bytes()[:40])
    closed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g () => (float[1] y) { y = Constant <value_float = 1.0> () }'
    )
    onnx.save(closed, folder / "closed.onnx")
    build(folder / "models", pipeline=pp.presets.imagenet(), onnx=folder / "other.onnx", name="detect")
    return folder


@refusals("cli")
def test_a_mistake_is_one_line_and_writes_nothing(pixprep, folder_with_mistakes, monkeypatch, call, words):
    monkeypatch.chdir(folder_with_mistakes)
    expected = (1, "", f"pixprep: {words.replace('HERE', str(folder_with_mistakes))}\n")
    if not call.startswith("$"):  # the line contains a pipeline file or a list of ops
        written = call if "format" in call else f'{{"format": "pixprep/1", "ops": [{call}]}}'
        (folder_with_mistakes / "mine.json").write_text(written)
        call, expected = "$ check mine.json", (1, f"mine.json: {words}\n", "")
    before = sorted(folder_with_mistakes.rglob("*"))
    code, out, err = pixprep(*shlex.split(call.removeprefix("$")))
    assert sorted(folder_with_mistakes.rglob("*")) == before
    if not words.startswith("usage: "):
        assert (code, out, err) == expected
        return
    assert (code, out, err[:14]) == (2, "", "usage: pixprep")
    assert err.splitlines()[-1].partition(": error: ")[2].startswith(words.removeprefix("usage: "))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("command", ["send", "bench"])
def test_an_unreachable_server_is_reported_with_its_address(pixprep, command, protocol):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"127.0.0.1:{unused.getsockname()[1]}"
    assert pixprep(command, "flower.jpg", "--url", url, "--protocol", protocol) == (
        1,
        "",
        f"pixprep: no {protocol} server responds at {url} (Connection refused): "
        "check that `pixprep serve` is running, and its port\n",
    )


def test_a_command_without_its_libraries_names_the_extra_that_installs_them(folder):
    hide = "import sys; sys.modules.update(dict.fromkeys(['tqdm', 'tritonclient', 'tritonclient.http']))"
    both = "from pixprep.cli import main; sys.exit(sum(main([word, 'flower.jpg']) for word in ('send', 'bench')))"
    command = [sys.executable, "-c", f"{hide}; {both}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = 'pixprep: tritonclient for http is not installed: pip install ".[client]" in a checkout of pixprep\n'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", 2 * said)


# Tests of ``pixprep explain``.


def test_explain_prints_the_explanation_for_the_requested_size(pixprep):
    pipeline = pp.presets.imagenet()
    assert pixprep("explain", "pipeline.json") == (0, explain(pipeline, height=480, width=640), "")
    assert pixprep("explain", "pipeline.json", "--size", "256x300") == (0, explain(pipeline, height=256, width=300), "")


def test_explain_of_a_photo_ends_with_its_values_and_writes_the_picture_of_the_stages(pixprep, folder):
    text = explain(pp.presets.imagenet(), height=427, width=640)
    text += '"tensor": -2.118 to 2.146; mean red -0.4546, green -0.5618, blue -0.8209\n'
    assert pixprep("explain", "pipeline.json", "--image", "flower.jpg") == (0, text, "")
    said = "stages.png: shows the stages of the pipeline\n"
    assert pixprep("explain", "pipeline.json", "--image", "flower.jpg", "--output", "stages.png") == (0, text, said)
    expected = stages(pp.presets.imagenet(), photo("flower"), title="pipeline.json", name="flower.jpg")
    with Image.open(folder / "stages.png") as written:
        assert (written.format, written.tobytes()) == ("PNG", expected.tobytes())
    code, out, err = pixprep("explain", "pipeline.json", "--output", "stages.PNG")
    assert (code, err) == (0, "stages.PNG: shows the stages of the pipeline\n")
    assert out.endswith(PREVIEW.splitlines()[1].strip() + "\n")  # the example photo is part of pixprep
    with Image.open(folder / "stages.PNG") as written:
        assert written.width == WIDTH


def test_a_picture_that_cannot_be_written_is_reported(pixprep, folder):
    (folder / "full.png").symlink_to("/dev/full")
    code, _, err = pixprep("explain", "pipeline.json", "--output", "full.png")
    assert (code, err) == (1, "pixprep: full.png: cannot be written: No space left on device\n")


# Tests of ``pixprep verify``.

WRONG_CV2 = """\
import numpy as np
__version__ = "0.0"
INTER_NEAREST = INTER_LINEAR = INTER_CUBIC = INTER_AREA = INTER_LANCZOS4 = 0
class ipp:
    useIPP = setUseIPP = staticmethod(lambda *_: False)
def resize(pixels, size, fx, fy, interpolation):
    rows, columns = (np.arange(new) * old // new for new, old in zip(size[::-1], pixels.shape))
    return pixels[rows][:, columns]
"""


def test_verify_draws_the_worst_image_next_to_that_of_a_differing_library(folder):
    (folder / "others").mkdir()
    (folder / "others" / "cv2.py").write_text(WRONG_CV2)
    pp.Pipeline([pp.decode(), pp.resize(height=5, width=5, like="opencv"), pp.tensor()]).save("like.json")
    path = os.pathsep.join([str(folder / "others"), *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments = ("verify", "like.json", "--images", "flower.jpg", "--output", "worst.png", "--json")
    verify = start(*arguments, env={**os.environ, "PYTHONPATH": path}, cwd=folder)
    out, err = verify.communicate()
    assert (verify.returncode, err) == (1, "worst.png: shows the image that differs most\n")
    assert json.loads(out)["summary"].startswith('NOT exact: resize of "tensor": ')
    assert "pair" not in json.loads(out)["rows"][1]
    with Image.open("worst.png") as picture:
        assert (picture.format, picture.width) == ("PNG", WIDTH)


@pytest.mark.usefixtures("few_images")
def test_verify_compares_training_with_recorded_parameters(pixprep):
    ops = [pp.decode(), pp.random_resized_crop(8), pp.color_jitter(hue=0.1), pp.tensor(only="training")]
    pp.Pipeline(ops).save("training.json")
    code, out, err = pixprep("verify", "training.json", "--training", "--seed", "4")
    assert (code, err) == (0, "")
    named = [line.split()[1] for line in out.splitlines()[1:7]]
    assert named == ["decode", "draw", "resize", "levels", "tensor", "end"]
    assert out.splitlines()[-1].startswith("exact, op by op: the pixels of Pillow")
    pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor(only="serving")]).save("serving.json")
    code, out, err = pixprep("verify", "serving.json", "--training")
    assert (code, out) == (1, "")
    assert "the pipeline has no training side" in err


# Tests of ``pixprep run``.


def test_run_writes_the_engines_results_bit_for_bit_and_prints_a_summary(pixprep, folder):
    done = pixprep("run", "pipeline.json", "flower.jpg", "china.jpg", "--output", "out/tensors")
    with pp.Engine(pp.load(folder / "pipeline.json")) as engine:
        flower, china = engine.run([photo("flower"), photo("china")])
    expected = ""
    for name, tensor in (("flower", flower), ("china", china)):
        written = np.load(folder / "out" / "tensors" / f"{name}.npy")
        assert (written.dtype, written.shape) == (np.float32, (3, 224, 224))
        assert written.tobytes() == tensor.tobytes()
        values = tensor.astype(np.float64)
        numbers = f"min {values.min():.4g}  max {values.max():.4g}  mean {values.mean():.4g}"
        expected += f"{name}.jpg: float32 [3, 224, 224]  {numbers}  -> out/tensors/{name}.npy\n"
    assert done == (0, expected, "")
    assert not np.array_equal(flower, china)
    before = sorted(folder.rglob("*"))
    summary = expected.splitlines()[0].partition("  -> ")[0]
    assert pixprep("run", "pipeline.json", "flower.jpg") == (0, f"{summary}\n", "")
    assert sorted(folder.rglob("*")) == before


def test_run_writes_every_output_of_a_pipeline(pixprep, folder):
    several = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(), pp.transform(name="where")])
    several.save(folder / "several.json")
    code, out, err = pixprep("run", "several.json", "flower.jpg", "--output", "tensors")
    with pp.Engine(several) as engine:
        batch = engine.run_batch([photo("flower")])
    assert (code, err) == (0, "")
    for line, name in zip(out.splitlines(), ("tensor", "where"), strict=True):
        assert line.startswith(f"flower.jpg: {name}  float32 [")
        assert line.endswith(f"  -> tensors/flower.{name}.npy")
        written = np.load(folder / "tensors" / f"flower.{name}.npy")
        assert written.tobytes() == batch.outputs[name][0].tobytes()
    rows = pixprep("run", "several.json", "flower.jpg", "--json")[1]
    assert [json.loads(row)["name"] for row in rows.splitlines()] == ["tensor", "where"]


def test_run_uses_the_given_formats_and_damage_policy(pixprep, folder):
    code, _, err = pixprep("run", "pipeline.json", "flower.jpg", "--formats", "png")
    assert (code, err) == (
        1,
        "flower.jpg: [UNSUPPORTED] a JPEG is not accepted (parameter formats: png): convert the image\n",
    )
    code, out, err = pixprep("run", "pipeline.json", "flower.jpg", "--formats", "png, jpeg")
    assert (code, len(out.splitlines()), err) == (0, 1, "")
    (folder / "cut.jpg").write_bytes(photo("flower")[:-1000])
    assert pixprep("run", "pipeline.json", "cut.jpg")[0] == 1
    assert pixprep("run", "pipeline.json", "cut.jpg", "--damage", "lenient")[0] == 0
    if features.check("avif"):
        Image.new("RGB", (9, 9)).save(folder / "still.avif")
        assert pixprep("run", "pipeline.json", "still.avif")[0] == 1
        assert pixprep("run", "pipeline.json", "still.avif", "--formats", "avif")[0] == 0


def test_a_broken_image_does_not_stop_the_others_and_json_reports_the_same(pixprep, folder):
    (folder / "unreadable.jpg").symlink_to("/proc/self/mem")
    files = ("flower.jpg", "broken.jpg", "unreadable.jpg", "china.jpg")
    arguments = ("run", "pipeline.json", *files, "--output", "tensors")
    code, text, err = pixprep(*arguments)
    assert (code, err) == (1, f"broken.jpg: {NOT_AN_IMAGE}\nunreadable.jpg: Input/output error\n")
    assert sorted(path.name for path in (folder / "tensors").iterdir()) == ["china.npy", "flower.npy"]
    code, out, err = pixprep(*arguments, "--json")
    assert (code, err) == (1, "")
    flower, *broken, china = map(json.loads, out.splitlines())
    assert broken == [
        {"file": "broken.jpg", "error": NOT_AN_IMAGE},
        {"file": "unreadable.jpg", "error": "Input/output error"},
    ]
    row = "{file}: {dtype} {shape}  min {min:.4g}  max {max:.4g}  mean {mean:.4g}  -> {output}"
    assert text.splitlines() == [row.format(**each) for each in (flower, china)]
    assert flower.keys() == {"file", "shape", "dtype", "min", "max", "mean", "output"}


def test_files_of_equal_names_never_overwrite_each_other(pixprep, folder):
    photos = {"a/cat.jpg": "flower", "b/cat.jpg": "china", "cat.png": "flower", "dog.jpg": "china"}
    photos["cat.jpg.jpg"] = "china"
    for path, name in photos.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(photo(name))
    code, out, _ = pixprep("run", "pipeline.json", *photos, "--output", "tensors")
    assert code == 0
    written = [line.rpartition(" -> tensors/")[2] for line in out.splitlines()]
    assert written == ["cat.jpg.npy", "cat.jpg-2.npy", "cat.png.npy", "dog.npy", "cat.jpg-3.npy"]
    tensors = [np.load(folder / "tensors" / name) for name in written]
    same = [np.array_equal(tensor, tensors[0]) for tensor in tensors]
    assert same == [name == "flower" for name in photos.values()]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_run_accepts_a_folder_and_keeps_its_order_with_any_threads(pixprep, folder, threads):
    (folder / "photos").mkdir()
    (folder / "photos" / "cat.cr2").write_text("x")
    for number in range(9):
        (folder / "photos" / f"{number}.jpg").write_bytes(photo("china" if number % 2 else "flower"))
    code, out, err = pixprep("run", "pipeline.json", "photos", "--threads", threads)
    assert (code, err) == (0, "photos: skipped, because the suffix is not that of an image: cat.cr2\n")
    flower, china = (
        pixprep("run", "pipeline.json", f"{name}.jpg")[1].partition(": ")[2] for name in ("flower", "china")
    )
    assert flower != china
    assert out == "".join(f"photos/{number}.jpg: {china if number % 2 else flower}" for number in range(9))


# Tests of ``pixprep build`` and ``pixprep check``.


def test_the_demos_classifier_replaces_no_other_unless_forced(pixprep, models, monkeypatch):
    monkeypatch.setattr(lite0, "export", cache(lite0.export))
    before = (models / "classifier" / "1" / "model.onnx").read_bytes()
    refused = (
        "pixprep: models/classifier/1/model.onnx is not the demo's classifier: pass your file again with --onnx, or "
        "--force to overwrite it with the demo's\n"
    )
    assert pixprep("build", "--output", "models") == (1, "", refused)
    code, out, err = pixprep("demo", "flower.jpg", "--model-repository", "models")
    assert (code, out) == (1, "building  models: preprocess, classifier (EfficientNet-lite0), ensemble\n")
    assert err == f"{refused}to write the demo to a different folder, pass --model-repository DIR\n"
    assert (models / "classifier" / "1" / "model.onnx").read_bytes() == before
    build_it = ("build", "--output", "models", "--image", "broken.jpg")  # a broken image avoids the slow preview
    assert pixprep(*build_it, "--force")[0] == 0
    assert pixprep(*build_it, "--preset", "clip")[0] == 0  # this build replaces the demo's preprocess


@pytest.mark.usefixtures("pixprep")
def test_a_command_that_is_not_on_the_path_is_named_by_its_full_path(folder, monkeypatch):
    assert pixprep_command() == "pixprep"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ours = str(Path(sys.executable).with_name("pixprep"))
    assert pixprep_command() in (ours, f"'{ours}'")
    done = subprocess.check_output(["/bin/sh", "-c", f"{pixprep_command()} --version"], cwd=folder, text=True)
    assert done == f"pixprep {pp.__version__}\n"


def test_build_for_tensorrt_prints_paths_to_stdout_and_remaining_steps_to_stderr(pixprep, folder):
    save_onnx(folder / "my.onnx")
    options = ("--classifier", "tensorrt", "--max-batch-size", "8", "--parameter", "threads=2")
    code, out, err = pixprep("build", "--preset", "imagenet", "--onnx", "my.onnx", *options)
    config = (folder / "model_repository" / "preprocess" / "config.pbtxt").read_text()
    assert all(re.search(pattern, config) for pattern in (r"max_batch_size: 8\b", r'"threads"[^}]*"2"'))
    assert all((folder / line).is_file() for line in out.splitlines())
    assert err.startswith(
        f"{UNASKED}\n"
        "build the plan on the machine that will serve it, with its version of TensorRT:\ntrtexec --onnx=model_"
    )
    assert (code, err[-len(PREVIEW + NO_CLASS) :]) == (0, PREVIEW + NO_CLASS)


def test_check_prints_each_problem_of_a_broken_repository_and_serve_rejects_it(pixprep, models):
    (models / "classifier" / "1" / "model.py").unlink()
    (models / "preprocess" / "1" / "pipeline.json").write_text('{"format": "pixprep/1", "ops": [{"op": "decod"}]}')
    problems = [
        "classifier/1/model.py: is missing: write the Python model to this file",
        'preprocess/1/pipeline.json: ops[0] "decod": no such op; did you mean "decode"?',
    ]
    assert pixprep("check", "models") == (1, "\n".join([*problems, "models: 2 problems\n"]), "")
    code, out, err = pixprep("check", "models", "--json")
    assert (code, err) == (1, "")
    rows = json.loads(out)
    assert [": ".join(filter(None, (row["where"], row["what"], row["remedy"]))) for row in rows] == problems
    refusal = "pixprep: models has problems that prevent loading; to serve it anyway, pass --no-check"
    assert pixprep("serve", "--model-repository", "models") == (1, "", "\n".join([refusal, *problems, ""]))


def test_check_previews_a_photo_and_names_the_repository_of_a_part(pixprep, models):
    values = '"tensor": -2.118 to 2.146; mean red -0.4546, green -0.5618, blue -0.8209\n'
    fine = "no problem found\n"
    assert pixprep("check", "models") == (0, f"models: {fine}", "")
    assert pixprep("check", "models", "--image", "flower.jpg") == (
        0,
        f"{models.name}: {fine}{values}{NO_CLASS.lstrip()}",
        "",
    )
    assert pixprep("check", "pipeline.json", "--image", "flower.jpg") == (0, f"pipeline.json: {fine}{values}", "")
    assert pixprep("check", "models", "--image", "flower.jpg", "--json") == (0, "[]\n", values + NO_CLASS.lstrip())
    for path in ("models", "pipeline.json"):
        refused = (1, f"{path}: {fine}", f"pixprep: broken.jpg: {NOT_AN_IMAGE}\n")
        assert pixprep("check", path, "--image", "broken.jpg") == refused
    said = f"1: is a version of a model, not a repository: pass its repository, {models}\n"
    assert pixprep("check", "models/preprocess/1") == (1, said, "")
    said = f"config.pbtxt: is the configuration of a model, not a pipeline file: pass its repository, {models}\n"
    assert pixprep("check", "models/preprocess/config.pbtxt") == (1, said, "")


def test_a_photo_that_the_pipeline_rejects_does_not_fail_build_or_import(pixprep, folder):
    pp.Pipeline([pp.decode(), pp.crop(0, 0, 500, 500), pp.normalize(), pp.tensor()]).save("large.json")
    save_onnx(folder / "my.onnx", shape="batch, 3, 500, 500")
    code, out, err = pixprep("build", "--pipeline", "large.json", "--onnx", "my.onnx", "--output", "large")
    assert (code, len(out.splitlines())) == (0, 7)
    assert err == (
        "preview of china.jpg, a photo that ships with pixprep:\n"
        "  no preview: [DOES_NOT_FIT] 427 x 640 pixels are too small for the window of 500 x 500 at 0, 0; to preview "
        "a different photo, pass --image FILE\n"
        "next  pixprep serve --model-repository large\n"
    )
    code, out, err = pixprep("import", "keras:resnet50", "resnet.json", "--image", "broken.jpg")
    assert (code, err) == (
        0,
        f"preview of broken.jpg:\n  no preview: {NOT_AN_IMAGE}; to preview a different photo, pass --image FILE\n"
        "next  pixprep verify resnet.json\n",
    )


# Tests of ``pixprep install-backend`` and ``pixprep doctor``.


def test_install_backend_writes_a_backend_with_the_package_and_replaces_an_older_one(pixprep, folder):
    backend = folder / "backends" / "pixprep"
    for _ in range(2):
        assert pixprep("install-backend", "backends") == (0, "backends/pixprep\n", "")
        assert "from pixprep.serving.triton.model import TritonPythonModel" in (backend / "model.py").read_text()
        assert not list(backend.rglob("__pycache__"))
        assert not (backend / "old.py").exists()
        code = "import sys; sys.path.insert(0, sys.argv[1]); import pixprep; print(pixprep.__file__)"
        done = subprocess.run([sys.executable, "-c", code, backend], capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()) == backend / "pixprep" / "__init__.py"
        shutil.rmtree(backend / "pixprep" / "engine")
        (backend / "old.py").touch()


def test_doctor_prints_its_checks_and_fails_only_if_an_action_is_required(pixprep):
    code, out, err = pixprep("doctor")
    assert err == ""
    lines = [line for line in out.splitlines() if not line.startswith("      ")]
    assert {line[:6] for line in lines} <= {"ok    ", "FAIL  ", "note  "}
    assert code == any(line.startswith("FAIL") for line in lines)
    assert f"ok    numpy: {np.__version__}" in lines


def test_doctor_names_a_trap_with_its_fix_and_exits_1(tmp_path):
    (tmp_path / "numpy-2.1.0.dist-info").mkdir()
    (tmp_path / "numpy-2.1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.1.0\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    doctor = start("doctor", "--json", env={**os.environ, "PYTHONPATH": path})
    out, err = doctor.communicate()
    assert (doctor.returncode, err) == (1, "")
    assert {
        "name": "numpy",
        "ok": False,
        "found": "NumPy 2.1.0",
        "remedy": 'Triton 2.51 does not support NumPy 2: pip install "numpy<2"',
    } in json.loads(out)


# Tests of the program as a shell runs it.


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("full", "words"), [(False, ""), (True, "pixprep: No space left on device\n")])
def test_a_full_disk_for_stdout_is_one_line_and_a_closed_pipe_none(folder, unbuffered, full, words):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(writer, "w") as broken_pipe, Path("/dev/full").open("w") as full_disk:
        explain = start("explain", folder / "pipeline.json", stdout=full_disk if full else broken_pipe, env=environment)
        _, err = explain.communicate()
    assert (explain.returncode, err) == (1, words)


def test_ctrl_c_ends_a_command_with_one_line(folder):
    pipe = folder / "pipe.jpg"  # the command waits for a writer, so it does not end by itself
    os.mkfifo(pipe)
    with start("run", folder / "pipeline.json", pipe) as process:
        try:
            writer = open_when_read(pipe)
            process.send_signal(signal.SIGINT)
            # A signal between open and read interrupts neither call. Python handles it when the read ends.
            os.close(writer)
            out, err = process.communicate()
        finally:
            process.kill()
    assert (process.returncode, out, err) == (1, "", "pixprep: interrupted\n")


def open_when_read(pipe, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed: make scale-ray tests it")
def test_a_batch_without_ray_names_its_extra(pixprep):
    code, out, err = pixprep("batch", "manifest.txt", "--pipeline", "pipeline.json", "--output", "out")
    assert (code, out) == (1, "")
    assert re.fullmatch(
        r"pixprep: pixprep\.ray needs (pyarrow|ray): pip install \"\.\[ray\]\" in a checkout of pixprep, "
        r"in an environment without the embedded server\n",
        err,
    )


def test_run_accepts_per_request_inputs(pixprep, folder):
    boxes = {"china.jpg": [[0, 0, 99, 50], [900, 0, 999, 9]], "flower.jpg": [[1, 2, 3, 4]]}
    (folder / "boxes.json").write_text(json.dumps(boxes))
    pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.resize(height=8, width=8), pp.tensor()]).save("crops.json")
    arguments = ("--input", "boxes=boxes.json", "--output", "tensors")
    code, out, err = pixprep("run", "crops.json", "china.jpg", "flower.jpg", *arguments)
    assert [line.partition(":")[0] for line in out.splitlines()] == ["china.jpg 1", "flower.jpg 1"]
    said = 'china.jpg 2: [DOES_NOT_FIT] "boxes", row 2 of 2: 900, 0, 999, 9 is outside the image of 427 x 640 pixels\n'
    assert (code, err) == (1, said)
    assert sorted(file.name for file in Path("tensors").iterdir()) == ["china.1.npy", "flower.1.npy"]
    said = (
        'pixprep: crops.json: each image requires the input "boxes" (float32 [n, 4] (left, top, right, bottom)): '
        "pass it, such as "
    )
    assert pixprep("run", "crops.json", "china.jpg") == (1, "", f"{said}--input boxes=[[0,0,16384,16384]]\n")
