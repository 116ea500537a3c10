"""What ``pixprep build`` writes, behind Triton: with the engine and PyTorch on a GPU, or as a rehearsal on the CPU."""

import io
import re
from contextlib import contextmanager

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import pixprep as pp
from endurance import endurance
from images import jpeg, photo
from pixprep.triton import pool, repository
from serving import BAD, GOOD, PIPELINE, Oracle, ask_grpc, write_model

NEAR = 0.01  # PyTorch's logits are up to 0.001 from ONNX Runtime's on a CPU; garbage and swapped answers are far off
CONCURRENCY = 64
BATCH = 64  # images: the largest batch of each model
TENSOR = 3 * 224 * 224 * 4
DECODERS = ("cpu", "consistent")
STORM = [*BAD * 3, *GOOD]


def photos(count):
    """JPEGs of as many different parts of the two photos, of many sizes."""
    rng = np.random.default_rng(3)
    made = []
    for index in range(count):
        with Image.open(io.BytesIO(photo(("china", "flower")[index % 2]))) as image:
            height, width = rng.integers(image.height // 3, image.height), rng.integers(image.width // 3, image.width)
            top, left = rng.integers(image.height - height), rng.integers(image.width - width)
            made.append(jpeg(np.asarray(image)[top : top + height, left : left + width]))
    return made


class Judge(Oracle):
    """preprocess has to give the engine's tensors bit for bit, the ensemble nearly ONNX Runtime's logits of them.

    Attributes:
        furthest: the largest difference of a logit so far.
    """

    def __init__(self, models, *, device="cpu"):
        super().__init__(device=device)
        self._session = onnxruntime.InferenceSession(
            str(models / "classifier" / "1" / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        self._logits = {}
        self.furthest = 0.0

    def logits(self, tensors):
        """Each image's alone."""
        return np.concatenate([self._alone(tensor) for tensor in tensors])

    def _alone(self, tensor):
        key = tensor.tobytes()
        if key not in self._logits:
            (self._logits[key],) = self._session.run(["logits"], {"input": tensor[None]})
        return self._logits[key]

    def agrees(self, model, got, expected):
        if model != "ensemble":
            return super().agrees(model, got, expected)
        if got.shape != expected.shape:
            return False
        furthest = float(np.abs(got - expected).max())
        self.furthest = max(self.furthest, furthest)
        return furthest <= NEAR  # not of NaN


def build(models, classifier):
    """The repository; the classifier has the demo's weights, whatever the pipeline."""
    repository.build(models, pipeline=PIPELINE, classifier=classifier)
    return models


@contextmanager
def serve(folder, judge, models, *, pool_bytes=None, told_bytes=None):
    """See ``Endurance``; with a CUDA pool of so many bytes, of which the backend is told as many, or others.

    Without them Triton makes its default, as a server does that nobody gave options.
    """
    arguments = [] if pool_bytes is None else [f"--cuda-memory-pool-byte-size=0:{pool_bytes}"]
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(pool.VARIABLE, raising=False)
        if pool_bytes is not None:
            patch.setenv(pool.VARIABLE, str(told_bytes or pool_bytes))
        with endurance(folder, judge, models, extra_args=arguments) as it:
            yield it


def assert_all_right(it, count):
    """Every request so far was answered, and rightly."""
    assert dict(it.clients.counts) == {"right": count}, it.clients.notes[:5]


def tensors_pass_the_host(it, images):
    """Whether the largest batch's tensors went through memory of the host between the steps of the ensemble.

    Triton and the process of a Python model exchange what is on the host in a region of shared memory, which grows to
    the largest batch; of a tensor on a GPU only a handle is there. The images themselves take less than a quarter.
    """
    batch = [images[index % len(images)] for index in range(BATCH)]
    assert sum(map(len, batch)) < BATCH * TENSOR / 4
    assert it.clients.ask(batch, model="ensemble", protocol="grpc") == "right", it.clients.notes
    largest = max(region.stat().st_size for region in it.regions())
    return largest > BATCH * TENSOR / 2


def said(it, pattern):
    """The lines of Triton's log that hold a pattern."""
    lines = it.server.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if re.search(pattern, line)]


def assert_answers_can_be_told_apart(judge, images):
    """A negative control: another image's logits, or none, would not pass for the right ones."""
    logits = judge.tensors("ensemble", images)
    for index, row in enumerate(logits):
        for other in (*logits[:index], *logits[index + 1 :], np.zeros_like(row)):
            assert not judge.agrees("ensemble", other, row)
    judge.furthest = 0.0


def write_pairs(models, kinds):
    """For each decoder of the decode op a model on each device; the tensors are levels."""
    for decoder in DECODERS:
        ops = [pp.decode(decoder=decoder), pp.resize(256), pp.center_crop(224), pp.tensor(dtype="uint8")]
        for number, kind in enumerate(kinds):
            config = f'backend: "pixprep"\ninstance_group {{ kind: KIND_{kind} }}\n'
            write_model(models, f"{decoder}_{number}", config, {"pipeline.json": pp.Pipeline(ops).to_json()})
    return models


def levels_apart(client, images):
    """By decoder, the largest and the mean difference between its two models' answers."""
    found = {}
    for decoder in DECODERS:
        ours, theirs = (ask_grpc(client, f"{decoder}_{number}", images, timeout_s=120) for number in (0, 1))
        assert ours.shape == theirs.shape == (len(images), 3, 224, 224)
        apart = np.abs(ours.astype(int) - theirs)
        found[decoder] = {"max": int(apart.max()), "mean": round(float(apart.mean()), 4)}
    return found
