"""Write a model repository.

image ─► preprocess (pixprep) ─► tensor ─► classifier (ONNX Runtime or TensorRT) ─► logits
└─────────────────────────────────────── ensemble ────────────────────────────────────┘
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pixprep import presets
from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import read_bytes
from pixprep.repository import pbtxt
from pixprep.repository.check import ONNX_CLASSIFIER
from pixprep.repository.lookahead import look_ahead
from pixprep.repository.models import Tensor
from pixprep.repository.pbtxt import CLASSIFIER, ENSEMBLE, LABELS_FILE, MARK, PREPROCESS, Runtime
from pixprep.repository.ports import Classifier, connect, parse_io, read_onnx
from pixprep.triton import config as model_config

ONNX_FILE, PLAN_FILE = "model.onnx", "model.plan"
_MODELS = (PREPROCESS, CLASSIFIER, ENSEMBLE)
_OURS = ("config.pbtxt", LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", f"1/{ONNX_FILE}")
_GIVE_IO = (
    "a TensorRT plan does not say what it takes: give the --onnx file that it was made from as well, or else its "
    "inputs and outputs, such as --classifier-io input:FP32:3x224x224 logits:FP32:1000"
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
    classifier: Runtime = "onnxruntime",
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
        PipelineError: pipeline and classifier do not fit each other, or the arguments do not, or an ONNX file's
            weights are no files beside it.
        SetupError: ``output`` must not or cannot be written, or a package or a file is missing.
    """
    if max_batch_size < 1:
        raise PipelineError(f"max_batch_size must be at least 1, not {max_batch_size}")
    if plan and classifier != "tensorrt":
        raise PipelineError("a plan runs in TensorRT only: --classifier tensorrt")
    if (onnx or plan) and not pipeline:
        raise PipelineError("a classifier of your own needs its --pipeline: what its images went through in training")
    if bool(classifier_io) != bool(plan and not onnx):
        raise PipelineError(_GIVE_IO)
    for file in (onnx, plan):
        if file and not file.is_file():
            raise SetupError(f"{file}: no such file")
    if output.exists() and not output.is_dir():
        raise SetupError(f"{output}: is a file: --output takes a folder")
    demo_pipeline = presets.efficientnet_lite0()
    pipeline = pipeline or demo_pipeline
    notes: list[str] = []
    try:
        parent = output.resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        # beside the repository, not in it: Triton takes every directory of a repository for a model
        with tempfile.TemporaryDirectory(prefix=".pixprep-build-", dir=parent) as folder:
            work = Path(folder)
            labels: list[str] = []
            if not onnx and not plan:
                from pixprep.repository import lite0  # noqa: PLC0415  (needs onnx; who brings a plan does not)

                onnx, labels = work / ONNX_FILE, lite0.labels()
                lite0.export(lite0.find_checkpoint(), onnx)
                notes += [_OTHER_PIPELINE] * (pipeline != demo_pipeline)
            model = read_onnx(onnx) if onnx else parse_io(classifier_io or (), source=f"{plan}")
            pairs = connect(model, pipeline, max_batch_size=max_batch_size)
            # where the classifier's file leaves a length free, the pipeline knows it
            inputs = [_declared(port, pipeline.outputs[pairs[port.name]].spec.shape) for port in model.inputs]
            outputs = [_declared(port, (port.shape or ())[1:]) for port in model.outputs]
            parameters = {} if on_error == "fail" else {"on_error": {"string_value": on_error}}
            config = model_config.complete({"max_batch_size": max_batch_size, "parameters": parameters}, pipeline)
            runs = pbtxt.classifier(classifier, max_batch_size, inputs, outputs, has_labels=bool(labels))
            files: dict[str, str | Path] = {
                f"{PREPROCESS}/config.pbtxt": pbtxt.preprocess(config),
                f"{PREPROCESS}/1/{model_config.PIPELINE_FILE}": pipeline.to_json(),
                f"{CLASSIFIER}/config.pbtxt": runs,
                f"{ENSEMBLE}/config.pbtxt": pbtxt.ensemble(config, pairs, outputs),
                f"{ENSEMBLE}/1/.gitkeep": "",  # Triton wants a version directory even here, and git keeps no empty one
            }
            if labels:
                files[f"{CLASSIFIER}/{LABELS_FILE}"] = "".join(f"{label}\n" for label in labels)
            if classifier != "tensorrt":
                files[f"{CLASSIFIER}/1/model.py"] = ONNX_CLASSIFIER
            if onnx:
                notes += look_ahead(onnx, pipeline, pairs)
                files[f"{CLASSIFIER}/1/{ONNX_FILE}"] = onnx.resolve()
                files |= {f"{CLASSIFIER}/1/{path.name}": path for path in _data_files(onnx, model)}
            if plan:
                files[f"{CLASSIFIER}/1/{PLAN_FILE}"] = plan.resolve()
            if not force:
                _refuse_foreign(output, files)
            _replace(output, files, work)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""  # a full disk comes without
        raise SetupError(f"{output}: not written: {where}{error.strerror or error}") from None
    if classifier == "tensorrt" and not plan:
        command = _trtexec(output / CLASSIFIER / "1", model, inputs, max_batch_size)
        notes.append(f"make the plan on the machine that will serve it, with its TensorRT:\n{command}")
    return Built(tuple(sorted(output / name for name in files)), tuple(notes))


def _declared(tensor: Tensor, dims: Sequence[int]) -> model_config.Config:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": list(dims)}


def _data_files(onnx: Path, model: Classifier) -> Iterator[Path]:
    """The files beside an ONNX file that hold weights of it; its author chose their names.

    Raises:
        PipelineError: one is no file, or a link, which may lead to any file of whoever builds.
    """
    for path in (onnx.parent / name for name in model.data_files):
        if path.is_symlink() or not path.is_file():
            what = "a link" if path.is_symlink() else "no file" if path.exists() else "not there"
            raise PipelineError(
                f'{onnx.name}: has weights in "{path.name}", which is {what}: put the file itself there'
            )
        yield path


def _trtexec(folder: Path, model: Classifier, inputs: Sequence[model_config.Config], max_batch_size: int) -> str:
    """The command that makes the plan for every batch from one image to ``max_batch_size``."""
    command = ["trtexec", f"--onnx={folder / ONNX_FILE}", f"--saveEngine={folder / PLAN_FILE}"]
    if any(-1 in (tensor.shape or ()) for tensor in model.inputs):  # trtexec refuses shapes for a model with none free
        for end, batch in (("min", 1), ("opt", max(1, max_batch_size // 2)), ("max", max_batch_size)):
            shapes = [f"{entry['name']}:{'x'.join(map(str, [batch, *entry['dims']]))}" for entry in inputs]
            command.append(f"--{end}Shapes={','.join(shapes)}")
    return shlex.join(command)


def _refuse_foreign(output: Path, files: Iterable[str]) -> None:
    """Refuse to write where something lies that ``build`` did not write.

    Raises:
        SetupError: it names the first such thing.
    """
    if not output.exists() or not any(output.iterdir()):
        return
    ensemble = output / ENSEMBLE / "config.pbtxt"
    if not ensemble.is_file() or not read_bytes(ensemble, most=len(MARK)).startswith(MARK.encode()):
        raise SetupError(f"{output}: holds what `pixprep build` did not write: take another folder, or --force")
    known = {*files, *(f"{model}/{name}" for model in _MODELS for name in _OURS)}
    for path in sorted(path for model in _MODELS for path in (output / model).rglob("*")):
        is_nobodys = path.is_dir() or path.parent.name == "__pycache__"
        if not is_nobodys and path.relative_to(output).as_posix() not in known:
            raise SetupError(f"{path}: was not written by `pixprep build`, which would remove it: move it, or --force")


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file, and never what a link leads to: one may have come since the file was looked at.

    Raises:
        OSError: it is something else, or cannot be read.
    """
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(source))
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)


def _replace(output: Path, files: Mapping[str, str | Path], work: Path) -> None:
    """Write new directories, then put them in the place of the old ones, each by a rename."""
    for name, content in files.items():
        path = work / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            _copy(content, path)
        else:
            path.write_text(content, encoding="utf-8")
    output.mkdir(exist_ok=True)
    (work / "old").mkdir()
    for new in sorted((work / "new").iterdir()):
        if (output / new.name).exists():
            (output / new.name).rename(work / "old" / new.name)
        new.rename(output / new.name)
