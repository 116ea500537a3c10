"""Verification of the training side, with one draw per image as fixed ops, compared with the original libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pixprep.engine.batch import Batch
from pixprep.engine.engine import Engine
from pixprep.errors import PipelineError
from pixprep.importers.verify.comparison import (
    EQUAL,
    Comparison,
    compare_with_source,
    refuse_what_no_library_has,
    subjects,
)
from pixprep.importers.verify.images import png
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row, StageName
from pixprep.importers.verify.stages import Resizing, resizing
from pixprep.pipeline import ops
from pixprep.pipeline.ops.choices import fixed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.draws.philox import Words
from pixprep.spec import Color


def verify_training(
    pipeline: Pipeline,
    *,
    seed: int = 0,
    images: Sequence[Path | tuple[str, bytes]] = (),
    generate: bool = True,
    originals: Originals | None = None,
    source: Any = None,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """Verify the training side, for each image with the random parameters that a Loader with this seed draws.

    The row ``draw`` compares the training tensor with that of a pipeline whose ops are fixed to the drawn parameters.
    The other rows compare that pipeline with the original libraries, which must be installed. The rectangles of
    ``random_erasing`` after ``normalize`` are left out on both sides.

    Args:
        pipeline: Pipeline to verify.
        seed: Seed of the draws. The first image is sample 0 of epoch 0.
        images: Same as in ``verify``.
        generate: Same as in ``verify``.
        originals: Same as in ``verify``.
        source: Same as in ``verify``.
        options: Same as in ``verify``.
        folder: Same as in ``verify``.
        on_progress: Same as in ``verify``.

    Raises:
        SetupError: An original library cannot be used.
        PipelineError: The pipeline does not have a training side, it has branches, or an op does not have a fixed form.
        PixprepError: A file cannot be read, or no image was compared.
    """
    training = pipeline.for_training().for_photos()
    refuse_what_no_library_has(training)
    if any(op.from_ for op in training.side_ops):
        raise PipelineError('"from": a training side with branches cannot be verified: verify one branch at a time')
    tensors = [name for name, output in training.outputs.items() if isinstance(output.chain[-1], ops.Tensor)]
    rows = {name: Row(output=name, stage="draw", original="its fixed ops", tolerance=EQUAL) for name in tensors}
    whole, plan = Certificate(list(rows.values())), training.plan
    compare_with_source(whole, pipeline, source=source, options=options, folder=folder)
    originals = originals or Originals()
    with Engine(training, threads=1) as engine:
        for index, name, encoded in subjects(whole, images, generate=generate, on_progress=on_progress):
            (numbers,) = plan.draw(seed=seed, epoch=0, indices=[index])
            batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
            if batch.errors[0] is not None:
                whole.refused.append(Omission(name, f"pixprep rejects it: {batch.errors[0]}", "not compared"))
                continue
            draws = _unerased(batch.placed[0].draws)  # type: ignore[union-attr]  # without an error, placed is set
            ours = engine.run_batch([encoded], places=[plan.replaying(draws)])
            made = [*steps(settled(training, draws), encoded)]
            for certified, given, _ in made:
                Comparison(whole, certified.for_serving(), originals, may_freeze=False).add(name, given)
            theirs = made[-1][2]
            for tensor, row in rows.items():
                spec = training.outputs[tensor].spec
                row.add(name, *(spec.view(x[tensor][0], "hwc") for x in (ours, theirs)))
    order = get_args(StageName)
    whole.rows.sort(key=lambda row: (["", *tensors].index(row.output), order.index(row.stage)))
    return whole


def settled(training: Pipeline, draws: Mapping[str, Words]) -> tuple[Pipeline, ...]:
    """Return pipelines of fixed ops that, applied one after the other, reproduce the training result of one image.

    Each pipeline resizes once, so there is a single one unless an image is resized more than once.

    Args:
        training: Training side of a pipeline, without branches.
        draws: Random parameters of the image, as returned with it.

    Raises:
        PipelineError: A random op does not have a fixed form, or a tensor precedes a second resize.
    """
    made = [op for node in training.nodes for op in fixed(node.op, node.key, draws)]
    parts: list[list[ops.Op]] = [[]]
    for op in made:
        if isinstance(op, Resizing) and resizing(parts[-1]):
            if any(isinstance(each, ops.Tensor) for each in parts[-1]):
                raise PipelineError(
                    f"{ops.op_name(op)}: a tensor before a second resize cannot be verified: remove that tensor"
                )
            parts[-1].append(ops.Tensor(dtype="uint8", layout="hwc", max_size=ops.MAX_SIDE))
            parts.append([ops.Decode(color=_color(made), apply_exif_orientation=False)])
        parts[-1].append(op)
    return tuple(Pipeline(part, operators=training.operators) for part in parts)


def steps(parts: Sequence[Pipeline], encoded: bytes) -> Iterator[tuple[Pipeline, bytes, Batch]]:
    """Yield each pipeline of ``settled`` with its input file and its result.

    The first pipeline receives the image, and each further one a PNG of the previous result.
    """
    for part in parts:
        with Engine(part, threads=1, odd_range=True) as engine:
            made = engine.run_batch([encoded])
        if made.errors[0] is not None:
            raise made.errors[0]
        yield part, encoded, made
        if part is not parts[-1]:
            levels = made["tensor"][0][:, :, :: -1 if _color(part.side_ops) == "bgr" else 1]
            encoded = png(levels.squeeze(2) if levels.shape[2] == 1 else levels)


def _color(chain: Sequence[ops.Op]) -> Color:
    """Return the channel order that a pipeline decodes to."""
    decode = chain[0]
    assert isinstance(decode, ops.Decode)
    return decode.color


def _unerased(draws: Mapping[str, Words]) -> dict[str, Words]:
    """Return the draws without rectangles."""
    return {key: {"rectangles": []} if "rectangles" in words else words for key, words in draws.items()}
