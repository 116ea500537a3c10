"""Builds requests to a model, with encoded images or pixels and with numeric inputs, from the model's configuration."""

from __future__ import annotations

import io
import json
import os
import shlex
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from tokenize import TokenError
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders import Encoded, Limits
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.engine.decoders.pixels import checked, shaped
from pixprep.engine.decoders.turbo import jpeg_of
from pixprep.errors import ImageError, PixprepError, printable
from pixprep.plan.plan import Plan
from pixprep.serving.triton.config import EXAMPLES, FRAMES, texts, triton_type
from pixprep.spec import KINDS, Color, FrameLayout, Frames

Config = Mapping[str, Any]
Array = npt.NDArray[Any]
Encodeds = bytes | Sequence[bytes]
"""One encoded image for all image inputs of a model, or a sequence with one encoded image per input."""
Post = tuple[dict[str, str], bytes]
"""Headers and body of an HTTP request. The header Inference-Header-Content-Length is the length of the JSON part."""
DTYPES: dict[str, Any] = {
    triton_type(name).removeprefix("TYPE_"): np.dtype(name)
    for name in ("bool", *(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)))
    if name != "float8"
}
"""NumPy dtypes by the name of Triton's numeric datatype."""
_NPY = b"\x93NUMPY"
_AXES = 2  # maximum number of dimensions of one row of a numeric input
_SIDE, _BLOCKS = 64, 8  # height and width of a sample image in pixels, and number of blocks along each
PHOTO, CLIP = "photo.jpg", "clip.mp4"
"""File names in example commands."""


@dataclass(frozen=True, kw_only=True)
class NumberInput:
    """Numeric input of a model, such as boxes. Each row of the input belongs to one output tensor.

    Attributes:
        name: Name of the input.
        datatype: Datatype of the tensor, in Triton's notation.
        shape: Shape of one row. -1 means any length.
        row: Example row from the model's configuration, or an empty sequence if it does not contain one.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    row: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """Minimum number of elements in a row."""
        return prod(abs(side) for side in self.shape)

    def rows(self, values: Any) -> Array:
        """Convert values to an array of shape ``(rows, *shape)`` with the datatype of the input.

        A single row may be passed without the first dimension.

        Raises:
            PixprepError: The values do not have this shape, or the datatype cannot represent them exactly.
        """
        try:
            array = np.asarray(values)
            if self._holds(array.shape) and (self.count > 1 or -1 in self.shape):
                array = array[None]
            elif self.count == 1 and -1 not in self.shape and array.ndim < 2:
                array = array.reshape(-1, 1)
            elif array.shape == (0,) and -1 not in self.shape:
                array = array.reshape(0, *self.shape)
            sent = array.astype(DTYPES[self.datatype])
            if self._holds(array.shape[1:]) and (self.datatype[:2] == "FP" or np.array_equal(sent, array)):
                return sent
        except (TypeError, ValueError):  # not numbers, or lists of different lengths
            pass
        raise PixprepError(f'input "{self.name}" must be {self}, such as {json.dumps([self.example])}')

    def _holds(self, shape: Sequence[int]) -> bool:
        """Return whether a row of the input may have this shape."""
        return len(shape) == len(self.shape) and all(b in (-1, a) for a, b in zip(shape, self.shape, strict=True))

    @property
    def example(self) -> list[Any]:
        """Row for trial requests: the example from the model's configuration, a typical row of this shape, or zeros."""
        usual = (kind.row for kind in KINDS.values() if (kind.dtype, kind.shape) == (DTYPES[self.datatype], self.shape))
        row = self.row or next(usual, ()) or [self.datatype != "BOOL" and 0] * self.count
        return np.reshape(row, [abs(side) for side in self.shape]).tolist()  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"{self.datatype} [n, {', '.join('any' if side == -1 else str(side) for side in self.shape)}]"


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """Image input of a model, or all image inputs of a model that compares images.

    Attributes:
        names: Names of the image inputs. A request contains one image per image input.
        datatype: Datatype of the image inputs.
        pixels: Pixel format if the model accepts pixels instead of encoded images; None for encoded images.
        frames: Number of frames that are sampled from a clip. None means that the model accepts images, or its
            configuration does not declare the number.
        max_batch_size: Maximum number of images per request. 0: a request contains one image, and the model returns one
            tensor for each row of ``numbers``.
        numbers: Numeric inputs that are sent together with the image.
        is_alone: Whether the model has exactly one input, including optional inputs. If so, the image may be the whole
            body of a request.
        is_packed: Whether a request contains any number of images without a batch dimension. The model concatenates the
            patches of these images.
    """

    names: tuple[str, ...]
    datatype: Literal["BYTES", "UINT8", "FP32"]
    max_batch_size: int
    pixels: Frames | None = None
    frames: int | None = None
    numbers: tuple[NumberInput, ...] = ()
    is_alone: bool = True
    is_packed: bool = False

    @property
    def name(self) -> str:
        """Name of the first image input."""
        return self.names[0]

    @property
    def has_rows(self) -> bool:
        """Whether the model returns one tensor per row of its numeric inputs, for example one tensor per box."""
        return self.max_batch_size == 0 and not self.is_packed

    def rows(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Convert the numeric inputs of one image to arrays, by input name.

        Raises:
            PixprepError: An input is missing, invalid, or not an input of the model.
        """
        names = [each.name for each in self.numbers]
        for name in values:
            if name not in names:
                raise PixprepError(
                    f'the model does not have an input "{name}"; its numeric inputs are {", ".join(names) or "none"}'
                )
        for each in self.numbers:
            if each.name not in values:
                option = f"--input {each.name}={json.dumps([each.example], separators=(',', ':'))}"
                raise PixprepError(f'the model requires input "{each.name}" ({each}) with each image, such as {option}')
        found = {each.name: each.rows(values[each.name]) for each in self.numbers}
        for name, array in found.items():
            if not self.has_rows and len(array) != 1:
                raise PixprepError(f'input "{name}" has {len(array)} rows: pass one row per image')
        return found

    @property
    def example(self) -> dict[str, Any]:
        """Example values of all numeric inputs of one image, by input name."""
        return {each.name: [each.example] for each in self.numbers}

    def images(self, encoded: Sequence[bytes]) -> Array:
        """Convert encoded images to the tensor of one input. If the model accepts pixels, the images are decoded.

        Raises:
            ImageError: An image cannot be decoded, or the decoded images differ in size.
        """
        if self.pixels:
            arrays = [pixels_of(image, self.pixels.order).astype(self.pixels.dtype, copy=False) for image in encoded]
            frames = arrays if self.pixels.layout == "hwc" else [array.transpose(2, 0, 1) for array in arrays]
            if len({frame.shape for frame in frames}) > 1:
                raise ImageError("UNSUPPORTED", "the images of one request differ in size: send one image per request")
            return np.stack(frames)
        if self.datatype == "BYTES":
            images = np.empty((len(encoded), 1), np.object_)
            images[:, 0] = encoded
            return images[:, 0] if self.is_packed else images
        return np.stack([np.frombuffer(image, np.uint8) for image in encoded])

    def tensors(self, encoded: Sequence[Encodeds], rows: Sequence[Mapping[str, Array]]) -> list[tuple[str, str, Array]]:
        """Return the inputs of a request as a list of (name, datatype, array).

        Args:
            encoded: Encoded images of the request.
            rows: Numeric inputs of each image, as returned by the method ``rows``.

        Raises:
            ImageError: See ``images``; or the numeric inputs of the images differ in shape.
        """
        parts = [(each,) * len(self.names) if isinstance(each, bytes) else tuple(each) for each in encoded]
        columns = [self.images(column) for column in zip(*parts, strict=True)]
        images = [column[0] for column in columns] if self.has_rows else columns
        numbers = []
        for each in self.numbers:
            if len({row[each.name].shape[1:] for row in rows}) > 1:
                raise ImageError(
                    "BAD_INPUT", f'the values of "{each.name}" differ in length: send one image per request'
                )
            numbers.append((each.name, each.datatype, np.concatenate([row[each.name] for row in rows])))
        return [*((name, self.datatype, array) for name, array in zip(self.names, images, strict=True)), *numbers]


def model_input(config: Config) -> ModelInput | None:
    """Find the image input in a model's configuration. Return None if the model does not have an image input.

    An input for encoded images is BYTES [1] or UINT8 [-1]. An input for pixels has three dimensions, such as UINT8 [-1,
    -1, 3]. Pixels with three channels are reported as RGB, because the configuration of an ensemble does not declare
    BGR; only the pixprep model inside the ensemble does.
    """
    images: list[tuple[str, str, Frames | None]] = []
    facts = texts(config)
    rows = json.loads(facts.get(EXAMPLES, "{}"))
    numbers = []
    batched = int(config.get("max_batch_size", 0)) > 0
    # Any other model with FP32 [3, height, width] expects preprocessed input, such as normalized values.
    is_ours = "pixprep" in str(config.get("backend", "")) or config.get("platform") == "ensemble"
    pixels = ("UINT8", "FP32") if is_ours else ("UINT8",)
    is_packed = False
    for entry in config["input"]:
        if entry.get("optional"):
            continue
        data_type, dims = entry["data_type"].removeprefix("TYPE_"), [int(dim) for dim in entry["dims"]]
        is_list = (data_type, dims) == ("STRING", [-1]) and not int(config.get("max_batch_size", 0)) and is_ours
        if is_list or (data_type, dims) in (("STRING", [1]), ("UINT8", [-1])):
            is_packed |= is_list
            images.append((entry["name"], data_type, None))
        elif data_type in pixels and len(dims) == 3 and {dims[0], dims[2]} & {1, 3}:
            layout: FrameLayout = "hwc" if dims[2] in (1, 3) else "chw"
            is_gray = dims[2 if layout == "hwc" else 0] == 1
            dtype: Literal["uint8", "float32"] = "uint8" if data_type == "UINT8" else "float32"
            images.append((entry["name"], data_type, Frames("gray" if is_gray else "rgb", dtype, layout)))
        elif (
            data_type in DTYPES
            and 0 < len(shape := dims if batched else dims[dims[0] == -1 :]) <= _AXES
            and (batched or min(shape) > 0)
        ):
            row = tuple(rows.get(entry["name"], ()))
            numbers.append(NumberInput(name=entry["name"], datatype=data_type, shape=tuple(shape), row=row))
        else:
            return None
    if len({each[1:] for each in images}) != 1:
        return None  # no image input, or image inputs of different kinds
    (_, data_type, order), max_batch_size = images[0], int(config.get("max_batch_size", 0))
    frames = facts.get(FRAMES, "")
    return ModelInput(
        names=tuple(name for name, *_ in images),
        datatype="BYTES" if data_type == "STRING" else data_type,  # type: ignore[arg-type]
        max_batch_size=max_batch_size,
        pixels=order,
        frames=int(frames) if frames.isdecimal() else None,
        numbers=tuple(numbers),
        is_alone=len(config["input"]) == 1,
        is_packed=is_packed,
    )


def http_body(tensors: Sequence[tuple[str, str, Array]]) -> Post:
    """Build an HTTP request in Triton's binary format. Each input of the request is (name, datatype, array)."""
    entries, parts = [], []
    for name, datatype, array in tensors:
        if datatype == "BYTES":
            data = b"".join(struct.pack("<I", len(value)) + value for value in array.reshape(-1))
        else:
            data = array.tobytes()
        entry = {"name": name, "shape": list(array.shape), "datatype": datatype}
        entries.append(entry | {"parameters": {"binary_data_size": len(data)}})
        parts.append(data)
    header = json.dumps({"inputs": entries}).encode()
    return {"Inference-Header-Content-Length": str(len(header))}, header + b"".join(parts)


def sample(config: Config) -> Post:
    """Build a request with a small random image and example values of the numeric inputs."""
    found, image = model_input(config) if config.get("input") else None, sample_jpeg()
    if found is None or (found.is_alone and not found.pixels):
        return {"Inference-Header-Content-Length": "0"}, image
    if found.pixels:
        (dims,) = (each["dims"] for each in config["input"] if each["name"] == found.name)
        sides = [_SIDE if int(dim) == -1 else int(dim) for dim in dims]
        image = npy(_new_pixels(*(sides if found.pixels.layout == "hwc" else [*sides[1:], sides[0]])))
    return http_body(found.tensors([image], [found.rows(found.example)]))


def sample_jpeg() -> bytes:
    """Return a small JPEG with random pixels.

    A probe must not repeat an image, because Triton with ``response_cache`` would respond from the cache even if the
    model's process has died. The same applies to a repeated tensor at a step of an ensemble.
    """
    return jpeg_of(_new_pixels(_SIDE, _SIDE, 3))


def _new_pixels(height: int, width: int, channels: int) -> Array:
    """Return an image of random blocks, so that the image remains random after a resize."""
    blocks = np.frombuffer(os.urandom(_BLOCKS * _BLOCKS * channels), np.uint8).reshape(_BLOCKS, _BLOCKS, channels)
    rows, columns = np.arange(height) * _BLOCKS // height, np.arange(width) * _BLOCKS // width
    pixels: Array = blocks[rows[:, None], columns]
    return pixels


def curl_line(http_url: str, model: str, *, photo: str) -> str:
    """Return a curl command line that sends a photo or a clip to a model whose only input is one encoded image.

    Args:
        http_url: URL of Triton's HTTP port.
        model: Name of the model.
        photo: File name of the photo.
    """
    return (
        f"curl --data-binary {shlex.quote(f'@{photo}')} -H 'Inference-Header-Content-Length: 0' "
        f"-H 'Content-Type: application/octet-stream' {http_url}/v2/models/{quote(model)}/infer -o answer.bin"
    )


def npy(array: Array) -> bytes:
    """Return the content of an .npy file that contains an array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def pixels_of(content: Encoded, order: Color) -> Array:
    """Decode a photo and apply its EXIF orientation, or load the pixels in an .npy file.

    Args:
        content: Content of the image file or .npy file.
        order: Channel order of the result. The array in an .npy file must already have this order.

    Returns:
        uint8 array of shape (height, width, 3), or (height, width, 1) for ``gray``.

    Raises:
        ImageError: The file cannot be decoded, or its array does not contain pixels.
    """
    limits = Limits()
    if bytes(content[:6]) == _NPY:
        try:
            array = shaped(checked(np.load(io.BytesIO(content), allow_pickle=False)), Frames(order))
            limits.check_size(*array.shape[:2])
            return np.ascontiguousarray(array)
        except TypeError as error:
            raise ImageError("UNSUPPORTED", f"an .npy file: {error}") from None
        except (ArithmeticError, ValueError, EOFError, SyntaxError, MemoryError, TokenError) as error:  # bad header
            raise ImageError("CORRUPT", f"an .npy file: {printable(error)[:200]}") from None
    plan = Plan(is_gray=order == "gray", apply_exif_orientation=True, outputs={})
    with CpuDecoder(plan, limits).decoded(content) as image:
        if isinstance(image, ImageError):
            raise image
        channels = {"rgb": [0, 1, 2], "bgr": [2, 1, 0], "gray": [0]}[order]
        pixels: Array = image.pixels[:, :, channels]
    return pixels
