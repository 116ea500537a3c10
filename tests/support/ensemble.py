"""Serves a Triton ensemble whose classifier uses the tensor without copying it, on a GPU or, for a rehearsal, on the
CPU.
"""

import io
import re
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.serving.triton import pool
from support.endurance import endurance
from support.images import jpeg, photo
from support.serving import BAD, GOOD, ask_grpc, write_model

CONCURRENCY = 64
BATCH = 64  # maximum batch size of each model, in images
TENSOR = 3 * 224 * 224 * 4
DECODERS = ("cpu", "consistent")
STORM = [*BAD * 3, *GOOD]


def photos(count):
    """Return JPEGs of ``count`` different regions of the two photos, in many sizes."""
    rng = np.random.default_rng(3)
    made = []
    for index in range(count):
        with Image.open(io.BytesIO(photo(("china", "flower")[index % 2]))) as image:
            height, width = rng.integers(image.height // 3, image.height), rng.integers(image.width // 3, image.width)
            top, left = rng.integers(image.height - height), rng.integers(image.width - width)
            made.append(jpeg(np.asarray(image)[top : top + height, left : left + width]))
    return made


@contextmanager
def serve(folder, oracle, models, *, pool_bytes=None, told_bytes=None, pinned=False):
    """Run a server like ``endurance``, with a CUDA memory pool of ``pool_bytes``.

    The backend is configured with this size, or with ``told_bytes`` as a false size.

    With ``pinned``, Triton has a pool of pinned memory, but the backend is configured as if there were none. Without
    any of these options, Triton uses its defaults.
    """
    arguments = [] if pool_bytes is None else pool.options(pool_bytes, gpus=1)
    arguments = arguments[:-1] if pinned else arguments
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in pool.variables(0):
            patch.delenv(name, raising=False)
        if pool_bytes is not None:
            for name, value in pool.variables(told_bytes or pool_bytes).items():
                patch.setenv(name, value)
        with endurance(folder, oracle, models, extra_args=arguments) as it:
            yield it


def assert_all_right(it, count):
    """Assert that all requests so far, ``count`` in total, got the right response."""
    assert dict(it.clients.counts) == {"right": count}, it.clients.notes[:5]


def tensors_pass_the_host(it, images):
    """Return whether the tensors of the largest batch are copied to host memory between the steps of the ensemble.

    Triton and the process of a Python model exchange host data in a region of shared memory, which grows to the largest
    batch. For a tensor on a GPU, the region contains only a handle. The encoded images take less than a quarter of the
    tensors' size.
    """
    batch = [images[index % len(images)] for index in range(BATCH)]
    assert sum(map(len, batch)) < BATCH * TENSOR / 4
    assert it.clients.ask(batch, model="ensemble", protocol="grpc") == "right", it.clients.notes
    largest = max(region.stat().st_size for region in it.regions())
    return largest > BATCH * TENSOR / 2


def said(it, pattern):
    """Return the lines of Triton's log that match a regular expression."""
    lines = it.server.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if re.search(pattern, line)]


def assert_answers_can_be_told_apart(oracle, images):
    """Assert, as a negative control, that the response for a different image would count as wrong."""
    answers = oracle.tensors("ensemble", images)
    for index, row in enumerate(answers):
        for other in (*answers[:index], *answers[index + 1 :], np.zeros_like(row)):
            assert not oracle.agrees(other, row)


def write_pairs(models, devices):
    """Write one model per decoder and device. The models return pixel values."""
    for decoder in DECODERS:
        ops = [pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor(dtype="uint8")]
        parameter = f'parameters {{ key: "decoder" value {{ string_value: "{decoder}" }} }}\n'
        for number, device in enumerate(devices):
            config = f'backend: "pixprep"\ninstance_group {{ kind: KIND_{device} }}\n{parameter}'
            write_model(models, f"{decoder}_{number}", config, {"pipeline.json": pp.Pipeline(ops).to_json()})
    return models


def levels_apart(client, images):
    """Return the maximum and the mean absolute difference between the responses of each decoder's two models."""
    found = {}
    for decoder in DECODERS:
        ours, theirs = (ask_grpc(client, f"{decoder}_{number}", images, timeout_s=120) for number in (0, 1))
        assert ours.shape == theirs.shape == (len(images), 3, 224, 224)
        apart = np.abs(ours.astype(int) - theirs)
        found[decoder] = {"max": int(apart.max()), "mean": round(float(apart.mean()), 4)}
    return found
