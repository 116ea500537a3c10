"""Writes a model repository.

image ─► preprocess (pixprep) ─► tensor ─► classifier (ONNX Runtime or TensorRT) ─► logits
└─────────────────────────────────────── ensemble ────────────────────────────────────┘

A classifier with several image inputs has one preprocess model per input. In a chain, a detector and a user-defined
function compute the boxes for the preprocess model.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pixprep import presets
from pixprep.errors import PipelineError, SetupError, printable
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import black_margins, odd_ranges
from pixprep.serving.options import BuildOptions
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.adapter import Adapted, Adapter
from pixprep.serving.repository.backend import onnx_classifier
from pixprep.serving.repository.chain import chain_from
from pixprep.serving.repository.check import ODD_RANGE, missing_decoders, remarks
from pixprep.serving.repository.door import Door, door_notes
from pixprep.serving.repository.fit_notes import fit_notes
from pixprep.serving.repository.labels import check_heads, labelled, read_labels, unlabelled
from pixprep.serving.repository.models import Tensor, suggest
from pixprep.serving.repository.onnx_edit import Edit
from pixprep.serving.repository.pbtxt import LABELS_FILE, LABELS_OF, STAMP, Names
from pixprep.serving.repository.picture_step import picture_step
from pixprep.serving.repository.ports import (
    PLAN_BYTES,
    Classifier,
    check_data_files,
    declared,
    load_onnx,
    parse_io,
    plan_fault,
)
from pixprep.serving.repository.repository import ONNX_FILE, PLAN_FILE, Model, Repository, Version
from pixprep.serving.repository.repository_plan import RepositoryPlan, has_content, refuse_foreign, refuse_taken, unused
from pixprep.serving.repository.stages import Stage, check_stages, ensemble_inputs, extras, last_step, pair
from pixprep.serving.repository.stages import parameters as parameters_of
from pixprep.serving.repository.tensorrt import asked, profile_of, trtexec
from pixprep.serving.repository.writer import Content, refusing, write
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, EXAMPLES, FRAMES, INPUT_NAME, PIXELS, STATUS_NAME

_GIVE_IO = (
    "a TensorRT plan does not declare its inputs: also pass the --onnx file that it was made from, or its "
    "inputs and outputs, such as --classifier-io input:FP32:3x224x224 logits:FP32:1000"
)
_SHARED = (
    "--preprocess reuses a model with its pipeline and options: remove --pipeline, --preset, --input, --on-error, "
    "--max-batch-size, --parameter and --boxes-from"
)
_NO_PIPELINE = "--onnx and --plan require --pipeline, with the preprocessing that the classifier was trained with"
_NO_DETECTOR = "--boxes-by FILE requires --boxes-from ENSEMBLE, whose outputs it reads"
_OTHER_PIPELINE = (
    "the demo classifier was trained with --preset efficientnet_lite0: a different pipeline makes it less accurate"
)


def build(output: Path, **options: Any) -> RepositoryPlan:
    """Write a model repository. Each existing model is replaced atomically.

    Args:
        output: Folder of the repository. It is created if it does not exist.
        options: Fields of ``BuildOptions``.

    Returns:
        Plan of the written repository, with notes for the user.

    Raises:
        PixprepError: See ``plan_repository``. In this case, no files are written.
        SetupError: ``output`` cannot be written.
    """
    with refusing(output):
        plan = plan_repository(output, **options)
    write(plan.output, plan.models)
    return plan


def plan_repository(output: Path, **options: Any) -> RepositoryPlan:
    """Plan the files of the models ``preprocess``, ``classifier`` and ``ensemble``, see ``build``.

    Raises:
        PipelineError: The pipeline does not match the classifier, the arguments contradict each other, or weights of
            the ONNX file are missing.
        SetupError: ``output`` must not be overwritten, or a package or a file is missing.
        OSError: A file cannot be read.
    """
    given = BuildOptions(**options)
    _check(given)
    if output.exists() and not output.is_dir():
        raise SetupError(f"{output} is a file: pass a folder to --output")
    onnx, plan, classifier, preprocess = given.onnx, given.plan, given.classifier, given.preprocess
    before, names = Repository(output), Names.of(given.name)
    demo_pipeline = presets.efficientnet_lite0()
    if given.pipeline and isinstance(given.pipeline, Mapping):
        pipelines: Mapping[str, Pipeline] = given.pipeline
    else:
        pipelines = {"": _shared(before, preprocess).pipeline if preprocess else given.pipeline or demo_pipeline}
    models = {port: f"{names.preprocess}_{port}" if port else preprocess or names.preprocess for port in pipelines}
    first = next(iter(models.values()))
    chosen = chosen_in(given)
    has_last = first in before.models and (preprocess or not given.force)
    last = last_choices(before.models[first], is_shared=bool(preprocess)) if has_last else {}
    repeated = {key: value for key, value in last.items() if key not in chosen}
    chosen |= repeated
    if given.boxes_from and classifier != "tensorrt":  # TensorRT does not support a batch of 0
        chosen["parameters"] = {"no_rows": "empty", **(chosen.get("parameters") or {})}
        repeated = {key: value for key, value in repeated.items() if value != {"no_rows": "empty"}}
    notes: list[str] = []
    if repeated and not preprocess:
        notes += [f"options repeated from the last build: {as_options(repeated)}; to ignore them, pass --force"]
    adapted = None
    if onnx or plan:
        model, graph, weights = _own_classifier(onnx, plan, given.classifier_io or ())
        if not plan:
            adapted, graph = _adapted(given, graph, model, pipelines, chosen)
            model = adapted.classifier
            if adapted.is_changed:
                weights[ONNX_FILE] = graph.SerializeToString(deterministic=True)
            notes += adapted.notes
    stages = _stages(pipelines, models, chosen, notes, is_of_one_image=given.one_image, asks=not given.boxes_from)
    served, config = stages[0].pipeline, stages[0].config
    chain = chain_from(before, given, stages) if given.boxes_from else None
    rows = served.plan.takes_boxes
    settings = model_config.options(config)
    batch = settings.engine.limits.max_boxes if rows else min(each.config["max_batch_size"] for each in stages)
    labels = given.labels or {}
    class_names = [] if isinstance(labels, Mapping) else read_labels(labels)
    heads = {head: read_labels(file) for head, file in labels.items()} if isinstance(labels, Mapping) else {}
    folder, is_joined = output / names.classifier, False
    if onnx or plan:
        is_joined = adapted is not None and adapted.is_joined
        pairs = pair(model, stages, max_batch_size=1 if is_joined else batch)
    else:
        model, graph, weights, demo_names = _demo_classifier(folder, force=given.force)
        class_names = class_names or demo_names
        notes += [_OTHER_PIPELINE] * (served.for_photos() != demo_pipeline)
        try:
            pairs = pair(model, stages, max_batch_size=batch)
        except PipelineError as error:
            problem = str(error).removeprefix(f"{ONNX_FILE}: ")
            raise PipelineError(f"the demo's classifier: {problem}; to use your own classifier, pass --onnx") from None
    # dimensions that are dynamic in the classifier's file are determined by the pipeline
    specs = {port: stage.pipeline.outputs[name].spec for port, (stage, name) in pairs.items()}
    is_packed = served.plan.is_packed
    images = [-1] if is_packed else []
    inputs = [
        {**_declared(port, model_config.served_dims(specs[port.name], images)), "layout": specs[port.name].layout}
        for port in model.inputs
    ]
    passed = adapted.passed if adapted else ()
    sent = [_declared(port, (port.shape or ())[1:]) for port in passed]
    outputs = [_declared(port, (port.shape or ())[not is_packed :]) for port in model.outputs]
    inputs += sent
    if not (class_names or heads or model.labels or given.force):
        # if the ONNX file of a plan is known, the plan is derived from it
        of_model = {name: each for name, each in weights.items() if name != PLAN_FILE or not onnx}
        class_names = _kept_labels(folder, of_model, notes)
    scores = [each for each in model.outputs if not adapted or each.name not in adapted.lists]
    check_heads(scores, heads)
    named, classes = ("", ()) if heads else labelled(scores, class_names, model.labels)
    notes += unlabelled(scores, named, classes)
    label_files = {head: LABELS_OF.format(head) for head in heads} | ({named: LABELS_FILE} if classes else {})
    for stage in stages:
        source, own = printable(model.source), {port: name for port, (giver, name) in pairs.items() if giver is stage}
        notes += fit_notes(model, stage.pipeline, own)
        doors = [Door(source, lambda: graph, port, name) for port, name in own.items() if graph]
        notes += door_notes(stage.pipeline, doors, odd_range=bool(chosen.get("odd_range")))
    if classifier == "tensorrt" and not plan:
        sent_lengths = {each.name: (each.shape or ())[1:] for each in passed}
        profile = profile_of(model, specs, batch, sent_lengths, is_packed=is_packed)
        types = {entry["name"]: str(entry["data_type"]) for entry in (*inputs, *outputs)}
        notes += asked(weights, profile, types)
        command = trtexec(folder / "1", profile)
        notes.append(f"build the plan on the machine that will serve it, with its version of TensorRT:\n{command}")
    is_empty = settings.no_rows == "empty" and rows
    if is_empty and classifier == "tensorrt":
        raise PipelineError(
            "--parameter no_rows=empty is not supported by TensorRT, which rejects a batch of 0: remove it"
        )
    labels_of = [{**entry, "label_filename": label_files.get(entry["name"], "")} for entry in outputs]
    # without batching, dims include the rows
    length = 1 if is_joined else -1
    by_row = [{**entry, "dims": [length, *entry["dims"]]} if rows else entry for entry in outputs]
    if is_empty or is_joined:  # Triton 2.51 does not execute a batch of 0 for a model with batching
        batch = 0
        inputs = [{**each, "dims": [-1, *each["dims"]], "layout": None} for each in inputs]
        labels_of = [{**each, "dims": [length, *each["dims"]]} for each in labels_of]
    files: dict[str, Content] = {CONFIG_FILE: pbtxt.classifier(classifier, batch, inputs, labels_of)}
    files |= {f"1/{file}": content for file, content in weights.items()}
    for head, label_file in label_files.items():
        files[label_file] = "".join(f"{label}\n" for label in heads.get(head, classes))
    if classifier != "tensorrt" and (short := [each.name for each in model.inputs if each.data_type == "TYPE_BF16"]):
        raise PipelineError(
            f'{model.source}: input "{short[0]}" is bfloat16, which ONNX Runtime accepts only inside a model: set '
            '"dtype": "float32" in the pipeline, so that build adds a Cast, or use --classifier tensorrt'
        )
    if classifier != "tensorrt":
        files["1/model.py"] = onnx_classifier()
    steps = [
        *(stage.step for stage in stages),
        last_step(names.classifier, model, pairs, passed),
    ]
    by_clients = [{**entry, "dims": [-1, *entry["dims"]]} if rows else entry for entry in sent]
    ends = ([*ensemble_inputs(stages), *by_clients], [*by_row, *extras(stages, pairs)])
    if chain:
        steps, ends = [*chain.steps, *steps], chain.ends(*ends)
    pictures: Mapping[str, Content] = {}
    if given.pictures:
        if rows or is_packed:
            raise PipelineError("--picture requires a pipeline with one tensor per image")
        image, made = stages[0].config["input"][0], f"{given.name}_picture" if given.name else "picture"
        pictures, step, kept = picture_step(
            made, given.pictures, given.encoding, max_batch_size=batch, image=image, outputs=ends[1]
        )
        steps, ends = [*steps, step], (ends[0], kept)
    text = pbtxt.ensemble(steps, 0 if rows else batch, *ends, parameters_of(stages))
    # Triton requires a version directory even for an ensemble, and git does not store empty directories
    written: dict[str, Mapping[str, Content]] = {
        names.classifier: files,
        names.ensemble: {CONFIG_FILE: text, "1/.gitkeep": ""},
    }
    if not preprocess:
        written |= {stage.model: stage.files for stage in stages}
    if chain:
        written[chain.model] = chain.files
    if pictures:
        written[made] = pictures
    used = {*written, *(step.model for step in steps)}
    if old := unused(before, names, used):
        notes += [f"{name}: removed, because {names.ensemble} no longer uses it" for name in old]
        written |= {name: {} for name in old}
    planned = RepositoryPlan(before, names, written, tuple(notes))
    refuse_taken(planned)
    if not given.force:
        refuse_foreign(planned)
    return planned


def _check(given: BuildOptions) -> None:
    """Check that options do not contradict each other, and that the files exist.

    Raises:
        PipelineError: Options contradict each other, or the name is invalid.
        SetupError: A file does not exist.
    """
    is_own = any((given.pipeline, given.input_, given.on_error, given.max_batch_size)) or given.parameters is not None
    has_pipeline, has_file = bool(given.pipeline or given.preprocess), bool(given.onnx or given.plan)
    has_several = isinstance(given.pipeline, Mapping) and len(given.pipeline) > 1
    for is_wrong, problem in (
        (given.plan and given.classifier != "tensorrt", "a plan runs only in TensorRT: add --classifier tensorrt"),
        (given.preprocess and (is_own or given.boxes_from), _SHARED),
        (has_file and not has_pipeline, _NO_PIPELINE),
        (bool(given.classifier_io) != bool(given.plan and not given.onnx), _GIVE_IO),
        (given.free_dims and not given.onnx, "--free-dims requires an --onnx file"),
        (given.constants and not given.onnx, "--constant requires an --onnx file"),
        (given.quantizations and not given.onnx, "--quantization requires an --onnx file"),
        (given.one_image and not has_several, "--one-image requires several --pipeline INPUT=FILE"),
        (given.boxes_by and not given.boxes_from, _NO_DETECTOR),
    ):
        if is_wrong:
            raise PipelineError(problem)
    if not re.fullmatch(r"|[A-Za-z0-9][A-Za-z0-9_-]{0,63}", given.name):
        raise PipelineError(f"--name must be up to 64 letters, digits, _ and -, not {quoted(given.name)}")
    labels = given.labels.values() if isinstance(given.labels, Mapping) else [given.labels]
    for file in (given.onnx, given.plan, *labels, given.boxes_by):
        if file and not file.is_file():
            is_saved_model = (file / "saved_model.pb").exists()
            kind = "is a TensorFlow SavedModel: convert it to ONNX, such as with tf2onnx" * is_saved_model
            problem = kind or ("is a folder, not a file" if file.is_dir() else "no such file")
            raise SetupError(f"{file}: {problem}")


def _stages(
    pipelines: Mapping[str, Pipeline],
    models: Mapping[str, str],
    chosen: Choices,
    notes: list[str],
    *,
    is_of_one_image: bool,
    asks: bool,
) -> list[Stage]:
    """Plan the preprocess models, one per image input. In the ensemble, each stage waits for the previous stage.

    Args:
        pipelines: Pipeline of each input of the classifier.
        models: Name of the preprocess model of each input.
        chosen: Options of the build.
        notes: List of notes for the user, which is extended by notes about the pipelines.
        is_of_one_image: Whether all models receive the same image.
        asks: Whether clients must send the numeric inputs of the pipelines.

    Raises:
        PipelineError: A pipeline is not suitable, see ``_looked_at`` and ``check_stages``.
    """
    stages: list[Stage] = []
    for port, pipeline in pipelines.items():
        served, before = pipeline.for_serving(), stages[-1] if stages else None
        remarks_on, config = _looked_at(served, chosen, asks=asks)
        notes += [note for note in remarks_on if note not in notes]
        stage = Stage(model=models[port], pipeline=served, config=config, port=port, before=before)
        stages.append(replace(stage, is_of_one_image=is_of_one_image))
    check_stages(stages)
    return stages


def _demo_classifier(folder: Path, *, force: bool) -> tuple[Classifier, Any, dict[str, Content], list[str]]:
    """Export the demo's classifier to ONNX.

    Returns:
        The description of the classifier, its ``onnx.ModelProto``, the files of its version directory, and its labels.

    Raises:
        SetupError: The weights or a package are not installed, or the folder contains a different classifier.
    """
    from pixprep.serving.repository import lite0  # noqa: PLC0415  (requires onnx, which is not needed for a plan)

    content, graph = lite0.export(lite0.find_checkpoint())
    before = folder / "1" / ONNX_FILE
    if before.is_file() and not force and not lite0.is_exported(before):
        raise SetupError(
            f"{before} is not the demo's classifier: pass your file again with --onnx, or --force to overwrite it "
            "with the demo's"
        )
    return declared(graph, ONNX_FILE), graph, {ONNX_FILE: content}, lite0.labels()


def _kept_labels(folder: Path, weights: Mapping[str, Content], notes: list[str]) -> list[str]:
    """Return the labels of the last build if it had the same classifier. If not, return an empty list.

    A note about the labels is added to ``notes``.
    """
    kept = folder / LABELS_FILE
    if not kept.is_file():
        return []
    if not all(has_content(folder / "1" / name, content) for name, content in weights.items()):
        notes.append(
            f"{kept}: removed, because it contains the labels of a different model; to set labels, pass --labels"
        )
        return []
    notes.append(f"{kept}: kept from the last build; to replace the labels, pass --labels")
    return read_labels(kept)


def _looked_at(pipeline: Pipeline, chosen: Choices, *, asks: bool) -> tuple[list[str], model_config.Config]:
    """Check a pipeline. Return notes about the pipeline, and the configuration of the model that serves it.

    Raises:
        PipelineError: The value range is unusual, or an option is invalid.
    """
    notes = [pipeline.left_out] if pipeline.left_out else []
    notes += remarks(pipeline, asks=asks)
    if (odd := odd_ranges(pipeline)) and not chosen.get("odd_range"):
        raise PipelineError(*(f"{text}; or {ODD_RANGE}" for text in odd))
    notes += black_margins(pipeline)
    config = configuration(pipeline, chosen)
    return notes + missing_decoders(config), config


def _shared(repository: Repository, preprocess: str) -> Version:
    """Return the served version of a preprocess model that an earlier build wrote.

    Raises:
        PipelineError: The model does not exist.
    """
    if preprocess not in repository.pipelines:
        known = suggest(preprocess, sorted(repository.pipelines))
        raise PipelineError(f"--preprocess: {repository.folder} has no preprocess model {quoted(preprocess)}; {known}")
    return repository.pipelines[preprocess]


def _declared(tensor: Tensor, dims: Sequence[int]) -> model_config.Config:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": list(dims)}


def _own_classifier(
    onnx: Path | None, plan: Path | None, io: Sequence[str]
) -> tuple[Classifier, Any | None, dict[str, Content]]:
    """Read the user's classifier.

    Args:
        onnx: ONNX file. It may be a symbolic link.
        plan: TensorRT plan.
        io: Description of the inputs and outputs of a plan without its ONNX file, see ``parse_io``.

    Returns:
        The description of the classifier, its ``onnx.ModelProto`` or None, and the files of its version directory.

    Raises:
        PipelineError: A file is invalid, or separate weights are not in a regular file.
    """
    plans: dict[str, Content] = {PLAN_FILE: plan.resolve()} if plan else {}
    if plan and (fault := plan_fault(read_bytes(plan, max_bytes=PLAN_BYTES))):
        raise PipelineError(f"{plan}: {fault}")
    if not onnx:
        return parse_io(io, source=f"{plan}"), None, plans
    content, graph = load_onnx(onnx)
    model = declared(graph, onnx.name)
    check_data_files(graph, onnx.parent, onnx.name)
    if not model.inputs:
        raise PipelineError(f"{onnx.name}: the model has no inputs, so it cannot receive an image")
    return model, graph, {ONNX_FILE: content, **{name: onnx.parent / name for name in model.data_files}, **plans}


def _adapted(
    given: BuildOptions, graph: Any, model: Classifier, pipelines: Mapping[str, Pipeline], chosen: Choices
) -> tuple[Adapted, Any]:
    """Convert the user's ONNX file to the form that the ensemble needs, and return it with its ``onnx.ModelProto``.

    If a request can have only one image, ``chosen`` receives the maximum batch size 1.

    Raises:
        PipelineError: The file does not match the pipelines, or the user has chosen a larger batch.
    """
    served = {port: pipeline.for_serving() for port, pipeline in pipelines.items()}
    assert given.onnx
    is_packed = any(pipeline.plan.is_packed for pipeline in served.values())
    is_of_rows = any(pipeline.plan.takes_boxes for pipeline in served.values())
    edit = Edit(graph, model)
    adapter = Adapter(edit, served, given.onnx.parent, given.constants or {}, given.quantizations or {})
    adapter.convert_inputs()
    if is_packed:  # the tensor of such a pipeline does not have a batch dimension
        chosen["is_of_one_image"] = bool(adapter.one_image)
        return adapter.of_patches(), edit.model
    if given.free_dims:
        adapter.free()
    adapted = adapter.convert_outputs(is_of_rows=is_of_rows)
    taken = [INPUT_NAME, STATUS_NAME, *(name for each in served.values() for name in (*each.inputs, *each.outputs))]
    for tensor in adapted.passed:
        if tensor.name in taken:
            raise PipelineError(
                f'{model.source}: input "{tensor.name}": the ensemble already has a tensor with this name: rename it'
            )
    if adapted.one_image and not is_of_rows:
        if chosen.setdefault("max_batch_size", 1) != 1:
            raise PipelineError(
                f"{model.source}: {adapted.one_image}, so a request can have only one image: leave out "
                "--max-batch-size, or pass 1"
            )
        free = "; --free-dims tries to change that" * ("is fixed" in adapted.one_image)
        adapted = replace(
            adapted,
            notes=(*adapted.notes, f"{model.source}: a request has one image, because {adapted.one_image}{free}"),
        )
    return adapted, edit.model


Choices = dict[str, Any]
"""Options of a build that the next build repeats, by the names of their fields in ``BuildOptions``."""
_REPEATED = ("input_", "on_error", "max_batch_size", "parameters", "odd_range")
_INPUTS: dict[str, list[model_config.Config]] = {
    "bytes": [],
    "one": [{"name": INPUT_NAME, "data_type": "TYPE_STRING", "dims": [1]}],  # a request contains the tiles of one image
    "dali": [{"name": "DALI_INPUT_0", "data_type": "TYPE_UINT8", "dims": [-1]}],
}


def chosen_in(given: BuildOptions) -> Choices:
    """Return the options that the user has set, among those that the next build repeats."""
    chosen = {name: getattr(given, name) for name in _REPEATED}
    return {name: value for name, value in chosen.items() if value is not None and value is not False}


def configuration(pipeline: Pipeline, choices: Choices) -> model_config.Config:
    """Return the configuration of the preprocess model.

    Raises:
        PipelineError: An option is invalid.
    """
    max_batch_size = choices.get("max_batch_size")
    if max_batch_size is not None and max_batch_size < 1:
        raise PipelineError(f"max_batch_size must be at least 1, not {max_batch_size}")
    parameters = {**choices.get("parameters", {})}
    if choices.get("on_error", "fail") != "fail":
        parameters["on_error"] = choices["on_error"]
    if choices.get("odd_range"):
        parameters["odd_range"] = "meant"
    if pipeline.plan.takes_boxes:  # a batch of the classifier consists of the boxes of one photo
        if max_batch_size:
            parameters.setdefault("max_boxes", str(max_batch_size))
        max_batch_size = 0
    if pipeline.plan.is_packed and max_batch_size:
        raise PipelineError(
            "--max-batch-size: the patches of all images of a request are one tensor without a batch dimension: leave "
            "the option out"
        )
    is_bytes = choices.get("input_", "bytes") == "bytes"
    config = {
        "max_batch_size": max_batch_size or 0,
        "parameters": model_config.parameters(parameters),
        "input": _INPUTS["one" if choices.get("is_of_one_image") and is_bytes else choices.get("input_", "bytes")],
    }
    return model_config.complete(config, pipeline)


def last_choices(model: Model, *, is_shared: bool) -> Choices:
    """Recover the options of the build that wrote a preprocess model from its configuration.

    The result is empty if ``build`` did not write the model. It is also empty if the user has changed the model, unless
    the model is shared.

    Args:
        model: The preprocess model.
        is_shared: Whether the new ensemble shares the model instead of replacing it.
    """
    if model.is_unchanged not in ((True, False) if is_shared else (True,)):
        return {}
    derived = (PIXELS, FRAMES, EXAMPLES, STAMP)
    written = sorted(model_config.texts(model.config).items())
    parameters = {key: text for key, text in written if key not in derived}
    on_error, odd_range = parameters.pop("on_error", None), parameters.pop("odd_range", None)
    batch = model.config.get("max_batch_size", 0)
    if not batch and parameters.get("max_boxes", "").isdecimal():
        batch = int(parameters.pop("max_boxes"))
    dali = (_INPUTS["dali"][0]["name"], _INPUTS["dali"][0]["data_type"])
    inputs = [(entry.get("name"), entry.get("data_type")) for entry in model.config.get("input", [])]
    found: Choices = {
        "input_": "dali" if dali in inputs else None,
        "on_error": on_error,
        "max_batch_size": batch,
        "parameters": parameters,
        "odd_range": odd_range == "meant",
    }
    found = {key: value for key, value in found.items() if value}
    with suppress(PipelineError, SetupError):  # the old pipeline may no longer load
        version = model.newest
        implied = version and configuration(version.pipeline.for_serving(), {**found, "max_batch_size": None})
        if implied and implied["max_batch_size"] == found.get("max_batch_size"):
            del found["max_batch_size"]
    return found


def as_options(choices: Choices) -> str:
    """Format options as command-line options."""
    arguments = []
    for key, value in choices.items():
        option = f"--{key.removesuffix('_').replace('_', '-')}"
        if key == "parameters":
            arguments += [word for pair in value.items() for word in ("--parameter", "=".join(pair))]
        else:
            arguments += [option] if value is True else [option, str(value)]
    return shlex.join(arguments)
