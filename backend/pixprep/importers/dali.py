"""NVIDIA DALI: the serialized graph of a ``@pipeline_def``, which dali_backend calls ``model.dali``.

The file is a Protocol Buffers message; DALI is not needed to read it, and nothing in it is ever run. The numbers of the
fields are those of DALI's ``dali.proto``; what an operator does by default is what DALI 2.4 was seen to do. A file does
not say which version of DALI wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers import wire
from pixprep.importers.fields import Fields
from pixprep.ops import CenterCrop, Crop, Decode, Flip, Normalize, Op, Resize, Tensor, TensorDType
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Source, quoted
from pixprep.spec import Color, Filter, Layout, Rounding

MAX_BYTES = 1 << 20
MAX_OPERATORS, MAX_OUTPUTS = 256, 32

_PIPELINE: dict[int, wire.Kind] = {5: "bytes", 7: "bytes"}  # op, pipe_outputs
_OPERATOR: dict[int, wire.Kind] = {
    1: "bytes",  # name
    2: "bytes",  # input
    3: "bytes",  # output
    4: "bytes",  # args
    5: "bytes",  # inst_name
    6: "integer",  # logical_id
}
_EDGE: dict[int, wire.Kind] = {
    1: "bytes",  # name
    2: "bytes",  # device
    3: "integer",  # is_argument_input
    4: "bytes",  # arg_name
    5: "integer",  # dtype
    6: "integer",  # ndim
    7: "bytes",  # layout
}
_ARGUMENT: dict[int, wire.Kind] = {
    1: "bytes",  # name
    2: "bytes",  # type
    3: "float",
    4: "integer",
    5: "bytes",
    6: "integer",  # of booleans
    7: "bytes",  # extra_args: the elements of a list, each an argument
    8: "integer",  # is_vector
}

# DALI's enumerations: DALIImageType, DALIInterpType, DALIDataType.
_COLORS: dict[int, Color] = {0: "rgb", 1: "bgr", 2: "gray"}
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "lanczos", 4: "bilinear"}
_TRIANGULAR = 4  # always antialiased
_DTYPES: dict[int, TensorDType] = {0: "uint8", 8: "float16", 9: "float32"}
_ROUNDINGS: dict[str, Rounding] = {"round": "half_away", "truncate": "down"}

# What changes no pixel, of every operator and of some.
_ANYWHERE = (
    "device",
    "preserve",
    "preserve_name",
    "seed",
    "bytes_per_sample_hint",
    "image_type",
    "_module",
    "_display_name",
    "_origin_stack_filename",
    "_origin_stack_lineno",
    "_origin_stack_name",
    "_origin_stack_line",
)
_OF_DECODERS = (
    "affine",
    "cache_batch_copy",
    "cache_debug",
    "cache_size",
    "cache_threshold",
    "cache_type",
    "device_memory_padding",
    "device_memory_padding_jpeg2k",
    "host_memory_padding",
    "host_memory_padding_jpeg2k",
    "hw_decoder_load",
    "hybrid_huffman_threshold",
    "memory_stats",
    "preallocate_height_hint",
    "preallocate_width_hint",
    "split_stages",
    "use_chunk_allocator",
)


def from_dali(source: str | Path | bytes, *, output: str | None = None) -> Pipeline:
    """The pipeline that a serialized DALI pipeline amounts to.

    Understood are ``decoders.image`` and ``image_crop``, ``resize``, ``crop``, ``crop_mirror_normalize``, ``normalize``
    by given numbers, ``flip``, ``transpose`` between HWC and CHW, ``cast`` and ``copy``. Where the encoded image comes
    from does not matter. Each output becomes a ``tensor``: the only one ``tensor``, others under the names that the
    pipeline gave them, or ``tensor_0``, ``tensor_1``.

    Two things differ. DALI refuses an image that is smaller than the window of a crop, and the whole batch with it;
    ``center_crop`` after a resize fills up with zeros. And values are those of its CPU operators, which its GPU ones
    were not compared with.

    Args:
        source: the file, or its bytes.
        output: the one output that is wanted; the operators that lead only to others need not be understood.

    Raises:
        PipelineError: it cannot be read, or something in it is not understood: names the operator and the argument.
    """
    where = "model.dali" if isinstance(source, bytes) else Path(source).name
    data = source if isinstance(source, bytes) else _read(Path(source), where)
    if len(data) > MAX_BYTES:
        raise PipelineError(f"{where}: more than {MAX_BYTES:,} bytes; the graph of a pipeline takes a few thousand")
    try:
        operators, names = _graph(data, where)
    except (wire.WireError, UnicodeDecodeError) as error:
        raise PipelineError(f"{where}: not a serialized DALI pipeline: {error}") from None
    if output is not None and output not in names:
        raise PipelineError(f"{where}: no output {quoted(output)}; there are {_listed(names)}")
    wanted = names if output is None else [output]
    try:
        images = _evaluate(operators, wanted, where)
    except PipelineError as error:
        others = f"; if one output is enough, say which: {_listed(names)}" if len(wanted) > 1 else ""
        raise PipelineError(f"{error}{others}") from None
    tensors = [image.tensor(_tensor_name(wanted, index)) for index, image in enumerate(images)]
    try:
        return Pipeline(
            _merged(tensors),
            source=Source(library="dali", version="unknown", name=where[:200] or "model.dali", profile="dali"),
        )
    except PipelineError as error:
        raise PipelineError(f"{where}: {error}") from None


load = from_dali


def _read(path: Path, where: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{where}: cannot be read: {error.strerror}") from None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:10])) + (", ..." if len(names) > 10 else "")


# The graph


@dataclass(frozen=True)
class _Operator:
    """One operator of the graph.

    Attributes:
        where: how messages call it.
        inputs, outputs: names of tensors.
        computed: names of arguments that a tensor gives.
    """

    name: str
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    computed: tuple[str, ...]
    arguments: Mapping[str, Any]


def _graph(data: bytes, where: str) -> tuple[list[_Operator], list[str]]:
    """The operators in their order, each after those whose output it takes, and the names of the outputs.

    Raises:
        wire.WireError, UnicodeDecodeError: it is something else.
        PipelineError: it is too large.
    """
    message = wire.read(data, _PIPELINE, is_open=True)  # the rest is how it is run
    if not message[5] or not message[7]:
        raise wire.WireError("it has no operator" if not message[5] else "it has no output")
    for what, limit, found in (("operators", MAX_OPERATORS, message[5]), ("outputs", MAX_OUTPUTS, message[7])):
        if len(found) > limit:
            raise PipelineError(f"{where}: {len(found):,} {what}; at most {limit}")
    operators = [_operator(number, entry, where) for number, entry in enumerate(message[5], 1)]
    return operators, [_text(wire.read(edge, _EDGE)[1]) for edge in message[7]]


def _operator(number: int, data: bytes, where: str) -> _Operator:
    message = wire.read(data, _OPERATOR)
    name = _text(message[1])
    where = f"{where}: operator {number} {quoted(name)}"
    inputs = [wire.read(edge, _EDGE) for edge in message[2]]
    arguments: dict[str, Any] = {}
    for entry in message[4]:
        key, value = _argument(entry)
        if key in arguments:
            raise wire.WireError(f"the argument {quoted(key)} of operator {number} stands twice")
        arguments[key] = value
    return _Operator(
        name=name,
        where=where,
        inputs=tuple(_text(edge[1]) for edge in inputs if not any(edge[3])),
        outputs=tuple(_text(wire.read(edge, _EDGE)[1]) for edge in message[3]),
        computed=tuple(_text(edge[4]) for edge in inputs if any(edge[3])),
        arguments=arguments,
    )


def _argument(data: bytes, *, is_element: bool = False) -> tuple[str, Any]:
    """An argument's name and value: a number, a boolean, a text, or a list of them."""
    message = wire.read(data, _ARGUMENT)
    name = _text(message[1])
    if not is_element and not (name.isascii() and name.isidentifier()):
        raise wire.WireError(f"an argument cannot be called {quoted(name)}")
    values: list[Any] = [*message[3], *message[4], *map(_decoded, message[5]), *map(bool, message[6])]
    if message[7] and (is_element or values):
        raise wire.WireError(f"the argument {quoted(name)} is neither a value nor a list of values")
    if any(message[8]):
        return name, values + [_argument(entry, is_element=True)[1] for entry in message[7]]
    if len(values) != 1:
        raise wire.WireError(f"the argument {quoted(name)} has {len(values)} values")
    return name, values[0]


def _text(values: Sequence[bytes]) -> str:
    if len(values) != 1:
        raise wire.WireError(f"a name is there {len(values)} times")
    return _decoded(values[0])


def _decoded(value: bytes) -> str:
    return value.decode()


# What the operators do


@dataclass(frozen=True)
class _Image:
    """What an operator gives: an image on its way.

    Attributes:
        source: the name of the encoded tensor.
        chain: the ops so far, from ``decode``.
        layout: of the array.
        dtype: of its values.
    """

    source: str
    chain: tuple[Op, ...]
    layout: Literal["HWC", "CHW"] = "HWC"
    dtype: TensorDType = "uint8"

    @property
    def is_normalized(self) -> bool:
        return any(isinstance(op, Normalize) for op in self.chain)

    def then(self, *ops: Op) -> _Image:
        return replace(self, chain=(*self.chain, *ops))

    def cast(self, fields: Fields, argument: str, dtype: int) -> _Image:
        """The same in another dtype, if no value changes before the last rounding."""
        if dtype not in _DTYPES:
            fields.refuse(argument)
        to = _DTYPES[dtype]
        if self.is_normalized and to == "uint8":
            fields.refuse(argument, "of normalized values is not understood: there is no such tensor")
        self.check_unrounded(fields, argument, is_last=to == self.dtype)
        return replace(self, dtype=to)

    def check_unrounded(self, fields: Fields, argument: str, *, is_last: bool = False) -> None:
        """Refuse to go on after values were rounded to float16."""
        if self.is_normalized and self.dtype == "float16" and not is_last:
            fields.refuse(argument, "after float16 is not understood: values are rounded once, at the end")

    def tensor(self, name: str | None) -> tuple[Op, ...]:
        layout: Layout = "chw" if self.layout == "CHW" else "hwc"
        return (*self.chain, Tensor(name=name, dtype=self.dtype, layout=layout))


def _evaluate(operators: Sequence[_Operator], wanted: Sequence[str], where: str) -> list[_Image]:
    """What each wanted tensor is."""
    needed, encoded, images = _needed(operators, wanted), set[str](), dict[str, _Image]()
    for operator in operators:
        if needed.isdisjoint(operator.outputs):
            continue
        if operator.name in ("ExternalSource", "readers__File"):
            encoded.add(operator.outputs[0])
            continue
        fields = Fields(operator.arguments, operator.where)
        fields.ignore(*_ANYWHERE)
        try:
            image = _applied(operator, fields, encoded, images)
            fields.finish()
        except PipelineError as error:  # of an op, which knows no place
            known = str(error).startswith(f"{operator.where}: ")
            raise PipelineError(str(error) if known else f"{operator.where}: {error}") from None
        images[operator.outputs[0]] = image
    for name in wanted:
        if name not in images:
            raise PipelineError(f"{where}: the output {quoted(name)} is no image")
    results = [images[name] for name in wanted]
    if len({(image.source, image.chain[0]) for image in results}) > 1:
        raise PipelineError(
            f"{where}: its outputs are decoded from several inputs, or in several ways: name one output"
        )
    return results


def _needed(operators: Sequence[_Operator], wanted: Sequence[str]) -> set[str]:
    """The names of all tensors that lead to the wanted ones."""
    needed = set(wanted)
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs)
    return needed


def _applied(operator: _Operator, fields: Fields, encoded: set[str], images: Mapping[str, _Image]) -> _Image:
    """What an operator makes of its input."""
    decode, apply = _DECODERS.get(operator.name), _OPERATORS.get(operator.name)
    if decode is None and apply is None:
        raise PipelineError(f"is not understood; understood are {', '.join([*_DECODERS, *_OPERATORS])}")
    if operator.computed:
        raise PipelineError(f"argument {quoted(operator.computed[0])} is computed for each image, not a constant")
    if len(operator.inputs) != 1 or len(operator.outputs) != 1:
        raise PipelineError(f"{len(operator.inputs)} inputs and {len(operator.outputs)} outputs, expected one of each")
    (name,) = operator.inputs
    if decode is not None:
        if name not in encoded:
            raise PipelineError(f"its input {quoted(name)} is not the encoded image")
        return _Image(name, decode(fields))
    if name not in images:
        raise PipelineError(f"its input {quoted(name)} is not a decoded image")
    assert apply is not None
    return apply(images[name], fields)


def _decode(fields: Fields) -> tuple[Op, ...]:
    """``decoders.image``: libjpeg-turbo's pixels on the CPU; on the GPU, by default, without fancy upsampling."""
    fields.ignore(*_OF_DECODERS)
    output_type = fields.take("output_type", int, default=0)
    if output_type not in _COLORS:
        fields.refuse("output_type")
    if fields.take("dtype", int, default=0) != 0:
        fields.refuse("dtype", "is not understood: images are decoded to UINT8")
    on_cpu = fields.take("device", str, default="cpu") == "cpu"
    is_fancy = fields.take("jpeg_fancy_upsampling", bool, default=False)
    is_fast = fields.take("use_fast_idct", bool, default=False)
    if is_fast and not on_cpu:
        fields.refuse("use_fast_idct", 'with device "mixed" holds for some images only')
    decode = Decode(
        color=_COLORS[output_type],
        apply_exif_orientation=fields.take("adjust_orientation", bool, default=True),
        chroma="fancy" if on_cpu or is_fancy else "fast",
        idct="fast" if is_fast else "accurate",
    )
    return (decode,)


def _decode_crop(fields: Fields) -> tuple[Op, ...]:
    """``decoders.image_crop``: decodes, then crops."""
    return (*_decode(fields), *_crop_ops(fields))


def _resize(image: _Image, fields: Fields) -> _Image:
    fields.ignore("minibatch_size", "temp_buffer_hint")
    if fields.take("save_attrs", bool, default=False):
        fields.refuse("save_attrs")
    if image.dtype != "uint8":
        raise PipelineError(f"a resize of {image.dtype} values is not understood: resize before they are cast")
    if fields.take("dtype", int, default=0) != 0:
        fields.refuse("dtype", "is not understood: a resized image is UINT8")
    interp = fields.take("interp_type", int, default=1)
    filters = [fields.take(name, int, default=interp) for name in ("min_filter", "mag_filter")]
    for name, value in zip(("min_filter", "mag_filter"), filters, strict=True):
        if value not in _FILTERS:
            fields.refuse("interp_type" if value == interp else name)
    if _FILTERS[filters[0]] != _FILTERS[filters[1]]:
        fields.refuse("min_filter", f"and {_FILTERS[filters[1]]} when enlarging is not understood: there is one filter")
    antialias = fields.take("antialias", bool, default=True)
    is_subpixel = fields.take("subpixel_scale", bool, default=True)
    target = _target(fields)
    return image.then(
        Resize(
            **target,
            filter=_FILTERS[filters[0]],
            antialias=antialias or filters[0] == _TRIANGULAR,
            like="dali",
            subpixel=None if target.get("mode") == "stretch" else is_subpixel,  # whole sides have one scale
        )
    )


def _target(fields: Fields) -> dict[str, Any]:
    """The size of a resize, as the fields of the op; DALI refuses two of the three ways at once."""
    given = [name for name in ("resize_shorter", "resize_longer", "size", "resize_x", "resize_y") if _has(fields, name)]
    mode = fields.take("mode", str, default="default")
    if mode not in ("default", "stretch", "not_larger", "not_smaller"):
        fields.refuse("mode")
    if given in (["resize_shorter"], ["resize_longer"]) and mode == "default":
        side = "shorter" if given == ["resize_shorter"] else "longer"
        return {"size": _whole(fields, given[0]), "side": side}
    if given == ["size"]:
        height, width = _pair(fields, "size")
    elif given == ["resize_x", "resize_y"]:
        height, width = _whole(fields, "resize_y"), _whole(fields, "resize_x")
    elif given in (["resize_x"], ["resize_y"]):
        fields.refuse(given[0], "without the other side is not understood")
    else:
        raise PipelineError(f"needs one size, and has {', '.join(given) or 'none'}")
    modes = {"not_larger": "fit", "not_smaller": "cover"}
    return {"height": height, "width": width, "mode": modes.get(mode, "stretch")}


def _crop(image: _Image, fields: Fields) -> _Image:
    image = image.then(*_crop_ops(fields))
    dtype = fields.take("dtype", int)
    return image if dtype is None else image.cast(fields, "dtype", dtype)


def _crop_ops(fields: Fields) -> tuple[Op, ...]:
    """The window of an operator that crops: none, or the middle, or the corner."""
    fields.ignore("fill_values")
    if fields.take("out_of_bounds_policy", str, default="error") != "error":
        fields.refuse("out_of_bounds_policy")
    rounding = fields.take("rounding", str, default="round")
    if rounding not in _ROUNDINGS:
        fields.refuse("rounding")
    position = tuple(fields.take(name, float, default=0.5) for name in ("crop_pos_y", "crop_pos_x"))
    if _has(fields, "crop"):
        height, width = _pair(fields, "crop")
    elif _has(fields, "crop_h") or _has(fields, "crop_w"):
        height, width = _whole(fields, "crop_h"), _whole(fields, "crop_w")
    else:
        return ()
    if position == (0.5, 0.5):
        return (CenterCrop(height, width, rounding=_ROUNDINGS[rounding]),)
    if position != (0.0, 0.0):
        fields.refuse("crop_pos_x" if position[1] != 0.5 else "crop_pos_y", "is not understood: 0.5 is, or 0 for both")
    return (Crop(0, 0, height, width),)


def _crop_mirror_normalize(image: _Image, fields: Fields) -> _Image:
    """Crop, mirror, ``scale * (value - mean) / std + shift``, cast, and the layout."""
    image = image.then(*_crop_ops(fields))
    if fields.take("mirror", int, default=0):
        image = image.then(Flip("horizontal"))
    if fields.take("pad_output", bool, default=False):
        fields.refuse("pad_output")
    image = _normalized(image, fields, "std")
    name = "output_dtype" if _has(fields, "output_dtype") else "dtype"  # its name until DALI 1.0
    image = image.cast(fields, name, fields.take(name, int, default=9))
    layout = fields.take("output_layout", str, default="CHW")
    if layout not in ("CHW", "HWC"):
        fields.refuse("output_layout")
    return replace(image, layout=layout)


def _normalize(image: _Image, fields: Fields) -> _Image:
    """``normalize`` by numbers, not by the image's own statistics."""
    for name in ("mean", "stddev"):
        if not _has(fields, name):
            raise PipelineError(f'without "{name}" each image has its own, which is not understood')
    if fields.take("shift", (int, float), default=0.0):
        fields.refuse("shift")
    if fields.take("batch", bool, default=False):
        fields.refuse("batch")
    fields.ignore("ddof", "epsilon")
    return _normalized(image, fields, "stddev").cast(fields, "dtype", fields.take("dtype", int, default=9))


def _normalized(image: _Image, fields: Fields, std_name: str) -> _Image:
    """DALI's arithmetic, in float32: ``(value - (mean - shift * std / scale)) * (scale / std)``."""
    means, stds = _numbers(fields, "mean", 0.0), _numbers(fields, std_name, 1.0)
    scale, shift = (float(fields.take(name, (int, float), default=x)) for name, x in (("scale", 1.0), ("shift", 0.0)))
    if {*means} == {0.0} and {*stds} == {1.0} and (scale, shift) == (1.0, 0.0):
        return image
    image.check_unrounded(fields, "mean")
    if scale == 0 or 0 in stds:
        fields.refuse("scale" if scale == 0 else std_name, "cannot divide")
    count = max(len(means), len(stds)) if shift else 1
    if shift and count > 1:
        means, stds = (values * (count if len(values) == 1 else 1) for values in (means, stds))
    if shift and len(means) == len(stds):
        means = [mean - shift * std / scale for mean, std in zip(means, stds, strict=True)]
    return image.then(
        Normalize(
            mean=tuple(_short(mean) * scale for mean in means),
            std=tuple(_short(std, scale) for std in stds),
            scale=scale,
            arithmetic="fused_multiply",
        )
    )


def _short(value: float, dividend: float | None = None) -> float:
    """The decimal fraction that a float32 was written as, where it gives the same constant (``dividend`` by it)."""
    short = float(str(np.float32(value)))
    if dividend is not None and np.float32(dividend / short) != np.float32(dividend / value):
        return value
    return short


def _flip(image: _Image, fields: Fields) -> _Image:
    if fields.take("depthwise", int, default=0):
        fields.refuse("depthwise")
    axes: list[tuple[Literal["horizontal", "vertical"], int]] = [("horizontal", 1), ("vertical", 0)]
    return image.then(*(Flip(axis) for axis, default in axes if fields.take(axis, int, default=default)))


def _transpose(image: _Image, fields: Fields) -> _Image:
    perm = _numbers(fields, "perm", 2.0) if _has(fields, "perm") else [2.0, 1.0, 0.0]
    layouts: dict[tuple[str, ...], Literal["HWC", "CHW"]] = {tuple("HWC"): "HWC", tuple("CHW"): "CHW"}
    axes = tuple(image.layout[int(index)] for index in perm if index in (0, 1, 2))
    if len(perm) != 3 or axes not in layouts:
        raise PipelineError(f'"perm": {[int(index) for index in perm]} of an image in {image.layout} is not understood')
    layout = layouts[axes]
    if not fields.take("transpose_layout", bool, default=True) and not _has(fields, "output_layout"):
        fields.refuse("transpose_layout")
    if fields.take("output_layout", str, default=layout) != layout:
        fields.refuse("output_layout", f"of an image in {layout} is not understood")
    return replace(image, layout=layout)


def _cast(image: _Image, fields: Fields) -> _Image:
    return image.cast(fields, "dtype", fields.take("dtype", int, default=-1))


def _copy(image: _Image, fields: Fields) -> _Image:
    del fields
    return image


_DECODERS: dict[str, Callable[[Fields], tuple[Op, ...]]] = {
    "decoders__Image": _decode,
    "experimental__decoders__Image": _decode,
    "decoders__ImageCrop": _decode_crop,
    "experimental__decoders__ImageCrop": _decode_crop,
}
_OPERATORS: dict[str, Callable[[_Image, Fields], _Image]] = {
    "Resize": _resize,
    "Crop": _crop,
    "CropMirrorNormalize": _crop_mirror_normalize,
    "Normalize": _normalize,
    "Flip": _flip,
    "Transpose": _transpose,
    "Cast": _cast,
    "Copy": _copy,
}


def _has(fields: Fields, name: str) -> bool:
    return fields.take(name, (int, float, str, bool, list)) is not None


def _numbers(fields: Fields, name: str, default: float) -> list[float]:
    value = fields.take(name, (int, float, list), default=default)
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(x, int | float) and not isinstance(x, bool) and np.isfinite(x) for x in values):
        fields.refuse(name, "must be a number, or some")
    return [float(x) for x in values]


def _whole(fields: Fields, name: str) -> int:
    (value, *more) = _numbers(fields, name, 0.0)
    if more or value < 1 or not value.is_integer():
        fields.refuse(name, "must be a whole number from 1")
    return int(value)


def _pair(fields: Fields, name: str) -> tuple[int, int]:
    values = _numbers(fields, name, 0.0)
    if len(values) > 2 or any(value < 1 or not value.is_integer() for value in values):
        fields.refuse(name, "must be a height and a width, whole numbers from 1")
    return int(values[0]), int(values[-1])


# The list of ops


def _tensor_name(wanted: Sequence[str], index: int) -> str | None:
    """None for the only output; else the name that its author gave, which DALI's own begin with underscores."""
    if len(wanted) == 1:
        return None
    name = wanted[index]
    return name if name.isidentifier() and not name.startswith("_") else f"tensor_{index}"


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
                        ops[at] = _changed(ops[at], name=f"branch_{at}")
                    taken = _changed(op, from_=ops[at].name)
                places[chain[:length]] = len(ops)
                ops.append(taken)
            at = places[chain[:length]]
    return ops


def _changed(op: Op, **fields: str | None) -> Op:
    return type(op)(**{name: getattr(op, name) for name in op.__struct_fields__} | fields)
