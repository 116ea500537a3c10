"""Converts an output of a model to a picture: a matte or depth map, a map of classes, or an image.

The declaration of the output, a ``Picture``, specifies the meaning of its values. Nothing is inferred from the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.postprocessing.coordinates import MapFilter, mask_to_original
from pixprep.postprocessing.detections import GEOMETRY_OUTPUTS

Array = npt.NDArray[Any]
U8 = npt.NDArray[np.uint8]
_COLORS = np.array(
    ((0, 0, 0), (255, 122, 0), (0, 150, 255), (40, 200, 80), (230, 60, 160), (250, 200, 0), (130, 90, 255),
     (0, 200, 200)), np.uint8)  # fmt: skip
"""Colors of the classes in an overlay. Class 0 is transparent, and the others are used cyclically."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Declaration of an output that is a picture.

    Attributes:
        kind: ``map``: one number per pixel, such as a matte or a depth map. ``classes``: class indices, or one score
            per class. ``image``: a color image or a gray image.
        range: Values that become black and white, such as ``0..1``; ``each``: the minimum and the maximum of each map.
            Values outside of the range are clipped. Required for ``map`` and ``image``.
        layout: Order of the axes of an output with three dimensions.
        color: Channel order of an ``image``.
        threshold: For ``classes`` with a single score: the class is 1 if the score is greater than this, and else 0.
        size: ``photo``: the size of the photo, using the outputs ``transform`` and ``original_size`` of the pipeline.
            ``output``: the size of the output. Default: ``output`` for an ``image``, ``photo`` for the other kinds.
        stride: Number of tensor pixels per pixel of the output, for ``size=photo``.
        filter: Filter for ``size=photo``, see ``mask_to_original``. Classes are always taken from the nearest pixel.
        draw: ``plain``: the values. ``alpha``: the photo, with a ``map`` as its alpha channel. ``overlay``: the photo,
            blended equally with one color per class; class 0 is transparent.
    """

    kind: Literal["map", "classes", "image"]
    range: tuple[float, float] | Literal["each"] | None = None
    layout: Literal["chw", "hwc"] = "chw"
    color: Literal["rgb", "bgr"] = "rgb"
    threshold: float | None = None
    size: Literal["photo", "output"] | None = None
    stride: float = 1.0
    filter: MapFilter = "bilinear"
    draw: Literal["plain", "alpha", "overlay"] = "plain"

    @classmethod
    def parse(cls, text: str) -> Picture:
        """Parse a declaration such as ``map,range=0..1,draw=alpha``.

        Raises:
            PixprepError: A field is unknown or its value is invalid, or fields contradict each other.
        """
        kind, *rest = text.split(",")
        hints, values = get_type_hints(cls), dict[str, Any]()
        for name, _, value in [("kind", "", kind), *(each.partition("=") for each in rest)]:
            if name not in hints:
                raise PixprepError(f"{text!r}: unknown field {name!r}: choose from {', '.join([*hints][1:])}")
            choices = [each for each in _arguments(hints[name]) if isinstance(each, str)]
            is_number = not choices or (name == "range" and value != "each")
            if not is_number and value not in choices:
                raise PixprepError(f"{text!r}: {name} must be {' or '.join(choices)}, not {value!r}")
            values[name] = _numbers(text, name, value) if is_number else value
        picture = cls(**values)
        if problem := picture.problem:
            raise PixprepError(f"{text!r}: {problem}")
        return picture

    def __str__(self) -> str:
        """Return the text that ``parse`` converts to this declaration."""
        values = {name: getattr(self, name) for name in get_type_hints(type(self)) if name != "kind"}
        ends = {name: "..".join(map(repr, each)) if isinstance(each, tuple) else each for name, each in values.items()}
        return ",".join([self.kind, *(f"{name}={each}" for name, each in ends.items() if each is not None)])

    @property
    def problem(self) -> str:
        """Description of a contradiction between the fields, or an empty string."""
        if self.kind != "classes" and self.range is None:
            return f"a picture of kind {self.kind} needs range=LOW..HIGH, the values that become black and white"
        if isinstance(self.range, tuple) and not self.range[0] < self.range[1]:
            return "range must be LOW..HIGH with LOW < HIGH"
        if not self.stride > 0:
            return "stride must be greater than 0"
        for draw, kind in (("alpha", "map"), ("overlay", "classes")):
            if self.draw == draw and (self.kind != kind or self.size == "output"):
                return f"draw={draw} is only for pictures of kind {kind} with the size of the photo"
        return ""

    @property
    def fits_photo(self) -> bool:
        """Whether the picture has the size of the photo."""
        return self.size == "photo" or (self.size is None and self.kind != "image")

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the other outputs that the picture needs."""
        return GEOMETRY_OUTPUTS if self.fits_photo else ()


def _arguments(hint: Any) -> list[Any]:
    """Return the arguments of a type, including those of nested types."""
    return [each for part in get_args(hint) for each in (part, *_arguments(part))]


def _numbers(text: str, name: str, value: str) -> Any:
    try:
        numbers = [float(each) for each in value.split("..")]
        if len(numbers) == 1 + (name == "range") and np.isfinite(numbers).all():
            return tuple(numbers) if name == "range" else numbers[0]
    except ValueError:
        pass
    expected = "LOW..HIGH, such as 0..1, or each" if name == "range" else "a number"
    raise PixprepError(f"{text!r}: {name} must be {expected}, not {value!r}")


def draw(outputs: Mapping[str, Array], name: str, picture: Picture, photo: U8 | None = None) -> U8:
    """Draw an output of one photo.

    Args:
        outputs: Outputs for one photo, without the batch dimension: the output ``name`` with two or three dimensions,
            and the outputs in ``picture.needs``.
        name: Name of the output.
        picture: Declaration of the output.
        photo: uint8 RGB pixels (height, width, 3) of the photo, for ``draw=alpha`` and ``draw=overlay``.

    Returns:
        uint8 array (height, width) for a map or gray image, or for class indices; (height, width, 3) for a color image
        or an overlay; (height, width, 4), RGBA, with ``draw=alpha``.

    Raises:
        PixprepError: The output does not have the declared form, has values that are NaN or infinite, or has a class
            above 255; or the photo has a different size.
    """
    planes = _planes(name, outputs[name], picture)
    if picture.fits_photo:
        transform, size = (outputs[each] for each in GEOMETRY_OUTPUTS)
        planes = mask_to_original(planes, transform, size, stride=picture.stride, filter=picture.filter)
    if picture.kind == "classes":
        pixels: U8 = planes[0].astype(np.uint8)
    else:
        low, high = (planes.min(), planes.max()) if picture.range == "each" else picture.range or (0, 1)
        scale = 255 / ((high - low) or 1)
        levels = np.rint(np.clip((planes.astype(np.float64) - low) * scale, 0, 255)).astype(np.uint8)
        pixels = (
            levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)[..., :: -1 if picture.color == "bgr" else 1]
        )
    if picture.draw == "plain":
        return np.ascontiguousarray(pixels)
    assert photo is not None
    if photo.shape[:2] != pixels.shape:
        raise PixprepError(
            f"the photo has {photo.shape[0]} x {photo.shape[1]} pixels, and the picture {pixels.shape[0]} x "
            f"{pixels.shape[1]}: the pipeline must apply the EXIF orientation"
        )
    if picture.draw == "alpha":
        return np.dstack([photo, pixels])
    colors = _COLORS[np.where(pixels == 0, 0, 1 + (pixels - 1) % (len(_COLORS) - 1))]
    mixed = ((photo.astype(np.uint16) + colors + 1) // 2).astype(np.uint8)
    drawn: U8 = np.where((pixels == 0)[..., None], photo, mixed)
    return drawn


def _planes(name: str, array: Array, picture: Picture) -> Array:
    """Return an output as an array (channels, height, width): numbers, class indices, or color channels."""
    shape = list(array.shape)
    if array.dtype.kind not in "fiub" or array.ndim not in (2, 3) or 0 in shape:
        raise PixprepError(f'output "{name}" {array.dtype} {shape} is not a picture: expected two or three dimensions')
    planes = array[None] if array.ndim == 2 else array if picture.layout == "chw" else array.transpose(2, 0, 1)
    if not np.isfinite(planes).all():
        raise PixprepError(f'output "{name}" has values that are NaN or infinite')
    count = len(planes)
    if (picture.kind == "map" and count != 1) or (picture.kind == "image" and count not in (1, 3)):
        raise PixprepError(
            f'output "{name}" {shape} has {count} channels with layout={picture.layout}, but kind {picture.kind} has '
            f"{'1' if picture.kind == 'map' else '1 or 3'}: declare a different layout or kind"
        )
    if picture.kind != "classes":
        numbers: Array = planes.astype(np.float32)
        return numbers
    if count == 1 and planes.dtype.kind == "f" and picture.threshold is None:
        raise PixprepError(f'output "{name}" {shape} has a single score per pixel: declare threshold=NUMBER')
    if count > 1:
        classes = planes.argmax(axis=0, keepdims=True)
    else:
        classes = planes.astype(np.int64) if picture.threshold is None else planes > picture.threshold
    if classes.min() < 0 or classes.max() > 255:
        raise PixprepError(f'output "{name}" has the classes {classes.min()} to {classes.max()}, not 0 to 255')
    return np.asarray(classes)
