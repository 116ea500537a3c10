"""Defines the stages of an ensemble: its preprocess models, and the names of their tensors in the ensemble."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from pixprep.errors import PipelineError
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.fit import check_inputs, check_outputs, is_size_of_photo
from pixprep.serving.repository.models import Tensor, suggest
from pixprep.serving.repository.pbtxt import Step
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.repository.writer import Content
from pixprep.serving.triton.config import AFTER_NAME, CONFIG_FILE, EXAMPLES, PIPELINE_FILE, Config, texts


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Preprocess model of an ensemble.

    Attributes:
        model: Name of the model.
        pipeline: Serving side of the model's pipeline.
        config: Configuration of the model.
        port: Name of the classifier's input that receives the model's tensor. The name is empty if this is the only
            stage, which then provides all inputs.
        is_of_one_image: Whether all stages receive the same image.
        before: Previous stage, for which this stage waits. Parallel steps are avoided, because Triton 2.51 crashes or
            never responds if one of two parallel steps fails, for example because of an invalid image.
    """

    model: str
    pipeline: Pipeline
    config: Config
    port: str = ""
    is_of_one_image: bool = False
    before: Stage | None = None

    @property
    def inputs(self) -> dict[str, Config]:
        """Inputs of the ensemble that this stage receives, by the name of the input in the model."""
        image = self.config["input"][0]["name"] if self.is_of_one_image else None
        return {
            entry["name"]: {**entry, "name": entry["name"] if entry["name"] == image else self.named(entry["name"])}
            for entry in self.config["input"]
        }

    @property
    def written(self) -> Config:
        """Configuration to write. A stage that waits also receives the smallest output of the previous stage."""
        if not self.before:
            return self.config
        other = {**self.before.waited_for, "name": AFTER_NAME, "optional": True}
        return {**self.config, "input": [*self.config["input"], other]}

    @property
    def files(self) -> dict[str, Content]:
        """Files to write, by their paths in the folder of the model."""
        return {CONFIG_FILE: pbtxt.preprocess(self.written), f"1/{PIPELINE_FILE}": self.pipeline.to_json()}

    @property
    def waited_for(self) -> Config:
        """Output that the next stage waits for, which is the output with the fewest elements."""
        return min(self.config["output"], key=lambda entry: prod(abs(side) for side in entry["dims"]))

    def named(self, tensor: str) -> str:
        """Return the name that a tensor of this stage has in the ensemble."""
        return f"{self.port}_{tensor}" if self.port else tensor

    @property
    def step(self) -> Step:
        """Step of the ensemble that calls this model."""
        outputs = {entry["name"]: self.named(entry["name"]) for entry in self.config["output"]}
        inputs = {name: entry["name"] for name, entry in self.inputs.items()}
        if self.before:
            inputs[AFTER_NAME] = self.before.named(self.before.waited_for["name"])
        return Step(self.model, inputs, outputs)


Pairs = Mapping[str, tuple[Stage, str]]
"""For each input of the classifier, by name: the stage that provides it, and the name of the stage's output."""


def check_stages(stages: Sequence[Stage]) -> None:
    """Check that stages can be combined in one ensemble.

    Raises:
        PipelineError: There are several pipelines, and one of them uses a reserved name or accepts boxes; or pipelines
            for the same image have different image inputs.
    """
    for stage in stages if len(stages) > 1 else ():
        if AFTER_NAME in stage.pipeline.inputs:
            raise PipelineError(f'--pipeline {stage.port}=FILE: the input name "{AFTER_NAME}" is reserved: rename it')
        if stage.pipeline.plan.takes_boxes:
            rows = ", ".join(f'"{name}"' for name in stage.pipeline.inputs)
            raise PipelineError(
                f"--pipeline {stage.port}=FILE: with {rows}, the pipeline returns several tensors per photo, but a "
                "model with several images needs one tensor of each: build a separate ensemble with it"
            )
    if stages[0].is_of_one_image and len({str(stage.config["input"][0]) for stage in stages}) > 1:
        raise PipelineError("--one-image: all pipelines must accept files, or all must accept pixels")


def pair(classifier: Classifier, stages: Sequence[Stage], *, max_batch_size: int) -> dict[str, tuple[Stage, str]]:
    """Find the stage and the output that provide each input of the classifier.

    Raises:
        PipelineError: The stages do not correspond to the classifier's inputs, or a type or shape does not match.
    """
    if not stages[0].port:
        (stage,) = stages
        named_outputs = check_inputs(classifier, stage.pipeline, max_batch_size=max_batch_size)
        is_packed = stage.pipeline.plan.is_packed
        check_outputs(classifier, tensors_of(stages), max_batch_size=max_batch_size, is_packed=is_packed)
        return {port: (stage, name) for port, name in named_outputs.items()}
    ports = {tensor.name: tensor for tensor in classifier.inputs}
    named = {stage.port: stage for stage in stages}
    for port in named:
        if port not in ports:
            raise PipelineError(
                f'{classifier.source}: --pipeline: the model has no input "{port}"; {suggest(port, ports)}'
            )
    pairs = {}
    for port, tensor in ports.items():
        producers = [named[port]] if port in named else [each for each in stages if port in each.pipeline.outputs]
        if len(producers) != 1:
            problem = f'the model has the input "{port}", {tensor}'
            many = f", which {len(producers)} pipelines return: remove it from all but one" * bool(producers)
            raise PipelineError(f"{classifier.source}: {problem}{many or f': also pass --pipeline {port}=FILE'}")
        one = replace(classifier, inputs=(tensor,))
        found = check_inputs(one, producers[0].pipeline, max_batch_size=max_batch_size)
        pairs[port] = (producers[0], found[port])
    check_outputs(classifier, tensors_of(stages), max_batch_size=max_batch_size)
    return pairs


def tensors_of(stages: Sequence[Stage]) -> Iterator[str]:
    """Yield the names of the ensemble's tensors that are inputs or outputs of the stages."""
    for stage in stages:
        yield from (*stage.step.inputs.values(), *stage.step.outputs.values())


def ensemble_inputs(stages: Sequence[Stage]) -> list[Config]:
    """Return the inputs of an ensemble with these stages. If all stages receive the same image, it is listed once."""
    return list({entry["name"]: entry for stage in stages for entry in stage.inputs.values()}.values())


def parameters(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the parameters that describe the ensemble's inputs to clients, with the example rows of all stages."""
    rows = {
        stage.named(name): row
        for stage in stages
        for name, row in json.loads(texts(stage.config).get(EXAMPLES, "{}")).items()
    }
    return texts(stages[0].config) | ({EXAMPLES: json.dumps(rows, separators=(",", ":"))} if rows else {})


def extras(stages: Sequence[Stage], pairs: Pairs) -> list[Config]:
    """Return the outputs of the stages that become outputs of the ensemble.

    These are the outputs that the classifier does not receive, and the size of the photo that an RT-DETR receives. From
    this size, ``pixprep.detections`` recognizes that the boxes are in pixels of the photo.
    """
    taken = {(stage.model, name) for stage, name in pairs.values() if not is_size_of_photo(stage.pipeline, name)}
    return [
        {**entry, "name": stage.named(entry["name"])}
        for stage in stages
        for entry in stage.config["output"]
        if (stage.model, entry["name"]) not in taken
    ]


def last_step(classifier: str, model: Classifier, pairs: Pairs, passed: Sequence[Tensor]) -> Step:
    """Return the last step of the ensemble, which calls the classifier. Clients send the inputs in ``passed``."""
    inputs = {port: stage.named(name) for port, (stage, name) in pairs.items()}
    inputs |= {tensor.name: tensor.name for tensor in passed}
    return Step(classifier, inputs, {tensor.name: tensor.name for tensor in model.outputs})
