"""Preprocessing code of other libraries, compared with pixprep: one module per library, which runs in its own process.

    PACKAGES         packages whose versions determine its speed
    prepare(row, threads)
                     returns ``run(batch)``, which converts a list of encoded photos to one array of tensors, or a list

``ROWS`` lists the tasks. ``prepare`` raises NotImplementedError for a task that the library does not support.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

Run = Callable[[Sequence[bytes]], Any]


class Row(NamedTuple):
    """A task. ``max_difference`` is the maximum mean difference from pixprep's values, in units of ``level``."""

    name: str
    libraries: tuple[str, ...]
    level: float = 1.0
    max_difference: float = 0.0


IMAGENET = 1 / (255 * 0.229)
# maximum mean difference in pixel values if float32 sums have a different order, or 1 % of the values differ by 1
ROUNDED = 0.01
COLOURS = {
    "brightness": 0.0,
    "contrast": 1.0,  # albumentations rounds the mean and the product, so every pixel value may differ by 1
    "saturation": 0.5,
    "hue": 2.0,  # albumentations has only 180 hue values
    "grayscale": 1.0,  # albumentations truncates instead of rounding
    "gamma": 0.5,
    "posterize": 0.0,
    "solarize": 0.0,
    "invert": 0.0,
    "autocontrast": 1.0,
    "equalize": 2.0,  # albumentations uses OpenCV's histograms
    "flip": 0.0,
    "gaussian_blur": 0.5,
    "rotate": 0.5,  # OpenCV blends the edge of the image with the background
    "elastic": 40.0,  # the random displacements differ
}
HALF, CLIP = [0.5, 0.5, 0.5], ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
PROCESSORS: dict[str, dict[str, Any]] = {
    "qwen2-vl": {"image_processor_type": "Qwen2VLImageProcessor"},
    "siglip2": {"image_processor_type": "Siglip2ImageProcessor"},
    "internvl": {
        "image_processor_type": "GotOcr2ImageProcessor",
        "crop_to_patches": True,
        "size": {"height": 448, "width": 448},
    },
    "llava-next": {
        "image_processor_type": "LlavaNextImageProcessor",
        "size": {"shortest_edge": 336},
        "crop_size": {"height": 336, "width": 336},
    },
    "idefics3": {"image_processor_type": "Idefics3ImageProcessor"},
}
"""Configurations of image processors of transformers; other fields have the values of their class."""
VLM = {
    "qwen2-vl": "Qwen2-VL",
    "siglip2": "SigLIP 2, NaFlex",
    "internvl": "InternVL, 12 tiles of 448",
    "llava-next": "LLaVA-NeXT, tiles of 336",
    "idefics3": "Idefics 3",
}
ROWS = {
    "yolo": Row("YOLO, letterbox 640", ("opencv",), 1 / 255),
    "weights": Row("torchvision's `weights.transforms()` on tensors", ("torchvision",), IMAGENET, ROUNDED),
    "keras": Row("Keras, 224, `preprocess_input`", ("tensorflow",), 1.0, ROUNDED),
    "dali": Row("an imported DALI graph", ("dali",), IMAGENET, ROUNDED),
    "dali stretched": Row("a DALI graph, 224 x 224", ("dali",), IMAGENET, ROUNDED),
    "dali letterboxed": Row("a DALI graph, letterbox 640", ("dali",), 1 / 255, ROUNDED),
    "paddle": Row("PaddleOCR, a line of text", ("opencv",), 2 / 255),
    "opencv bilinear": Row("OpenCV, 224, bilinear", ("opencv",), IMAGENET, ROUNDED),
    "opencv bicubic": Row("OpenCV, 224, bicubic", ("opencv",), IMAGENET, 0.05),  # see tests/parity/test_opencv.py
    "opencv area": Row("OpenCV, 224, area", ("opencv",), IMAGENET, ROUNDED),
    **{row: Row(name, ("transformers", "transformers_pil"), 1 / 255, 2.0) for row, name in VLM.items()},
    **{name: Row(name, ("torchvision", "albumentations"), 1.0, limit) for name, limit in COLOURS.items()},
}
ARRAYS, LINES = "500x375 arrays", "text lines"
GRAPHS = {"dali": "classic", "dali stretched": "stretched", "dali letterboxed": "letterboxed"}
"""Names of the DALI graphs in tests/parity/frozen/dali that pixprep imports."""
CELLS = [
    ("500x375 by 8", "yolo", 1),
    ("1920x1080", "yolo", 1),
    *((size, row, 1) for row in ("weights", "keras", *GRAPHS) for size in ("500x375", "1920x1080")),
    (LINES, "paddle", 1),
    *(("500x375", row, 1) for row in ROWS if row.startswith("opencv")),
    *((size, row, 1) for row in VLM for size in ("640x480", "1920x1080")),
    *((ARRAYS, row, 1) for row in COLOURS),
]
"""Workload, row and number of threads."""


def of(made: Mapping[str, Callable[[], Run]], row: str, threads: int) -> Run:
    """Return a library's ``run`` function for a row."""
    assert threads == 1
    if row not in made:
        raise NotImplementedError
    return made[row]()


def alone(one: Callable[[bytes], np.ndarray]) -> Run:
    """Return a ``run`` function that calls a function for each photo, without stacking the tensors."""
    return lambda batch: [one(photo) for photo in batch]


def on_arrays(one: Callable[[Any], Any], given: Callable[[np.ndarray], Any] = np.asarray) -> Run:
    """Return a ``run`` function on images that are decoded once, before the rounds.

    ``given`` converts an image to the library's type.
    """

    @cache
    def image(photo: bytes) -> Any:
        return given(np.array(Image.open(io.BytesIO(photo)).convert("RGB")))

    return lambda batch: [one(image(photo)) for photo in batch]


def comparison(row: Row) -> Callable[[np.ndarray], dict[str, float]]:
    """Return a function that compares tensors with those of its first call, in pixel values. The layouts may differ."""
    return partial(_gaps, [], row.level)


def _gaps(first: list[np.ndarray], level: float, tensors: np.ndarray) -> dict[str, float]:
    first.append(tensors)
    if tensors.shape != first[0].shape:
        tensors = np.moveaxis(tensors, 1, -1)
    if (tensors.shape, tensors.dtype) != (first[0].shape, first[0].dtype):
        raise ValueError(f"{tensors.dtype} {tensors.shape} cannot be compared with {first[0].dtype} {first[0].shape}")
    gaps = np.abs(tensors.astype(np.float64) - first[0]) / level
    return {"max": round(float(gaps.max()), 4), "mean": round(float(gaps.mean()), 6)}
