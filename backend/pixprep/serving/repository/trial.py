"""One photo through the models of a repository, without a server: what its tensors are, and the classes found in it.

The classifier is run by ONNX Runtime, if that is installed, in a process of its own: whatever the file does, the
command that asks goes on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders import Encoded
from pixprep.engine.engine import Engine
from pixprep.errors import PipelineError, install
from pixprep.pipeline.ops import Transform
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository.fit import connect, mend_dims
from pixprep.serving.repository.labels import read_labels
from pixprep.serving.repository.pbtxt import LABELS_FILE, LABELS_OF, Names, Step
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.repository.positions import are_boxes
from pixprep.serving.repository.repository import ONNX_FILE, Repository, Version
from pixprep.serving.triton.config import PIPELINE_FILE
from pixprep.show.preview import is_clip, preview
from pixprep.spec import TensorSpec

Array = npt.NDArray[Any]

LIMIT_S = 30.0
MAX_ONNX_BYTES = 1 << 30
"""Maximum size of a model; a larger one takes too long to load for a preview."""
_BEST = 3
_REFUSED = "ONNX Runtime could not run it: "
_ALONE = "export the model with the sizes that it takes, and give the pipeline these"
_MOST_LETTERS = 300  # letters of an error message
_PLACE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |Status Message: |/onnxruntime_src/\S+ [^)]*\) ")
"""Parts of ONNX Runtime's error messages that name the place in its own code."""


@dataclass(frozen=True)
class _Taker:
    """A classifier of an ensemble.

    Attributes:
        version: Version that contains the ONNX file.
        feeds: Model and output of the pipeline that feeds each input, by input name; None before an ensemble is
            written.
        models: Models of these pipelines.
        names: Names that the ensemble uses, by model and output.
    """

    version: Version
    feeds: Mapping[str, tuple[str, str]] | None
    models: frozenset[str]
    names: Mapping[tuple[str, str], str]


def try_out(
    repository: Path | Repository, encoded: Encoded, *, name: str | None = None, limit_s: float = LIMIT_S
) -> Iterator[str]:
    """Try one photo: for each pipeline its tensors, and for the classifier after it the best classes.

    Args:
        repository: Repository as ``build`` writes it.
        encoded: Encoded photo, used for every image that a classifier compares; or a clip, for pipelines of clips, for
            which a photo counts as a clip of identical frames.
        name: Name of the ensemble, ``""`` for the one without its own name; None: every pipeline.
        limit_s: Maximum number of seconds for a classifier, including the time to load it.

    Raises:
        PipelineError: ONNX Runtime rejects a classifier that it runs in serving, or its input.
        PixprepError: The photo is rejected, or a file cannot be read.
    """
    repository = Repository.at(repository)
    if name is None:
        wired, found = repository.ensembles, repository.pipelines
    else:
        own = Names.of(name).ensemble
        wired = {own: repository.models[own].steps}
        named = {step.model: repository.version_of(step) for step in wired[own]}
        found = {model: version for model, version in named.items() if version and version.has(PIPELINE_FILE)}
    pipelines: dict[str, Pipeline] = {}
    takers = list(_takers(repository, wired, found))
    for model, version in sorted(found.items()):
        pipelines[model] = version.pipeline.for_serving()
        yield from preview(pipelines[model], encoded).lines()
        for taker in [each for each in takers if each.models <= pipelines.keys()]:
            takers.remove(taker)
            yield from _classes(taker, pipelines, encoded, limit_s)


def _takers(
    repository: Repository, wired: Mapping[str, Sequence[Step]], found: Mapping[str, Version]
) -> Iterator[_Taker]:
    """The classifiers whose inputs all come from pipelines."""
    names = set()
    for steps in wired.values():
        sources = {
            tensor: (step.model, port) for step in steps if step.model in found for port, tensor in step.outputs.items()
        }
        for step in steps:
            version = repository.version_of(step)
            is_fed = bool(step.inputs) and sources.keys() >= set(step.inputs.values())
            is_new = step.model not in found and step.model not in names
            if is_new and is_fed and version and version.has(ONNX_FILE):
                names.add(step.model)
                feeds = {port: sources[tensor] for port, tensor in step.inputs.items()}
                models = frozenset(model for model, _ in feeds.values())
                backs = {
                    (each.model, port): tensor
                    for each in steps
                    for port, tensor in each.outputs.items()
                    if each.model in models
                }
                yield _Taker(version, feeds, models, backs)
    inside = {step.model for steps in wired.values() for step in steps}
    for model in found:
        own = Names.of(model.removesuffix(Names().preprocess).removesuffix("_"))
        version = repository.version_of(Step(own.classifier, {}, {}))
        if model not in inside and model == own.preprocess and version and version.has(ONNX_FILE):
            yield _Taker(version, None, frozenset([model]), {})  # no ensemble is written yet


def _classes(taker: _Taker, pipelines: Mapping[str, Pipeline], encoded: Encoded, limit_s: float) -> Iterator[str]:
    """Classes that a classifier finds in the photo."""
    model, onnx = taker.version.model, taker.version.folder / ONNX_FILE
    if find_spec("onnxruntime") is None:
        yield f"the classifier was not tried: {install('classifier')}"
        return
    if onnx.stat().st_size > MAX_ONNX_BYTES:
        yield f"the classifier was not tried: over {MAX_ONNX_BYTES >> 30} GiB"
        return
    classifier, feeds = taker.version.onnx, taker.feeds
    if feeds is None:
        (giver,) = taker.models
        pairs = connect(classifier, pipelines[giver], max_batch_size=1)
        feeds = {port: (giver, output) for port, output in pairs.items()}
    tensors = {giver: _tensors(pipelines[giver], encoded) for giver in sorted(taker.models)}
    outputs, takes = run_onnx(onnx, {port: tensors[giver][name] for port, (giver, name) in feeds.items()}, limit_s)
    sources = {port: pipelines[giver].outputs[name] for port, (giver, name) in feeds.items()}
    if isinstance(outputs, str):
        if _is_refused(taker.version, outputs):
            port, output = next(iter(sources.items()))
            remedy = f'"{port}" runs with {takes[1:]}: {mend_dims(output, takes[1:])}' if takes else _ALONE
            raise PipelineError(f"{taker.version.where(ONNX_FILE)}: {outputs}: {remedy}".removesuffix(": "))
        yield f"the classifier was not tried: {outputs}"
        return
    for tensor, values in zip(classifier.outputs, outputs, strict=True):
        if values.shape[:1] != (1,) and not any(pipelines[giver].plan.is_packed for giver in taker.models):
            yield f'"{tensor.name}": {list(values.shape)} of one image: in a batch, Triton would share them out wrongly'
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            yield f'"{tensor.name}": some of its values are not finite'
    labels = model.folder / LABELS_FILE
    words = read_labels(labels) if labels.is_file() else []
    files = {tensor.name: model.folder / LABELS_OF.format(tensor.name) for tensor in classifier.outputs}
    heads = {name: read_labels(file) for name, file in files.items() if file.is_file()}
    backs = [
        taker.names.get((giver, op.name or "transform"), op.name or "transform")
        for giver in sorted(taker.models)
        for op in pipelines[giver].side_ops
        if isinstance(op, Transform)
    ]
    if backs and not words and not heads:  # outputs of a detector, not class scores
        images = [output.spec for output in sources.values() if output.spec.layout is not None]
        for tensor, values in zip(classifier.outputs, outputs, strict=True):
            is_place = bool(images) and are_boxes(replace(tensor, shape=values.shape), images[0])
            at = f'; "{backs[0]}" says where in the photo that is' * is_place
            yield f'"{tensor.name}": {values.dtype} {list(values.shape[1:])}{at}'
        return
    is_compared = len(taker.models) > 1  # the photo with itself
    index = None if heads or is_compared else _scored(classifier, outputs, words)
    scored = [(index, words)] if index is not None else []
    numbers = {tensor.name: number for number, tensor in enumerate(classifier.outputs)}
    for index, words in [*scored, *((numbers[head], named) for head, named in heads.items())]:
        name, sure = classifier.outputs[index].name, shares(outputs[index][0])
        if (sure == sure[0]).all():
            yield f'"{name}": every class has the same score'
            continue
        best = np.argsort(-sure, kind="stable")[:_BEST]
        named = (f"{words[number] if words else f'class {number}'} {sure[number]:.2f}" for number in best)
        yield f'"{name}": {", ".join(named)}'


def _tensors(pipeline: Pipeline, encoded: Encoded) -> dict[str, Array]:
    """The outputs of a pipeline for one photo, the batch first."""
    is_still = not is_clip(pipeline, encoded)
    with Engine(pipeline.for_photos() if is_still else pipeline, threads=1, odd_range=True) as engine:
        batch = engine.run_batch([encoded], inputs=pipeline.example_inputs())
    if batch.errors[0] is not None:
        raise batch.errors[0]
    specs = {name: output.spec for name, output in pipeline.outputs.items()}
    if pipeline.plan.is_packed:
        return {name: batch.packed(name) for name in specs}
    return {
        name: _standing(tensor, specs[name]) if is_still else tensor
        for name, tensor in batch.outputs.items()
        if name in specs
    }


def _standing(tensor: Array, spec: TensorSpec) -> Array:
    """Tensor of a photo (batch first), repeated along the time axis if the spec is that of a clip."""
    axis = 1 + (spec.layout or "").find("t")
    return tensor if axis == 0 else np.repeat(np.expand_dims(tensor, axis), spec.shape[axis - 1], axis)


def _is_refused(version: Version, why: str) -> bool:
    """Return whether the server would fail as the trial did: on the same processor, and not for its limit of memory."""
    is_same = any(group.get("kind") == "KIND_CPU" for group in version.model.config.get("instance_group", []))
    return is_same and why.startswith(_REFUSED) and "alloc" not in why


def run_onnx(onnx: Path, inputs: Mapping[str, Array], limit_s: float) -> tuple[list[Array] | str, list[int] | None]:
    """The outputs in the order of the file; or the reason of a failure, and a shape that the model would accept."""
    with tempfile.TemporaryDirectory(prefix="pixprep-trial-") as folder:
        with Path(folder, "inputs.npz").open("wb") as file:
            np.savez(file, **inputs)
        command = [sys.executable, "-m", "pixprep.serving.repository.onnx_trial", str(onnx.resolve())]
        try:  # in a folder that is ours: Python looks for modules there first
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return f"it takes over {limit_s:g} s", None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().replace(str(onnx.resolve()), onnx.name)
            last = _PLACE.sub("", said.splitlines()[-1]) if said else ""
            why = last[:_MOST_LETTERS] or f"signal {-done.returncode}"
            shape = Path(folder, "shape.json")
            return f"{_REFUSED}{why}", json.loads(shape.read_text(encoding="utf-8")) if shape.is_file() else None
        with np.load(Path(folder, "outputs.npz")) as found:
            return [found[str(index)] for index in range(len(found.files))], None


def _scored(classifier: Classifier, outputs: Sequence[Array], labels: Sequence[str]) -> int | None:
    """Find the output with one score per class; without labels, only if it is unambiguous."""
    fits = [
        index
        for index, values in enumerate(outputs)
        if values.dtype.kind == "f" and values.ndim == 2 and len(values) == 1 and np.isfinite(values).all()
        if (values.shape[1] == len(labels) if labels else values.shape[1] > 1)
    ]
    return fits[0] if fits and (labels or len(classifier.outputs) == 1) else None


def shares(scores: Array) -> Array:
    """Scores as probabilities: unchanged if they already are, or else their softmax."""
    scores = scores.astype(np.float64)
    if scores.min() >= 0 and abs(scores.sum() - 1) < 1e-3:
        return scores
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())
