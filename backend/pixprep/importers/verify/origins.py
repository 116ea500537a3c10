"""The whole transform of the library that a pipeline was imported from: RGB levels to the tensor, channels last."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from PIL import Image

from pixprep.importers.verify.images import Array, png

Size = tuple[int, int]


def _timm(name: str, _: Size, *, by_pillow: bool) -> Callable[[Array], Array]:
    """The evaluation transform of a model's pretrained configuration."""
    data = import_module("timm.data")
    name, test_size = name.partition(" (use_test_size)")[:2]
    found = import_module("timm.models").get_pretrained_cfg(name, allow_unregistered=False)
    if found is None:
        raise ValueError("no such model")
    if found.tag and not name.endswith(f".{found.tag}"):
        raise ValueError("a name without a tag may mean another configuration")
    arguments = data.resolve_data_config(pretrained_cfg=found.to_dict(), use_test_size=bool(test_size))
    return _called(data.create_transform(**arguments, is_training=False), by_pillow=by_pillow)


def _torchvision(name: str, _: Size, *, by_pillow: bool) -> Callable[[Array], Array]:
    """The transform of torchvision's weights."""
    return _called(import_module("torchvision.models").get_weight(name).transforms(), by_pillow=by_pillow)


def _keras(name: str, size: Size, *, by_pillow: bool) -> Callable[[Array], Array]:
    """``preprocess_input`` of a Keras application after ``load_img``, or after TensorFlow's resize."""
    keras = import_module("keras")
    functions = {name.lower(): x for name, x in vars(keras.applications).items() if callable(x)}
    preprocess = import_module(functions[re.sub("[-_ ]", "", name).lower()].__module__).preprocess_input

    def run(pixels: Array) -> Array:
        if by_pillow:
            values = keras.utils.img_to_array(keras.utils.load_img(io.BytesIO(png(pixels)), target_size=size))
        else:
            values = import_module("tensorflow").image.resize(np.ascontiguousarray(pixels), size).numpy()
        return np.asarray(preprocess(values))

    return run


def _called(transform: Any, *, by_pillow: bool) -> Callable[[Array], Array]:
    """A transform of torchvision, on a Pillow image or a tensor."""

    def run(pixels: Array) -> Array:
        image = Image.fromarray(np.ascontiguousarray(pixels)) if by_pillow else planes(pixels)
        return np.asarray(transform(image).numpy().transpose(1, 2, 0))

    return run


TRANSFORMS = {"timm": _timm, "torchvision": _torchvision, "keras": _keras}
"""By library what gives its transform: of a name, to a (height, width), of Pillow images or of the library's own."""


def planes(pixels: Array) -> Any:
    """A tensor of PyTorch (channels, height, width)."""
    return import_module("torch").from_numpy(np.array(pixels.transpose(2, 0, 1)))
