"""Write a model repository.

image ─► preprocess (pixprep) ─► tensor ─► classifier (ONNX Runtime or TensorRT) ─► logits
└─────────────────────────────────────── ensemble ────────────────────────────────────┘
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pixprep import presets
from pixprep.errors import PipelineError, SetupError, printable
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import black_margins, odd_ranges
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.check import ODD_RANGE, ONNX_CLASSIFIER, lacking, remarks
from pixprep.serving.repository.choices import Input, as_options, configuration, last_choices
from pixprep.serving.repository.door import Door, door_notes
from pixprep.serving.repository.labels import labelled, read_labels, unlabelled
from pixprep.serving.repository.models import Tensor, suggest
from pixprep.serving.repository.pbtxt import LABELS_FILE, Names, Runtime
from pixprep.serving.repository.ports import Classifier, carried, connect, declared, load_onnx, of_one_image, parse_io
from pixprep.serving.repository.positions import lost_boxes
from pixprep.serving.repository.repository_plan import (
    Content,
    RepositoryPlan,
    has_content,
    refuse_foreign,
    refuse_taken,
)
from pixprep.serving.repository.writer import WORK, write
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE
from pixprep.serving.triton.model_files import read_pipeline
from pixprep.spec import TensorSpec

ONNX_FILE, PLAN_FILE = "model.onnx", "model.plan"
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


def build(output: Path, **arguments: Any) -> RepositoryPlan:
    """Write the models that ``plan_repository`` plans with these arguments. Each model's directory appears at once.

    Raises:
        PixprepError: nothing is written; see ``plan_repository``.
        SetupError: ``output`` cannot be written.
    """
    try:
        plan = plan_repository(output, **arguments)
        write(plan)
    except OSError as error:
        at = error.filename or ""  # a full disk comes without
        at = output.resolve().parent if WORK in str(at) else at  # nobody knows our own folder in it
        raise SetupError(f"{output}: not written: {f'{at}: ' if at else ''}{error.strerror or error}") from None
    return plan


def plan_repository(
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
) -> RepositoryPlan:
    """Plan the models ``preprocess``, ``classifier`` and ``ensemble``.

    A build over an earlier one repeats its ``input_``, ``on_error``, ``max_batch_size``, ``parameters`` and
    ``odd_range`` where they are not given.

    Args:
        output: the repository; it may be missing.
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
        SetupError: ``output`` must not be written, or a package or a file is missing.
        OSError: a file cannot be read.
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
    arguments = {"input": input_, "on_error": on_error, "max_batch_size": max_batch_size, "parameters": parameters}
    chosen = {key: value for key, value in (arguments | {"odd_range": odd_range or None}).items() if value is not None}
    last = last_choices(output / names.preprocess, is_shared=bool(preprocess)) if preprocess or not force else {}
    repeated = {key: value for key, value in last.items() if key not in chosen}
    chosen |= repeated
    is_repeated = repeated and not preprocess
    notes = [f"repeated from the last build: {as_options(repeated)}; --force repeats nothing"] if is_repeated else []
    demo_pipeline = presets.efficientnet_lite0()
    pipeline = (pipeline or demo_pipeline).for_serving()
    notes += [pipeline.left_out] if pipeline.left_out else []
    notes += remarks(pipeline)
    if (odd := odd_ranges(pipeline)) and not chosen.get("odd_range"):
        raise PipelineError(*(f"{text}; or say {ODD_RANGE}" for text in odd))
    notes += black_margins(pipeline)
    config = configuration(pipeline, chosen)
    notes += lacking(config)
    batch = config["max_batch_size"] or model_config.options(config).engine.limits.max_boxes
    words = read_labels(labels) if labels else []
    folder = output / names.classifier
    if onnx or plan:
        model, graph, weights = _own_classifier(onnx, plan, classifier_io or ())
        pairs = connect(model, pipeline, max_batch_size=batch)
    else:
        from pixprep.serving.repository import lite0  # noqa: PLC0415  (needs onnx; who brings a plan does not)

        words = words or lite0.labels()
        content, graph = lite0.export(lite0.find_checkpoint())
        model, weights = declared(graph, ONNX_FILE), {ONNX_FILE: content}
        before = folder / "1" / ONNX_FILE
        if before.is_file() and not force and not lite0.is_exported(before):
            raise SetupError(
                f"{before}: is not the demo's classifier: give the --onnx of your own again, or --force writes the "
                "demo's over it"
            )
        notes += [_OTHER_PIPELINE] * (pipeline.for_photos() != demo_pipeline)
        try:
            pairs = connect(model, pipeline, max_batch_size=batch)
        except PipelineError as error:
            what = str(error).removeprefix(f"{ONNX_FILE}: ")
            raise PipelineError(f"the demo's classifier: {what}; --onnx takes one of your own") from None
    # where the classifier's file leaves a length free, the pipeline knows it
    specs = {port.name: pipeline.outputs[pairs[port.name]].spec for port in model.inputs}
    inputs = [{**_declared(port, specs[port.name].shape), "layout": specs[port.name].layout} for port in model.inputs]
    outputs = [_declared(port, (port.shape or ())[1:]) for port in carried(model)]
    notes += [
        f'{model.source}: "{port.name}" has no dims beside the batch, and is left out: export it as [batch, 1] '
        "where clients need it"
        for port in model.outputs
        if port not in carried(model)
    ]
    kept = folder / LABELS_FILE
    if not words and not model.labels and not force and kept.is_file():
        # of an ONNX file any plan is another form
        if all(
            has_content(folder / "1" / name, each) for name, each in weights.items() if name != PLAN_FILE or not onnx
        ):
            words = read_labels(kept)
            notes.append(f"{kept}: kept from the last build; --labels gives others")
        else:
            notes.append(f"{kept}: removed: it named the classes of another model; --labels names those of this")
    notes += [*of_one_image(model, pipeline, pairs), *lost_boxes(model, pipeline, pairs)]
    named, classes = labelled(model.outputs, words, model.labels)
    notes += unlabelled(model.outputs, named, classes)
    doors = [Door(printable(model.source), graph, *pair) for pair in pairs.items()] if graph else []
    notes += door_notes(pipeline, doors, odd_range=bool(chosen.get("odd_range")))
    if classifier == "tensorrt" and not plan:
        command = _trtexec(folder / "1", model, specs, batch)
        notes.append(f"make the plan on the machine that will serve it, with its TensorRT:\n{command}")
    labels_of = [{**entry, "label_filename": LABELS_FILE * (entry["name"] == named)} for entry in outputs]
    rows = [-1] if pipeline.plan.takes_boxes else []  # of a photo, whose ensemble does not batch
    by_box = [{**entry, "dims": [*rows, *entry["dims"]]} for entry in outputs]
    files: dict[str, Content] = {CONFIG_FILE: pbtxt.classifier(classifier, batch, inputs, labels_of)}
    files |= {f"1/{file}": content for file, content in weights.items()}
    if classes:
        files[LABELS_FILE] = "".join(f"{label}\n" for label in classes)
    if classifier != "tensorrt":
        files["1/model.py"] = ONNX_CLASSIFIER
    # Triton wants a version directory even for an ensemble, and git keeps no empty one
    ensemble: dict[str, Content] = {CONFIG_FILE: pbtxt.ensemble(names, config, pairs, by_box), "1/.gitkeep": ""}
    first = {CONFIG_FILE: pbtxt.preprocess(config), f"1/{model_config.PIPELINE_FILE}": pipeline.to_json()}
    models = {names.classifier: files, names.ensemble: ensemble} | ({} if preprocess else {names.preprocess: first})
    planned = RepositoryPlan(output, names, models, tuple(notes))
    refuse_taken(planned)
    if not force:
        refuse_foreign(planned)
    return planned


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


def _declared(tensor: Tensor, dims: Sequence[int]) -> model_config.Config:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": list(dims)}


def _own_classifier(
    onnx: Path | None, plan: Path | None, io: Sequence[str]
) -> tuple[Classifier, Any | None, dict[str, Content]]:
    """A user's classifier, the ``onnx.ModelProto`` that it is, and the files of its version directory.

    Raises:
        PipelineError: it is no ONNX file, or weights of it are no file, or a link, which may lead anywhere.
    """
    plans: dict[str, Content] = {PLAN_FILE: plan.resolve()} if plan else {}
    if not onnx:
        return parse_io(io, source=f"{plan}"), None, plans
    content, graph = load_onnx(onnx)
    model = declared(graph, onnx.name)
    beside = [onnx.parent / name for name in model.data_files]  # names that its author chose
    for path in beside:
        if path.is_symlink() or not path.is_file():
            what = "a link" if path.is_symlink() else "no file" if path.exists() else "not there"
            raise PipelineError(
                f'{onnx.name}: has weights in "{path.name}", which is {what}: put the file itself there'
            )
    return model, graph, {ONNX_FILE: content, **{path.name: path for path in beside}, **plans}


def _trtexec(folder: Path, model: Classifier, specs: Mapping[str, TensorSpec], max_batch_size: int) -> str:
    """The command that makes the plan for every batch from one image to ``max_batch_size``, and for every size."""
    command = ["trtexec", f"--onnx={folder / ONNX_FILE}", f"--saveEngine={folder / PLAN_FILE}"]
    if any(-1 in (tensor.shape or ()) for tensor in model.inputs):  # trtexec refuses shapes for a model with none free
        for end, batch in (("min", 1), ("opt", max(1, max_batch_size // 2)), ("max", max_batch_size)):
            sides = {name: spec.least if end == "min" else spec.largest for name, spec in specs.items()}
            shapes = [f"{name}:{'x'.join(map(str, [batch, *dims]))}" for name, dims in sides.items()]
            command.append(f"--{end}Shapes={','.join(shapes)}")
    return shlex.join(command)
