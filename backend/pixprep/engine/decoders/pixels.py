"""Accept images as arrays of pixels, which do not need to be decoded. The shape of an array replaces the header.

An array is copied here only if the kernels of a GPU cannot read it in place. If the C kernels need a different layout,
the resize copies only the rows and columns that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pixprep.engine.decoders import Chunk, Decoded, Limits, Pixels, neighbours
from pixprep.errors import ImageError
from pixprep.plan.plan import Place, Plan
from pixprep.spec import Frames

MAX_IMAGES = 128
"""Maximum number of images per chunk on a GPU, the same as in the decoder of the GPU."""


class PixelsDecoder:
    """See ``Decoder``. The pixels are views of the input, uint8, (height, width, 3) RGB or (height, width, 1) gray.

    Args:
        plan: Plan whose input is pixels.
        limits: Limits of the engine. Only ``max_side`` and ``max_pixels`` apply to pixels.
        of: Function that returns a value as an array of the device without copying it. It raises TypeError if the value
            is not an array.
        ready: Function that converts an array (height, width, channels) to a layout that the kernels can read. Default:
            no conversion.
        budget: Maximum number of bytes of the pixels of a chunk. None means that each chunk is a single image.
    """

    words = "no decoder (the input is pixels)"

    def __init__(
        self,
        plan: Plan,
        limits: Limits,
        *,
        of: Callable[[Any], Pixels],
        ready: Callable[[Pixels], Pixels] | None = None,
        budget: int | None = None,
    ) -> None:
        assert plan.takes is not None
        self._frames = plan.takes
        self._limits = limits
        self._of = of
        self._ready = ready
        self._budget = budget

    def chunks(self, encoded: Any, places: Sequence[Place], *, is_whole: bool = True) -> Iterator[Chunk]:
        """See ``Decoder``. ``encoded`` is a list of arrays, or one array (n, height, width, channels).

        Raises:
            TypeError: ``encoded`` has a different type, or a dtype is not supported. The error is raised before any
                image is processed.
        """
        del is_whole  # arrays always contain all pixels
        return self._cut(list(zip(self._all(encoded), places, strict=True)))

    def decode(self, chunk: Chunk) -> AbstractContextManager[list[Decoded | ImageError]]:
        """See ``Decoder``. The pixels share the memory of the input."""
        return nullcontext([self._decoded(array, place) for array, place in chunk.images])

    def trim(self) -> None:
        """See ``Decoder``. This decoder does not cache memory."""

    def close(self) -> None:
        """See ``Decoder``. This decoder does not have threads or memory of its own."""

    def _all(self, images: Any) -> list[Pixels]:
        is_list = isinstance(images, Sequence) and not isinstance(images, bytes | bytearray | memoryview | str)
        if not is_list:
            array = checked(images, self._of, dtypes=self._frames.dtypes)
            if array.ndim != 4:
                raise TypeError(
                    "the input must be a list of arrays, or one array (n, height, width, channels), not an array "
                    f"{_shape(array)}: pass [array] for a single image"
                )
            return [array[index] for index in range(len(array))]
        count, dtypes = len(images), self._frames.dtypes
        return [checked(one, self._of, f"image {at} of {count}", dtypes) for at, one in enumerate(images, 1)]

    def _cut(self, images: Sequence[tuple[Pixels, Place]]) -> Iterator[Chunk]:
        """Split images into chunks.

        Without a budget, each chunk is a single image, and the largest image is first. With a budget, a chunk consists
        of consecutive images within the budget, and two or more images are split into at least two chunks.
        """
        if self._budget is None:
            sizes = [array.nbytes for array, _ in images]
            for index in sorted(range(len(images)), key=sizes.__getitem__, reverse=True):
                yield Chunk((index,), (images[index],))
            return
        count = min(MAX_IMAGES, max(1, -(-len(images) // 2)))
        for begin in range(0, len(images), count):
            for start, end in neighbours([array.nbytes for array, _ in images[begin : begin + count]], self._budget):
                yield Chunk(range(begin + start, begin + end), images[begin + start : begin + end])

    def _decoded(self, array: Pixels, place: Place) -> Decoded | ImageError:
        try:
            pixels = shaped(array, self._frames)
            self._limits.check_size(*pixels.shape[:2])
            placed = place(*pixels.shape[:2])
            pixels = levels(pixels, self._frames.window)
        except ImageError as error:
            return error.as_value()
        pixels = pixels[:, :, ::-1] if self._frames.order == "bgr" else pixels
        return Decoded(self._ready(pixels) if self._ready else pixels, placed)


def host_array(value: Any) -> Pixels:
    """Return an array of NumPy, PyTorch, JAX or TensorFlow, or a Pillow image, as a NumPy array.

    The array is not copied if possible.

    Raises:
        TypeError: The value is not an array, or it is on a GPU.
    """
    if isinstance(value, np.ndarray):
        return value
    if not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        raise TypeError("is not an array")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # raised by CuPy and PyTorch for arrays on a GPU
        raise TypeError(
            'is not an array in host memory: use an engine with device="gpu", or copy it to the host'
        ) from None


def checked(
    value: Any, of: Callable[[Any], Pixels] = host_array, which: str = "", dtypes: Sequence[str] = ("uint8",)
) -> Pixels:
    """Return a value as an array of any shape, and check its dtype.

    Args:
        value: Array that the caller passed.
        of: Function that converts the value to an array; see ``PixelsDecoder``.
        which: Description of the image at the beginning of error messages, such as ``image 1 of 2``.
        dtypes: Accepted dtypes.

    Raises:
        TypeError: The value is not an array of such a dtype.
    """
    kind, begin = type(value).__name__, f"{which}: " * bool(which)
    if isinstance(value, bytes | bytearray | memoryview | str):
        hint = "to pass the bytes of files, begin the pipeline with decode"
        raise TypeError(f"{begin}this pipeline begins with pixels and accepts arrays, not {kind}: {hint}")
    try:
        array = of(value)
    except TypeError as error:
        raise TypeError(f"{begin}{kind} {error}") from None
    if array.dtype not in dtypes:
        limits = ", 0 to 255" * ("uint8" in dtypes)
        raise TypeError(f"{begin}{kind} of {array.dtype}: pixels must be {' or '.join(dtypes)}{limits}")
    return array


def levels(array: Pixels, window: tuple[float, float] | None = None) -> Pixels:
    """Convert pixels to uint8. An array of uint8 is returned unchanged; other arrays are copied.

    Args:
        array: Pixels on any device.
        window: Values that are mapped to 0 and 255; see ``window`` of the op ``pixels``.

    Raises:
        ImageError: BAD_INPUT: Without a window, a value is not an integer from 0 to 255. With one, a value is NaN.
    """
    if array.dtype == np.uint8:
        return array
    if window is not None:
        if (array != array).any():  # noqa: PLR0124  (arrays of any library)
            raise ImageError("BAD_INPUT", "a pixel is NaN: replace it by a number")
        low, high = window
        return ((array.astype(np.float64).clip(low, high) - low) * 255 / (high - low) + 0.5).astype(np.uint8)
    with np.errstate(
        invalid="ignore"
    ):  # the check below detects NaN and values out of range, which the conversion changes
        converted = array.astype(np.uint8)
    if not (converted == array).all():
        raise ImageError(
            "BAD_INPUT",
            "float32 pixels must be integers from 0 to 255: multiply values from 0 to 1 by 255, and round them",
        )
    return converted


def shaped(array: Pixels, frames: Frames) -> Pixels:
    """Return a view of an image as (height, width, 3), or as (height, width, 1) if it is gray.

    Raises:
        ImageError: UNSUPPORTED: The shape does not match ``frames``.
    """
    count = frames.channels
    if array.ndim == 2 and count == 1:
        array = array[:, :, None] if frames.layout == "hwc" else array[None]
    if array.ndim == 3 and array.shape[2 if frames.layout == "hwc" else 0] == count:
        return array if frames.layout == "hwc" else array.transpose(1, 2, 0)
    hint = ""
    if frames.layout == "chw":
        expected = f"({count}, height, width)" + " or (height, width)" * (count == 1)
        raise ImageError("UNSUPPORTED", f"the pixels must have the shape {expected}, not {_shape(array)}")
    if array.ndim == 3 and array.shape[0] == count:
        hint = ": move the channels to the end with array.transpose(1, 2, 0), or permute(1, 2, 0) in PyTorch"
    elif array.ndim == 3 and array.shape[2] == 4:
        hint = ": remove the fourth channel with array[:, :, :3]"
    elif array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1):
        hint = ': set "color": "gray" for gray images'
    expected = f"(height, width, {count})" + " or (height, width)" * (count == 1)
    raise ImageError("UNSUPPORTED", f"the pixels must have the shape {expected}, not {_shape(array)}{hint}")


def _shape(array: Pixels) -> str:
    return f"({', '.join(map(str, array.shape))}{',' * (array.ndim == 1)})"
