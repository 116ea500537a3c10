"""Tests of the page of `pixprep serve --page`: its report on a photo, its shutdown, and its rendering in a real
Chromium.
"""

import base64
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psutil
import pytest
import tritonclient.http
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.serving.embedded.addresses import listeners
from pixprep.serving.repository.trial import to_probabilities
from pixprep.show.pictures import panels, photo_of
from pixprep.show.preview import preview
from serving.server.browser import Browser, chromium
from support.images import NO_IMAGE
from support.serving import (
    CLASSIFIER,
    CLASSIFIER_CONFIG,
    ENSEMBLE_CONFIG,
    PIPELINE,
    Serve,
    is_alive,
    run_program,
    wait_until,
    write_model,
)

pytestmark = pytest.mark.server

IMAGES = Path(__file__).parents[3] / "client_examples" / "images"
FLOWER, CHINA, SIZES = IMAGES / "flower.jpg", IMAGES / "china.jpg", IMAGES / "sizes"
PAGE = ("--page", "--page-port", "0")
TIMEOUT_S = 120
BOXES = [pp.decode(), pp.letterbox(height=64, width=64), pp.original_size(), pp.transform(), pp.tensor(dtype="uint8")]
NOT_AN_IMAGE = f"[UNKNOWN_FORMAT] image 1 of 1: {NO_IMAGE}"


class Page:
    """Client of a server's page that sends the same requests as the browser."""

    def __init__(self, serve):
        lines = iter(serve.process.stdout.readline, "")
        self.url = next(re.fullmatch(r"page   (\S+)\n", line)[1] for line in lines if line.startswith("page"))
        self.address = self.url.removeprefix("http://")

    def ask(self, path, body=None):
        """Send a request, and return the status and the body of the response."""
        connection = HTTPConnection(self.address, timeout=TIMEOUT_S)
        try:
            method, headers = ("GET", {}) if body is None else ("POST", {"Content-Type": "application/octet-stream"})
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def photo(self, model, photo, name="photo.jpg"):
        status, report = self.ask(f"/photo?model={model}&name={quote(name)}", photo)
        assert status == 200, report
        return report

    def stages(self, model, photo):
        status, report = self.ask(f"/stages?model={model}", photo)
        assert status == 200, report
        return report["stages"]


@pytest.fixture(scope="module")
def repository(demo_repository, tmp_path_factory):
    """Return a repository with the demo, a classifier without labels, a pipeline with outputs for boxes, a model with
    ``on_error`` zero, and a model with limits.
    """
    folder = tmp_path_factory.mktemp("page") / "models"
    shutil.copytree(demo_repository, folder)
    config = ENSEMBLE_CONFIG.replace('"classifier"', '"sums"')
    write_model(folder, "unlabelled", config, {".gitkeep": ""})
    write_model(folder, "sums", CLASSIFIER_CONFIG, {"model.py": CLASSIFIER})
    lenient = 'backend: "pixprep"\nparameters { key: "damage" value { string_value: "lenient" } }\n'
    origin = pp.Origin(library="timm", version="1", name="r", profile="pillow", source="config.json")
    config_of_timm = json.dumps({"architecture": "r", "pretrained_cfg": {"input_size": [3, 64, 64]}})
    files = {"pipeline.json": pp.Pipeline(BOXES, origin=origin).to_json(), "config.json": config_of_timm}
    write_model(folder, "boxes", lenient, files)
    parameters = {"on_error": "zero", "max_pixels": "300000", "max_image_bytes": "150000"}
    line = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}\n'
    written = "".join(line.format(key, value) for key, value in parameters.items())
    write_model(folder, "strict", f'backend: "pixprep"\n{written}', {"pipeline.json": PIPELINE.to_json()})
    bare = pp.Pipeline([pp.decode(apply_exif_orientation=False), pp.resize(height=16, width=16), pp.tensor()])
    write_model(folder, "bare", 'backend: "pixprep"\n', {"pipeline.json": bare.to_json()})
    broken = CLASSIFIER.replace("return sums(", "return float('inf') * sums(", 1)
    write_model(folder, "broken", CLASSIFIER_CONFIG, {"model.py": broken})
    write_model(folder, "infinite", config.replace('"sums"', '"broken"'), {".gitkeep": ""})
    dali = 'backend: "pixprep"\ninput { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
    write_model(folder, "dali", dali, {"pipeline.json": PIPELINE.to_json()})
    return folder


@pytest.fixture(scope="module")
def serve(repository, tmp_path_factory):
    with Serve(repository, *PAGE, triton_log=tmp_path_factory.mktemp("log") / "triton.log") as serve:
        yield serve


@pytest.fixture(scope="module")
def page(serve):
    return Page(serve)


def page_process(serve):
    """Return the current process of the page."""

    def found():
        for process in psutil.Process(serve.process.pid).children():
            if is_alive(process) and "pixprep.serving.page" in process.cmdline():
                return process
        return None

    return wait_until(found, "there is no page")


def tensor_of(pipeline, photo):
    with pp.Engine(pipeline) as engine:
        (tensor,) = engine.run([photo])
    return tensor


# Tests of the page's text.


def test_models_that_accept_a_photo_are_listed_with_ensembles_first(page):
    status, report = page.ask("/models")
    assert status == 200
    names = ["ensemble", "infinite", "unlabelled", "bare", "boxes", "dali", "preprocess", "strict"]
    assert [(model["name"], len(model["inputs"]), model["limit_bytes"]) for model in report["models"]] == [
        (name, 1, 150_000 if name == "strict" else pp.Limits().max_image_bytes) for name in names
    ]


@pytest.mark.parametrize(("photo", "label"), [(FLOWER, "daisy"), (CHINA, "palace")])
def test_the_best_classes_equal_those_that_send_prints(page, serve, capsys, photo, label):
    (output,) = page.photo("ensemble", photo.read_bytes())["outputs"]
    assert (output["name"], output["kind"], output["shape"]) == ("logits", "scores", [1000])
    assert output["is_labelled"]
    assert main(["send", str(photo), "--url", serve.address, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["outputs"]["logits"]
    got = [(entry["class"], entry["label"]) for entry in output["classes"]]
    assert got == [(entry["class"], entry["label"]) for entry in best]
    assert got[0][1] == label
    assert np.allclose([entry["score"] for entry in output["classes"]], [entry["score"] for entry in best], atol=1e-5)
    assert main(["send", str(photo), "--url", serve.address, "--json", "--top", "0"]) == 0
    sure = to_probabilities(np.array(json.loads(capsys.readouterr().out)["outputs"]["logits"]))
    assert np.allclose([entry["share"] for entry in output["classes"]], np.sort(sure)[:-6:-1], atol=1e-6)


def test_a_classifier_without_labels_shows_class_numbers(page):
    (output,) = page.photo("unlabelled", FLOWER.read_bytes())["outputs"]
    assert (output["kind"], output["is_labelled"]) == ("scores", False)
    assert all(entry["label"] == f"class {entry['class']}" for entry in output["classes"])


def test_a_model_without_classes_shows_its_values(page):
    photo = FLOWER.read_bytes()
    (output,) = page.photo("preprocess", photo)["outputs"]
    tensor = tensor_of(pp.presets.efficientnet_lite0(), photo)
    assert (output["name"], output["kind"], output["shape"]) == ("tensor", "numbers", [3, 224, 224])
    assert (output["min"], output["max"]) == (tensor.min(), tensor.max())
    assert output["mean"] == pytest.approx(tensor.mean(dtype=np.float64))


def test_additional_outputs_of_a_pipeline_are_not_shown_as_classes(page):
    outputs = {output["name"]: output for output in page.photo("boxes", FLOWER.read_bytes())["outputs"]}
    assert outputs["original_size"] | {"dtype": ""} == {
        "name": "original_size", "kind": "values", "shape": [2], "dtype": "", "values": [427, 640],
    }  # fmt: skip
    assert outputs["transform"]["kind"] == "values"
    assert outputs["transform"]["values"][:2] == pytest.approx([43 / 427, 64 / 640])
    assert outputs["tensor"]["kind"] == "numbers"


def test_the_times_are_those_that_triton_counts_for_this_request(page, serve):
    """The test compares the times of the classifier, because the supervisor does not send probes to it."""

    def spent():
        with tritonclient.http.InferenceServerClient(serve.address) as client:
            (entry,) = client.get_inference_statistics("classifier")["model_stats"]
        parts = entry["inference_stats"]
        compute = sum(parts[f"compute_{name}"]["ns"] for name in ("input", "infer", "output"))
        return parts["success"]["count"], parts["queue"]["ns"], compute

    def as_counted():
        before, report, after = spent(), page.photo("ensemble", FLOWER.read_bytes()), spent()
        steps = {step["model"]: step for step in report["steps"]}
        assert report["request_ms"] > 0
        counted = sum(step["queue_ms"] + step["compute_ms"] for step in report["steps"])
        if list(steps) != ["preprocess", "classifier"] or counted > 0.99 * report["request_ms"]:
            # Triton counted the request too late, or the sum exceeds the request's time and is scaled by the page
            return False
        assert [new - old for new, old in zip(after, before, strict=True)] == [
            1,
            round(1e6 * steps["classifier"]["queue_ms"]),
            round(1e6 * steps["classifier"]["compute_ms"]),
        ]
        return steps["preprocess"]["compute_ms"] > 0

    wait_until(as_counted, "Triton counts no request")
    assert [step["model"] for step in page.photo("boxes", FLOWER.read_bytes())["steps"]] in (["boxes"], [])


def test_missing_normalization_is_reported(page):
    assert page.stages("bare", FLOWER.read_bytes())["notes"] == [
        'bare/1/pipeline.json: "tensor" contains pixel values 0 to 255 as float32: add normalize before tensor, '
        "unless its model was trained with such values"
    ]


def test_a_difference_from_the_source_next_to_a_pipeline_is_reported(page):
    (report,) = page.stages("boxes", FLOWER.read_bytes())["notes"]
    assert re.fullmatch(r'boxes differs from its source config\.json: ops\[0\] "decode": .*, and \d+ more', report)


@pytest.mark.parametrize(("model", "is_upright"), [("ensemble", True), ("boxes", True), ("bare", False)])
def test_a_photo_is_shown_as_the_model_sees_it(page, model, is_upright):
    assert page.photo(model, FLOWER.read_bytes())["is_upright"] == is_upright


@pytest.mark.parametrize(("model", "pipeline"), [("ensemble", "preprocess"), ("boxes", "boxes"), ("dali", "dali")])
def test_the_stages_equal_those_that_explain_draws_for_the_served_pipeline(page, repository, model, pipeline):
    photo = CHINA.read_bytes()
    report = page.stages(model, photo)
    assert (report["pipeline"], report["height"], report["width"]) == (pipeline, 427, 640)
    assert report["decode_ms"] > 0
    assert report["transform_ms"] > 0
    assert report["decode_ms"] + report["transform_ms"] <= report["engine_ms"]
    assert len(report["notes"]) == (
        model == "boxes"
    )  # this model differs from its source, which an earlier test covers
    loaded = pp.load(repository / pipeline / "1" / "pipeline.json")
    found = preview(loaded, photo)
    (shown,), (tensor,) = found.tensors, report["tensors"]
    drawn = panels(loaded, found, photo_of(loaded, photo, found), shown)
    assert len(tensor["panels"]) == len(drawn) == 3
    for got, expected in zip(tensor["panels"], drawn, strict=True):
        assert (got["title"], got["line"], got["words"]) == (expected.title, expected.line, list(expected.words))
        with Image.open(io.BytesIO(base64.b64decode(got["png"]))) as image:
            assert (np.asarray(image) == expected.pixels).all()
    height, width = drawn[0].pixels.shape[:2]
    edges = np.array(drawn[0].frame) / ([height, width] * 2)
    assert tensor["panels"][0]["frame"] == pytest.approx([*edges[:2], *(edges[2:] - edges[:2])])
    whole = shown.of_photo(shown.tensor)
    assert (tensor["low"], tensor["high"]) == (whole.min(), whole.max())
    for index, channel in enumerate(tensor["channels"]):
        values = shown.of_photo(shown.tensor)[:, :, index]
        assert (channel["min"], channel["max"]) == (values.min(), values.max())
        assert channel["counts"] == np.histogram(values.astype(float), 64, (whole.min(), whole.max()))[0].tolist()


def test_a_rejected_photo_shows_the_models_message(page):
    for model in ("ensemble", "preprocess"):
        status, report = page.ask(f"/photo?model={model}", b"not an image")
        assert status == 400
        assert report["error"].endswith(NOT_AN_IMAGE)
        status, report = page.ask(f"/stages?model={model}", b"not an image")
        assert (status, report["error"]) == (400, NOT_AN_IMAGE.replace("image 1 of 1: ", ""))
    assert page.ask("/photo?model=ensemble", b"")[0] == 400


def test_a_model_with_on_error_zero_shows_the_reason(page):
    outputs = {output["name"]: output for output in page.photo("strict", b"not an image")["outputs"]}
    assert outputs["status"]["kind"] == "texts"
    assert outputs["status"]["texts"][0].startswith("[UNKNOWN_FORMAT]")


def test_a_damaged_photo_is_shown_if_the_model_accepts_damage(page):
    damaged = CHINA.read_bytes()[:100_000]
    assert page.photo("boxes", damaged)["outputs"]
    assert page.stages("boxes", damaged)["width"] == 640
    for path in ("/photo", "/stages"):
        status, report = page.ask(f"{path}?model=preprocess", damaged)
        assert (status, "[TRUNCATED]" in report["error"]) == (400, True)


def test_non_finite_scores_are_not_shown_as_classes(page):
    (output,) = page.photo("infinite", FLOWER.read_bytes())["outputs"]
    assert (output["kind"], output["max"]) == ("numbers", "inf")


def test_the_limits_are_those_of_the_model(page):
    with io.BytesIO() as file:
        Image.new("RGB", (1000, 400)).save(file, "PNG")
        large = file.getvalue()
    status, report = page.ask("/stages?model=strict", large)
    assert status == 400
    assert report["error"].startswith("[TOO_MANY_PIXELS]")
    assert page.stages("preprocess", large)["width"] == 1000
    status, report = page.ask("/photo?model=strict", CHINA.read_bytes())
    assert (status, report) == (413, {"error": "the photo has 196,653 bytes, but the limit is 150,000"})


@pytest.mark.parametrize("model", ["ensemble", "unlabelled", "boxes", "dali"])
def test_the_commands_run_without_changes(page, model, tmp_path):
    name = 'it\'s $(a) "photo"; 50 %.jpg'
    shutil.copy(FLOWER, tmp_path / name)
    lines = page.photo(model, FLOWER.read_bytes(), name)["lines"]
    curl = ["sh", "-c", lines["shell"].replace("curl ", "curl --silent --show-error --noproxy '*' ", 1)]
    subprocess.run(curl, cwd=tmp_path, check=True, timeout=TIMEOUT_S)
    assert b'"outputs"' in (tmp_path / "answer.bin").read_bytes()
    (tmp_path / "program.py").write_text(lines["python"])
    done = run_program(tmp_path / "program.py", cwd=tmp_path)
    printed = {"ensemble": "daisy", "unlabelled": ":", "boxes": "transform (1, 4)", "dali": "(1, 3, 224, 224)"}
    assert printed[model] in done.stdout


@pytest.mark.parametrize("name", ["", "-", "-x.jpg", "../x.jpg", "a\nb.jpg", "a\x1b[31m.jpg", "a\u202egpj.jpg"])
def test_a_name_that_is_unsafe_in_a_command_is_omitted(page, name):
    status, report = page.ask(f"/photo?model=boxes&name={quote(name)}", FLOWER.read_bytes())
    assert status == 200
    assert " @photo.jpg " in report["lines"]["shell"]
    assert "Path('photo.jpg')" in report["lines"]["python"]


# Tests of the shutdown.


def test_a_page_that_dies_is_restarted_and_the_server_continues(page, serve):
    triton, first = serve.triton.pid, page_process(serve)
    after = len(serve.log)
    first.kill()
    how = r"was ended by signal 9 \(SIGKILL: killed, or out of memory\)"
    serve.wait_for(rf"^pixprep: the process of the page {how}; it is restarted", after=after)
    assert page.photo("boxes", FLOWER.read_bytes())["outputs"]  # the new process uses the same port
    assert page_process(serve).pid != first.pid
    assert serve.triton.pid == triton


def test_the_page_listens_on_loopback_and_is_the_first_to_be_killed_without_memory(page, serve):
    process = page_process(serve)
    port = int(page.url.rpartition(":")[2])
    listening = [entry for entry in process.net_connections() if entry.status == psutil.CONN_LISTEN]
    assert {entry.laddr for entry in listening} == {("127.0.0.1", port)}
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_page_survives_a_restart_of_triton_and_ends_with_the_supervisor(tmp_path, number):
    models = tmp_path / "models"
    write_model(models, "boxes", 'backend: "pixprep"\n', {"pipeline.json": pp.Pipeline(BOXES).to_json()})
    with Serve(models, *PAGE, triton_log=tmp_path / "log") as serve:
        page = Page(serve)
        page.photo("boxes", FLOWER.read_bytes())
        process = page_process(serve)
        serve.triton.kill()
        seen = set()

        def is_back():
            status, report = page.ask("/photo?model=boxes", FLOWER.read_bytes())
            seen.add((status, report.get("error", "").split(" (")[0].replace(serve.grpc, "HOST:PORT")))
            return status == 200 and any("all models are ready again" in line for line in serve.log)

        wait_until(is_back, lambda: f"Triton does not come back: {seen}", within_s=3 * TIMEOUT_S)
        assert {status for status, _ in seen} <= {200, 502, 503}
        assert page_process(serve) == process
        os.kill(serve.process.pid, number)
        assert serve.end() == (0 if number == signal.SIGTERM else -9)
        wait_until(lambda: not is_alive(process), "the page is still there")
    wait_until(lambda: not listeners(int(page.url.rpartition(":")[2])), "the port is still taken")


def test_a_port_in_use_is_named_before_anything_starts(tmp_path, capsys):
    write_model(tmp_path, "boxes", 'backend: "pixprep"\n', {"pipeline.json": pp.Pipeline(BOXES).to_json()})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--model-repository", str(tmp_path), "--page", "--page-port", port]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        rf"pixprep: port {port} is in use by .+: stop that process, or choose a different --page-port\n", err
    )


# Tests in Chromium.


@pytest.fixture(scope="module")
def window():
    if chromium() is None:
        pytest.skip("no Chromium here, which shows the page: apt-get install chromium")
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(window, page):
    """Return the browser after it has opened the page."""
    window.complaints.clear()
    window.requests.clear()
    window.open(page.url)
    window.wait("document.querySelector('#model').options.length === 8")
    yield window
    assert window.complaints == []


def is_done(browser):
    browser.wait("!document.querySelector('#stages').hidden && !document.querySelector('#status').innerText")


def test_a_dropped_photo_shows_its_classes_stages_times_and_commands(browser, page):
    browser.drop(FLOWER)
    is_done(browser)
    labels = browser.run("[...document.querySelectorAll('#outputs .label')].map(label => label.innerText)")
    report = page.photo("ensemble", FLOWER.read_bytes(), "flower.jpg")
    assert labels == [entry["label"] for entry in report["outputs"][0]["classes"]]
    widths = browser.run("[...document.querySelectorAll('#outputs .bar i')].map(bar => parseFloat(bar.style.width))")
    assert widths == pytest.approx([100 * entry["share"] for entry in report["outputs"][0]["classes"]], abs=0.01)
    pictures = browser.run(
        "[...document.querySelectorAll('#stages .picture img')].map(image => [image.naturalHeight, image.naturalWidth])"
    )
    assert pictures == [[342, 512], [448, 448], [448, 448]]
    assert browser.run("document.querySelectorAll('#stages svg').length") == 3
    times = browser.text("#times").splitlines()
    names = ("request, round trip", "queue of preprocess", "preprocess, in Triton", "classifier, in Triton")
    for name in (*names, "engine, one thread, in this page's process", "decode", "pixels to tensor"):
        assert re.fullmatch(r"\d+\.\d+ ms", times[times.index(name) + 1]), times
    bars = browser.run("[...document.querySelectorAll('#times .bar i')].map(bar => parseFloat(bar.style.width))")
    numbers = [float(number.removesuffix(" ms")) for number in times if number.endswith(" ms")]
    # all bars have the same scale
    assert bars == pytest.approx([100 * number / max(numbers) for number in numbers], abs=1)
    assert browser.text("#shell pre") == report["lines"]["shell"]
    assert browser.text("#python pre") == report["lines"]["python"]


def test_everything_is_loaded_from_the_page_itself(browser, page):
    browser.drop(CHINA)
    is_done(browser)
    asked = [url for url in browser.requests if not url.startswith(("data:", f"blob:{page.url}/"))]
    assert asked
    assert all(url.startswith(f"{page.url}/") for url in asked)


def test_a_folder_gives_a_grid_that_the_keyboard_navigates(browser):
    browser.drop(SIZES)
    count = len(list(SIZES.glob("*.jpg")))
    browser.wait(f"document.querySelector('#status').innerText === '{count} of {count} photos'")
    names = browser.run("[...document.querySelectorAll('.tile')].map(tile => tile.title)")
    assert names == sorted(path.name for path in SIZES.glob("*.jpg"))
    assert all(browser.run("[...document.querySelectorAll('.tile b')].map(label => label.innerText)"))
    for _ in range(20):
        browser.press("Tab")
        if browser.run("document.activeElement.title") == names[1]:
            break
    else:
        raise AssertionError("no tile can be reached with the Tab key")
    browser.press("Enter", text="\r")
    is_done(browser)
    assert browser.text("#name") == names[1]
    browser.press("Escape")
    browser.wait("document.querySelector('#one').hidden")
    assert browser.run("document.activeElement.title") == names[1]


def test_photos_can_be_chosen_with_the_keyboard(browser):
    for wanted in ("model", "files", "folder", "sample"):
        browser.press("Tab")
        assert browser.run("document.activeElement.id") == wanted
        if wanted == "folder":
            shown = browser.run("getComputedStyle(document.querySelector('#folder').parentElement).outlineStyle")
            assert shown == "solid"
    browser.choose("#files", FLOWER, CHINA)
    browser.wait("document.querySelector('#status').innerText === '2 of 2 photos'")
    browser.choose("#files", CHINA)
    is_done(browser)
    assert browser.text("#name") == "china.jpg"


def test_a_sample_photo_is_offered(browser):
    browser.run("document.querySelector('#sample').click()")
    is_done(browser)
    assert browser.text("#name") == "flower.jpg"
    assert browser.text("#size").startswith("640 wide, 427 high, ")
    assert "daisy" in browser.text("#outputs")


def test_boxes_keypoints_and_masks_are_drawn_over_the_photo_at_their_positions(browser):
    browser.drop(FLOWER)
    is_done(browser)
    mask = Image.new("RGBA", (64, 43), (255, 0, 0, 99))
    with io.BytesIO() as file:
        mask.save(file, "PNG")
        png = base64.b64encode(file.getvalue()).decode()
    corners = [[160, 213.5], [480, 213.5], [480, 320.25], [160, 320.25]]
    each = {"label": "a cat", "score": 0.5, "color": "rgb(1, 2, 3)", "corners": corners, "points": [[320, 106.75]]}
    report = {"height": 427, "width": 640, "png": png, "has_points": True, "objects": [each]}
    browser.run(f"document.querySelector('#outputs').prepend(found({json.dumps(report)}))")
    shown = browser.text("#outputs .output").split("\n")
    assert shown == [
        "1 object",
        "a cat",
        "50 %",
        "Drawn over the photo: boxes, keypoints with a score of at least 0.5, masks.",
    ]
    browser.wait("document.querySelector('.shot .over').complete")

    def place(selector):
        return browser.run(
            "(box => [box.left, box.top, box.width, box.height])"
            f"(document.querySelector('{selector}').getBoundingClientRect())"
        )

    left, top, width, height = place("#photo")
    assert width / height == pytest.approx(640 / 427, rel=0.01)  # the displayed image has no padding
    assert place(".shot path") == pytest.approx([left + width / 4, top + height / 2, width / 2, height / 4], abs=1)
    assert place(".shot .points")[:2] == pytest.approx([left + width / 2, top + height / 4], abs=1)
    assert place(".shot .over") == pytest.approx([left, top, width, height], abs=1)
    browser.drop(CHINA)
    is_done(browser)
    assert browser.run("document.querySelectorAll('.shot svg, .shot .over').length") == 0


def test_the_menu_of_48_models_shows_that_it_loads_and_can_be_filtered(browser):
    assert browser.run("document.querySelector('#filter').hidden")  # a menu of eight models does not need a filter
    assert "<option>loading" in browser.run("fetch('/').then(response => response.text())")
    names = [f"{kind}_{number:02}" for kind in ("cat", "dog") for number in range(24)]
    report = {"models": [{"name": name, "inputs": ["image"], "limit_bytes": 9} for name in names]}
    browser.run(f"window.fetch = async () => new Response({json.dumps(json.dumps(report))}), void findModels()")
    listed = "[...document.querySelector('#model').options].map(option => option.value)"
    browser.wait(f"{listed}.length === 48")
    assert browser.run(listed) == names
    browser.resize(900, 390)
    for words, expected in (
        ("DOG 1", [name for name in names if "dog" in name and "1" in name]),
        ("bird", []),
        ("", names),
    ):
        filter_ = f"document.querySelector('#filter').value = '{words}'"
        browser.run(f"{filter_}, document.querySelector('#filter').dispatchEvent(new Event('input'))")
        assert browser.run(listed) == expected
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.resize(1000, 1280)


def test_on_a_phone_the_commands_are_collapsed(browser, page):
    for width, is_open in ((390, False), (1280, True)):
        browser.resize(900, width)
        browser.open(page.url)
        browser.wait("document.querySelector('#model').options.length === 8")
        assert browser.run("['shell', 'python'].map(id => document.getElementById(id).open)") == [is_open] * 2


def test_selecting_a_different_model_sends_the_same_photo(browser):
    browser.drop(FLOWER)
    is_done(browser)
    unnamed = "The model does not have labels: add them with pixprep build --labels FILE."
    for model, shown in (("boxes", "427, 640"), ("unlabelled", unnamed)):
        browser.run(f"document.querySelector('#model').value = '{model}'")
        browser.run("document.querySelector('#model').dispatchEvent(new Event('change'))")
        browser.wait(f"document.querySelector('#outputs').innerText.includes({json.dumps(shown)})")
        is_done(browser)


def test_rejected_photos_are_reported_and_the_others_are_shown(browser, tmp_path):
    (tmp_path / "broken.jpg").write_text("not an image")
    (tmp_path / "notes.txt").write_text("no photo")
    shutil.copy(FLOWER, tmp_path / "flower.jpg")
    browser.drop(tmp_path)
    browser.wait(
        "document.querySelector('#status').innerText === "
        "'2 of 2 photos, 1 rejected; 1 file skipped: not an image file name, or more than 1,000 photos'"
    )
    words = browser.run("[...document.querySelectorAll('.tile b')].map(label => label.innerText)")
    assert words == ["unknown format", "daisy"]
    assert browser.run("document.querySelector('.tile').title").endswith(NOT_AN_IMAGE)
    browser.drop(tmp_path / "broken.jpg")
    browser.wait("document.querySelector('#status').className === 'wrong'")
    assert browser.text("#status").endswith(NOT_AN_IMAGE)
    browser.complaints.clear()  # Chromium logs each response with status 400


def test_a_name_that_contains_html_is_shown_as_text(browser, tmp_path):
    name = "<img src=x onerror=alert(1)><b>.jpg"
    shutil.copy(FLOWER, tmp_path / name)
    browser.drop(tmp_path / name)
    is_done(browser)
    assert browser.text("#name") == name
    assert browser.run("document.querySelectorAll('#name *, pre *').length") == 0


def test_nothing_overlaps_or_overflows_in_any_colour_scheme_and_width(browser):
    browser.drop(FLOWER)
    is_done(browser)
    papers = set()
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        papers.add(browser.run("getComputedStyle(document.body).backgroundColor"))
        for width in (1280, 800, 360):
            browser.resize(900, width)
            assert browser.run("document.documentElement.scrollWidth") <= width
            outside = browser.run(
                "[...document.querySelectorAll('section *')].filter(e => !e.closest('pre, svg, .picture'))"
                ".map(e => [e, e.getBoundingClientRect(), e.closest('section').getBoundingClientRect()])"
                ".filter(([e, box, around]) => box.width && (box.left < around.left || box.right > around.right))"
                ".map(([e]) => e.outerHTML.slice(0, 200))"
            )
            assert outside == []
    browser.resize(1000, 1280)
    browser.prefer("light")
    assert len(papers) == 2


def test_a_page_on_a_different_port_is_rejected(browser, page, tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        port = re.search(r" port (\d+) ", server.stdout.readline())[1]
        browser.open(f"http://127.0.0.1:{port}/")
        for options in ("{}", "{method: 'POST', body: 'photo'}", "{method: 'POST', body: 'photo', mode: 'no-cors'}"):
            ask = f"fetch('{page.url}/photo?model=ensemble', {options})"
            assert browser.run(f"{ask}.then(response => response.text(), () => 'refused')") in ("refused", "")
        frame = (
            f"const frame = document.createElement('iframe'); frame.src = '{page.url}/'; document.body.append(frame)"
        )
        browser.run(f"(() => {{ {frame} }})()")
        refused = "frame-ancestors 'none'"
        wait_until(
            lambda: browser.run("1") and any(refused in report for report in browser.complaints), "it was framed"
        )
        browser.complaints.clear()  # Chromium logs each rejected request
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()
