"""Keras: the ``preprocess_input`` of its applications, and the preprocessing layers of a saved model.

Read without Keras. The facts are those of Keras 3.15 on TensorFlow, channels last; a file of Keras 2 reads the same.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.fields import MAX_BYTES, Fields, installed_version, parse_json, read_json
from pixprep.ops import CenterCrop, Decode, Normalize, Op, Reals, Resize, Tensor
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Source, quoted
from pixprep.presets import IMAGENET_MEAN, IMAGENET_STD
from pixprep.spec import Filter

Mode = Literal["caffe", "tf", "torch", "none"]
Loader = Literal["load_img", "image_dataset", "decode_image"]
Place = Literal["pipeline", "model"]
Size = int | tuple[int, int] | None

APPLICATIONS: dict[str, tuple[Mode, int]] = {
    **dict.fromkeys(("VGG16", "VGG19", "ResNet50", "ResNet101", "ResNet152"), ("caffe", 224)),
    **dict.fromkeys(("ResNet50V2", "ResNet101V2", "ResNet152V2"), ("tf", 224)),
    **dict.fromkeys(("InceptionV3", "InceptionResNetV2", "Xception"), ("tf", 299)),
    **dict.fromkeys(("MobileNet", "MobileNetV2", "NASNetMobile"), ("tf", 224)),
    "NASNetLarge": ("tf", 331),
    **dict.fromkeys(("DenseNet121", "DenseNet169", "DenseNet201"), ("torch", 224)),
    **dict.fromkeys(("MobileNetV3Small", "MobileNetV3Large"), ("none", 224)),
    **{f"EfficientNetB{n}": ("none", side) for n, side in enumerate((224, 240, 260, 300, 380, 456, 528, 600))},
    **{f"EfficientNetV2B{n}": ("none", side) for n, side in enumerate((224, 240, 260, 300))},
    "EfficientNetV2S": ("none", 384),
    **dict.fromkeys(("EfficientNetV2M", "EfficientNetV2L"), ("none", 480)),
    **{f"ConvNeXt{size}": ("none", 224) for size in ("Tiny", "Small", "Base", "Large", "XLarge")},
}
"""The mode of each application's ``preprocess_input`` and the side of its default input.

``none``: the model rescales by itself, unless it was made with ``include_preprocessing=False``.
"""

AUGMENTATIONS = frozenset(
    (
        *("AugMix", "CutMix", "MixUp", "RandAugment", "RandomBrightness", "RandomColorDegeneration"),
        *("RandomColorJitter", "RandomContrast", "RandomElasticTransform", "RandomErasing", "RandomFlip"),
        *("RandomGaussianBlur", "RandomGrayscale", "RandomHue", "RandomInvert", "RandomPerspective"),
        *("RandomPosterization", "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear"),
        *("RandomTranslation", "RandomZoom"),
    )
)
"""Layers that do nothing at inference; ``RandomCrop`` is none of them: there it resizes."""

_LARGEST = 3.4e38  # of float32
_EPSILON = np.float32(1e-7)  # keras.backend.epsilon(): the least standard deviation of Normalization


def from_keras(
    source: str | Path | Mapping[str, Any],
    *,
    loader: Loader = "load_img",
    size: Size = None,
    layers: Place | None = None,
) -> Pipeline:
    """The pipeline of what loads the images of a Keras model and prepares them, as float32 hwc.

    The arithmetic is what Keras does eagerly or in NumPy, bit for bit. TensorFlow compiles the divisions of
    ``preprocess_input`` inside a ``tf.function`` to multiplications, whose last bit differs in half of the values.
    No loader of Keras applies the EXIF orientation.

    Args:
        source: an application, such as ``"resnet50"`` or ``"EfficientNetV2-B0"``; a ``.keras`` file; a ``.json`` file
            of ``model.to_json()``, or what is in it, as a mapping.
        loader: what makes arrays of image files. ``load_img``: ``keras.utils.load_img`` with ``target_size``: Pillow,
            whose default filter is ``nearest``; ``image_dataset``: ``image_dataset_from_directory``: TensorFlow's
            decoder and bilinear filter; ``decode_image``: TensorFlow's decoder, and the model's own layers resize.
        size: that the loader resizes to: height and width, or the side of a square. Default: of an application its
            own; of a model the shape of its input, unless a ``Resizing`` layer resizes.
        layers: of a file: where its preprocessing layers run. ``model``: where they are; the pipeline only loads.
            ``pipeline``: here, up to the first layer that is none of them; so export the model from that layer on.
            Where a model has nothing but preprocessing layers, ``pipeline`` is the default; else one must be chosen.

    Raises:
        PipelineError: a layer, a field of one or an argument is not understood; the file cannot be read.
    """
    if loader not in ("load_img", "image_dataset", "decode_image"):
        raise PipelineError(f'loader: {quoted(loader)} is not one of "load_img", "image_dataset", "decode_image"')
    if layers not in (None, "pipeline", "model"):
        raise PipelineError(f'layers: {quoted(layers)} is not one of "pipeline", "model"')
    if isinstance(source, Mapping):
        return _of_model(source, "config", version="unknown", loader=loader, size=size, place=layers)
    if isinstance(source, Path) or source.endswith((".keras", ".json")):
        path = Path(source)
        config, version = (read_json(path), "unknown") if path.suffix == ".json" else _read_archive(path)
        return _of_model(config, path.name, version=version, loader=loader, size=size, place=layers)
    if layers is not None:
        raise PipelineError("layers: an application has none that could run elsewhere; it goes with a file")
    return _of_application(source, loader, size)


load = from_keras


def _of_application(name: str, loader: Loader, size: Size) -> Pipeline:
    known = {_plain(application): entry for application, entry in APPLICATIONS.items()}
    if _plain(name) not in known:
        raise PipelineError(
            f"{quoted(name)} is no application of Keras, nor a .keras or .json file; "
            f"there are {', '.join(APPLICATIONS)}"
        )
    mode, side = known[_plain(name)]
    ops = [_decode(loader, bgr=mode == "caffe"), _loaded(loader, _pair("size", side if size is None else size))]
    return _pipeline([*ops, *_preprocess_input(mode)], loader, installed_version("keras"), name)


def _plain(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()


def _preprocess_input(mode: Mode) -> list[Op]:
    """imagenet_utils.py."""
    if mode == "caffe":
        return [Normalize(scale=1, mean=(103.939, 116.779, 123.68), arithmetic="divide")]
    if mode == "tf":
        return [Normalize(scale=1 / 127.5, mean=1, arithmetic="divide")]
    return [] if mode == "none" else [Normalize(mean=IMAGENET_MEAN, std=IMAGENET_STD, arithmetic="divide")]


def _decode(loader: Loader, *, bgr: bool = False) -> Decode:
    return Decode(
        color="bgr" if bgr else "rgb",
        apply_exif_orientation=False,
        idct="accurate" if loader == "load_img" else "fast",
    )


def _loaded(loader: Loader, size: tuple[int, int]) -> Resize:
    if loader == "decode_image":
        raise PipelineError(
            'loader: "decode_image" does not resize, nor does a layer here, and a tensor has one size: take another'
        )
    height, width = size
    if loader == "load_img":
        return Resize(height=height, width=width, filter="nearest")
    return Resize(height=height, width=width, like="tensorflow")


def _pipeline(ops: list[Op], loader: Loader, version: str, name: str) -> Pipeline:
    is_tensorflow = loader != "load_img" or any(isinstance(op, Resize) and op.like == "tensorflow" for op in ops)
    source = Source(
        library="keras",
        version=version,
        name=name[:200] or "model",
        profile="tensorflow" if is_tensorflow else "pillow",
    )
    return Pipeline([*ops, Tensor(layout="hwc")], source=source)


def _pair(what: str, size: object) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else size
    if not isinstance(pair, list | tuple) or [type(side) for side in pair] != [int, int]:
        raise PipelineError(f"{what}: must be one side, or height and width, not {size!r}")
    return pair[0], pair[1]


def _read_archive(path: Path) -> tuple[dict[str, Any], str]:
    """The model's config in a ``.keras`` file, and the version of Keras that wrote it; nothing is unpacked."""
    texts = []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in ("config.json", "metadata.json"):
                with archive.open(name) as file:
                    texts.append(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError):
        raise PipelineError(f"{path.name}: not a .keras file; of an .h5 file give model.to_json()") from None
    config, metadata = (parse_json(text, path.name) for text in texts)
    return config, str(metadata.get("keras_version") or "unknown")


@dataclass(frozen=True)
class _Layer:
    """One layer of a model: its class, ``keras.layers.`` left out, its name, and what it was made with."""

    kind: str
    name: str
    config: Mapping[str, Any]

    def fields(self, where: str) -> Fields:
        return Fields(self.config, f"{where}: layer {quoted(self.name)} ({self.kind})")


def _of_model(
    config: Mapping[str, Any], where: str, *, version: str, loader: Loader, size: Size, place: Place | None
) -> Pipeline:
    version = str(config.get("keras_version") or version)[:200]
    try:
        chain = list(_chain(config, where))
    except RecursionError:
        raise PipelineError(f"{where}: nested too deeply") from None
    shape = _input_shape(chain, where)
    chain = [layer for layer in chain if layer.kind != "InputLayer"]
    count = next((i for i, layer in enumerate(chain) if layer.kind not in {*_LAYERS, *AUGMENTATIONS}), len(chain))
    if place is None and count < len(chain):
        raise PipelineError(
            f"{where}: layer {quoted(chain[count].name)} ({chain[count].kind}) is no preprocessing that is understood; "
            'if the network begins there, choose where the layers before it run: layers "model" or "pipeline"'
        )
    if place == "pipeline" and count == 0:
        what = f"layer {quoted(chain[0].name)} ({chain[0].kind}) is none" if chain else "it is empty"
        raise PipelineError(f'{where}: does not begin with a preprocessing layer: {what}; choose layers "model"')
    wanted = [] if place == "model" else [layer for layer in chain[:count] if layer.kind in _LAYERS]
    ops: list[Op] = [_decode(loader)]
    if not any(layer.kind == "Resizing" for layer in wanted):
        shape = shape if size is None else _pair("size", size)
        if shape is None:
            raise PipelineError(f"{where}: size: the shape of the model's input does not say it; give size")
        ops.append(_loaded(loader, shape))
    elif loader == "image_dataset" or size is not None:
        what = 'loader: "image_dataset"' if loader == "image_dataset" else f"size: {size!r}"
        raise PipelineError(
            f"{where}: {what} resizes, and so does the model's layer Resizing, which would see resized pixels; if "
            'nothing resizes before it, leave size out and take loader "decode_image" or "load_img"'
        )
    else:
        shape = None
    for layer in wanted:
        made, shape = _LAYERS[layer.kind](layer.fields(where), shape)
        ops += made
    return _pipeline(ops, loader, version, where)


def _chain(config: Mapping[str, Any], where: str) -> Iterator[_Layer]:
    """The layers from the input on, each of which takes nothing but the one before; models inside are unfolded.

    A Functional model forks, or joins, at some layer: there its chain ends with a layer of the kind ``fork``.
    """
    entries = _config(config).get("layers")
    if config.get("class_name") not in ("Sequential", "Functional") or not isinstance(entries, list):
        raise PipelineError(f'{where}: "class_name": {quoted(config.get("class_name"))} is no Sequential or Functional')
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("config"), Mapping) for entry in entries):
        raise PipelineError(f'{where}: "layers": must be layers, each with a "config"')
    for entry in entries if config["class_name"] == "Sequential" else _line(entries, where):
        if entry.get("class_name") == "Sequential":
            yield from _chain(entry, where)
        else:
            yield _Layer(_kind(entry), str(entry["config"].get("name", "")), entry["config"])


def _config(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a serialized object of Keras was made with."""
    config = entry.get("config")
    return config if isinstance(config, Mapping) else {}


def _kind(entry: Mapping[str, Any]) -> str:
    """The class of a layer of Keras itself; anything else gets a name that none of Keras' layers has."""
    kind, module = str(entry.get("class_name")), str(entry.get("module") or "keras")
    is_own = module.split(".", 1)[0] == "keras" and entry.get("registered_name") in (None, kind)
    return kind if is_own else f"{module}.{kind}"


def _line(entries: list[Any], where: str) -> Iterator[Mapping[str, Any]]:
    """The layers of a Functional model as long as each has one input, and one layer takes it."""
    inputs = {str(entry.get("name")): _inputs(entry.get("inbound_nodes")) for entry in entries}
    if len(inputs) < len(entries):
        raise PipelineError(f'{where}: "layers": two have one name')
    takers: dict[str, list[Mapping[str, Any]]] = {name: [] for name in inputs}
    for entry in entries:
        for name in inputs[str(entry.get("name"))]:
            takers.setdefault(name, []).append(entry)
    following = [entry for entry in entries if not inputs[str(entry.get("name"))]]
    while len(following) == 1 and len(inputs[str(following[0].get("name"))]) < 2:
        yield following[0]
        following = takers[str(following[0].get("name"))]
    if following:
        yield {"class_name": "fork", "config": {"name": str(following[0].get("name"))}}


def _inputs(node: Any) -> set[str]:
    """The names of the layers that a node of Keras 3, or of Keras 2, takes the results of."""
    if isinstance(node, Mapping):
        if node.get("class_name") == "__keras_tensor__":
            history = _config(node).get("keras_history")
            return {str(history[0])} if isinstance(history, list) and history else set()
        return set().union(*map(_inputs, node.values()))
    if isinstance(node, list):
        if len(node) in (3, 4) and isinstance(node[0], str) and isinstance(node[1], int):
            return {node[0]}
        return set().union(*map(_inputs, node))
    return set()


def _input_shape(chain: list[_Layer], where: str) -> tuple[int, int] | None:
    """(height, width) of the model's input, if it says them; refuses what is not float32, or not channels last RGB."""
    inputs = [layer.fields(where) for layer in chain if layer.kind == "InputLayer"]  # those of models inside too
    for fields in inputs:
        _check_dtype(fields)
    if not inputs:
        return None
    fields = inputs[0]
    shape = fields.take("batch_shape", list) or fields.take("batch_input_shape", list)
    if shape is None or len(shape) != 4 or shape[3] not in (3, None):
        fields.refuse("batch_shape", "is not that of RGB images, channels last")
    return None if None in shape[1:3] else _pair("batch_shape", shape[1:3])


def _check_dtype(fields: Fields) -> None:
    """Refuse layers that compute, or round, in anything but float32."""
    dtype = fields.take("dtype", (str, Mapping), default="float32")
    if isinstance(dtype, Mapping):
        dtype = _config(dtype).get("name")
    if dtype != "float32":
        fields.refuse("dtype", "is not float32")


Made = tuple[list[Op], tuple[int, int] | None]
"""The ops of a layer, and the (height, width) of the images that leave it."""


def _resizing(fields: Fields, shape: tuple[int, int] | None) -> Made:
    """``tf.image.resize``; of a crop to the aspect ratio only that to a square is one of our ops."""
    _check_image_layer(fields)
    if shape is not None:
        raise PipelineError(f"{fields.where}: the image is resized already, and pixels should be resampled once")
    height, width = _sides(fields)
    interpolation = fields.take("interpolation", str, default="bilinear").lower()
    if interpolation not in ("bilinear", "nearest"):
        fields.refuse("interpolation")
    antialias = fields.take("antialias", bool, default=False) and interpolation != "nearest"
    if fields.take("pad_to_aspect_ratio", bool, default=False):
        fields.refuse(
            "pad_to_aspect_ratio", "is not understood: it pads before it resizes, and margins are not resampled"
        )
    fields.ignore("fill_mode", "fill_value")  # of the padding
    crop: list[Op] = []
    if fields.take("crop_to_aspect_ratio", bool, default=False):
        if height != width:
            fields.refuse("crop_to_aspect_ratio", f"is not understood but for squares, and this is {height} x {width}")
        crop = [CenterCrop(fraction=1.0, rounding="down")]
    fields.finish()
    filter_: Filter = "nearest" if interpolation == "nearest" else "bilinear"
    resize = Resize(height=height, width=width, filter=filter_, antialias=antialias, like="tensorflow")
    return [*crop, resize], (height, width)


def _center_crop(fields: Fields, shape: tuple[int, int] | None) -> Made:
    """The margin above is ``(H - height) // 2``; a smaller image would be resized."""
    _check_image_layer(fields)
    height, width = _sides(fields)
    if shape is None or height > shape[0] or width > shape[1]:
        fields.refuse("height", "may be more than the image has: Keras resizes such images; put Resizing before it")
    fields.finish()
    return [CenterCrop(height, width, rounding="down")], (height, width)


def _rescaling(fields: Fields, shape: tuple[int, int] | None) -> Made:
    """``x * scale + offset``."""
    _check_layer(fields)
    scales = set(_numbers(fields, "scale", fields.take("scale", (int, float, list, Mapping))))
    if len(scales) > 1:
        fields.refuse("scale", "is not understood: a scale for each channel")
    offset = _numbers(fields, "offset", fields.take("offset", (int, float, list, Mapping), default=0.0))
    fields.finish()
    return [Normalize(scale=scales.pop(), mean=_reals(0.0 - x for x in offset), arithmetic="multiply")], shape


def _normalization(fields: Fields, shape: tuple[int, int] | None) -> Made:
    """``(x - mean) / max(sqrt(variance), epsilon)``, each step in float32."""
    _check_layer(fields)
    if fields.take("invert", bool, default=False):
        fields.refuse("invert")
    axis = fields.take("axis", (int, list))
    if axis not in (None, -1, 3, [], [-1], [3]):
        fields.refuse("axis", "is not the channels'")
    mean, variance = (fields.take(name, (int, float, list)) for name in ("mean", "variance"))
    if mean is None or variance is None:
        fields.refuse(
            "mean" if mean is None else "variance",
            "is in the weights, where adapt() put it, not in the configuration: make the layer with mean and variance",
        )
    variances = np.array(_numbers(fields, "variance", variance), np.float32)
    if (variances < 0).any():
        fields.refuse("variance")
    std = np.maximum(np.sqrt(variances), _EPSILON)
    means = _numbers(fields, "mean", mean)
    fields.finish()
    return [Normalize(scale=1, mean=_reals(means), std=_reals(map(float, std)), arithmetic="multiply")], shape


_LAYERS = {
    "Resizing": _resizing,
    "CenterCrop": _center_crop,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
}


def _check_layer(fields: Fields) -> None:
    """What every layer says."""
    fields.ignore("name", "trainable", "batch_input_shape")
    _check_dtype(fields)


def _check_image_layer(fields: Fields) -> None:
    _check_layer(fields)
    if fields.take("data_format", str, default="channels_last") != "channels_last":
        fields.refuse("data_format")


def _sides(fields: Fields) -> tuple[int, int]:
    return _pair(f"{fields.where}: height, width", [fields.take("height", int), fields.take("width", int)])


def _numbers(fields: Fields, name: str, value: Any) -> list[float]:
    """One number, or one a channel; an array is an object of the class ``__numpy__``, its values in its config."""
    if isinstance(value, Mapping) and value.get("class_name") in ("__numpy__", "__tensor__"):
        value = _config(value).get("value")
    values = value if isinstance(value, list) else [value]
    if len(values) not in (1, 3) or not all(type(x) in (int, float) and abs(x) <= _LARGEST for x in values):
        fields.refuse(name, "must be one number, or three")
    return [float(x) for x in values]


def _reals(values: Any) -> Reals:
    result = tuple(values)
    return result[0] if len(result) == 1 else result
