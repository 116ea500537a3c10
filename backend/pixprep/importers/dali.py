"""NVIDIA DALI: the serialized graph of a ``@pipeline_def``, which dali_backend calls ``model.dali``.

DALI is not needed. What an operator does by default is what DALI 2.4 was seen to do. A file does not say which version
of DALI wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pixprep import wire
from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled
from pixprep.importers.dali_graph import Operator, graph
from pixprep.importers.dali_ops import OPERATORS, Image
from pixprep.importers.fields import Fields, place, read_file, reading
from pixprep.pipeline.ops import Op, Tensor, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Chroma

MAX_BYTES = 1 << 20

# Arguments of every operator that change no pixel.
_ANYWHERE = (
    *("device", "preserve", "preserve_name", "seed", "bytes_per_sample_hint", "image_type", "_module", "_display_name"),
    *("_origin_stack_filename", "_origin_stack_lineno", "_origin_stack_name", "_origin_stack_line"),
)


def from_dali(source: str | Path | bytes, *, output: str | None = None, chroma: Chroma | None = None) -> Pipeline:
    """The pipeline that a serialized DALI pipeline amounts to.

    Understood are ``decoders.image`` and ``image_crop``, ``resize``, ``crop``, ``crop_mirror_normalize``, ``normalize``
    by given numbers, ``flip``, ``rotate`` by right angles, ``pad`` to a given shape, ``transpose`` between HWC and CHW,
    ``cast``, ``copy``, and arithmetic with one number (``images / 255.``). Where the encoded image comes from does not
    matter. Each output becomes a ``tensor``: the only one ``tensor``, others under the names that the pipeline gave
    them, or ``tensor_0``, ``tensor_1``.

    Two things differ. DALI leaves an image that is larger than the shape of ``pad`` as it is; here it is refused. And
    values are those of its CPU operators, which its GPU ones were not compared with.

    Args:
        source: the file, or its bytes.
        output: the one output that is wanted; the operators that lead only to others need not be understood.
        chroma: of ``decode``, in place of the decoder's own, which is ``fast`` with device ``mixed`` unless the graph
            asks for fancy upsampling: ``fancy`` are the pixels of DALI's CPU decoder.

    Raises:
        PipelineError: it cannot be read, or something in it is not understood: names the operator and the argument.
    """
    where = "model.dali" if isinstance(source, bytes) else Path(source).name
    data = source if isinstance(source, bytes) else read_file(Path(source), most=MAX_BYTES)
    try:
        operators, names = graph(data, where)
    except wire.WireError as error:
        raise PipelineError(
            f'{where}: not a serialized DALI pipeline: {error}; pipe.serialize(filename="model.dali") writes one'
        ) from None
    if output is not None and output not in names:
        raise PipelineError(f"{where}: no output {quoted(output)}; there are {_listed(names)}")
    wanted = names if output is None else [output]
    try:
        with place(where):
            images = _evaluate(operators, wanted)
    except PipelineError as error:
        others = f"; if one output is enough, say which: {_listed(names)}" if len(wanted) > 1 else ""
        raise PipelineError(f"{error}{others}") from None
    tensors = [
        (*image.chain, Tensor(name=_tensor_name(wanted, index), dtype=image.dtype, layout=image.layout))
        for index, image in enumerate(images)
    ]
    ops = _merged(tensors)
    if chroma is not None:
        ops[0] = changed(ops[0], chroma=chroma)
    return assembled(ops, library="dali", version="unknown", name=where, where=where, like="dali")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:10])) + (", ..." if len(names) > 10 else "")


def _evaluate(operators: Sequence[Operator], wanted: Sequence[str]) -> list[Image]:
    """Evaluate the wanted tensors."""
    needed, images = _needed(operators, wanted), dict[str, Image]()
    for operator in operators:
        if needed.isdisjoint(operator.outputs):
            continue
        result = operator.outputs[0]
        if operator.name in ("ExternalSource", "readers__File"):
            images[result] = Image(result)
            continue
        with reading(operator.arguments, operator.where) as fields:
            fields.ignore(*_ANYWHERE)
            images[result] = _applied(operator, fields, images)
    for name in wanted:
        if name not in images or not images[name].chain:
            raise PipelineError(f"the output {quoted(name)} is no image")
    results = [images[name] for name in wanted]
    if len({(image.encoded, image.chain[0]) for image in results}) > 1:
        raise PipelineError("its outputs are decoded from several inputs, or in several ways: name one output")
    return results


def _needed(operators: Sequence[Operator], wanted: Sequence[str]) -> set[str]:
    """The names of all tensors that lead to the wanted ones."""
    needed = set(wanted)
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs)
    return needed


def _applied(operator: Operator, fields: Fields, images: Mapping[str, Image]) -> Image:
    """Apply an operator to its input."""
    if operator.name not in OPERATORS:
        raise PipelineError(f"is not understood; understood are {', '.join(OPERATORS)}")
    if operator.computed:
        raise PipelineError(f"argument {quoted(operator.computed[0])} is computed for each image, not a constant")
    if len(operator.inputs) != 1 or len(operator.outputs) != 1:
        raise PipelineError(f"{len(operator.inputs)} inputs and {len(operator.outputs)} outputs, expected one of each")
    (name,), apply = operator.inputs, OPERATORS[operator.name]
    is_decoder = "decoders__" in operator.name
    if name not in images or bool(images[name].chain) == is_decoder:
        raise PipelineError(f"its input {quoted(name)} is not {'the encoded' if is_decoder else 'a decoded'} image")
    return apply(images[name], fields)


# The list of ops


def _tensor_name(wanted: Sequence[str], index: int) -> str | None:
    """None for the only output; else the name that its author gave, which DALI's own begin with underscores."""
    if len(wanted) == 1:
        return None
    name = wanted[index]
    is_name = name.isascii() and name.isidentifier() and not name.startswith("_")
    return name if is_name else f"tensor_{index}"


def _merged(chains: Sequence[tuple[Op, ...]]) -> list[Op]:
    """Chains that begin alike as one list of ops: what they share stands once, and is named where they part."""
    ops: list[Op] = []
    places: dict[tuple[Op, ...], int] = {}
    for chain in chains:
        at = -1
        for length, op in enumerate(chain, 1):
            if chain[:length] not in places:
                taken = op
                if at != len(ops) - 1:
                    if ops[at].name is None:
                        ops[at] = changed(ops[at], name=f"branch_{at}")
                    taken = changed(op, from_=ops[at].name)
                places[chain[:length]] = len(ops)
                ops.append(taken)
            at = places[chain[:length]]
    return ops
