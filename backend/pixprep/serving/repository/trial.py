"""Processes one photo with the models of a repository, without a server, and describes the tensors and classes.

If ONNX Runtime is installed, it runs the classifier in a separate process, so that a crash does not affect the caller.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders import Encoded
from pixprep.engine.decoders.turbo import jpeg_of
from pixprep.engine.engine import Engine
from pixprep.errors import PipelineError, PixprepError, install
from pixprep.pipeline.pipeline import Pipeline
from pixprep.postprocessing.detections import GEOMETRY_OUTPUTS, SIZE_OUTPUT, TARGET_SIZES, detections
from pixprep.serving.repository.exports import Export, read_export
from pixprep.serving.repository.fit import is_size_of_photo
from pixprep.serving.repository.labels import read_labels
from pixprep.serving.repository.pbtxt import LABELS_FILE, LABELS_OF, Names, Step
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.repository.repository import ONNX_FILE, Repository, Version
from pixprep.serving.triton.config import PIPELINE_FILE
from pixprep.show.preview import is_clip, preview
from pixprep.spec import TensorSpec

Array = npt.NDArray[Any]

LIMIT_S = 30.0
MAX_ONNX_BYTES = 1 << 30
"""Maximum size of a model file in bytes. Larger files take too long to load for a preview."""
_BEST, _BLOCKS = 3, 8
_REFUSED = {"onnx_trial": "ONNX Runtime could not run it: ", "tensorrt_trial": "TensorRT for RTX failed: "}
_LOAD_FAILED = "Load model from"
_EXPORT_AGAIN = "the repository was written, but its model does not load: export the model again"
_FIX_SIZES = "export the model with fixed sizes, and use these in the pipeline"
_MAX_CHARS = 300  # maximum length of an error message
_LOCATION = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |Status Message: |/onnxruntime_src/\S+ [^)]*\) ")
"""Regular expression for error codes and source locations in ONNX Runtime's error messages."""


@dataclass(frozen=True)
class _Target:
    """Classifier whose inputs all come from pipelines.

    Attributes:
        version: Version of the classifier, with its ONNX file.
        feeds: Preprocess model and output that provide each input, by input name.
        models: Names of the preprocess models that provide the inputs.
    """

    version: Version
    feeds: Mapping[str, tuple[str, str]]
    models: frozenset[str]


def try_out(
    repository: Path | Repository, encoded: Encoded, *, name: str | None = None, limit_s: float = LIMIT_S
) -> Iterator[str]:
    """Process one photo, and yield lines about the tensors of each pipeline and the best classes of each classifier.

    Args:
        repository: Repository that ``build`` wrote.
        encoded: Encoded photo or clip. A classifier that compares images receives the same photo in all inputs. For
            pipelines for clips, every frame is the photo.
        name: Name of the ensemble to try, as in ``build``. ``""`` is the default name, and None means all pipelines.
        limit_s: Time limit of a classifier in seconds, including the time to load it.

    Raises:
        PipelineError: ONNX Runtime rejects a classifier or its input, as it would in the server.
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
    targets = list(_targets(repository, wired, found))
    for model, version in sorted(found.items()):
        pipelines[model] = version.pipeline.for_serving()
        yield from preview(pipelines[model], encoded).lines()
        for target in [each for each in targets if each.models <= pipelines.keys()]:
            targets.remove(target)
            yield from _classes(target, pipelines, encoded, limit_s)


def _targets(
    repository: Repository, wired: Mapping[str, Sequence[Step]], found: Mapping[str, Version]
) -> Iterator[_Target]:
    """Yield the classifiers whose inputs all come from pipelines."""
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
                yield _Target(version, feeds, models)


def _classes(target: _Target, pipelines: Mapping[str, Pipeline], encoded: Encoded, limit_s: float) -> Iterator[str]:
    """Run a classifier on the photo, and yield lines about its best classes, or about its outputs."""
    model, onnx = target.version.model, target.version.folder / ONNX_FILE
    if find_spec("onnxruntime") is None:
        yield f"the classifier was not tried: {install('classifier')}"
        return
    if onnx.stat().st_size > MAX_ONNX_BYTES:
        yield f"the classifier was not tried: its file exceeds {MAX_ONNX_BYTES >> 30} GiB"
        return
    classifier, feeds = target.version.onnx, target.feeds
    tensors = {producer: _tensors(pipelines[producer], encoded) for producer in sorted(target.models)}
    fed = {port: tensors[producer][name] for port, (producer, name) in feeds.items()}
    (outputs,) = run_onnx(onnx, [fed], limit_s)
    if isinstance(outputs, str):
        if _server_would_fail(target.version, outputs):
            remedy = _EXPORT_AGAIN if _LOAD_FAILED in outputs else _FIX_SIZES
            raise PipelineError(f"{target.version.where(ONNX_FILE)}: {outputs}: {remedy}")
        yield f"the classifier was not tried: {outputs}"
        return
    for tensor, values in zip(classifier.outputs, outputs, strict=True):
        if values.shape[:1] != (1,) and not any(pipelines[producer].plan.is_packed for producer in target.models):
            yield f'"{tensor.name}" is {list(values.shape)} for one image, so its first dimension is not the batch'
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            yield f'"{tensor.name}": some values are not finite'
    labels = model.folder / LABELS_FILE
    class_names = read_labels(labels) if labels.is_file() else []
    files = {tensor.name: model.folder / LABELS_OF.format(tensor.name) for tensor in classifier.outputs}
    heads = {name: read_labels(file) for name, file in files.items() if file.is_file()}
    geometry = {
        name: tensors[producer][name][0]
        for producer in sorted(target.models)
        for name in tensors[producer]
        if name in (*GEOMETRY_OUTPUTS, SIZE_OUTPUT) or is_size_of_photo(pipelines[producer], name)
    }
    is_detector = not {GEOMETRY_OUTPUTS[0], TARGET_SIZES}.isdisjoint(geometry)
    if is_detector and not class_names and not heads:  # outputs of a detector, not class scores
        for tensor, values in zip(classifier.outputs, outputs, strict=True):
            yield f'"{tensor.name}": {values.dtype} {list(values.shape[1:])}'
        named_outputs = {tensor.name: values[0] for tensor, values in zip(classifier.outputs, outputs, strict=True)}
        if TARGET_SIZES in geometry or geometry.keys() >= {*GEOMETRY_OUTPUTS}:
            yield from _objects(named_outputs | geometry, read_export(onnx))
        return
    is_compared = len(target.models) > 1  # the photo would be compared with itself
    index = None if heads or is_compared else _scored(classifier, outputs, class_names)
    scored = [(index, class_names)] if index is not None else []
    numbers = {tensor.name: number for number, tensor in enumerate(classifier.outputs)}
    for index, class_names in [*scored, *((numbers[head], named) for head, named in heads.items())]:
        name, probabilities = classifier.outputs[index].name, to_probabilities(outputs[index][0])
        if (probabilities == probabilities[0]).all():
            yield f'"{name}": every class has the same score'
            continue
        best = np.argsort(-probabilities, kind="stable")[:_BEST]
        named = (
            f"{class_names[number] if class_names else f'class {number}'} {probabilities[number]:.2f}"
            for number in best
        )
        yield f'"{name}": {", ".join(named)}'


def _objects(outputs: Mapping[str, Array], export: Export) -> Iterator[str]:
    """Yield a line that describes the detected objects, or the reason why the outputs are not supported."""
    try:
        found = detections(outputs, export.task, keypoints=export.keypoints)
    except (PixprepError, IndexError) as error:
        yield f"the objects are not shown: {error}"
        return
    names = dict(enumerate(export.names))
    best = [
        f"{names.get(int(number), f'class {number}')} {score:.2f} {box.round().astype(int).tolist()}"
        for number, score, box in zip(found.classes[:_BEST], found.scores, found.boxes, strict=False)
    ]
    yield f"{len(found.boxes)} object{'s' * (len(found.boxes) != 1)}{': ' * bool(best)}{', '.join(best)}"


def example_tensors(pipeline: Pipeline, kind: Literal["noise", "black", "white"]) -> dict[str, Array]:
    """Return the outputs of a pipeline for a photo of 480 x 640 pixels, with the batch dimension first.

    Raises:
        PixprepError: The pipeline rejects the photo.
    """
    blocks = np.random.default_rng(0).integers(0, 256, (_BLOCKS, _BLOCKS, 3), np.uint8)
    pixels = blocks if kind == "noise" else np.full_like(blocks, 255 * (kind == "white"))
    return _tensors(pipeline, jpeg_of(pixels.repeat(480 // _BLOCKS, 0).repeat(640 // _BLOCKS, 1)))


def _tensors(pipeline: Pipeline, encoded: Encoded) -> dict[str, Array]:
    """Return the outputs of a pipeline for one photo, with the batch dimension first."""
    is_still = not is_clip(pipeline, encoded)
    with Engine(pipeline.for_photos() if is_still else pipeline, threads=1, odd_range=True) as engine:
        batch = engine.run_batch([encoded], inputs=pipeline.example_inputs())
    if batch.errors[0] is not None:
        raise batch.errors[0]
    specs = {name: output.spec for name, output in pipeline.outputs.items()}
    if pipeline.plan.is_packed:
        return {name: batch.packed(name) for name in specs}
    return {
        name: _repeated(np.stack(tensor), specs[name]) if is_still else np.stack(tensor)
        for name, tensor in batch.outputs.items()
        if name in specs
    }


def _repeated(tensor: Array, spec: TensorSpec) -> Array:
    """Repeat the tensor or the patches of a photo along the clip and time axes if ``spec`` describes clips."""
    if spec.patches is not None and spec.shape[0] > tensor.shape[1]:
        return np.tile(tensor, (1, spec.shape[0] // tensor.shape[1], *[1] * (tensor.ndim - 2)))
    for axis, letter in enumerate(spec.layout or "", 1):
        if letter in "nt":
            tensor = np.repeat(np.expand_dims(tensor, axis), spec.shape[axis - 1], axis)
    return tensor


def _server_would_fail(version: Version, reason: str) -> bool:
    """Return whether the server would fail with the same error.

    This is the case if the server also runs the model on a CPU, and the error is not due to the trial's memory limit.
    """
    is_same = any(group.get("kind") == "KIND_CPU" for group in version.model.config.get("instance_group", []))
    return is_same and reason.startswith(_REFUSED["onnx_trial"]) and "alloc" not in reason


def run_onnx(onnx: Path, inputs: Sequence[Mapping[str, Array]], limit_s: float) -> list[list[Array] | str]:
    """Run an ONNX file in a separate process, once for each set of inputs.

    Returns:
        For each set, the outputs in the order of the file, or the reason for the failure as a string. If the first set
        fails, all sets have the same reason.
    """
    with tempfile.TemporaryDirectory(prefix="pixprep-trial-") as folder:
        for number, arrays in enumerate(inputs):
            with Path(folder, f"inputs{number}.npz").open("wb") as file:
                np.savez(file, **arrays)
        if fault := run_program("onnx_trial", onnx, folder, limit_s):
            return [fault] * len(inputs)
        outputs: list[list[Array] | str] = []
        for number in range(len(inputs)):
            failure = Path(folder, f"failure{number}")
            if failure.is_file():
                outputs.append(f"{_REFUSED['onnx_trial']}{_shortened(failure.read_text(encoding='utf-8'))}")
                continue
            with np.load(Path(folder, f"outputs{number}.npz")) as found:
                outputs.append([found[str(index)] for index in range(len(found.files))])
        return outputs


def _shortened(message: str) -> str:
    return _LOCATION.sub("", message)[:_MAX_CHARS]


def run_program(name: str, onnx: Path, folder: str, limit_s: float) -> str:
    """Run a program of this package with an ONNX file. Return the reason for a failure, or an empty string.

    Args:
        name: Name of the module in this package.
        onnx: The only argument of the program.
        folder: Working directory. It must not contain foreign modules, because Python imports from it first.
        limit_s: Time limit in seconds.
    """
    command = [sys.executable, "-m", f"pixprep.serving.repository.{name}", str(onnx.resolve())]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"it takes more than {limit_s:g} s"
    if not done.returncode:
        return ""
    printed = done.stderr.decode(errors="replace").strip().replace(str(onnx.resolve()), onnx.name)
    last = _shortened(printed.splitlines()[-1]) if printed else ""
    return f"{_REFUSED[name]}{last or f'signal {-done.returncode}'}"


def _scored(classifier: Classifier, outputs: Sequence[Array], labels: Sequence[str]) -> int | None:
    """Return the index of the output with one score per class, or None if the number of such outputs is not one."""
    fits = [
        index
        for index, values in enumerate(outputs)
        if values.dtype.kind == "f" and values.ndim == 2 and len(values) == 1 and np.isfinite(values).all()
        if (values.shape[1] == len(labels) if labels else values.shape[1] > 1)
    ]
    return fits[0] if fits and (labels or len(classifier.outputs) == 1) else None


def to_probabilities(scores: Array) -> Array:
    """Convert scores to probabilities with softmax, unless the scores already are probabilities."""
    scores = scores.astype(np.float64)
    if scores.min() >= 0 and abs(scores.sum() - 1) < 1e-3:
        return scores
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())
