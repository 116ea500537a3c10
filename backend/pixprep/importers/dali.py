"""NVIDIA DALI: the serialized graph of a ``@pipeline_def``, which dali_backend calls ``model.dali``.

The file is a Protocol Buffers message; DALI is not needed to read it, and nothing in it is ever run. The numbers of the
fields are those of DALI's ``dali.proto``; what an operator does by default is what DALI 2.4 was seen to do. A file does
not say which version of DALI wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pixprep.data import wire
from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled
from pixprep.importers.fields import Fields, place, read_file, reading
from pixprep.ops import (
    CenterCrop,
    Crop,
    Decode,
    Flip,
    Normalize,
    Op,
    Pad,
    Resize,
    Rotate,
    Tensor,
    TensorDType,
    as_tuple,
)
from pixprep.ops.faults import quoted
from pixprep.pipeline import Pipeline
from pixprep.spec import Color, Filter, Layout, Rounding

MAX_BYTES = 1 << 20
MAX_OPERATORS, MAX_OUTPUTS = 256, 32

# The fields of dali.proto's messages, by number.
# name, device, is_argument_input, arg_name, dtype, ndim, layout
_EDGE: wire.Message = {1: "text", 2: "bytes", 3: "integer", 4: "text", 5: "integer", 6: "integer", 7: "bytes"}
# name, type, floats, ints, strings, booleans, is_vector; and extra_args, the elements of a list
_ELEMENT: wire.Message = {1: "text", 2: "bytes", 3: "float", 4: "integer", 5: "text", 6: "integer", 8: "integer"}
_ARGUMENT: wire.Message = {**_ELEMENT, 7: _ELEMENT}
# name, input, output, args, inst_name, logical_id
_OPERATOR: wire.Message = {1: "text", 2: _EDGE, 3: _EDGE, 4: _ARGUMENT, 5: "bytes", 6: "integer"}
_PIPELINE: wire.Message = {5: _OPERATOR, 7: _EDGE}  # op, pipe_outputs

# DALI's enumerations: DALIImageType, DALIInterpType, DALIDataType; and 0 and 1 for a boolean that can be a tensor.
_COLORS: dict[int, Color] = {0: "rgb", 1: "bgr", 2: "gray"}
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "lanczos", 4: "bilinear"}
_DTYPES: dict[int, TensorDType] = {0: "uint8", 8: "float16", 9: "float32"}
_FLOAT, _UINT8 = 9, 0
_NO_YES = {0: False, 1: True}
_ROUNDINGS: dict[str, Rounding] = {"round": "half_away", "truncate": "down"}
_MODES = {"default": "stretch", "stretch": "stretch", "not_larger": "fit", "not_smaller": "cover"}
_EXPRESSION = re.compile(r"(?P<name>fdiv|mul|add|sub)\((?:&0 \$0:(?P<type>float32|int32)|(?P<first>\$0:float32) &0)\)")
_LAYOUTS: dict[str, Layout] = {"CHW": "chw", "HWC": "hwc"}

# What changes no pixel, of every operator and of decoders.
_ANYWHERE = (
    *("device", "preserve", "preserve_name", "seed", "bytes_per_sample_hint", "image_type", "_module", "_display_name"),
    *("_origin_stack_filename", "_origin_stack_lineno", "_origin_stack_name", "_origin_stack_line"),
)
_OF_DECODERS = (
    *("affine", "cache_batch_copy", "cache_debug", "cache_size", "cache_threshold", "cache_type", "memory_stats"),
    *("device_memory_padding", "device_memory_padding_jpeg2k", "host_memory_padding", "host_memory_padding_jpeg2k"),
    *("hw_decoder_load", "hybrid_huffman_threshold", "preallocate_height_hint", "preallocate_width_hint"),
    *("split_stages", "use_chunk_allocator"),
)


def from_dali(source: str | Path | bytes, *, output: str | None = None) -> Pipeline:
    """The pipeline that a serialized DALI pipeline amounts to.

    Understood are ``decoders.image`` and ``image_crop``, ``resize``, ``crop``, ``crop_mirror_normalize``, ``normalize``
    by given numbers, ``flip``, ``rotate`` by right angles, ``pad`` to a given shape, ``transpose`` between HWC and CHW,
    ``cast``, ``copy``, and arithmetic with one number (``images / 255.``). Where the encoded image comes from does not
    matter. Each output becomes a ``tensor``: the only one ``tensor``, others under the names that the
    pipeline gave them, or ``tensor_0``, ``tensor_1``.

    Three things differ. DALI refuses an image that is smaller than the window of a crop, and the whole batch with it;
    ``center_crop`` after a resize fills up with zeros. DALI leaves an image that is larger than the shape of ``pad`` as
    it is; here it is refused. And values are those of its CPU operators, which its GPU ones
    were not compared with.

    Args:
        source: the file, or its bytes.
        output: the one output that is wanted; the operators that lead only to others need not be understood.

    Raises:
        PipelineError: it cannot be read, or something in it is not understood: names the operator and the argument.
    """
    where = "model.dali" if isinstance(source, bytes) else Path(source).name
    data = source if isinstance(source, bytes) else read_file(Path(source), most=MAX_BYTES)
    try:
        operators, names = _graph(data, where)
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
    return assembled(_merged(tensors), library="dali", version="unknown", name=where, where=where, like="dali")


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
        wire.WireError: it is something else.
        PipelineError: it is too large.
    """
    message = wire.read(data, _PIPELINE, is_open=True)  # the rest is how it is run
    if not message[5] or not message[7]:
        raise wire.WireError("it has no operator" if not message[5] else "it has no output")
    for what, limit, found in (("operators", MAX_OPERATORS, message[5]), ("outputs", MAX_OUTPUTS, message[7])):
        if len(found) > limit:
            raise PipelineError(f"{where}: {len(found):,} {what}; at most {limit}")
    operators = [_operator(number, entry, where) for number, entry in enumerate(message[5], 1)]
    return operators, [_one(edge[1]) for edge in message[7]]


def _operator(number: int, message: Mapping[int, list[Any]], where: str) -> _Operator:
    name = _one(message[1])
    arguments = dict(map(_argument, message[4]))
    if len(arguments) < len(message[4]):
        raise wire.WireError(f"an argument of operator {number} stands twice")
    return _Operator(
        name=name,
        where=f"{where}: operator {number} {quoted(name)}",
        inputs=tuple(_one(edge[1]) for edge in message[2] if not any(edge[3])),
        outputs=tuple(_one(edge[1]) for edge in message[3]),
        computed=tuple(_one(edge[4]) for edge in message[2] if any(edge[3])),
        arguments=arguments,
    )


def _argument(message: Mapping[int, list[Any]]) -> tuple[str, Any]:
    """An argument's name and value: a number, a boolean, a text, or a list of them."""
    values = [*message[3], *message[4], *message[5], *map(bool, message[6])]
    values += [_argument(element)[1] for element in message.get(7, ())]
    return _one(message[1]), values if any(message[8]) else _one(values)


def _one(values: Sequence[Any]) -> Any:
    if len(values) != 1:
        raise wire.WireError(f"a name, or the value of an argument, is there {len(values)} times")
    return values[0]


# What the operators do


@dataclass(frozen=True)
class _Image:
    """A tensor of the graph: an encoded image, or an image on its way.

    Attributes:
        encoded: the name of the encoded tensor.
        chain: the ops so far, from ``decode``; none of an encoded image.
        layout: of the array.
        dtype: of its values.
    """

    encoded: str
    chain: tuple[Op, ...] = ()
    layout: Layout = "hwc"
    dtype: TensorDType = "uint8"

    @property
    def is_normalized(self) -> bool:
        return any(isinstance(op, Normalize) for op in self.chain)

    def then(self, *ops: Op) -> _Image:
        return replace(self, chain=(*self.chain, *ops))

    def cast(self, fields: Fields, argument: str, default: int | None = None) -> _Image:
        """The same in another dtype, if no value changes before the last rounding."""
        to = fields.choice(argument, _DTYPES, default)
        if self.is_normalized and to == "uint8":
            fields.refuse(argument, "of normalized values is not understood: there is no such tensor")
        if to != self.dtype:
            self.check_unrounded(fields, argument)
        return replace(self, dtype=to)

    def check_unrounded(self, fields: Fields, argument: str) -> None:
        """Refuse to go on after values were rounded to float16."""
        if self.is_normalized and self.dtype == "float16":
            fields.refuse(argument, "after float16 is not understood: values are rounded once, at the end")


def _evaluate(operators: Sequence[_Operator], wanted: Sequence[str]) -> list[_Image]:
    """Evaluate the wanted tensors."""
    needed, images = _needed(operators, wanted), dict[str, _Image]()
    for operator in operators:
        if needed.isdisjoint(operator.outputs):
            continue
        result = operator.outputs[0]
        if operator.name in ("ExternalSource", "readers__File"):
            images[result] = _Image(result)
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


def _needed(operators: Sequence[_Operator], wanted: Sequence[str]) -> set[str]:
    """The names of all tensors that lead to the wanted ones."""
    needed = set(wanted)
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs)
    return needed


def _applied(operator: _Operator, fields: Fields, images: Mapping[str, _Image]) -> _Image:
    """Apply an operator to its input."""
    if operator.name not in _OPERATORS:
        raise PipelineError(f"is not understood; understood are {', '.join(_OPERATORS)}")
    if operator.computed:
        raise PipelineError(f"argument {quoted(operator.computed[0])} is computed for each image, not a constant")
    if len(operator.inputs) != 1 or len(operator.outputs) != 1:
        raise PipelineError(f"{len(operator.inputs)} inputs and {len(operator.outputs)} outputs, expected one of each")
    (name,), apply = operator.inputs, _OPERATORS[operator.name]
    is_decoder = "decoders__" in operator.name
    if name not in images or bool(images[name].chain) == is_decoder:
        raise PipelineError(f"its input {quoted(name)} is not {'the encoded' if is_decoder else 'a decoded'} image")
    return apply(images[name], fields)


def _decode(image: _Image, fields: Fields) -> _Image:
    """``decoders.image``: libjpeg-turbo's pixels on the CPU; on the GPU, by default, without fancy upsampling."""
    fields.ignore(*_OF_DECODERS)
    fields.expect("dtype", _UINT8, why="must be 0: images are decoded to uint8")
    on_cpu = fields.text("device", "cpu") == "cpu"
    is_fancy, is_fast = fields.flag("jpeg_fancy_upsampling"), fields.flag("use_fast_idct")
    is_upright = fields.flag("adjust_orientation", default=True)
    if is_fast and not on_cpu:
        fields.refuse("use_fast_idct", 'with device "mixed" holds for some images only')
    if is_fast and is_upright:
        fields.refuse("use_fast_idct", "holds for images that EXIF does not turn only: set adjust_orientation=False")
    return image.then(
        Decode(
            color=fields.choice("output_type", _COLORS, 0),
            apply_exif_orientation=is_upright,
            chroma="fancy" if on_cpu or is_fancy else "fast",
            idct="fast" if is_fast else "accurate",
        )
    )


def _resize(image: _Image, fields: Fields) -> _Image:
    fields.ignore("minibatch_size", "temp_buffer_hint")
    fields.off("save_attrs")
    if image.dtype != "uint8":
        raise PipelineError(f"a resize of {image.dtype} values is not understood: resize before they are cast")
    fields.expect("dtype", _UINT8, why="must be 0: a resized image is uint8")
    fields.ignore("interp_type")
    names = [name if fields.has(name) else "interp_type" for name in ("min_filter", "mag_filter")]
    smaller, larger = (fields.choice(name, _FILTERS, 1) for name in names)
    if smaller != larger:
        fields.refuse("min_filter", f"and {larger} when enlarging is not understood: there is one filter")
    antialias, is_subpixel = fields.flag("antialias", default=True), fields.flag("subpixel_scale", default=True)
    target = _target(fields)
    return image.then(
        Resize(
            **target,
            filter=smaller,
            antialias=antialias,
            like="dali",
            subpixel=None if target.get("mode") == "stretch" else is_subpixel,  # whole sides have one scale
        )
    )


def _target(fields: Fields) -> dict[str, Any]:
    """The size of a resize, as the fields of the op; DALI refuses two of the three ways at once."""
    names = ("resize_shorter", "resize_longer", "size", "resize_x", "resize_y")
    given = [name for name in names if fields.has(name)]
    mode = fields.choice("mode", _MODES, "default")
    if given in (["resize_shorter"], ["resize_longer"]) and fields.take("mode", "default") == "default":
        return {"size": fields.side(given[0]), "side": given[0].removeprefix("resize_")}
    if given == ["size"]:
        height, width = fields.pair("size")
    elif given == ["resize_x", "resize_y"]:
        height, width = fields.side("resize_y"), fields.side("resize_x")
    elif given in (["resize_x"], ["resize_y"]):
        fields.refuse(given[0], "without the other side is not understood")
    else:
        raise PipelineError(f"needs one size, and has {', '.join(given) or 'none'}")
    return {"height": height, "width": width, "mode": mode}


def _crop(image: _Image, fields: Fields) -> _Image:
    image = _cropped(image, fields)
    return image.cast(fields, "dtype") if fields.has("dtype") else image


def _cropped(image: _Image, fields: Fields) -> _Image:
    """The window of an operator that crops: none, or the middle, or the corner."""
    fields.ignore("fill_values")
    fields.expect("out_of_bounds_policy", "error")
    rounding = fields.choice("rounding", _ROUNDINGS, "round")
    top, left = fields.number("crop_pos_y", 0.5), fields.number("crop_pos_x", 0.5)
    if fields.has("crop"):
        height, width = fields.pair("crop")
    elif fields.has("crop_h") or fields.has("crop_w"):
        height, width = fields.side("crop_h"), fields.side("crop_w")
    else:
        return image
    if (top, left) == (0.5, 0.5):
        return image.then(CenterCrop(height, width, rounding=rounding))
    if (top, left) != (0.0, 0.0):
        fields.refuse("crop_pos_x" if left != 0.5 else "crop_pos_y", "is not understood: 0.5 is, or 0 for both")
    return image.then(Crop(0, 0, height, width))


def _crop_mirror_normalize(image: _Image, fields: Fields) -> _Image:
    """Crop, mirror, ``scale * (value - mean) / std + shift``, cast, and the layout."""
    image = _cropped(image, fields)
    if fields.choice("mirror", _NO_YES, 0):
        image = image.then(Flip("horizontal"))
    fields.off("pad_output")
    image = _normalized(image, fields, "std")
    dtype = "output_dtype" if fields.has("output_dtype") else "dtype"  # its name until DALI 1.0
    return replace(image.cast(fields, dtype, _FLOAT), layout=fields.choice("output_layout", _LAYOUTS, "CHW"))


def _normalize(image: _Image, fields: Fields) -> _Image:
    """``normalize`` by numbers, not by the image's own statistics."""
    for name in ("mean", "stddev"):
        if not fields.has(name):
            raise PipelineError(f'without "{name}" each image has its own, which is not understood')
    fields.expect("shift", 0)
    fields.off("batch")
    fields.ignore("ddof", "epsilon")
    return _normalized(image, fields, "stddev").cast(fields, "dtype", _FLOAT)


def _normalized(image: _Image, fields: Fields, std_name: str) -> _Image:
    """DALI's arithmetic, in float32: ``(value - (mean - shift * std / scale)) * (scale / std)``."""
    means = as_tuple(fields.numbers("mean", 0.0))
    stds = as_tuple(fields.numbers(std_name, 1.0, positive=True))
    scale, shift = fields.number("scale", 1.0), fields.number("shift", 0.0)
    if {*means} == {0.0} and {*stds} == {1.0} and (scale, shift) == (1.0, 0.0):
        return image
    image.check_unrounded(fields, "mean")
    if scale == 0:
        fields.refuse("scale", "must not be 0")
    if shift:
        count = max(len(means), len(stds))
        means, stds = (values * (count // len(values)) for values in (means, stds))
        means = tuple(mean - shift * std / scale for mean, std in zip(means, stds, strict=True))
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
    fields.expect("depthwise", 0)
    is_horizontal, is_vertical = fields.choice("horizontal", _NO_YES, 1), fields.choice("vertical", _NO_YES, 0)
    return image.then(*[Flip("horizontal")] * is_horizontal, *[Flip("vertical")] * is_vertical)


def _rotate(image: _Image, fields: Fields) -> _Image:
    """``rotate`` by right angles, where DALI computes no pixel; others are interpolated in a way of its own."""
    fields.ignore("fill_value", "interp_type")
    angle, keeps_size = fields.number("angle"), fields.flag("keep_size")
    if image.dtype != "uint8" or image.layout != "hwc":
        raise PipelineError(f"a rotation of {image.dtype} values in {image.layout.upper()} is not understood")
    if angle % 90 or (keeps_size and angle % 180):
        fields.refuse("angle", f"is not understood{' with keep_size' * (not angle % 90)}: right angles are")
    return image.then(*[Rotate(angle=angle % 360, expand=True)] * bool(angle % 360))


def _pad(image: _Image, fields: Fields) -> _Image:
    """``pad`` of height and width to a shape that is given; the image lies in the upper left corner."""
    axes = fields.take("axes", None) or [image.layout.upper().find(axis) for axis in fields.text("axis_names", "HWC")]
    if image.layout != "hwc" or axes != [0, 1] or image.is_normalized:
        raise PipelineError("a padding is understood of height and width in HWC, before values are normalized")
    if not fields.has("shape"):
        raise PipelineError('without "shape" it follows from the other images of a batch, which is not understood')
    fields.expect("align", [1, 1])
    height, width = fields.pair("shape")
    fill = fields.number("fill_value", 0.0)
    if not (0 <= fill <= 255 and fill.is_integer()):
        fields.refuse("fill_value", "must be a level, 0 to 255")
    return image.then(Pad(height=height, width=width, fill=int(fill), anchor="top_left"))


def _arithmetic(image: _Image, fields: Fields) -> _Image:
    """An expression of an image and one number, such as ``images / 255.``, in float32."""
    text = fields.text("expression_desc")
    match = _EXPRESSION.fullmatch(text)
    if match is None or (match["first"] and match["name"] not in ("mul", "add")):
        fields.refuse("expression_desc", "is not understood: an image with one number is, not taken from the number")
    name, kind = match["name"], "integer" if match["type"] == "int32" else "real"
    if kind == "integer" and image.dtype == "uint8" and name != "fdiv":
        fields.refuse("expression_desc", "gives whole numbers, which is not understood: write 127.0 for 127")
    image.check_unrounded(fields, "expression_desc")
    constant = fields.number(f"{kind}_constants")
    value = constant if kind == "integer" else _short(constant)
    if value == 0 and name in ("fdiv", "mul"):
        fields.refuse(f"{kind}_constants", "must not be 0")
    if name in ("fdiv", "mul"):
        made = Normalize(
            scale=value if name == "mul" else 1 / value, arithmetic="multiply" if name == "mul" else "divide"
        )
    else:
        made = Normalize(mean=value if name == "sub" else -value, scale=1.0, arithmetic="divide")
    return replace(image.then(made), dtype="float32")


def _transpose(image: _Image, fields: Fields) -> _Image:
    perm, axes = fields.take("perm", [2, 1, 0]), dict(enumerate(image.layout.upper()))
    turned = "".join(axes.get(index, "?") for index in (perm if isinstance(perm, list) else [perm]))
    if turned not in _LAYOUTS:
        fields.refuse("perm", f"must make HWC or CHW of an image in {image.layout.upper()}")
    if not fields.flag("transpose_layout", default=True) and not fields.has("output_layout"):
        fields.refuse("transpose_layout")
    fields.expect("output_layout", turned)
    return replace(image, layout=_LAYOUTS[turned])


_OPERATORS: dict[str, Callable[[_Image, Fields], _Image]] = {
    "decoders__Image": _decode,
    "experimental__decoders__Image": _decode,
    "decoders__ImageCrop": lambda image, fields: _cropped(_decode(image, fields), fields),
    "experimental__decoders__ImageCrop": lambda image, fields: _cropped(_decode(image, fields), fields),
    "Resize": _resize,
    "Crop": _crop,
    "CropMirrorNormalize": _crop_mirror_normalize,
    "Normalize": _normalize,
    "Flip": _flip,
    "Pad": _pad,
    "Rotate": _rotate,
    "Transpose": _transpose,
    "Cast": lambda image, fields: image.cast(fields, "dtype"),
    "Copy": lambda image, _: image,
    "_ArithmeticGenericOp": _arithmetic,
    "ArithmeticGenericOp": _arithmetic,
}


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
                        ops[at] = _changed(ops[at], name=f"branch_{at}")
                    taken = _changed(op, from_=ops[at].name)
                places[chain[:length]] = len(ops)
                ops.append(taken)
            at = places[chain[:length]]
    return ops


def _changed(op: Op, **fields: str | None) -> Op:
    return type(op)(**{name: getattr(op, name) for name in op.__struct_fields__} | fields)
