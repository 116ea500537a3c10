"""Model repositories: written by ``build``; checked, without a server, by ``check``.

image ─► preprocess (pixprep) ─► tensor ─► classifier (ONNX Runtime, TensorRT or PyTorch) ─► logits
└──────────────────────────────────────────── ensemble ───────────────────────────────────────────┘
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pixprep import presets
from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import read_bytes
from pixprep.triton import config as model_config
from pixprep.triton.check import Problem, check, check_pipeline
from pixprep.triton.classifier import Classifier, Tensor, connect, parse_io, read_onnx
from pixprep.triton.lookahead import look_ahead

__all__ = ["Built", "Problem", "build", "check", "check_pipeline"]

_Config = model_config.Config

PREPROCESS, CLASSIFIER, ENSEMBLE = "preprocess", "classifier", "ensemble"
ONNX_FILE, PLAN_FILE, LABELS_FILE = "model.onnx", "model.plan", "labels.txt"
_MARK = "# Written by `pixprep build`"
_OURS = ("config.pbtxt", LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", f"1/{ONNX_FILE}")
_DEMO = Path(__file__).parents[1] / "demo"
_MODEL_PY = {"onnxruntime": _DEMO / "onnx_classifier.py", "torch": _DEMO / "torch_classifier.py"}
# of a classifier's config.pbtxt: where it runs, and where its inputs come
_PLACES = {
    "onnxruntime": ["# ONNX Runtime uses all cores by itself.\ninstance_group { count: 1 kind: KIND_CPU }"],
    "torch": [
        "# Tensors that preprocess gives on the GPU stay there.",
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    ],
}
_GIVE_IO = (
    "a TensorRT plan does not say what it takes: give the ONNX file that it was made from as well, or its inputs and "
    "outputs, such as --classifier-io input:FP32:3x224x224 logits:FP32:1000"
)
_OTHER_PIPELINE = (
    "the demo classifier learned from --preset efficientnet_lite0: after another pipeline its labels are less sure"
)


@dataclass(frozen=True)
class Built:
    """What ``build`` did.

    Attributes:
        paths: the files that it wrote.
        notes: what is left to do, or to know; each is complete by itself.
    """

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def build(
    output: Path,
    *,
    pipeline: Pipeline | None = None,
    onnx: Path | None = None,
    plan: Path | None = None,
    classifier: Literal["onnxruntime", "tensorrt", "torch"] = "onnxruntime",
    classifier_io: Sequence[str] | None = None,
    on_error: Literal["fail", "zero"] = "fail",
    max_batch_size: int = model_config.DEFAULT_MAX_BATCH_SIZE,
    force: bool = False,
) -> Built:
    """Write the models ``preprocess``, ``classifier`` and ``ensemble``.

    Nothing is written unless everything fits. Each model's directory then appears at once.

    Args:
        output: the repository; made if it is missing.
        pipeline: default: the demo's.
        onnx: the classifier; default: the demo's EfficientNet-lite0.
        plan: the same classifier as TensorRT made it on the machine that will serve it.
        classifier: what runs it. The models' names, inputs and outputs are the same for each.
        classifier_io: what a plan without its ONNX file takes and gives, as ``NAME:TYPE:DIMS``.
        on_error: what a bad image does: fail its request; or become zeros, with the reason in ``status``.
        max_batch_size: of all three models.
        force: replace models that pixprep did not write, and files that were put beside those it did.

    Raises:
        PipelineError: pipeline and classifier do not fit each other, or the arguments do not.
        SetupError: ``output`` must not or cannot be written, or a package or a file is missing.
    """
    notes = _check_arguments(
        pipeline=pipeline,
        onnx=onnx,
        plan=plan,
        classifier=classifier,
        classifier_io=classifier_io,
        max_batch_size=max_batch_size,
    )
    if output.exists() and not output.is_dir():
        raise SetupError(f"{output}: is a file: --output takes a folder")
    pipeline = pipeline or presets.efficientnet_lite0()
    try:
        parent = output.resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        # beside the repository, not in it: Triton takes every directory of a repository for a model
        with tempfile.TemporaryDirectory(prefix=".pixprep-build-", dir=parent) as folder:
            work = Path(folder)
            labels: list[str] = []
            if not onnx and not plan:
                onnx = work / ONNX_FILE
                labels = _export_demo(onnx)
            if onnx:
                model = read_onnx(onnx)
            else:
                assert plan
                assert classifier_io
                model = parse_io(classifier_io, source=plan.name)
            files: dict[str, str | Path] = {
                **_texts(pipeline, model, labels, kind=classifier, on_error=on_error, max_batch_size=max_batch_size)
            }
            if onnx:
                notes += look_ahead(onnx, pipeline, connect(model, pipeline, max_batch_size=max_batch_size))
                files[f"{CLASSIFIER}/1/{ONNX_FILE}"] = onnx
                files |= {f"{CLASSIFIER}/1/{name}": onnx.parent / name for name in model.data_files}
            if plan:
                files[f"{CLASSIFIER}/1/{PLAN_FILE}"] = plan
            if not force:
                _refuse_foreign(output, files)
            _write(work / "new", files)
            _replace(output, work)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""  # a full disk comes without
        raise SetupError(f"{output}: not written: {where}{error.strerror or error}") from None
    if classifier == "tensorrt" and not plan:
        command = _trtexec(output / CLASSIFIER / "1", model, pipeline, max_batch_size)
        notes.append(f"make the plan on the machine that will serve it, with its TensorRT:\n{command}")
    return Built(tuple(sorted(output / name for name in files)), tuple(notes))


def _check_arguments(
    *,
    pipeline: Pipeline | None,
    onnx: Path | None,
    plan: Path | None,
    classifier: str,
    classifier_io: Sequence[str] | None,
    max_batch_size: int,
) -> list[str]:
    """Refuse arguments that contradict each other; what there is to say about the others."""
    if max_batch_size < 1:
        raise PipelineError(f"max_batch_size must be at least 1, not {max_batch_size}")
    if plan and classifier != "tensorrt":
        raise PipelineError("a plan runs in TensorRT only: --classifier tensorrt")
    if (onnx or plan) and not pipeline:
        raise PipelineError("a classifier of your own needs its --pipeline: what its images went through in training")
    if classifier_io and (onnx or not plan):
        raise PipelineError("--classifier-io is for a plan without its ONNX file: leave it out")
    if plan and not onnx and not classifier_io:
        raise PipelineError(_GIVE_IO)
    for file in (onnx, plan):
        if file and not file.is_file():
            raise SetupError(f"{file}: no such file")
    own_pipeline = pipeline is not None and pipeline != presets.efficientnet_lite0()
    return [_OTHER_PIPELINE] if own_pipeline and not onnx and not plan else []


def _texts(
    pipeline: Pipeline,
    model: Classifier,
    labels: Sequence[str],
    *,
    kind: str,
    on_error: str,
    max_batch_size: int,
) -> dict[str, str]:
    """The text files of the repository by their paths in it.

    Raises:
        PipelineError: pipeline and classifier do not fit each other.
    """
    pairs = connect(model, pipeline, max_batch_size=max_batch_size)
    written = {
        "max_batch_size": max_batch_size,
        "parameters": {} if on_error == "fail" else {"on_error": {"string_value": on_error}},
    }
    config = model_config.complete(written, pipeline)
    inputs = _inputs(model, pipeline, pairs)
    outputs = [_declared(tensor, (tensor.shape or ())[1:]) for tensor in model.outputs]
    texts = {
        f"{PREPROCESS}/config.pbtxt": _preprocess_text(config),
        f"{PREPROCESS}/1/{model_config.PIPELINE_FILE}": pipeline.to_json(),
        f"{CLASSIFIER}/config.pbtxt": _classifier_text(kind, max_batch_size, inputs, outputs, has_labels=bool(labels)),
        f"{ENSEMBLE}/config.pbtxt": _ensemble_text(config, pairs, outputs),
        f"{ENSEMBLE}/1/.gitkeep": "",  # Triton wants a version directory even here, and git keeps no empty one
    }
    if labels:
        texts[f"{CLASSIFIER}/{LABELS_FILE}"] = "".join(f"{label}\n" for label in labels)
    if kind in _MODEL_PY:
        texts[f"{CLASSIFIER}/1/model.py"] = _MODEL_PY[kind].read_text(encoding="utf-8")
    return texts


def _export_demo(path: Path) -> list[str]:
    """Write the demo classifier's ONNX file; its labels."""
    from pixprep.demo import lite0  # noqa: PLC0415  (needs onnx; who brings a plan does not)

    lite0.export(lite0.find_checkpoint(), path)
    return lite0.labels()


def _inputs(model: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[_Config]:
    """The classifier's inputs; where its file leaves a length free, the pipeline knows it."""
    return [_declared(tensor, pipeline.outputs[pairs[tensor.name]].spec.shape) for tensor in model.inputs]


def _declared(tensor: Tensor, dims: Sequence[int]) -> _Config:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": list(dims)}


def _preprocess_text(config: _Config) -> str:
    parameters = [
        f'parameters {{ key: "{key}" value {{ string_value: "{value["string_value"]}" }} }}'
        for key, value in config["parameters"].items()
    ]
    return _text(
        "it declares what 1/pipeline.json implies",
        f'backend: "pixprep"\nmax_batch_size: {config["max_batch_size"]}',
        _tensors("input", config["input"]),
        _tensors("output", config["output"]),
        *parameters,
        "dynamic_batching { }",
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    )


def _classifier_text(
    kind: str, max_batch_size: int, inputs: Sequence[_Config], outputs: Sequence[_Config], *, has_labels: bool
) -> str:
    runs = 'platform: "tensorrt_plan"' if kind == "tensorrt" else 'backend: "python"'
    if has_labels:
        outputs = [{**outputs[0], "label_filename": LABELS_FILE}, *outputs[1:]]
    return _text(
        "the tensors are those of the classifier's file",
        f"{runs}\nmax_batch_size: {max_batch_size}",
        _tensors("input", inputs),
        _tensors("output", outputs),
        "dynamic_batching { }",
        *_PLACES.get(kind, []),
    )


def _ensemble_text(config: _Config, pairs: Mapping[str, str], outputs: Sequence[_Config]) -> str:
    (image,) = config["input"]
    extra = [entry for entry in config["output"] if entry["name"] not in pairs.values()]
    first = _step(
        PREPROCESS,
        {image["name"]: image["name"]},
        {entry["name"]: entry["name"] for entry in config["output"]},
    )
    second = _step(CLASSIFIER, pairs, {entry["name"]: entry["name"] for entry in outputs})
    return _text(
        "in a map, key is the model's name, value the ensemble's",
        f'platform: "ensemble"\nmax_batch_size: {config["max_batch_size"]}',
        _tensors("input", [image]),
        _tensors("output", [*outputs, *extra]),
        f"ensemble_scheduling {{\n{first}{second}}}",
    )


def _text(what: str, *parts: str) -> str:
    return "\n".join([f"{_MARK}, which writes it anew: {what}.", *parts]) + "\n"


def _tensors(kind: str, entries: Sequence[_Config]) -> str:
    """The inputs or outputs of a configuration."""
    blocks = []
    for entry in entries:
        labels = f'  label_filename: "{entry["label_filename"]}"\n' if "label_filename" in entry else ""
        blocks.append(
            f"{kind} {{\n  name: {_quoted(entry['name'])}\n  data_type: {entry['data_type']}\n"
            f"  dims: [ {', '.join(map(str, entry['dims']))} ]\n{labels}}}"
        )
    return "\n".join(blocks)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # whose escapes protobuf's text format shares


def _step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    lines = [f'    model_name: "{model}"', "    model_version: -1"]
    for kind, names in (("input_map", inputs), ("output_map", outputs)):
        lines += [f"    {kind} {{ key: {_quoted(key)} value: {_quoted(value)} }}" for key, value in names.items()]
    return "\n".join(["  step {", *lines, "  }", ""])


def _trtexec(folder: Path, model: Classifier, pipeline: Pipeline, max_batch_size: int) -> str:
    """The command that makes the plan for every batch from one image to ``max_batch_size``."""
    command = ["trtexec", f"--onnx={folder / ONNX_FILE}", f"--saveEngine={folder / PLAN_FILE}"]
    if any(-1 in (tensor.shape or ()) for tensor in model.inputs):  # trtexec refuses shapes for a model with none free
        inputs = _inputs(model, pipeline, connect(model, pipeline, max_batch_size=max_batch_size))
        for kind, batch in (("min", 1), ("opt", max(1, max_batch_size // 2)), ("max", max_batch_size)):
            shapes = [f"{entry['name']}:{'x'.join(map(str, [batch, *entry['dims']]))}" for entry in inputs]
            command.append(f"--{kind}Shapes={','.join(shapes)}")
    return shlex.join(command)


def _refuse_foreign(output: Path, files: Iterable[str]) -> None:
    """Refuse to write where something lies that ``build`` did not write.

    Raises:
        SetupError: it names the first such thing.
    """
    if not output.exists() or not any(output.iterdir()):
        return
    ensemble = output / ENSEMBLE / "config.pbtxt"
    if not ensemble.is_file() or not read_bytes(ensemble, most=len(_MARK)).startswith(_MARK.encode()):
        raise SetupError(f"{output}: holds what `pixprep build` did not write: take another folder, or --force")
    known = {*files, *(f"{model}/{name}" for model in (PREPROCESS, CLASSIFIER, ENSEMBLE) for name in _OURS)}
    for model in (PREPROCESS, CLASSIFIER, ENSEMBLE):
        for path in sorted((output / model).rglob("*")):
            name = path.relative_to(output).as_posix()
            if (
                not path.is_dir() and path.parent.name != "__pycache__" and name not in known
            ):  # Python's own, of model.py
                raise SetupError(
                    f"{path}: was not written by `pixprep build`, which would remove it: move it, or --force"
                )


def _write(folder: Path, files: Mapping[str, str | Path]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_text(content, encoding="utf-8")


def _replace(output: Path, work: Path) -> None:
    """Put the new directories in the place of the old ones, each by a rename."""
    output.mkdir(exist_ok=True)
    old = work / "old"
    old.mkdir()
    for new in sorted((work / "new").iterdir()):
        if (output / new.name).exists():
            (output / new.name).rename(old / new.name)
        new.rename(output / new.name)
