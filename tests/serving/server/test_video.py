"""Tests of clips in a real Triton server: requests with curl and over both protocols, invalid clips among valid ones,
and tensors that match the engine's bit for bit.
"""

import re
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import pixprep as pp
from support.clips import clip
from support.serving import RAW, infer, wait_until, write_model

pytest.importorskip("av")
pytest.importorskip("cv2")
pytestmark = pytest.mark.server

PIPELINE = pp.Pipeline(
    [
        pp.decode_video(frames=6), pp.resize(72), pp.center_crop(64), pp.optical_flow(),
        pp.normalize(mean=0.5, std=0.5), pp.tensor(layout="cthw"),
    ]
)  # fmt: skip
SEVERAL = pp.Pipeline(
    [pp.decode_video(frames=4, clips=3, sample={"step": 2}), pp.resize(height=64, width=48), pp.tensor(layout="ncthw")]
)
SIZES = {"merge_size": 2, "temporal_patch_size": 2}
PATCHES = pp.Pipeline(
    [
        pp.decode_video(frames=16, sample="rounded", rate=6, min_frames=4),
        pp.resize_to_pixels(multiple=32, max_pixels=90_000, frames="clip", temporal_patch_size=2),
        pp.normalize(mean=0.5, std=0.5), pp.patches(16, **SIZES), pp.patch_grid(16, order="thw", **SIZES),
    ]
)  # fmt: skip
NAMES = ("h264.mp4", "vp9.webm")
ZERO = 'parameters { key: "on_error" value { string_value: "zero" } }\n'
SMALL = 'parameters { key: "max_clip_frames" value { string_value: "50" } }\n'  # the clips have 40 frames


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    repository = tmp_path_factory.mktemp("clips")
    files = {"pipeline.json": PIPELINE.to_json()}
    for name, config in (("clips", SMALL), ("zero", ZERO)):
        write_model(repository, name, f'backend: "pixprep"\n{config}', files)
    write_model(repository, "several", 'backend: "pixprep"\n', {"pipeline.json": SEVERAL.to_json()})
    write_model(repository, "patches", 'backend: "pixprep"\n', {"pipeline.json": PATCHES.to_json()})
    return repository


@pytest.fixture(scope="module")
def encoded():
    return {name: clip(name, 40) for name in NAMES}


@pytest.fixture(scope="module")
def wanted(encoded):
    with pp.Engine(PIPELINE) as engine:
        batch = engine.run_batch([*encoded.values()])
    return {name: {output: batch[output][row] for output in batch.outputs} for row, name in enumerate(encoded)}


@pytest.fixture
def client(triton):
    return lambda model, clips, outputs=("tensor", "optical_flow"): infer(triton, model, outputs, image=clips)


def test_the_model_declares_its_inputs_and_outputs(server):
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        config = client.get_model_config("clips", as_json=True)["config"]
    assert config["max_batch_size"] == 64 // 6
    assert [int(dim) for dim in config["output"][0]["dims"]] == [5, 2, 64, 64]
    assert [int(dim) for dim in config["output"][1]["dims"]] == [3, 6, 64, 64]


def test_clips_give_the_engines_tensors(client, encoded, wanted):
    for name, clip_ in encoded.items():
        answer = client("clips", [clip_])
        for output, expected in wanted[name].items():
            np.testing.assert_array_equal(answer.as_numpy(output)[0], expected)
    answer = client("clips", [*encoded.values()])
    for row, name in enumerate(encoded):
        np.testing.assert_array_equal(answer.as_numpy("tensor")[row], wanted[name]["tensor"])


def test_several_clips_of_a_file_are_one_tensor(client, encoded):
    answer = client("several", [*encoded.values()], ["tensor"]).as_numpy("tensor")
    assert answer.shape == (2, 3, 3, 4, 64, 48)
    with pp.Engine(SEVERAL) as engine:
        np.testing.assert_array_equal(answer, engine.run_batch([*encoded.values()])["tensor"])


def test_an_invalid_clip_fails_its_request_alone_or_is_zeros(client, encoded, wanted):
    good, bad = encoded["h264.mp4"], encoded["h264.mp4"][:3000]
    with pytest.raises(InferenceServerException, match=r"\[TRUNCATED\] image 2 of 2"):
        client("clips", [good, bad])
    answer = client("zero", [good, bad], outputs=("tensor", "status"))
    np.testing.assert_array_equal(answer.as_numpy("tensor")[0], wanted["h264.mp4"]["tensor"])
    assert not answer.as_numpy("tensor")[1].any()
    assert answer.as_numpy("status")[1, 0].startswith(b"[TRUNCATED]")


def test_a_limit_is_a_parameter(client):
    with pytest.raises(InferenceServerException, match="max_clip_frames"):
        client("clips", [clip("h264.mp4", 51)])
    assert client("zero", [clip("h264.mp4", 51)]).as_numpy("tensor").any()


def test_clips_sent_by_curl_and_the_number_of_frames(server, encoded, wanted):
    request = urllib.request.Request(
        f"{server.http_url}/v2/models/clips/infer", encoded["vp9.webm"], {**RAW}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        body = answer.read()
        split = int(answer.headers["Inference-Header-Content-Length"])
    tensors = body[split:]
    assert wanted["vp9.webm"]["tensor"].tobytes() in tensors

    def counted():
        line = r'^pixprep_(images|frames)_total{model="clips",(?:result="ok",)?version="1"} (\d+)'
        with urllib.request.urlopen(server.metrics_url, timeout=120) as answer:
            numbers = dict(re.findall(line, answer.read().decode(), re.MULTILINE))
        return numbers and int(numbers["frames"]) == 6 * int(numbers["images"])

    wait_until(counted)


def test_a_request_contains_the_patches_of_clips_of_different_lengths(triton):
    clips = [clip("h264.mp4", 40), clip("h264.mp4", 61)]
    with pp.Engine(PATCHES) as engine:
        batch = engine.run_batch(clips)
    answer = infer(triton, "patches", image=np.array(clips, np.object_))
    assert answer.as_numpy("patch_grid").tolist() == batch.packed("patch_grid").tolist() == [[4, 4, 8], [6, 4, 6]]
    assert np.array_equal(answer.as_numpy("patches"), batch.packed("patches"))
    with pytest.raises(InferenceServerException, match=r"\[UNKNOWN_FORMAT\] image 2 of 2"):
        infer(triton, "patches", ("patches",), image=np.array([clips[0], b"no clip"], np.object_))
