"""Checks that the inputs and outputs of an ensemble's steps match each other."""

from __future__ import annotations

from collections.abc import Iterator

from pixprep.errors import PixprepError
from pixprep.serving.repository.fit import compatible
from pixprep.serving.repository.models import Declared, Problem, Tensor, suggest
from pixprep.serving.repository.pbtxt import Step
from pixprep.serving.repository.repository import Model, Repository


def check_ensemble(model: Model, repository: Repository) -> Iterator[Problem]:
    """Check that each tensor of an ensemble has one producer, is used, and has the type and shape that steps expect."""
    where, ensemble = model.where, Declared(model.config)
    sources: dict[str, tuple[str, Tensor | None]] = {}
    taken: list[tuple[str, str, Tensor | None]] = []
    for side in ("input", "output"):
        if side not in ensemble.tensors:
            yield Problem(
                where, f"does not declare an {side}", "add it, because an ensemble must declare it explicitly"
            )
    sources |= {name: ("the ensemble's input", tensor) for name, tensor in ensemble.tensors.get("input", {}).items()}
    taken += [(name, "the ensemble's output", tensor) for name, tensor in ensemble.tensors.get("output", {}).items()]
    for number, step in enumerate(model.steps, 1):
        who = f'step {number} ("{step.model}")'
        declared = None
        if step.model not in repository.models:
            yield Problem(where, f"{who}: the model does not exist", suggest(step.model, repository.models))
        elif unserved := _unserved(step, repository.models[step.model]):
            remedy = "write model_version: -1 for the newest version that is served"
            if step.version == -1:
                remedy = f"give {step.model} a version, or correct its version_policy"
            yield Problem(where, f"{who}: {unserved}", remedy)
        elif declared := _declared(step, repository):
            yield from _check_step(where, ensemble, who, step, declared)
        known = declared.tensors if declared else {}
        for port, name in step.inputs.items():
            taken.append((name, f'{who} input "{port}"', known.get("input", {}).get(port)))
        for port, name in step.outputs.items():
            if name in sources:
                yield Problem(
                    where, f'{who} returns "{name}", a name that {sources[name][0]} already has', "rename one of them"
                )
            sources.setdefault(name, (f'{who} output "{port}"', known.get("output", {}).get(port)))
    for name, consumer, want in taken:
        if name not in sources:
            yield Problem(where, f'{consumer} uses "{name}", which does not exist', suggest(name, sources))
            continue
        producer, have = sources[name]
        if have and want and not (have.data_type == want.data_type and _fits(have, want)):
            problem = f'"{name}": {producer} is {have}, but {consumer} is {want}'
            yield Problem(where, problem, "make them equal")
    wanted = {name for name, *_ in taken}
    for name in [name for name in sources if name not in wanted]:
        yield Problem(where, f'"{name}" is not used', "remove it, or make it an output of the ensemble")
    yield from _check_cycles(model, repository)


def _unserved(step: Step, model: Model) -> str:
    """Return a problem if the version of a step is known but Triton does not serve it, or else an empty string."""
    try:
        served = model.served
    except (PixprepError, OSError):
        return ""
    if step.version in served or (step.version == -1 and served):
        return ""
    numbers = ", ".join(map(str, served)) or "none"
    wanted = "the newest version" if step.version == -1 else f"version {step.version}"
    without = " (the default without model_version)" * (step.version == 0)
    return f"uses {wanted}{without}, but Triton serves these versions of {model.name}: {numbers}"


def _declared(step: Step, repository: Repository) -> Declared | None:
    """Return the inputs and outputs of a step's model, or None if they are unknown."""
    version = repository.version_of(step)
    try:
        return version.declared if version else None
    except (PixprepError, OSError):  # reported as a problem with that model
        return None


def _fits(have: Tensor, want: Tensor) -> bool:
    """Return whether two shapes match. If only one model is batched, Triton adds or removes a batch dimension of 1."""
    if compatible(have.shape, want.shape):
        return True
    if have.is_batched == want.is_batched or have.shape is None or want.shape is None:
        return False
    return compatible(have.shape[have.is_batched :], want.shape[want.is_batched :])


def _check_step(where: str, ensemble: Declared, who: str, step: Step, model: Declared) -> Iterator[Problem]:
    """Compare the input and output maps of one step with its model."""
    for direction, ports in (("input", step.inputs), ("output", step.outputs)):
        tensors = model.tensors.get(direction)
        if not ports:
            yield Problem(
                where, f"{who} has no {direction}_map", f"map the {direction}s of the model to tensors of the ensemble"
            )
        if tensors is None or not ports:
            continue
        for port in ports:
            if port not in tensors:
                yield Problem(where, f'{who}: the model has no {direction} "{port}"', suggest(port, tensors))
        for port, tensor in tensors.items():
            if direction == "input" and port not in ports and not tensor.is_optional:
                yield Problem(where, f'{who}: input "{port}" of the model is missing', "add it to input_map")
    if model.max_batch_size < ensemble.max_batch_size:
        problem = f"max_batch_size is {ensemble.max_batch_size}, but that of {who} is {model.max_batch_size}"
        yield Problem(where, problem, f"set it to {model.max_batch_size}, or raise that of the model")


def _check_cycles(ensemble: Model, repository: Repository) -> Iterator[Problem]:
    """Find steps that wait for each other, and ensembles that contain themselves."""
    waiting = list(enumerate(ensemble.steps, 1))
    while True:
        # A tensor that no step produces is available from the start, or has already been reported.
        missing = {name for _, step in waiting for name in step.outputs.values()}
        stuck = [(number, step) for number, step in waiting if not missing.isdisjoint(step.inputs.values())]
        if len(stuck) == len(waiting):
            break
        waiting = stuck
    if waiting:
        names = ", ".join(f'{number} ("{step.model}")' for number, step in waiting)
        yield Problem(ensemble.where, f"these steps wait for each other: {names}", "remove the cycle")
    inside, reached = [ensemble.name], set[str]()
    while inside:
        for step in repository.ensembles.get(inside.pop(), ()):
            if step.model not in reached:
                reached.add(step.model)
                inside.append(step.model)
    if ensemble.name in reached:
        yield Problem(ensemble.where, "the ensemble contains itself", "remove the step that leads back to it")
