"""Write a model repository.

image ─► preprocess (pixprep) ─► tensor ─► classifier (ONNX Runtime or TensorRT) ─► logits
└─────────────────────────────────────── ensemble ────────────────────────────────────┘
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path
from typing import Any, Literal

from pixprep import presets
from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import black_margins, odd_ranges, taken_bare
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.check import ODD_RANGE, ONNX_CLASSIFIER, lacking, remarks
from pixprep.serving.repository.labels import labelled, read_labels, unlabelled
from pixprep.serving.repository.lookahead import look_ahead
from pixprep.serving.repository.models import Tensor, suggest
from pixprep.serving.repository.pbtxt import LABELS_FILE, Names, Runtime
from pixprep.serving.repository.ports import Classifier, carried, connect, of_one_image, parse_io, read_onnx
from pixprep.serving.repository.positions import lost_boxes
from pixprep.serving.repository.replacement import refuse_foreign, refuse_taken, replace
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE
from pixprep.serving.triton.files import read_pipeline
from pixprep.spec import TensorSpec

ONNX_FILE, PLAN_FILE = "model.onnx", "model.plan"
_WORK = ".pixprep-build-"
Input = Literal["bytes", "dali"]
_INPUTS: dict[str, list[model_config.Config]] = {
    "bytes": [],
    "dali": [{"name": "DALI_INPUT_0", "data_type": "TYPE_UINT8", "dims": [-1]}],
}
_GIVE_IO = (
    "a TensorRT plan does not say what it takes: give the --onnx file that it was made from as well, or else its "
    "inputs and outputs, such as --classifier-io input:FP32:3x224x224 logits:FP32:1000"
)
_SHARED = (
    "--preprocess takes a model with its pipeline and options: leave --pipeline, --preset, --input, --on-error, "
    "--max-batch-size and --parameter out"
)
_OTHER_PIPELINE = (
    "the demo classifier learned from --preset efficientnet_lite0: after another pipeline its labels are less sure"
)


@dataclass(frozen=True)
class Built:
    """Report of ``build``.

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
    preprocess: str = "",
    onnx: Path | None = None,
    plan: Path | None = None,
    classifier: Runtime = "onnxruntime",
    classifier_io: Sequence[str] | None = None,
    labels: Path | None = None,
    name: str = "",
    input_: Input | None = None,
    on_error: Literal["fail", "zero"] | None = None,
    max_batch_size: int | None = None,
    parameters: Mapping[str, str] | None = None,
    odd_range: bool = False,
    force: bool = False,
) -> Built:
    """Write the models ``preprocess``, ``classifier`` and ``ensemble``.

    Nothing is written unless everything fits. Each model's directory then appears at once. A build over an earlier one
    repeats its ``input_``, ``on_error``, ``max_batch_size``, ``parameters`` and ``odd_range`` where they are not given.

    Args:
        output: the repository; made if it is missing.
        pipeline: default: the demo's.
        preprocess: a model of ``output`` that another build wrote: its pipeline and its options are taken as they are,
            and the ensembles share it.
        onnx: the classifier; default: the demo's EfficientNet-lite0.
        plan: the same classifier as TensorRT made it on the machine that will serve it.
        classifier: what runs it. The models' names, inputs and outputs are the same for each.
        classifier_io: what a plan without its ONNX file takes and gives, as ``NAME:TYPE:DIMS``.
        labels: the names of the classes, see ``read_labels``; default: those that the ONNX file holds.
        name: of the ensemble; the others are then ``NAME_preprocess`` and ``NAME_classifier``.
        input_: how images come. ``bytes``: a BYTES tensor ``image``; ``dali``: a UINT8 one ``DALI_INPUT_0``, as
            clients of dali_backend send them.
        on_error: what a bad image does: fail its request, by default; or become zeros, with the reason in ``status``.
        max_batch_size: of all three models; default: 64, or as many clips as have 64 frames. Of a pipeline that takes
            boxes it is the classifier's, and so bounds the boxes of a photo.
        parameters: of the preprocess model, such as ``{"threads": "2"}``.
        odd_range: values are meant that no usual classifier takes.
        force: replace models that pixprep did not write, or that were changed since, and files that were put beside
            those it did; repeat nothing.

    Raises:
        PipelineError: pipeline and classifier do not fit each other, or the arguments do not, or an ONNX file's
            weights are no files beside it.
        SetupError: ``output`` must not or cannot be written, or a package or a file is missing.
    """
    if plan and classifier != "tensorrt":
        raise PipelineError("a plan runs in TensorRT only: --classifier tensorrt")
    if preprocess and (pipeline or input_ or on_error or max_batch_size or parameters is not None):
        raise PipelineError(_SHARED)
    if (onnx or plan) and not pipeline and not preprocess:
        raise PipelineError("a classifier of your own needs its --pipeline: what its images went through in training")
    if bool(classifier_io) != bool(plan and not onnx):
        raise PipelineError(_GIVE_IO)
    if not re.fullmatch(r"|[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise PipelineError(f"name: {quoted(name)} is not up to 64 letters, digits, _ and -")
    for file in (onnx, plan, labels):
        if file and not file.is_file():
            raise SetupError(f"{file}: {'is a folder: name the file in it' if file.is_dir() else 'no such file'}")
    if output.exists() and not output.is_dir():
        raise SetupError(f"{output}: is a file: --output takes a folder")
    names = Names.of(name)
    if preprocess:
        names = names._replace(preprocess=preprocess)
        pipeline = _shared(output, preprocess)
    given = {"input": input_, "on_error": on_error, "max_batch_size": max_batch_size, "parameters": parameters}
    chosen = {key: value for key, value in (given | {"odd_range": odd_range or None}).items() if value is not None}
    before = output / names.preprocess / CONFIG_FILE
    is_there = before.is_file() and (preprocess or not force)
    repeated = pbtxt.choices(pbtxt.read(before)) if is_there else {}
    repeated = {key: value for key, value in repeated.items() if key not in chosen}
    chosen |= repeated
    is_repeated = repeated and not preprocess
    notes = [f"repeated from the last build: {_as_options(repeated)}; --force repeats nothing"] if is_repeated else []
    demo_pipeline = presets.efficientnet_lite0()
    pipeline = (pipeline or demo_pipeline).for_serving()
    notes += [pipeline.left_out] if pipeline.left_out else []
    notes += remarks(pipeline)
    if (odd := odd_ranges(pipeline)) and not chosen.get("odd_range"):
        raise PipelineError(*(f"{text}; or say {ODD_RANGE}" for text in odd))
    notes += black_margins(pipeline)
    config = _config(pipeline, chosen)
    notes += lacking(config)
    batch = config["max_batch_size"] or model_config.options(config).limits.max_boxes
    try:
        parent = output.resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        # beside the repository, not in it: Triton takes every directory of a repository for a model
        with tempfile.TemporaryDirectory(prefix=_WORK, dir=parent) as folder:
            work = Path(folder)
            words = read_labels(labels) if labels else []
            if not onnx and not plan:
                from pixprep.serving.repository import lite0  # noqa: PLC0415  (needs onnx; who brings a plan does not)

                onnx, words = work / ONNX_FILE, words or lite0.labels()
                lite0.export(lite0.find_checkpoint(), onnx)
                before = output / names.classifier / "1" / ONNX_FILE
                if before.is_file() and not force and not lite0.is_exported(before):
                    raise SetupError(
                        f"{before}: is not the demo's classifier: give the --onnx of your own again, or --force writes "
                        "the demo's over it"
                    )
                notes += [_OTHER_PIPELINE] * (pipeline.for_photos() != demo_pipeline)
            model = read_onnx(onnx) if onnx else parse_io(classifier_io or (), source=f"{plan}")
            try:
                pairs = connect(model, pipeline, max_batch_size=batch)
            except PipelineError as error:
                if onnx != work / ONNX_FILE:
                    raise
                what = str(error).removeprefix(f"{ONNX_FILE}: ")
                raise PipelineError(f"the demo's classifier: {what}; --onnx takes one of your own") from None
            # where the classifier's file leaves a length free, the pipeline knows it
            specs = {port.name: pipeline.outputs[pairs[port.name]].spec for port in model.inputs}
            inputs = [
                {**_declared(port, specs[port.name].shape), "layout": specs[port.name].layout} for port in model.inputs
            ]
            outputs = [_declared(port, (port.shape or ())[1:]) for port in carried(model)]
            notes += [
                f'{model.source}: "{port.name}" has no dims beside the batch, and is left out: export it as [batch, 1] '
                "where clients need it"
                for port in model.outputs
                if port not in carried(model)
            ]
            kept = output / names.classifier / LABELS_FILE
            if not words and not model.labels and not force and kept.is_file():
                if _is_there(output / names.classifier / "1", onnx, plan, *(_data_files(onnx, model) if onnx else ())):
                    words = read_labels(kept)
                    notes.append(f"{kept}: kept from the last build; --labels gives others")
                else:
                    notes.append(
                        f"{kept}: removed: it named the classes of another model; --labels names those of this"
                    )
            notes += [*of_one_image(model, pipeline, pairs), *lost_boxes(model, pipeline, pairs)]
            named = _labelled(model, words)
            notes += unlabelled(model.outputs, *named)
            runs = pbtxt.classifier(
                classifier,
                batch,
                inputs,
                [{**entry, "label_filename": LABELS_FILE * (entry["name"] == named[0])} for entry in outputs],
            )
            rows = [-1] if pipeline.plan.takes_boxes else []  # of a photo, whose ensemble does not batch
            by_box = [{**entry, "dims": [*rows, *entry["dims"]]} for entry in outputs]
            files: dict[str, str | Path] = {
                f"{names.preprocess}/{CONFIG_FILE}": pbtxt.preprocess(config, chosen),
                f"{names.preprocess}/1/{model_config.PIPELINE_FILE}": pipeline.to_json(),
                f"{names.classifier}/{CONFIG_FILE}": runs,
                f"{names.ensemble}/{CONFIG_FILE}": pbtxt.ensemble(names, config, pairs, by_box),
                # Triton wants a version directory even here, and git keeps no empty one
                f"{names.ensemble}/1/.gitkeep": "",
            }
            if named[1]:
                files[f"{names.classifier}/{LABELS_FILE}"] = "".join(f"{label}\n" for label in named[1])
            if classifier != "tensorrt":
                files[f"{names.classifier}/1/model.py"] = ONNX_CLASSIFIER
            if onnx:
                notes += look_ahead(onnx, pipeline, pairs, odd_range=bool(chosen.get("odd_range")))
                files[f"{names.classifier}/1/{ONNX_FILE}"] = onnx.resolve()
                files |= {f"{names.classifier}/1/{path.name}": path for path in _data_files(onnx, model)}
            elif not chosen.get("odd_range"):
                notes += taken_bare(pipeline)
            if plan:
                files[f"{names.classifier}/1/{PLAN_FILE}"] = plan.resolve()
            if preprocess:
                files = {file: content for file, content in files.items() if not file.startswith(f"{preprocess}/")}
            refuse_taken(output, names, files)
            if not force:
                refuse_foreign(output, names, files)
            replace(output, files, work)
    except OSError as error:
        at = error.filename or ""  # a full disk comes without
        at = output.resolve().parent if _WORK in str(at) else at  # nobody knows our own folder in it
        raise SetupError(f"{output}: not written: {f'{at}: ' if at else ''}{error.strerror or error}") from None
    if classifier == "tensorrt" and not plan:
        command = _trtexec(output / names.classifier / "1", model, specs, batch)
        notes.append(f"make the plan on the machine that will serve it, with its TensorRT:\n{command}")
    return Built(tuple(sorted(output / file for file in files)), tuple(notes))


def _config(pipeline: Pipeline, chosen: Mapping[str, Any]) -> model_config.Config:
    """The configuration of the preprocess model.

    Raises:
        PipelineError: a choice is none.
    """
    max_batch_size = chosen.get("max_batch_size")
    if max_batch_size is not None and max_batch_size < 1:
        raise PipelineError(f"max_batch_size must be at least 1, not {max_batch_size}")
    parameters = {**chosen.get("parameters", {})}
    if chosen.get("on_error", "fail") != "fail":
        parameters["on_error"] = chosen["on_error"]
    if chosen.get("odd_range"):
        parameters["odd_range"] = "meant"
    if pipeline.plan.takes_boxes:  # a batch is the boxes of a photo
        if max_batch_size:
            parameters.setdefault("max_boxes", str(max_batch_size))
        max_batch_size = 0
    config = {
        "max_batch_size": max_batch_size or 0,
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "input": _INPUTS[chosen.get("input", "bytes")],
    }
    return model_config.complete(config, pipeline)


def _shared(output: Path, preprocess: str) -> Pipeline:
    """The pipeline of a model that another build wrote.

    Raises:
        PipelineError: there is no such model.
    """
    file = output / preprocess / "1" / model_config.PIPELINE_FILE
    if Path(preprocess).name != preprocess or not file.is_file():
        found = sorted(path.parents[1].name for path in output.glob(f"*/1/{model_config.PIPELINE_FILE}"))
        raise PipelineError(
            f"--preprocess: {output} has no such model {quoted(preprocess)}; {suggest(preprocess, found)}"
        )
    return read_pipeline(file)


def _as_options(chosen: Mapping[str, Any]) -> str:
    """Choices as they are given on the command line."""
    words = []
    for key, value in chosen.items():
        option = f"--{key.replace('_', '-')}"
        if key == "parameters":
            words += [word for pair in value.items() for word in ("--parameter", "=".join(pair))]
        else:
            words += [option] if value is True else [option, str(value)]
    return shlex.join(words)


def _labelled(model: Classifier, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The output that has labels, and these; those of the model's file only where an output has a score for each.

    Raises:
        PipelineError: labels were given, and fit no output.
    """
    if words:
        return labelled(model.outputs, words), words
    try:
        return (labelled(model.outputs, model.labels), model.labels) if model.labels else ("", ())
    except PipelineError:  # boxes, say
        return "", ()


def _is_there(folder: Path, model: Path | None, plan: Path | None, *data: Path) -> bool:
    """Tell whether the last build had the same classifier; of an ONNX file any plan is another form."""
    pairs = [(model or plan, ONNX_FILE if model else PLAN_FILE), *((path, path.name) for path in data)]
    return all(path and (folder / name).is_file() and cmp(path, folder / name, shallow=False) for path, name in pairs)


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


def _trtexec(folder: Path, model: Classifier, specs: Mapping[str, TensorSpec], max_batch_size: int) -> str:
    """The command that makes the plan for every batch from one image to ``max_batch_size``, and for every size."""
    command = ["trtexec", f"--onnx={folder / ONNX_FILE}", f"--saveEngine={folder / PLAN_FILE}"]
    if any(-1 in (tensor.shape or ()) for tensor in model.inputs):  # trtexec refuses shapes for a model with none free
        for end, batch in (("min", 1), ("opt", max(1, max_batch_size // 2)), ("max", max_batch_size)):
            sides = {name: spec.least if end == "min" else spec.largest for name, spec in specs.items()}
            shapes = [f"{name}:{'x'.join(map(str, [batch, *dims]))}" for name, dims in sides.items()]
            command.append(f"--{end}Shapes={','.join(shapes)}")
    return shlex.join(command)
