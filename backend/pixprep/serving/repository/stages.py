"""Stages of an ensemble: the preprocess models, and the ensemble's names of their tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from pixprep.errors import PipelineError
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.fit import carried, check_inputs, check_outputs, connect
from pixprep.serving.repository.models import suggest
from pixprep.serving.repository.pbtxt import Step
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.repository.writer import Content
from pixprep.serving.triton.config import AFTER_NAME, CONFIG_FILE, EXAMPLES, PIPELINE_FILE, Config, texts


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A preprocess model of an ensemble.

    Attributes:
        model: Name of the model.
        pipeline: Serving side of its pipeline.
        config: Configuration of the model.
        port: Input of the classifier that receives its tensor; ``""``: it is the only stage, and feeds all inputs.
        is_of_one_image: Whether all stages receive the one image of the request.
        before: Stage that it waits for. If one of two parallel steps fails, for example because of a bad photo, Triton
            2.51 crashes or never responds.
    """

    model: str
    pipeline: Pipeline
    config: Config
    port: str = ""
    is_of_one_image: bool = False
    before: Stage | None = None

    @property
    def inputs(self) -> dict[str, Config]:
        """Inputs of the ensemble, keyed by their names in the model."""
        image = self.config["input"][0]["name"] if self.is_of_one_image else None
        return {
            entry["name"]: {**entry, "name": entry["name"] if entry["name"] == image else self.named(entry["name"])}
            for entry in self.config["input"]
        }

    @property
    def written(self) -> Config:
        """The configuration to write. A stage that waits has the smallest output of the other as an extra input."""
        if not self.before:
            return self.config
        other = {**self.before.waited_for, "name": AFTER_NAME, "optional": True}
        return {**self.config, "input": [*self.config["input"], other]}

    @property
    def files(self) -> dict[str, Content]:
        """Files of the model."""
        return {CONFIG_FILE: pbtxt.preprocess(self.written), f"1/{PIPELINE_FILE}": self.pipeline.to_json()}

    @property
    def waited_for(self) -> Config:
        """The output with the fewest bytes."""
        return min(self.config["output"], key=lambda entry: prod(abs(side) for side in entry["dims"]))

    def named(self, tensor: str) -> str:
        """Name that the ensemble uses for one of its tensors."""
        return f"{self.port}_{tensor}" if self.port else tensor

    @property
    def step(self) -> Step:
        """Step of the ensemble."""
        outputs = {entry["name"]: self.named(entry["name"]) for entry in self.config["output"]}
        inputs = {name: entry["name"] for name, entry in self.inputs.items()}
        if self.before:
            inputs[AFTER_NAME] = self.before.named(self.before.waited_for["name"])
        return Step(self.model, inputs, outputs)


Pairs = Mapping[str, tuple[Stage, str]]
"""Stage and output that feed each input of the classifier."""


def check_stages(stages: Sequence[Stage]) -> None:
    """Reject stages that cannot form an ensemble of several images.

    Raises:
        PipelineError: The stages cannot form such an ensemble.
    """
    for stage in stages if len(stages) > 1 else ():
        if AFTER_NAME in stage.pipeline.inputs:
            raise PipelineError(f'--pipeline {stage.port}=FILE: has an input "{AFTER_NAME}", which is kept: rename it')
        if stage.pipeline.plan.takes_boxes:
            rows = ", ".join(f'"{name}"' for name in stage.pipeline.inputs)
            raise PipelineError(
                f"--pipeline {stage.port}=FILE: takes {rows} with each photo, which makes many tensors of it, and the "
                "other inputs have one each: build it by itself"
            )
    if stages[0].is_of_one_image and len({str(stage.config["input"][0]) for stage in stages}) > 1:
        raise PipelineError("--one-image: some of the pipelines take files, others pixels")


def pair(classifier: Classifier, stages: Sequence[Stage], *, max_batch_size: int) -> dict[str, tuple[Stage, str]]:
    """Find for each input of the classifier the stage and the output that feed it.

    Raises:
        PipelineError: ``fit.connect`` fails, or the stages do not correspond to the classifier's inputs.
    """
    if not stages[0].port:
        (stage,) = stages
        found = connect(classifier, stage.pipeline, max_batch_size=max_batch_size)
        return {port: (stage, name) for port, name in found.items()}
    ports = {tensor.name: tensor for tensor in classifier.inputs}
    named = {stage.port: stage for stage in stages}
    for port in named:
        if port not in ports:
            raise PipelineError(f'{classifier.source}: --pipeline: no such input "{port}"; {suggest(port, ports)}')
    pairs = {}
    for port, tensor in ports.items():
        givers = [named[port]] if port in named else [each for each in stages if port in each.pipeline.outputs]
        if len(givers) != 1:
            what = f'the model takes "{port}", {tensor}'
            many = f": {len(givers)} pipelines give it: leave it out of one" * bool(givers)
            raise PipelineError(f"{classifier.source}: {what}{many or f': give --pipeline {port}=FILE, too'}")
        one = replace(classifier, inputs=(tensor,))
        found = check_inputs(one, givers[0].pipeline, max_batch_size=max_batch_size)
        pairs[port] = (givers[0], found[port])
    check_outputs(classifier, list(tensors_of(stages)), max_batch_size=max_batch_size)
    return pairs


def tensors_of(stages: Sequence[Stage]) -> Iterator[str]:
    """Names of the ensemble's tensors that are inputs or outputs of the stages."""
    for stage in stages:
        yield from (*stage.step.inputs.values(), *stage.step.outputs.values())


def ensemble_inputs(stages: Sequence[Stage]) -> list[Config]:
    """The inputs of an ensemble of these stages; an image that all stages share appears once."""
    return list({entry["name"]: entry for stage in stages for entry in stage.inputs.values()}.values())


def parameters(stages: Sequence[Stage]) -> dict[str, str]:
    """Parameters from which clients learn the ensemble's inputs: the examples of all stages, under its names."""
    rows = {
        stage.named(name): row
        for stage in stages
        for name, row in json.loads(texts(stage.config).get(EXAMPLES, "{}")).items()
    }
    return texts(stages[0].config) | ({EXAMPLES: json.dumps(rows, separators=(",", ":"))} if rows else {})


def extras(stages: Sequence[Stage], pairs: Pairs) -> list[Config]:
    """Outputs that the classifier does not receive; they are outputs of the ensemble."""
    taken = {(stage.model, name) for stage, name in pairs.values()}
    return [
        {**entry, "name": stage.named(entry["name"])}
        for stage in stages
        for entry in stage.config["output"]
        if (stage.model, entry["name"]) not in taken
    ]


def last_step(classifier: str, model: Classifier, pairs: Pairs) -> Step:
    """Step of the classifier."""
    inputs = {port: stage.named(name) for port, (stage, name) in pairs.items()}
    return Step(classifier, inputs, {tensor.name: tensor.name for tensor in carried(model)})
