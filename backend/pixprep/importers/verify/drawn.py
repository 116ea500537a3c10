"""Verifies the training ops of a pipeline. The random parameters are sampled once for each image."""

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
    reject_unverifiable,
    subjects,
)
from pixprep.importers.verify.images import png
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row, StageName
from pixprep.importers.verify.stages import Resizing, resizing
from pixprep.pipeline import ops
from pixprep.pipeline.ops.choices import fixed_ops
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
    """Verify the training ops of a pipeline, with the random parameters that a Loader with this seed samples.

    For each image, the random ops are replaced by deterministic ops with the sampled parameters. The row ``draw``
    compares the tensor of the training ops with that of the deterministic ops. All other rows compare the deterministic
    ops with the libraries, which must be installed. The rectangles of a ``random_erasing`` that follows ``normalize``
    are not compared.

    Args:
        pipeline: Pipeline to verify.
        seed: Seed of the random parameters. The images are the samples 0, 1, 2 and so on of epoch 0.
        images: Same as in ``verify``.
        generate: Same as in ``verify``.
        originals: Same as in ``verify``.
        source: Same as in ``verify``.
        options: Same as in ``verify``.
        folder: Same as in ``verify``.
        on_progress: Same as in ``verify``.

    Raises:
        SetupError: A library cannot be used.
        PipelineError: The pipeline does not have training ops, it has branches, or a random op cannot be replaced by
            deterministic ops.
        PixprepError: A file cannot be read, or no image was compared.
    """
    training = pipeline.for_training().for_photos()
    reject_unverifiable(training)
    if any(op.from_ for op in training.side_ops):
        raise PipelineError('"from": a training side with branches cannot be verified: verify one branch at a time')
    tensors = [name for name, output in training.outputs.items() if isinstance(output.chain[-1], ops.Tensor)]
    rows = {name: Row(output=name, stage="draw", original="its fixed ops", tolerance=EQUAL) for name in tensors}
    certificate, plan = Certificate(list(rows.values())), training.plan
    compare_with_source(certificate, pipeline, source=source, options=options, folder=folder)
    originals = originals or Originals()
    with Engine(training, threads=1) as engine:
        for index, name, encoded in subjects(certificate, images, generate=generate, on_progress=on_progress):
            (numbers,) = plan.draw(seed=seed, epoch=0, indices=[index])
            batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
            if batch.errors[0] is not None:
                certificate.refused.append(Omission(name, f"pixprep rejects it: {batch.errors[0]}", "not compared"))
                continue
            draws = _unerased(batch.placed[0].draws)  # type: ignore[union-attr]  # without an error, placed is set
            random = engine.run_batch([encoded], places=[plan.replaying(draws)])
            results = [*steps(settled(training, draws), encoded)]
            for certified, given, _ in results:
                Comparison(certificate, certified.for_serving(), originals, may_freeze=False).add(name, given)
            deterministic = results[-1][2]
            for tensor, row in rows.items():
                spec = training.outputs[tensor].spec
                row.add(name, *(spec.view(x[tensor][0], "hwc") for x in (random, deterministic)))
    order = get_args(StageName)
    certificate.rows.sort(key=lambda row: (["", *tensors].index(row.output), order.index(row.stage)))
    return certificate


def settled(training: Pipeline, draws: Mapping[str, Words]) -> tuple[Pipeline, ...]:
    """Replace random ops by deterministic ops with the sampled parameters of one image.

    Args:
        training: Pipeline for training, without branches.
        draws: Random parameters of the image, as ``Batch.placed`` contains them.

    Returns:
        Pipelines that result in the same tensor if they are applied one after the other. There is one pipeline for each
        resize.

    Raises:
        PipelineError: A random op cannot be replaced, or a tensor precedes a second resize.
    """
    chain = [op for node in training.nodes for op in fixed_ops(node.op, node.key, draws)]
    parts: list[list[ops.Op]] = [[]]
    for op in chain:
        if isinstance(op, Resizing) and resizing(parts[-1]):
            if any(isinstance(each, ops.Tensor) for each in parts[-1]):
                raise PipelineError(
                    f"{ops.op_name(op)}: a tensor before a second resize cannot be verified: remove that tensor"
                )
            parts[-1].append(ops.Tensor(dtype="uint8", layout="hwc", max_size=ops.MAX_SIDE))
            parts.append([ops.Decode(color=_color(chain), apply_exif_orientation=False)])
        parts[-1].append(op)
    return tuple(Pipeline(part, operators=training.operators) for part in parts)


def steps(parts: Sequence[Pipeline], encoded: bytes) -> Iterator[tuple[Pipeline, bytes, Batch]]:
    """Run the pipelines of ``settled`` one after the other.

    Args:
        parts: Pipelines to run.
        encoded: Encoded image, which is the input of the first pipeline.

    Yields:
        Each pipeline with its encoded input and its result. The input of a pipeline after the first one is the previous
        result, encoded as PNG.
    """
    for part in parts:
        with Engine(part, threads=1, odd_range=True) as engine:
            batch = engine.run_batch([encoded])
        if batch.errors[0] is not None:
            raise batch.errors[0]
        yield part, encoded, batch
        if part is not parts[-1]:
            levels = batch["tensor"][0][:, :, :: -1 if _color(part.side_ops) == "bgr" else 1]
            encoded = png(levels.squeeze(2) if levels.shape[2] == 1 else levels)


def _color(chain: Sequence[ops.Op]) -> Color:
    """Return the channel order of the decoded image."""
    decode = chain[0]
    assert isinstance(decode, ops.Decode)
    return decode.color


def _unerased(draws: Mapping[str, Words]) -> dict[str, Words]:
    """Return the random parameters without the rectangles of ``random_erasing``."""
    return {key: {"rectangles": []} if "rectangles" in words else words for key, words in draws.items()}
