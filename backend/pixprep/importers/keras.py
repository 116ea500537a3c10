"""Imports the preprocessing of Keras: ``preprocess_input`` of an application, or the preprocessing layers of a model.

Keras need not be installed. The pixels equal those of Keras 3.15 with TensorFlow and the data format
``channels_last``. Models that were saved with Keras 2 are also supported.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled, resize
from pixprep.importers.fields import MAX_BYTES, Fields, opened, parse_json, read_json, reading, reals
from pixprep.pipeline.file import open_regular
from pixprep.pipeline.ops import CenterCrop, Decode, Normalize, Op, RandomCrop, RandomFlip, Resize, Tensor, as_tuple
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.presets import IMAGENET_MEAN, IMAGENET_STD
from pixprep.spec import Side

Mode = Literal["caffe", "tf", "torch", "none"]
Loader = Literal["load_img", "image_dataset", "decode_image"]
Placement = Literal["pipeline", "model"]
Size = tuple[int, int]

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
"""Mode of ``preprocess_input`` and default input size of each application.

The mode ``none`` means that the model itself rescales the pixel values, unless the model was created with
``include_preprocessing=False``.
"""

PREPROCESS_INPUT: dict[Mode, list[Op]] = {
    "caffe": [Normalize(scale=1, mean=(103.939, 116.779, 123.68), arithmetic="divide")],
    "tf": [Normalize(scale=1 / 127.5, mean=1, arithmetic="divide")],
    "torch": [Normalize(mean=IMAGENET_MEAN, std=IMAGENET_STD, arithmetic="divide")],
    "none": [],
}
"""Ops that are equivalent to ``preprocess_input``, by the mode in ``imagenet_utils.py`` of Keras."""

AUGMENTATIONS = frozenset(
    (
        *("AugMix", "CutMix", "MixUp", "RandAugment", "RandomBrightness", "RandomColorDegeneration"),
        *("RandomColorJitter", "RandomContrast", "RandomElasticTransform", "RandomErasing", "RandomFlip"),
        *("RandomGaussianBlur", "RandomGrayscale", "RandomHue", "RandomInvert", "RandomPerspective"),
        *("RandomPosterization", "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomShear"),
        *("RandomTranslation", "RandomZoom"),
    )
)
"""Layers that have no effect at inference. ``RandomCrop`` is not included, because it resizes images at inference."""

_RANDOM_DIFFERS = (
    "it returns float32 values without rounding and samples its parameters differently, whereas pixprep's random ops "
    "return integer pixel values"
)
_EPSILON = np.float32(1e-7)  # keras.backend.epsilon(), the minimum standard deviation in Normalization


def from_keras(
    source: str | Path | Mapping[str, Any],
    *,
    training: str | Path | Mapping[str, Any] | None = None,
    loader: Loader = "load_img",
    size: int | Size | None = None,
    layers: Placement | None = None,
) -> Pipeline:
    """Convert the image loading and preprocessing of a Keras model into a pipeline.

    The pipeline returns a float32 tensor in the layout ``hwc``, which is bit-identical to the result of Keras in eager
    mode or with NumPy. Inside a ``tf.function``, TensorFlow replaces the divisions of ``preprocess_input`` by
    multiplications, which changes the last bit of about half of the values. As in the loaders of Keras, the EXIF
    orientation is not applied.

    Args:
        source: Name of an application, such as ``"resnet50"`` or ``"EfficientNetV2-B0"``; a ``.keras`` file; a
            ``.json`` file with the result of ``model.to_json()``; or the content of such a ``.json`` file as a mapping.
        training: Model whose preprocessing layers are applied in training, as a file or a mapping. It can be the same
            model as ``source``. All preprocessing layers at the beginning of the model are imported, including random
            layers. Default: training uses the same preprocessing as serving.
        loader: Function that loads the image files. ``load_img``: ``keras.utils.load_img`` with ``target_size``, which
            uses Pillow and by default the filter ``nearest``. ``image_dataset``: ``image_dataset_from_directory``,
            which uses TensorFlow's decoder and bilinear filter. ``decode_image``: TensorFlow's decoder without a
            resize, so that the model must contain a ``Resizing`` layer.
        size: Size of the images that the loader returns, in pixels: (height, width), or the side of a square. Default:
            the input size of the application, or the input shape of the model unless it contains a ``Resizing`` layer.
        layers: Place where the preprocessing layers of a model run. ``model``: they run in the model, and the pipeline
            only loads and resizes images. ``pipeline``: they run in the pipeline, and the model must be exported
            without these layers. Default: ``pipeline`` for a model that consists only of preprocessing layers. For all
            other models, the argument is required.

    Raises:
        PipelineError: A layer, one of its fields or an argument is not supported, or the file cannot be read.
    """
    with reading({"loader": loader, "layers": layers, "size": size}, "options") as options:
        loader = options.choice("loader", get_args(Loader))
        placement = options.choice("layers", get_args(Placement)) if options.has("layers") else None
        pair = options.pair("size") if options.has("size") else None
    if isinstance(source, str) and not source.endswith((".keras", ".json")):
        if training is not None:
            raise PipelineError(
                "training: is not supported for an application: pass a .keras or .json file as the source"
            )
        if placement is not None:
            raise PipelineError(
                "layers: is not supported for an application: pass a .keras or .json file as the source"
            )
        return assembled(_application_ops(source, loader, pair), library="keras", name=source, where=source)
    if training is not None and placement == "model":
        raise PipelineError(
            'layers: "model" keeps the random layers in the model, so they cannot be imported for training: remove '
            'training, or use "pipeline"'
        )
    config, where = opened(source, "config", _read)
    how: dict[str, Any] = {"loader": loader, "size": pair, "placement": placement if training is None else "pipeline"}
    trained = None if training is None else _model_ops(*opened(training, "training", _read), **how, side="training")
    ops = _model_ops(config, where, **how)
    version = str(config.get("keras_version") or "unknown")
    return assembled(ops, training=trained, library="keras", version=version, name=where, where=where)


def _read(path: Path) -> dict[str, Any]:
    """Read the config of a model from a ``.json`` or ``.keras`` file."""
    return read_json(path) if path.suffix == ".json" else read_archive(path)


def _application_ops(name: str, loader: Loader, size: Size | None) -> list[Op]:
    known = {_plain_name(application): entry for application, entry in APPLICATIONS.items()}
    if _plain_name(name) not in known:
        raise PipelineError(
            f"{quoted(name)} is neither a Keras application nor a .keras or .json file; "
            f"supported applications: {', '.join(APPLICATIONS)}"
        )
    mode, side = known[_plain_name(name)]
    decode = _decode(loader, color="bgr" if mode == "caffe" else "rgb")
    return [decode, _loader_resize(loader, size or (side, side)), *PREPROCESS_INPUT[mode], Tensor(layout="hwc")]


def _plain_name(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()


def _decode(loader: Loader, *, color: Literal["rgb", "bgr"] = "rgb") -> Decode:
    return Decode(color=color, apply_exif_orientation=False, idct="accurate" if loader == "load_img" else "fast")


def _loader_resize(loader: Loader, size: Size) -> Resize:
    """Return the resize op for a loader. ``load_img`` resizes with Pillow, and ``image_dataset`` with TensorFlow."""
    if loader == "decode_image":
        raise PipelineError(
            'loader: "decode_image" does not resize, and the model does not contain a Resizing layer, but tensors must '
            'have a fixed size: use "load_img" or "image_dataset"'
        )
    return resize(size, filter="nearest") if loader == "load_img" else resize(size, like="tensorflow")


def _model_ops(
    config: Mapping[str, Any],
    where: str,
    *,
    loader: Loader,
    size: Size | None,
    placement: Placement | None,
    side: Side = "serving",
) -> list[Op]:
    try:
        chain = list(layers_of(config, where))
    except RecursionError:
        raise PipelineError(f"{where}: the layers are nested too deeply") from None
    shape = _input_shape(chain, where)
    chain = [layer for layer in chain if layer.cls != "InputLayer"]
    known = {**_LAYERS, **(_RANDOM if side == "training" else {})}
    count = next((i for i, layer in enumerate(chain) if layer.cls not in {*known, *AUGMENTATIONS}), len(chain))
    if placement is None and count < len(chain):
        raise PipelineError(
            f"{where}: {chain[count]} is not a supported preprocessing layer; if it is the first layer of the network, "
            'set the option layers to "model" or "pipeline" to choose where the layers before it run'
        )
    imported = [] if placement == "model" else [layer for layer in chain[:count] if layer.cls in known]
    if side == "training":
        for layer in chain[:count]:
            if layer.cls not in known:
                raise PipelineError(f"{where}: {layer} is not supported: {_RANDOM_DIFFERS}")
    ops: list[Op] = [_decode(loader)]
    if not any(layer.cls == "Resizing" for layer in imported):
        shape = size or shape
        if shape is None:
            raise PipelineError(f"{where}: the input of the model does not have a fixed size: set the option size")
        ops.append(_loader_resize(loader, shape))
    elif loader == "image_dataset" or size is not None:
        what = 'loader: "image_dataset"' if loader == "image_dataset" else f"size: {size}"
        raise PipelineError(
            f"{where}: {what} would resize each image before the model's Resizing layer resizes it again: remove size, "
            'and set loader to "decode_image" or "load_img"'
        )
    for layer in imported:
        with reading(layer.config, f"{where}: {layer}") as fields:
            fields.ignore("name", "trainable", "batch_input_shape")
            fields.expect("data_format", "channels_last")
            _check_dtype(fields)
            ops += known[layer.cls](fields, ops)
    return [*ops, Tensor(layout="hwc")]


def _input_shape(chain: list[Layer], where: str) -> Size | None:
    """Return the (height, width) of the model's input, or None if they are variable.

    Raises:
        PipelineError: The input is not float32 RGB with channels last.
    """
    inputs = [Fields(layer.config, f"{where}: {layer}") for layer in chain if layer.cls == "InputLayer"]
    for fields in inputs:  # nested models also have input layers
        _check_dtype(fields)
    if not inputs:
        return None
    fields = inputs[0]
    name = "batch_shape" if fields.has("batch_shape") else "batch_input_shape"
    shape = fields.take(name)
    if not isinstance(shape, list) or len(shape) != 4 or shape[3] not in (3, None):
        fields.refuse(name, "must be (batch, height, width, 3), for RGB images with channels last")
    return None if None in shape[1:3] else Fields({name: shape[1:3]}, fields.where).pair(name)


def _check_dtype(fields: Fields) -> None:
    """Raise PipelineError if a layer does not compute in float32."""
    dtype = fields.take("dtype", "float32")
    if (config_of(dtype).get("name") if isinstance(dtype, Mapping) else dtype) != "float32":
        fields.refuse("dtype", "must be float32")


def _resizing(fields: Fields, _: list[Op]) -> list[Op]:
    """Convert ``Resizing``, which calls ``tf.image.resize``.

    ``crop_to_aspect_ratio`` is supported only for a square target.
    """
    height, width = fields.side("height"), fields.side("width")
    filter_ = fields.text("interpolation", "bilinear").lower()
    if filter_ not in ("bilinear", "nearest"):
        fields.refuse("interpolation", "must be bilinear or nearest")
    antialias = fields.flag("antialias") and filter_ != "nearest"
    fields.expect_false("pad_to_aspect_ratio")  # Keras pads before the resize; the op letterbox pads after it
    fields.ignore("fill_mode", "fill_value")  # used only with pad_to_aspect_ratio
    crop: list[Op] = []
    if fields.flag("crop_to_aspect_ratio"):
        if height != width:
            fields.refuse("crop_to_aspect_ratio", f"is supported only for a square target, not for {height} x {width}")
        crop = [CenterCrop(fraction=1.0, rounding="down")]
    return [*crop, resize((height, width), filter=filter_, antialias=antialias, like="tensorflow")]


def _center_crop(fields: Fields, ops: list[Op]) -> list[Op]:
    """Convert ``CenterCrop``, whose offset is rounded down.

    Images that are smaller than the crop are not supported, because Keras resizes them.
    """
    height, width = fields.side("height"), fields.side("width")
    before = _known_size(ops)
    if before is None or height > before[0] or width > before[1]:
        fields.refuse(
            "height",
            "must not exceed the image, because Keras resizes images that are smaller than the crop: add a Resizing "
            "layer before this layer",
        )
    return [CenterCrop(height, width, rounding="down")]


def _known_size(ops: list[Op]) -> Size | None:
    """Return the (height, width) of the image after these ops, or None if they differ between images."""
    sizes = [(op.height, op.width) for op in ops if isinstance(op, Resize | CenterCrop | RandomCrop)]
    both = [(h, w) for h, w in sizes if h and w and not isinstance(h, str) and not isinstance(w, str)]
    return both[-1] if both else None


def _random_flip(fields: Fields, _: list[Op]) -> list[Op]:
    """Convert ``RandomFlip``, which flips an image with probability 0.5.

    The mode ``horizontal_and_vertical`` is not supported, because it always flips both axes or none.
    """
    fields.ignore("seed")
    mode = fields.text("mode", "horizontal_and_vertical")
    if mode not in ("horizontal", "vertical"):
        fields.refuse(
            "mode",
            "flips both axes of the same images, which is not supported: use one RandomFlip layer for each axis",
        )
    return [RandomFlip("vertical" if mode == "vertical" else "horizontal")]


def _random_crop(fields: Fields, ops: list[Op]) -> list[Op]:
    """Convert ``RandomCrop``.

    The image must have the size of the crop, or be larger in both axes. Keras resizes and crops all other images.
    """
    fields.ignore("seed")
    height, width = fields.side("height"), fields.side("width")
    before = _known_size(ops)
    if before == (height, width):
        return []
    if before is None or height >= before[0] or width >= before[1]:
        fields.refuse(
            "height",
            "must be smaller than the image, because Keras resizes images that are not larger than the crop: add a "
            "Resizing layer with a larger size before this layer",
        )
    return [RandomCrop(height, width)]


def _rescaling(fields: Fields, _: list[Op]) -> list[Op]:
    """Convert ``Rescaling``, which computes ``x * scale + offset``."""
    scales = set(as_tuple(fields.numbers("scale")))
    if len(scales) > 1:
        fields.refuse("scale", "must be one number: a different scale for each channel is not supported")
    mean = reals([0.0 - offset for offset in as_tuple(fields.numbers("offset", 0.0))])
    return [Normalize(scale=scales.pop(), mean=mean, arithmetic="multiply")]


def _normalization(fields: Fields, _: list[Op]) -> list[Op]:
    """Convert ``Normalization``, which computes ``(x - mean) / max(sqrt(variance), epsilon)`` in float32."""
    fields.expect_false("invert")
    fields.expect("axis", -1, 3, [], [-1], [3], why="must be the channel axis, -1 or 3")
    for name in ("mean", "variance"):
        if not fields.has(name):
            fields.refuse(
                name,
                "must be set: the importer does not read weights from adapt(), so pass it when you create the layer",
            )
    mean, variance = fields.numbers("mean"), fields.numbers("variance")
    if min(as_tuple(variance)) < 0:
        fields.refuse("variance", "must not be negative")
    std = reals([float(max(np.sqrt(np.float32(value)), _EPSILON)) for value in as_tuple(variance)])
    return [Normalize(scale=1, mean=mean, std=std, arithmetic="multiply")]


_LAYERS: dict[str, Callable[[Fields, list[Op]], list[Op]]] = {
    "Resizing": _resizing,
    "CenterCrop": _center_crop,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
}

_RANDOM: dict[str, Callable[[Fields, list[Op]], list[Op]]] = {"RandomFlip": _random_flip, "RandomCrop": _random_crop}
"""Layers that have an effect only in training, and that are supported."""


_COMPRESSION_TYPES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Supported compression methods, which can be decompressed incrementally. Keras stores files without compression."""


class _LimitedReader(io.BufferedReader):
    """File object that rejects reads of more than ``MAX_BYTES`` bytes, because a ZIP directory can declare any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_BYTES:
            raise zipfile.BadZipFile
        return super().read(size)


def read_archive(path: Path) -> dict[str, Any]:
    """Return the config of the model in a ``.keras`` file, and the version of Keras with which it was saved.

    The version is the entry ``keras_version`` of the result. Files in the archive are not extracted to disk.
    """
    texts = []
    try:
        with _LimitedReader(open_regular(path).detach()) as file, zipfile.ZipFile(file) as archive:
            for name in ("config.json", "metadata.json"):
                if archive.getinfo(name).compress_type not in _COMPRESSION_TYPES:
                    raise zipfile.BadZipFile  # noqa: TRY301  (the handler below adds a message)
                with archive.open(name) as member:
                    texts.append(member.read(MAX_BYTES + 1))
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError):
        raise PipelineError(
            f"{path.name}: not a .keras file: for an .h5 file, save model.to_json() as a .json file and pass it"
        ) from None
    config, metadata = (parse_json(text, path.name) for text in texts)
    return {"keras_version": metadata.get("keras_version")} | config


@dataclass(frozen=True)
class Layer:
    """Layer of a Keras model.

    Attributes:
        cls: Name of the class, without ``keras.layers.``.
        name: Name of the layer.
        config: Constructor arguments of the layer.
    """

    cls: str
    name: str
    config: Mapping[str, Any]

    def __str__(self) -> str:
        return f"layer {quoted(self.name)} ({self.cls})"


def layers_of(config: Mapping[str, Any], where: str) -> Iterator[Layer]:
    """Yield the layers of a model, beginning with its input. Nested Sequential models are replaced by their layers.

    If a Functional model branches or merges, the layers end at this point, and a layer with the class ``fork`` follows.

    Raises:
        PipelineError: The config is not that of a Sequential or Functional model.
    """
    entries = config_of(config).get("layers")
    if config.get("class_name") not in ("Sequential", "Functional") or not isinstance(entries, list):
        raise PipelineError(
            f'{where}: "class_name": {quoted(config.get("class_name"))} must be "Sequential" or "Functional"'
        )
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("config"), Mapping) for entry in entries):
        raise PipelineError(f'{where}: "layers" must be a list of layers, each with a "config"')
    for entry in entries if config["class_name"] == "Sequential" else _linear_chain(entries, where):
        if entry.get("class_name") == "Sequential":
            yield from layers_of(entry, where)
        else:
            values = {name: _array_values(value) for name, value in entry["config"].items()}
            yield Layer(_class_of(entry), str(values.get("name", "")), values)


def config_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the constructor arguments of a serialized Keras object."""
    config = entry.get("config")
    return config if isinstance(config, Mapping) else {}


def _array_values(value: Any) -> Any:
    """Return the values of a serialized NumPy array or tensor. Other values are returned unchanged."""
    is_array = isinstance(value, Mapping) and value.get("class_name") in ("__numpy__", "__tensor__")
    return config_of(value).get("value") if is_array else value


def _class_of(entry: Mapping[str, Any]) -> str:
    """Return the name of a layer's class, with its module if the class is not defined in Keras."""
    name, module = str(entry.get("class_name")), str(entry.get("module") or "keras")
    is_own = module.split(".", 1)[0] == "keras" and entry.get("registered_name") in (None, name)
    return name if is_own else f"{module}.{name}"


def _linear_chain(entries: list[Any], where: str) -> Iterator[Mapping[str, Any]]:
    """Yield the layers of a Functional model, up to the first layer that has several inputs or several consumers."""
    inputs = {str(entry.get("name")): _inputs(entry.get("inbound_nodes")) for entry in entries}
    if len(inputs) < len(entries):
        raise PipelineError(f'{where}: "layers" contains two layers with the same name')
    consumers: dict[str, list[Mapping[str, Any]]] = {name: [] for name in inputs}
    for entry in entries:
        for name in inputs[str(entry.get("name"))]:
            consumers.setdefault(name, []).append(entry)
    following = [entry for entry in entries if not inputs[str(entry.get("name"))]]
    while len(following) == 1 and len(inputs[str(following[0].get("name"))]) < 2:
        yield following[0]
        following = consumers[str(following[0].get("name"))]
    if following:
        yield {"class_name": "fork", "config": {"name": str(following[0].get("name"))}}


def _inputs(node: Any) -> set[str]:
    """Return the names of the layers whose outputs are the inputs of a node.

    The node is in the format of Keras 3 or Keras 2.
    """
    if isinstance(node, Mapping):
        if node.get("class_name") == "__keras_tensor__":
            history = config_of(node).get("keras_history")
            return {str(history[0])} if isinstance(history, list) and history else set()
        return set().union(*map(_inputs, node.values()))
    if isinstance(node, list):
        if len(node) in (3, 4) and isinstance(node[0], str) and isinstance(node[1], int):
            return {node[0]}
        return set().union(*map(_inputs, node))
    return set()
