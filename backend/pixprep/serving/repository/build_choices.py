"""Converts the options of a build to the configuration of the preprocess model, and recovers them from it."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.options import BuildOptions
from pixprep.serving.repository.pbtxt import STAMP
from pixprep.serving.repository.repository import Model
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import EXAMPLES, FRAMES, PIXELS

Choices = dict[str, Any]
"""Options of a build that the next build repeats, by the names of their fields in ``BuildOptions``."""
_REPEATED = ("input_", "on_error", "max_batch_size", "parameters", "odd_range")
_INPUTS: dict[str, list[model_config.Config]] = {
    "bytes": [],
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
    config = {
        "max_batch_size": max_batch_size or 0,
        "parameters": model_config.parameters(parameters),
        "input": _INPUTS[choices.get("input_", "bytes")],
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
