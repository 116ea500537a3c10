"""Several views of one image, each in a branch of the pipeline with its own random parameters."""

from __future__ import annotations

from collections.abc import Sequence

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import AnnotationOp, Op, OutputOp, Tensor, changed, op_name

MAX_VIEWS = 64


def views(name: str, count: int, ops: Sequence[Op], *, of: str = "photo") -> list[Op]:
    """Return the ops of several views of one image, which is decoded once.

    >>> import pixprep as pp
    >>> crop = [pp.random_resized_crop(96, scale=(0.05, 0.4)), pp.random_flip(), pp.tensor()]
    >>> pipeline = pp.Pipeline([pp.decode(name="photo"), *pp.views("local", 6, crop)])
    >>> list(pipeline.outputs)
    ['local_0', 'local_1', 'local_2', 'local_3', 'local_4', 'local_5']

    Every view has its own random parameters. The ops of a view belong to the training side, unless their field ``only``
    specifies a different side.

    Args:
        name: Prefix of the outputs' names, which is followed by the number of the view: ``local_0``. Except for a
            tensor without a ``name``, the op's name or type is also appended: ``local_0_mask``.
        count: Number of views, 1 to 64.
        ops: Ops of one view, from the image to its outputs.
        of: Name of the op whose image each view receives, such as the name of ``decode``.

    Returns:
        Ops of all views, for the list of a ``Pipeline``.

    Raises:
        PipelineError: ``count`` is out of range, the list does not contain a tensor, two outputs have the same name, an
            op has a ``from``, or an op that is not an output has a ``name``.
    """
    if not (isinstance(count, int) and 1 <= count <= MAX_VIEWS):
        raise PipelineError(f"views: count must be an integer from 1 to {MAX_VIEWS}, not {count!r}")
    outputs = [op.name or op_name(op) for op in ops if isinstance(op, OutputOp | AnnotationOp)]
    if not any(isinstance(op, Tensor) for op in ops) or len({*outputs}) < len(outputs):
        raise PipelineError(f"views: the ops must define a tensor, and outputs with different names, not {outputs}")
    kinds = OutputOp | AnnotationOp
    if named := next((op for op in ops if op.from_ or (op.name and not isinstance(op, kinds))), None):
        raise PipelineError(f'views: {op_name(named)} must not have "name" or "from", because each view repeats the op')
    made: list[Op] = []
    for view in range(count):
        for index, op in enumerate(ops):
            end = op.name or ("" if isinstance(op, Tensor) else op_name(op))
            new = f"{name}_{view}" + f"_{end}" * bool(end) if isinstance(op, kinds) else None
            only = op.only or (None if op.home else "training")
            made.append(changed(op, name=new, from_=None if index else of, only=only))
    return made
