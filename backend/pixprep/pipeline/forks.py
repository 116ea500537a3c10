"""Compiles random choices between crops, resizes and other geometric ops.

A separate plan is compiled for each list of ops that can be chosen, as if the pipeline contained this list instead of
the choice. Each plan therefore has at most one crop window and one resize, and additional kernels are not required. The
random parameters of an image select the plan for the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import Op, op_name
from pixprep.pipeline.ops.choices import Choice, as_choice
from pixprep.pipeline.walk import CompiledSide, Item, at, compile_side, items, meaning
from pixprep.plan.draws.augments import RandomStep
from pixprep.plan.output_plans import AnnotationPlan, MaskPlan, TargetPlan
from pixprep.plan.plan import Fork
from pixprep.plan.steps.operators import Operator
from pixprep.spec import ImageSpec, TensorSpec

MAX_LEAVES = 64
"""Maximum number of plans of each side (training and serving). The limit bounds the compile time, about 1 ms per plan,
and the number of kernels, because each plan has its own."""


def compiled(
    ops: Iterable[tuple[int, Op]], operators: tuple[Operator | str, ...], where: str = "", size_hint: str = ""
) -> CompiledSide:
    """Compile the ops of a side, with one plan for each combination of chosen geometric ops; see ``compile_side``."""

    def forked(side: Sequence[Item], leaves: int) -> CompiledSide:
        for place, item in enumerate(side):
            choice, key = as_choice(item.op, item.key)
            if isinstance(choice, Choice) and not choice.is_levels:
                leaves *= choice.count
                if leaves > MAX_LEAVES:
                    with at(item.op_index, item.op, where):
                        raise PipelineError(
                            f"the choices between crops, resizes and other geometric ops have {leaves:,} combinations, "
                            f"but at most {MAX_LEAVES} are supported: remove some ops"
                        )
                walks = {
                    chosen: forked(
                        [*side[:place], *_chosen_items(choice, key, chosen, item), *side[place + 1 :]], leaves
                    )
                    for chosen in choice.sequences
                }
                with at(item.op_index, item.op, where):
                    return _merged(RandomStep(key, choice), walks, item, len(side) - place - 1)
        found = compile_side(side, operators, where, size_hint)
        return replace(found, plan=replace(found.plan, leaf=next(numbers)))

    numbers = count()
    return forked([*items(ops)], 1)


def drawn(side: Iterable[Item], choose: Callable[[RandomStep], Sequence[int]]) -> Iterator[Item]:
    """Yield the ops of a side for one image. Each choice between geometric ops is replaced by the chosen ops.

    Args:
        side: Ops of the side.
        choose: Function that returns the indices of the ops that are chosen in a random step.
    """
    for item in side:
        choice, key = as_choice(item.op, item.key)
        if isinstance(choice, Choice) and not choice.is_levels:
            yield from drawn(_chosen_items(choice, key, choose(RandomStep(key, choice)), item), choose)
        else:
            yield item


def _chosen_items(choice: Choice, key: str, chosen: Sequence[int], item: Item) -> Iterator[Item]:
    """Yield the chosen ops of a choice, with the index of the choice as their index in the file."""
    for op, own in choice.keyed(key, chosen):
        yield Item(item.op_index, op, own, is_chosen=True)


def _merged(step: RandomStep, walks: Mapping[tuple[int, ...], CompiledSide], item: Item, n_after: int) -> CompiledSide:
    """Merge the compiled sides of all outcomes of a choice into one compiled side.

    Args:
        step: Random step that samples the outcome.
        walks: Compiled side of each outcome. The keys are the chosen indices.
        item: Choice op, with its index and key.
        n_after: Number of ops after the choice.

    Raises:
        PipelineError: The meaning of a tensor depends on the outcome.
    """
    first, *others = walks.values()
    for other in others:
        _check_same_meaning(first, other)
    ends = [len(each.nodes) - n_after for each in walks.values()]
    every = [each.nodes[end - 1 :] for each, end in zip(walks.values(), ends, strict=True)]
    images = [_image_spec([node.image for node in column]) for column in zip(*every, strict=True)]
    before = [node for node in first.nodes if node.index < item.op_index]
    last = replace(
        every[0][0], index=item.op_index, op=item.op, key=item.key, source=item.op_index, inputs=(), call=None
    )
    after = zip([last, *every[0][1:]], images, strict=True)
    nodes = [*before, *(replace(node, image=image) for node, image in after)]
    outputs = {
        name: replace(output, spec=_tensor_spec([each.outputs[name].spec for each in walks.values()]))
        for name, output in first.outputs.items()
    }
    shown = {node.op.name or op_name(node.op): node.image for node in nodes}
    plan = replace(
        first.plan,
        outputs={name: replace(output, spec=outputs[name].spec) for name, output in first.plan.outputs.items()},
        annotations={name: _annotation(each, shown[name]) for name, each in first.plan.annotations.items()},
        fork=Fork(step, {chosen: each.plan for chosen, each in walks.items()}),
    )
    return CompiledSide(tuple(nodes), outputs, plan)


def _check_same_meaning(first: CompiledSide, other: CompiledSide) -> None:
    """Raise PipelineError if the meaning of a tensor differs between two outcomes. The sizes of a tensor may differ.

    The decoder also requires the same ``draft``, because Pillow applies it before the image is placed.
    """
    if _draft(first) != _draft(other):
        raise PipelineError('"draft" of resize_by_rule must not depend on the random choice: remove "draft"')
    for name, plan in first.plan.tensors.items():
        theirs = other.plan.tensors.get(name)
        if theirs is not None:
            pairs = meaning(first.outputs[name].spec, plan), meaning(other.outputs[name].spec, theirs)
            for what, value in pairs[0].items():
                if value != pairs[1][what]:
                    raise PipelineError(
                        f'the {what} of the tensor "{name}" must not depend on the random choice ({value} or '
                        f"{pairs[1][what]}): move the op that changes it after the choice"
                    )


def _draft(side: CompiledSide) -> tuple[int, int] | None:
    """Return the minimum size at which a JPEG is decoded, or None; see ``ReducingGap``."""
    return None if side.plan.gap is None else side.plan.gap.draft


def _image_spec(images: Sequence[ImageSpec]) -> ImageSpec:
    """Return a spec whose size limits include the images of all outcomes."""
    smallest = min(image.min_height for image in images), min(image.min_width for image in images)
    sides = [(image.max_height, image.max_width) for image in images]
    height, width = (None if None in side else max(filter(None, side)) for side in zip(*sides, strict=True))
    return images[0].within(smallest, (height, width))


def _tensor_spec(specs: Sequence[TensorSpec]) -> TensorSpec:
    """Return a spec that includes the tensors of all outcomes. An axis whose length differs becomes -1."""
    shapes = [{*sides} for sides in zip(*(spec.shape for spec in specs), strict=True)]
    shape = tuple(next(iter(sides)) if len(sides) == 1 else -1 for sides in shapes)
    if -1 not in shape:
        return specs[0]
    largest = tuple(map(max, zip(*(spec.largest for spec in specs), strict=True)))
    return replace(specs[0], shape=shape, most=largest)


def _annotation(plan: AnnotationPlan, image: ImageSpec) -> AnnotationPlan:
    if not isinstance(plan, MaskPlan | TargetPlan):
        return plan
    return replace(plan, is_one_size=None not in (image.height, image.width))
