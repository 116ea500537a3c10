"""Tests of `pixprep send`, `bench` and `serve` as users run them: their output, streams and exit codes."""

import csv
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.postprocessing.pictures import Picture
from pixprep.serving.embedded import client
from pixprep.serving.embedded.connection import Triton
from pixprep.serving.embedded.rows import row_of
from pixprep.serving.embedded.table import Table
from pixprep.serving.pictures import encode
from pixprep.serving.repository import build
from support.images import NO_IMAGE
from support.serving import Serve, write_model

pytestmark = pytest.mark.server

IMAGES = Path(__file__).parents[3] / "client_examples" / "images"
FLOWER, CHINA, SIZES = IMAGES / "flower.jpg", IMAGES / "china.jpg", IMAGES / "sizes"
NOT_AN_IMAGE = f"[UNKNOWN_FORMAT] image 1 of 1: {NO_IMAGE}"
PROGRAM = "import sys; from pixprep.cli import main; sys.exit(main())"
PROTOCOLS = ("http", "grpc")
CLASS = re.compile(r"    logits +(-?\d+\.\d{4})  class +(\d+)  (\S.*)")
MATTE = "map,range=-4..4,draw=alpha"
TITLE = re.compile(r"(\S+)  \d+\.\d ms")


@pytest.fixture
def pixprep(capsys):
    """Return a function that runs one command and returns its exit code, stdout and stderr."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return run


def target(server, protocol="http"):
    url = server.http_url.removeprefix("http://") if protocol == "http" else server.grpc_url
    return ("--protocol", protocol, "--url", url)


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.jpg"
    path.write_text("not an image")
    return path


def classes(text):
    """Parse the output of ``send``: return (score, class, label) of each line, grouped by file."""
    found = {}
    for line in text.splitlines():
        if title := TITLE.fullmatch(line):
            rows = found.setdefault(title[1], [])
        else:
            match = CLASS.fullmatch(line)
            assert match, line
            rows.append((float(match[1]), int(match[2]), match[3]))
    return found


# Tests of ``pixprep send``.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_send_prints_the_five_best_classes_of_each_photo_with_their_names(demo, pixprep, protocol):
    code, out, err = pixprep("send", FLOWER, CHINA, *target(demo, protocol))
    assert (code, err) == (0, "")
    answers = classes(out)
    assert list(answers) == [str(FLOWER), str(CHINA)]
    daisy, palace = (rows[0][1:] for rows in answers.values())
    assert (daisy, palace) == ((985, "daisy"), (698, "palace"))
    for rows in answers.values():
        assert len(rows) == 5
        assert rows == sorted(rows, reverse=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_send_as_json_prints_the_same_in_one_object_per_file(demo, pixprep, protocol):
    arguments = ("send", SIZES, "--batch", 8, "--top", 2, *target(demo, protocol))
    text = classes(pixprep(*arguments)[1])
    code, out, err = pixprep(*arguments, "--json")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row.keys() for row in rows] == [{"file", "latency_ms", "outputs"}] * 6
    assert [row["file"] for row in rows] == list(text) == [str(path) for path in sorted(SIZES.iterdir())]
    for row in rows:
        best = [(round(entry["score"], 4), entry["class"], entry["label"]) for entry in row["outputs"]["logits"]]
        assert best == [(pytest.approx(score, abs=1e-4), *rest) for score, *rest in text[row["file"]]]
        assert row["latency_ms"] > 0
    assert len({row["latency_ms"] for row in rows}) == 1  # the six images were sent in one request


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_top_0_prints_the_scores(demo, pixprep, protocol):
    arguments = ("send", FLOWER, "--top", 0, *target(demo, protocol))
    (answer,) = client.send([FLOWER], url=arguments[-1], protocol=protocol)
    logits = answer.outputs["logits"]
    code, out, _ = pixprep(*arguments, "--json")
    assert code == 0
    np.testing.assert_array_equal(np.float32(json.loads(out)["outputs"]["logits"]), logits)
    code, out, _ = pixprep(*arguments)
    title, line = out.splitlines()
    assert (code, bool(TITLE.fullmatch(title))) == (0, True)
    values = logits.astype(np.float64)
    assert line == (
        f"    logits  float32 [1000]  min {values.min():.4g}  max {values.max():.4g}  mean {values.mean():.4g}"
    )


def test_the_summary_of_a_tensor_from_the_server_equals_that_of_run(demo, demo_repository, pixprep):
    pipeline = demo_repository / "preprocess" / "1" / "pipeline.json"
    send = ("send", CHINA, "--model", "preprocess", *target(demo))
    ours, theirs = pixprep("run", pipeline, CHINA)[1], pixprep(*send)[1]
    summary = ours.removeprefix(f"{CHINA}: ")
    assert summary.startswith("float32 [3, 224, 224]  min -0.9922  max 1  mean ")
    assert theirs.splitlines()[1:] == [f"    tensor  {summary.rstrip()}"]
    row = json.loads(pixprep("run", pipeline, CHINA, "--json")[1])
    tensor = json.loads(pixprep(*send, "--json")[1])["outputs"]["tensor"]
    assert {"file": str(CHINA), **tensor} == row


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("batch", [1, 8])
def test_a_broken_file_is_a_line_on_stderr_and_the_others_are_processed(demo, pixprep, broken, protocol, batch):
    arguments = ("send", FLOWER, broken, CHINA, "--batch", batch, "--top", 1, *target(demo, protocol))
    code, out, err = pixprep(*arguments)
    assert (code, err) == (1, f"{broken}: in ensemble 'ensemble', {NOT_AN_IMAGE}\n")
    assert {name: rows[0][2] for name, rows in classes(out).items()} == {str(FLOWER): "daisy", str(CHINA): "palace"}
    code, out, err = pixprep(*arguments, "--json")
    assert (code, err) == (1, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row.get("error") for row in rows] == [None, f"in ensemble 'ensemble', {NOT_AN_IMAGE}", None]


def test_a_table_has_the_rows_of_the_json_output_and_continues_after_an_interruption(demo, pixprep, broken, tmp_path):
    table, url = tmp_path / "answers.jsonl", target(demo)[-1]
    arguments = ("send", SIZES, broken, "--top", 2, *target(demo))
    printed = [json.loads(line) for line in pixprep(*arguments, "--json")[1].splitlines()]
    with suppress(KeyboardInterrupt), Table(table, {"model": "ensemble", "top": 2, "inputs": {}}) as rows:
        for answer in islice(client.send([SIZES], url=url, classes=2), 3):
            rows.add(row_of(answer))
        raise KeyboardInterrupt
    code, out, err = pixprep(*arguments, "--table", table)
    assert (code, err) == (1, f"{broken}: in ensemble 'ensemble', {NOT_AN_IMAGE}\n")
    assert re.fullmatch(rf"{table}: images 7, failed 1, sent now 4, [0-9.]+ images/s\n", out)
    for row, expected in zip(map(json.loads, table.read_text().splitlines()), printed, strict=True):
        assert row | {"latency_ms": 0} == expected | {"latency_ms": 0}


def test_send_saves_the_pictures_that_a_last_step_encodes_or_that_the_client_declares(
    server, pixprep, broken, tmp_path
):
    def send(model, folder, *options):
        arguments = ("send", FLOWER, broken, "--model", model, "--output", folder, *options, *target(server))
        code, out, err = pixprep(*arguments)
        return code, out.splitlines()[1:], err

    code, lines, err = send("matte", tmp_path / "served")
    assert (code, lines) == (1, [f"    alpha_png  -> {tmp_path / 'served' / 'flower.alpha_png.png'}"])
    assert err == f"{broken}: in ensemble 'matte', {NOT_AN_IMAGE}\n"
    code, lines, err = send("maps", tmp_path / "ours", "--picture", f"alpha={MATTE}")
    (ours,), (theirs,) = ((tmp_path / name).iterdir() for name in ("ours", "served"))
    assert (code, len(lines), ours.name) == (1, 3, "flower.alpha.png")
    assert ours.read_bytes() == theirs.read_bytes()
    picture, photo = Image.open(ours), Image.open(FLOWER)
    assert (picture.mode, picture.size) == ("RGBA", photo.size)
    np.testing.assert_array_equal(np.asarray(picture)[..., :3], np.asarray(photo))
    output = client.send([FLOWER], url=target(server)[-1], model="maps")
    (expected,) = (encode(answer.outputs, "alpha", Picture.parse(MATTE), FLOWER.read_bytes()) for answer in output)
    assert expected == ours.read_bytes()


def test_a_wrong_request_for_pictures_is_one_line(server, pixprep, tmp_path):
    out = ["--output", tmp_path / "out"]
    mistakes = (
        (["--picture", f"alpha={MATTE}"], "--picture needs --output DIR, the folder of the pictures"),
        (
            out,
            "none of the outputs alpha, transform, original_size is an encoded picture: declare one, such as "
            "--picture alpha=map,range=0..1",
        ),
        (
            [*out, "--picture", f"beta={MATTE}"],
            '--picture beta: the model has no output "beta", but alpha, transform, original_size',
        ),
        (["--output", IMAGES], f"{IMAGES} contains the photo flower.jpg: choose a different folder for pictures"),
    )
    for options, message in mistakes:
        code, out, err = pixprep("send", FLOWER, "--model", "maps", *options, *target(server))
        assert (code, out, err) == (1, "", f"pixprep: {message}\n")


@pytest.mark.slow  # starts a Triton
def test_batch_runs_a_model_on_a_list_with_a_missing_and_a_broken_file(demo_repository, pixprep, broken, tmp_path):
    (tmp_path / "list.txt").write_text(f"{FLOWER}\nnone.jpg\nbroken.jpg\n{CHINA}\n")
    table = tmp_path / "answers.csv"
    code, out, err = pixprep(
        "batch", tmp_path / "list.txt", "--model-repository", demo_repository, "--output", table, "--top", 1
    )
    missing = f"{tmp_path / 'none.jpg'}: No such file or directory"
    assert (code, err) == (1, f"{missing}\n{broken}: in ensemble 'ensemble', {NOT_AN_IMAGE}\n")
    assert out.startswith(f"{table}: images 4, failed 2, sent now 4, ")
    with table.open(newline="") as file:
        rows = {Path(row["file"]).name: row["logits.label"] for row in csv.DictReader(file)}
    assert rows == {"flower.jpg": "daisy", "none.jpg": "", "broken.jpg": "", "china.jpg": "palace"}


def test_unsupported_requests_are_reported_in_one_line(demo, pixprep):
    metrics = demo.metrics_url.removeprefix("http://").removesuffix("/metrics")
    mistakes = {
        ("--batch", "65"): 'batch size 65: model "ensemble" accepts 1 to 64 images per request',
        ("--url", demo.grpc_url): (
            f"{demo.grpc_url} responds, but does not speak HTTP: it may be the gRPC port; pass the HTTP port"
        ),
        ("--url", metrics): (
            f"{metrics} responds, but is not an inference port: it may be the metrics port; pass the HTTP port"
        ),
    }
    for arguments, message in mistakes.items():
        assert pixprep("send", FLOWER, *target(demo), *arguments) == (1, "", f"pixprep: {message}\n")


def test_a_progress_bar_is_shown_only_on_a_terminal(demo):
    ours, theirs = os.openpty()
    # the terminal initially has a width of 0 columns
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "wb") as stderr:
        command = [sys.executable, "-c", PROGRAM, "send", str(SIZES), "--top", "1", *target(demo)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=120, check=True)
        assert select.select([terminal], [], [], 0)[0]
        shown = terminal.read(1 << 16).decode()
    assert re.search(r"\d/6 \[.* images/s\]", shown)
    assert len(classes(done.stdout)) == 6


# Tests of ``pixprep bench``.


def test_bench_prints_a_table(demo, pixprep):
    code, out, err = pixprep("bench", SIZES, *target(demo, "grpc"), "--concurrency", 2, "--seconds", 0.6)
    assert (code, err) == (0, "")
    names, cells = (re.split(" {2,}", line) for line in out.splitlines())
    row = dict(zip(names, cells, strict=True))
    assert (row["protocol"], row["model"], row["load"]) == ("grpc", "ensemble", "concurrency 2")
    assert float(row["images per s"]) > 1


def test_bench_of_only_a_rate_measures_no_closed_loop(demo, pixprep):
    code, out, err = pixprep("bench", SIZES, *target(demo), "--rate", 20, "--seconds", 0.6, "--json")
    assert (code, err) == (0, "")
    assert [row["load"] for row in json.loads(out)] == ["poisson 20/s"]


def test_the_command_that_bench_prints_runs(demo, tmp_path):
    temporary, elsewhere = tmp_path / "a folder", tmp_path / "elsewhere"
    temporary.mkdir()
    elsewhere.mkdir()
    loads = ("--batch", "2", "--concurrency", "1", "2", "--seconds", "2", "--print-command")
    command = [sys.executable, "-c", PROGRAM, "bench", SIZES, *target(demo), *loads]
    environment = os.environ | {"TMPDIR": str(temporary)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    (folder,) = temporary.iterdir()
    assert said.stderr == f"the command uses files in {folder}: remove that folder when you are done\n"
    assert re.findall(r" --concurrency-range (\S+) ", said.stdout) == ["1:1", "2:2"]
    last = said.stdout.splitlines()[-1]
    pasted = subprocess.run(["/bin/sh"], input=last, cwd=elsewhere, capture_output=True, text=True, check=False)
    # perf_analyzer prints this warning if the machine is so busy that it measures a single request
    warnings = [line for line in pasted.stderr.splitlines() if "Pass contained only one request" not in line]
    assert (pasted.returncode, warnings) == (0, [])
    assert re.search(r"^Concurrency: 2, throughput: [\d.]+ infer/sec, latency \d+ usec$", pasted.stdout, re.MULTILINE)
    assert sorted(path.name for path in folder.iterdir()) == ["input.json", "libb64.so.0d", "libcudart.so.12"]


def test_bench_removes_its_folder_if_it_prints_no_command(demo, tmp_path):
    command = [sys.executable, "-c", PROGRAM, "bench", FLOWER, *target(demo), "--model", "nope", "--print-command"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    url = target(demo)[-1]
    words = f'pixprep: no model "nope" is ready on {url}: the models there are classifier, ensemble, preprocess\n'
    assert (said.returncode, said.stdout, said.stderr) == (1, "", words)
    assert not list(tmp_path.iterdir())


def test_bench_with_a_broken_image_names_the_command_that_finds_it(demo, pixprep, broken):
    assert pixprep("bench", broken, *target(demo), "--concurrency", 1, "--seconds", 1) == (
        1,
        "",
        f"pixprep: perf_analyzer: in ensemble 'ensemble', {NOT_AN_IMAGE}; a measurement ends at the first failed "
        "request: find the images that fail with `pixprep send`\n",
    )


# the output contains only classes


def save_onnx(path, outputs, shape=(3, 8, 8), **metadata):
    """Write a model with these outputs (name, shape). Their values are random sums of the channel means of an 8 x 8
    image.
    """
    rows = np.random.default_rng(0)
    axes = [index + 1 for index, side in enumerate(shape) if side != 3]
    constants = {"axes": np.array(axes)}
    nodes = [helper.make_node("ReduceMean", ["x", "axes"], ["means"], keepdims=0)]
    for name, dims in outputs:
        constants[f"{name}_sums"] = rows.normal(size=(3, int(np.prod(dims)))).astype(np.float32)
        constants[f"{name}_shape"] = np.array([0, *dims])
        nodes.append(helper.make_node("MatMul", ["means", f"{name}_sums"], [f"{name}_flat"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], [name]))

    def value(name, dims):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *dims])

    weights = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "sums", [value("x", shape)], [value(*output) for output in outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


def letterboxed(**tensor):
    ops = [pp.letterbox(8, 8), pp.transform(), pp.original_size(), pp.normalize(), pp.tensor(**tensor)]
    return pp.Pipeline([pp.decode(), *ops])


SCORES = [("score", (3,))]
PLAIN = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.normalize(), pp.tensor()])


def build_each(folder, models, rows):
    """Build an ensemble for each row: name, outputs of the model, pipeline (or name of its owner), labels, metadata."""
    for name, outputs, pipeline, labels, metadata in rows:
        file = save_onnx(folder / f"{name}.onnx", outputs, shape=(8, 8, 3) if name == "last" else (3, 8, 8), **metadata)
        before = {"preprocess": f"{pipeline}_preprocess"} if isinstance(pipeline, str) else {"pipeline": pipeline}
        build(models, **before, onnx=file, labels=labels, name=name)
    return models


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a repository of ensembles with labels from a file and from the model, and without labels."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "labels.txt").write_text("cat\ndog\ncow\n")
    rows = (
        ("alone", SCORES, letterboxed(), None, {}),
        ("labelled", [("box", (4,)), *SCORES], "alone", folder / "labels.txt", {}),
        ("ultralytics", SCORES, "alone", None, {"names": "{0: 'chat', 1: 'chien', 2: 'vache'}"}),
        ("maps", [("alpha", (1, 8, 8))], "alone", None, {}),
    )
    repository, pictures = build_each(folder, folder / "models", rows), {"alpha": Picture.parse(MATTE)}
    build(repository, preprocess="alone_preprocess", onnx=folder / "maps.onnx", name="matte", pictures=pictures)
    return repository


@pytest.fixture(scope="module")
def more_models(models, tmp_path_factory):
    """Return the same repository with more ensembles, whose models have one or several outputs."""
    folder = tmp_path_factory.mktemp("more")
    shutil.copytree(models, folder / "models")
    rows = (
        ("unclear", [("box", (4,)), *SCORES], "alone", None, {}),
        ("boxes", [("boxes", (84, 5))], "alone", None, {}),
        ("plain", SCORES, PLAIN, None, {}),
        ("beside_one", [("sure", (1,)), *SCORES], "plain", None, {}),
        ("one", [("sure", (1,))], "plain", None, {}),
        ("last", SCORES, letterboxed(layout="hwc"), None, {}),
    )
    return build_each(folder, folder / "models", rows)


@pytest.fixture
def larger_server(shared, more_models):
    """Return the shared server with all these ensembles."""
    return shared(more_models)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("model", "words"), [("labelled", ["cat", "cow", "dog"]), ("ultralytics", ["chat", "chien", "vache"])]
)
def test_send_shows_labels_from_any_location(server, pixprep, protocol, model, words):
    code, out, err = pixprep("send", FLOWER, "--json", "--model", model, *target(server, protocol))
    assert (code, err) == (0, "")
    assert sorted(entry["label"] for entry in json.loads(out)["outputs"]["score"]) == words


@pytest.mark.parametrize(("model", "layout"), [("alone", "FORMAT_NCHW"), ("last", "FORMAT_NHWC")])
def test_the_classifiers_input_declares_its_layout_for_tritons_image_client(larger_server, model, layout):
    with Triton(target(larger_server)[-1], protocol="http") as triton:
        (entry,) = triton.config(f"{model}_classifier")["input"]
    assert (entry["format"], entry["dims"]) == (layout, [3, 8, 8] if layout == "FORMAT_NCHW" else [8, 8, 3])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_send_shows_classes_only_for_a_classifiers_scores(larger_server, pixprep, protocol):
    kinds = {}
    for model in ("labelled", "alone", "plain", "one", "beside_one", "unclear", "boxes", "alone_preprocess"):
        code, out, err = pixprep("send", FLOWER, "--top", 2, "--model", model, *target(larger_server, protocol))
        assert (code, err) == (0, "")
        kinds[model] = [re.sub(r"-?\d+\.\d+|-?\d+\b", "N", line).split(maxsplit=1) for line in out.splitlines()[1:]]
    transform = [["transform", "[N, N, N, N]"], ["original_size", "[N, N]"]]
    scores = [["score", "N  class   N  dog"], ["score", "N  class   N  cow"]]
    unnamed = [["score", "N  class   N"]] * 2
    assert kinds == {
        "labelled": [["box", "[N, N, N, N]"], *scores, *transform],
        "alone": [["score", "[N, N, N]"], *transform],  # four values may be a box
        "plain": unnamed,
        "one": [["sure", "[N]"]],
        "beside_one": [["sure", "[N]"], *unnamed],
        "unclear": [["box", "[N, N, N, N]"], ["score", "[N, N, N]"], *transform],
        "boxes": [["boxes", "floatN [N, N]  min N  max N  mean N"], *transform],
        "alone_preprocess": [*transform, ["tensor", "floatN [N, N, N]  min N  max N  mean N"]],
    }
    code, out, _ = pixprep("send", FLOWER, "--json", "--model", "labelled", *target(larger_server, protocol))
    outputs = json.loads(out)["outputs"]
    assert {entry["label"] for entry in outputs["score"]} == {"cat", "dog", "cow"}
    assert outputs["transform"] == [pytest.approx(5 / 427), pytest.approx(8 / 640), 1, 0]  # scales along y and x


def test_serve_prints_an_example_command_for_each_ensemble(server):
    ensembles = ["alone", "labelled", "maps", "matte", "ultralytics"]
    assert [re.search(r"/v2/models/(\w+)/infer ", line)[1] for line in server.curls] == ensembles


# Tests of ``pixprep serve``.


def test_serve_prints_ready_and_a_working_example_command_and_ctrl_c_stops_it(tmp_path):
    model = tmp_path / "models" / "imagenet.pixprep" / "1"
    model.mkdir(parents=True)
    pp.presets.imagenet().save(model / "pipeline.json")
    arguments = ["serve", "--model-repository", str(tmp_path / "models")]
    arguments += [word for name in ("http", "grpc", "metrics") for word in (f"--{name}-port", "0")]
    command = [sys.executable, "-c", PROGRAM]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, *arguments], cwd=tmp_path, **pipes) as serve:
        try:
            ready, send, curl, files = (serve.stdout.readline() for _ in range(4))
            url = r"127\.0\.0\.1:\d+"
            assert re.fullmatch(rf"ready  http http://{url}  grpc {url}  metrics http://{url}/metrics\n", ready)
            assert re.fullmatch(r"files  imagenet\.pixprep [0-9a-f]{12}\n", files)
            label, _, line = curl.partition("    ")
            assert label == "try"
            assert "/v2/models/imagenet.pixprep/infer " in line
            (tmp_path / "photo.jpg").write_bytes(FLOWER.read_bytes())
            tried = f"{line.strip()} --silent --show-error --fail"
            subprocess.run(["/bin/sh", "-c", tried], cwd=tmp_path, timeout=120, check=True)
            tried = ["/bin/sh", "-c", send.removeprefix("try    ")]
            sent = subprocess.run(tried, cwd=tmp_path, timeout=120, check=True, capture_output=True, text=True).stdout
            assert [line.split()[0] for line in sent.splitlines()] == [str(CHINA), "tensor", str(FLOWER), "tensor"]
        finally:
            serve.send_signal(signal.SIGINT)
            out, err = serve.communicate(timeout=120)
    assert (serve.returncode, out, err) == (0, "", "stopped\n")
    with pp.Engine(pp.presets.imagenet()) as engine:
        (tensor,) = engine.run([FLOWER.read_bytes()])
    assert (tmp_path / "answer.bin").read_bytes().endswith(tensor.tobytes())


def test_serve_names_a_model_that_fails_to_load_in_a_printable_line(tmp_path):
    version = tmp_path / "models" / "m\x1b[31m.pixprep" / "1"
    version.mkdir(parents=True)
    (version / "pipeline.json").write_text('{"format": "pixprep/1", "ops": [{"op": "decode"}]}')
    ports = [word for name in ("http", "grpc", "metrics") for word in (f"--{name}-port", "0")]
    log = ("--log-file", tmp_path / "log")
    command = ["serve", "--no-check", "--model-repository", tmp_path / "models", *ports, *log]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        'pixprep: model "m\\x1b[31m.pixprep" does not load: pipeline.json: ops: no op defines a tensor: '
        "add tensor at the end",
        f"Triton's complete log: {tmp_path}/log",
    ]


SAME = """\
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "rows").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("logits", each)]) for each in rows]
"""
ROWS = """\
platform: "ensemble"
max_batch_size: 4
input { name: "rows" data_type: TYPE_FP32 dims: [ -1, -1 ] }
output { name: "logits" data_type: TYPE_FP32 dims: [ -1, -1 ] }
ensemble_scheduling {
  step { model_name: "same" model_version: -1
    input_map { key: "rows" value: "rows" } output_map { key: "logits" value: "logits" } }
}
"""


def test_serve_prints_no_photo_command_for_a_model_that_does_not_accept_photos(tmp_path):
    config = ROWS[ROWS.index("max") : ROWS.index("ensemble_s")]
    write_model(tmp_path / "models", "same", f'backend: "python"\n{config}', {"model.py": SAME})
    write_model(tmp_path / "models", "rows", ROWS, {".gitkeep": ""})
    with Serve(tmp_path / "models", "--no-check", triton_log=tmp_path / "log") as serve:
        assert next(serve.process.stdout).startswith("files  ")
