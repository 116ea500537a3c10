"""Plans an ensemble in which a detector finds the boxes for the pipeline.

A function converts the outputs of the detector to boxes. By default, it calls ``pixprep.detections``; the user can
replace it:

photo ─► steps of the detector ─► rows (function) ─► boxes ─► preprocess ─► classifier
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.ops.faults import quoted
from pixprep.postprocessing.detections import TARGET_SIZES
from pixprep.serving.options import BuildOptions
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.exports import Export, read_export
from pixprep.serving.repository.models import suggest
from pixprep.serving.repository.pbtxt import Names, Step
from pixprep.serving.repository.repository import ONNX_FILE, Repository
from pixprep.serving.repository.stages import Stage
from pixprep.serving.repository.writer import Content
from pixprep.serving.triton.config import CONFIG_FILE, Config, face
from pixprep.spec import InputSpec

_MODEL = Path(__file__).with_name("rows_model.py")
_FUNCTION = "rows"
_MAX_BYTES = 1 << 20
_REGIONS = ("box", "xywh", "xywh64", "quad", "points")
"""Kinds of inputs for which ``Detections.regions`` returns the rows."""
_CODE = '''"""Returns the rows of the objects in a photo. Written by `pixprep build` without --boxes-by."""

from pixprep.postprocessing.detections import detections


def rows(**outputs):
    """Return the rows of each input of the pipeline."""
    found = detections(outputs, {task}, keypoints={keypoints})
    return {{{rows}}}
'''


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The part of an ensemble before the preprocess model: a detector, and the model that runs the function.

    Attributes:
        model: Name of the model that runs the function.
        files: Files of that model.
        steps: Steps of the ensemble that compute the boxes.
        rows: Inputs of the preprocess model that these steps compute. These inputs are also outputs of the ensemble.
    """

    model: str
    files: Mapping[str, Content]
    steps: tuple[Step, ...]
    rows: tuple[Config, ...]

    def ends(self, inputs: Sequence[Config], outputs: Sequence[Config]) -> tuple[list[Config], list[Config]]:
        """Return the inputs and outputs of an ensemble with this chain, given those of the ensemble without it."""
        names = [entry["name"] for entry in self.rows]
        return [entry for entry in inputs if entry["name"] not in names], [*self.rows, *outputs]


def chain_from(repository: Repository, given: BuildOptions, stages: Sequence[Stage]) -> Chain:
    """Plan the chain from a detector to the preprocess model.

    Args:
        repository: Repository that contains the detector, an ensemble whose input is one photo.
        given: Options of the build. The parameters of the user's function in the file ``boxes_by``, such as
            ``def rows(output0, transform, original_size)``, are outputs of the detector. Without a file, the rows are
            the detected objects.
        stages: Preprocess models of the ensemble. There must be exactly one, and its pipeline must accept boxes.

    Raises:
        PipelineError: The detector, the file or the pipeline is not suitable.
        SetupError: A file cannot be read, or tritonclient is not installed.
    """
    detector, file, name = given.boxes_from, given.boxes_by, given.name
    wired = repository.ensembles
    if detector not in wired:
        remedy = suggest(detector, wired) if wired else "build it first, with the same --output"
        raise PipelineError(f"--boxes-from: {repository.folder} has no ensemble {quoted(detector)}; {remedy}")
    if detector == Names.of(name).ensemble:
        raise PipelineError(
            f"--boxes-from: {quoted(detector)} is the ensemble that is being built: choose a different --name"
        )
    (stage, *others) = stages
    image, *rows = stage.config["input"]
    if others or not stage.pipeline.plan.takes_boxes:
        raise PipelineError(
            "--boxes-from requires a pipeline that accepts boxes: begin it with a crop such as "
            '{"op": "crop", "box": "boxes"}'
        )
    config = repository.models[detector].config
    theirs, found = config.get("input", []), {entry["name"]: entry for entry in config.get("output", [])}
    if len(theirs) != 1 or face(theirs[0]) != face(image):
        listed = ", ".join(f'"{entry["name"]}" {entry["data_type"]}' for entry in theirs)
        raise PipelineError(
            f'--boxes-from: {quoted(detector)} has the inputs {listed}, but the pipeline has "{image["name"]}" '
            f"{image['data_type']}: both must accept the same photo"
        )
    used = _parameters(file, detector, found) if file else list(found)
    content = file.resolve() if file else _function(repository, detector, stage.pipeline.inputs, found)
    model = f"{name}_{_FUNCTION}" if name else _FUNCTION
    own = {theirs[0]["name"]: image["name"]}

    def renamed(tensors: Mapping[str, str]) -> dict[str, str]:
        return {port: own.get(tensor, f"{detector}_{tensor}") for port, tensor in tensors.items()}

    steps = [step._replace(inputs=renamed(step.inputs), outputs=renamed(step.outputs)) for step in wired[detector]]
    made = {entry["name"]: entry["name"] for entry in rows}
    batch = [-1] if int(config.get("max_batch_size", 0)) else []
    takes = [
        {"name": each, "data_type": found[each]["data_type"], "dims": [*batch, *map(int, found[each]["dims"])]}
        for each in used
    ]
    boxes = [name for name, spec in stage.pipeline.inputs.items() if spec.kind == "box"]
    return Chain(
        model=model,
        files={
            CONFIG_FILE: pbtxt.rows(takes, rows, boxes=boxes, is_batched=bool(batch)),
            "1/model.py": _MODEL,
            f"1/{_FUNCTION}.py": content,
        },
        steps=(*steps, Step(model, renamed({each: each for each in used}), made)),
        rows=tuple(rows),
    )


def _function(
    repository: Repository, detector: str, inputs: Mapping[str, InputSpec], outputs: Mapping[str, Config]
) -> str:
    """Return Python code that computes the rows of a pipeline's inputs from the objects that a detector found.

    Raises:
        PipelineError: The detector lacks an output that maps its boxes to the photo, or an input is not a region.
    """
    for name, spec in inputs.items():
        if spec.kind not in _REGIONS:
            raise PipelineError(
                f'--boxes-from: the pipeline requires "{name}" {spec}, which detected objects do not provide: '
                "pass --boxes-by FILE with a function that returns it; docs/boxes.md has an example"
            )
    if not {"original_size", TARGET_SIZES} & outputs.keys():
        raise PipelineError(
            f"--boxes-from: {quoted(detector)} has no output original_size: add the ops transform and original_size "
            "before tensor to its pipeline, or pass --boxes-by FILE"
        )
    versions = map(repository.version_of, repository.ensembles[detector])
    files = [version.folder / ONNX_FILE for version in versions if version and version.has(ONNX_FILE)]
    export = read_export(files[0]) if len(files) == 1 else Export()
    rows = ", ".join(f'"{name}": found.regions("{spec.kind}")' for name, spec in inputs.items())
    return _CODE.format(task=repr(export.task), keypoints=export.keypoints, rows=rows)


def _parameters(file: Path, detector: str, outputs: Mapping[str, Config]) -> list[str]:
    """Return the names of the parameters of the user's function. The file is parsed but not executed.

    Raises:
        PipelineError: The file does not define the function, or a parameter is not an output of the detector.
    """
    signature = f"def {_FUNCTION}({', '.join(outputs)})"
    try:
        tree = ast.parse(read_bytes(file, max_bytes=_MAX_BYTES))
    except OSError as error:
        raise SetupError(f"{file}: cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise PipelineError(f"{file}: invalid Python: {error}") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION]
    if not functions:
        raise PipelineError(f"{file} does not define a function `{signature}`")
    arguments = functions[-1].args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    for each in names:
        if each not in outputs:
            raise PipelineError(f'{file}: {_FUNCTION}: {detector} has no output "{each}"; {suggest(each, outputs)}')
    if not names or arguments.posonlyargs or arguments.vararg or arguments.kwarg:
        raise PipelineError(f"{file}: {_FUNCTION}: its parameters must be outputs of {detector}: `{signature}`")
    return names
