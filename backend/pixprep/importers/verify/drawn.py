"""The training side: of each image one draw, as the fixed ops that it comes to, beside the original libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from pixprep.engine.engine import Engine
from pixprep.errors import PipelineError
from pixprep.importers.verify.comparison import EQUAL, Comparison, refuse_what_no_library_has, subjects
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row, StageName
from pixprep.pipeline import ops
from pixprep.pipeline.ops.choices import fixed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.draws.philox import Words


def verify_training(
    pipeline: Pipeline,
    *,
    seed: int = 0,
    images: Sequence[Path | tuple[str, bytes]] = (),
    generate: bool = True,
    originals: Originals | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """Verify the training side: each image with the numbers that a Loader of this seed draws for it.

    The row ``draw`` compares the tensor that training makes with that of a pipeline whose ops are fixed to what was
    drawn; the other rows compare that pipeline with the original libraries, which must be installed. What
    ``random_erasing`` fills after ``normalize`` is left out on both sides.

    Args:
        pipeline: what to verify.
        seed: of the draws; the first image is sample 0 of epoch 0.
        images: as of ``verify``.
        generate: as of ``verify``.
        originals: as of ``verify``.
        on_progress: as of ``verify``.

    Raises:
        SetupError: an original library cannot be used.
        PipelineError: there is no training side, it has branches, or an op has no fixed form.
        PixprepError: a file cannot be read, or no image was compared.
    """
    training = pipeline.for_training().for_photos()
    refuse_what_no_library_has(training)
    if any(op.from_ for op in training.ops):
        raise PipelineError('"from": a training side with branches is not verified: verify one branch at a time')
    tensors = [name for name, output in training.outputs.items() if isinstance(output.chain[-1], ops.Tensor)]
    rows = {name: Row(output=name, stage="draw", original="its fixed ops", tolerance=EQUAL) for name in tensors}
    whole, plan = Certificate(list(rows.values())), training.plan
    originals = originals or Originals()
    with Engine(training, threads=1) as engine:
        for index, name, encoded in subjects(whole, images, generate=generate, on_progress=on_progress):
            (numbers,) = plan.draw(seed=seed, epoch=0, indices=[index])
            batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
            if batch.errors[0] is not None:
                whole.refused.append(Omission(name, f"pixprep refuses it: {batch.errors[0]}", "not compared"))
                continue
            draws = _unerased(batch.placed[0].draws)  # type: ignore[union-attr]  # no error: it is placed
            certified = settled(training, draws)
            ours = engine.run_batch([encoded], places=[plan.replaying(draws)])
            with Engine(certified, threads=1, odd_range=True) as other:
                theirs = other.run_batch([encoded])
            for tensor, row in rows.items():
                spec = training.outputs[tensor].spec
                row.add(name, *(spec.view(x[tensor][0], "hwc") for x in (ours, theirs)))
            Comparison(whole, certified.for_serving(), originals, may_freeze=False).add(name, encoded)
    order = get_args(StageName)
    whole.rows.sort(key=lambda row: (["", *tensors].index(row.output), order.index(row.stage)))
    return whole


def settled(training: Pipeline, draws: Mapping[str, Words]) -> Pipeline:
    """The pipeline of fixed ops that makes of every image what the training side made of one.

    Args:
        training: a pipeline at its training side, without branches.
        draws: of the image, as they came back with it.

    Raises:
        PipelineError: a random op has no fixed form.
    """
    made = [op for node in training.nodes for op in fixed(node.op, node.key, draws)]
    return Pipeline(made, operators=training.operators)


def _unerased(draws: Mapping[str, Words]) -> dict[str, Words]:
    """The draws with no rectangle."""
    return {key: {"rectangles": []} if "rectangles" in words else words for key, words in draws.items()}
