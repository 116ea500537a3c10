"""Accepts images as arrays of pixels, which do not need to be decoded. The array's shape replaces the header.

Arrays are copied here only if a GPU's kernels cannot read them in place. If the C kernels need a different layout, the
resize copies only the rows and columns that it reads.
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

MOST = 128
"""Maximum number of images per chunk on a GPU, as for the GPU's decoder."""


class PixelsDecoder:
    """See ``Decoder``. Pixels are views of the input: uint8 (height, width, 3) RGB, or (height, width, 1) gray.

    Args:
        plan: Plan whose input is pixels.
        limits: Limits of the engine. Only ``max_side`` and ``max_pixels`` apply to pixels.
        of: Function that returns a value as an array of the device, without a copy, and raises TypeError for any value
            that is not an array.
        ready: Function that converts such an array (height, width, channels) to a layout that the kernels can read.
            Default: no conversion.
        budget: Maximum number of bytes of the pixels of one chunk. None: each chunk is one image.
    """

    words = "nothing: pixels come"

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
            TypeError: The input is neither, or its dtype is not supported. Raised before any image is processed.
        """
        del is_whole  # they all are
        return self._cut(list(zip(self._all(encoded), places, strict=True)))

    def decode(self, chunk: Chunk) -> AbstractContextManager[list[Decoded | ImageError]]:
        """See ``Decoder``. The pixels share the memory of the input."""
        return nullcontext([self._decoded(array, place) for array, place in chunk.images])

    def trim(self) -> None:
        """See ``Decoder``: nothing is kept."""

    def close(self) -> None:
        """Do nothing: no thread, no memory."""

    def _all(self, images: Any) -> list[Pixels]:
        is_list = isinstance(images, Sequence) and not isinstance(images, bytes | bytearray | memoryview | str)
        if not is_list:
            array = checked(images, self._of, dtypes=self._frames.dtypes)
            if array.ndim != 4:
                raise TypeError(
                    f"given was one array {_shape(array)}: write [array] for one image; a list of arrays may differ in "
                    "size, and one array (n, height, width, channels) has n images"
                )
            return [array[index] for index in range(len(array))]
        count, dtypes = len(images), self._frames.dtypes
        return [checked(one, self._of, f"image {at} of {count}", dtypes) for at, one in enumerate(images, 1)]

    def _cut(self, images: Sequence[tuple[Pixels, Place]]) -> Iterator[Chunk]:
        """One image each, the largest first; or neighbours that fit into the budget, in two chunks at least."""
        if self._budget is None:
            sizes = [array.nbytes for array, _ in images]
            for index in sorted(range(len(images)), key=sizes.__getitem__, reverse=True):
                yield Chunk((index,), (images[index],))
            return
        most = min(MOST, max(1, -(-len(images) // 2)))
        for begin in range(0, len(images), most):
            for start, end in neighbours([array.nbytes for array, _ in images[begin : begin + most]], self._budget):
                yield Chunk(range(begin + start, begin + end), images[begin + start : begin + end])

    def _decoded(self, array: Pixels, place: Place) -> Decoded | ImageError:
        try:
            pixels = shaped(array, self._frames)
            self._limits.check_size(*pixels.shape[:2])
            placed = place(*pixels.shape[:2])
            pixels = levels(pixels)
        except ImageError as error:
            return error.as_value()
        pixels = pixels[:, :, ::-1] if self._frames.order == "bgr" else pixels
        return Decoded(self._ready(pixels) if self._ready else pixels, placed)


def host_array(value: Any) -> Pixels:
    """Return a value of NumPy, PyTorch, JAX, TensorFlow or Pillow as a NumPy array, without a copy where possible.

    Raises:
        TypeError: The value is not an array, or it is on a GPU.
    """
    if isinstance(value, np.ndarray):
        return value
    if not (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        raise TypeError("is no array")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # raised by CuPy and PyTorch for arrays on a GPU
        raise TypeError(
            'is no array in host memory: take an engine with device="gpu", or copy it to the host'
        ) from None


def checked(
    value: Any, of: Callable[[Any], Pixels] = host_array, which: str = "", dtypes: Sequence[str] = ("uint8",)
) -> Pixels:
    """Return a value as an array of any shape whose dtype is one of ``dtypes``.

    Raises:
        TypeError: The value is not such an array. The message begins with ``which`` image it is, if set.
    """
    kind, begin = type(value).__name__, f"{which}: " * bool(which)
    if isinstance(value, bytes | bytearray | memoryview | str):
        hint = "a pipeline that begins with decode takes the bytes of files"
        raise TypeError(f"{begin}this pipeline begins with pixels, which takes arrays, not {kind}: {hint}")
    try:
        array = of(value)
    except TypeError as error:
        raise TypeError(f"{begin}{kind} {error}") from None
    if array.dtype not in dtypes:
        raise TypeError(f"{begin}{kind} of {array.dtype}: pixels are {' or '.join(dtypes)}, 0 to 255")
    return array


def levels(array: Pixels) -> Pixels:
    """Convert pixels to uint8. Pixels of float32 are copied.

    Raises:
        ImageError: BAD_INPUT: A value is not an integer of 0 to 255.
    """
    if array.dtype == np.uint8:
        return array
    with np.errstate(invalid="ignore"):  # NaN and values out of range change, and are detected below
        whole = array.astype(np.uint8)
    if not (whole == array).all():
        raise ImageError(
            "BAD_INPUT",
            "float32 pixels are whole levels, 0 to 255, and a value is not: send values of 0 to 1 times 255, rounded",
        )
    return whole


def shaped(array: Pixels, frames: Frames) -> Pixels:
    """Return a view of an array as (height, width, 3), or (height, width, 1) gray.

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
        wanted = f"({count}, height, width)" + " or (height, width)" * (count == 1)
        raise ImageError("UNSUPPORTED", f"an array {_shape(array)}; the pipeline takes {wanted}")
    if array.ndim == 3 and array.shape[0] == count:
        hint = ": channels come last, as array.transpose(1, 2, 0) has them, or permute of PyTorch"
    elif array.ndim == 3 and array.shape[2] == 4:
        hint = ": leave the fourth channel out, as array[:, :, :3] does"
    elif array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1):
        hint = ': for gray images, pixels has "color": "gray"'
    wanted = f"(height, width, {count})" + " or (height, width)" * (count == 1)
    raise ImageError("UNSUPPORTED", f"an array {_shape(array)}; the pipeline takes {wanted}{hint}")


def _shape(array: Pixels) -> str:
    return f"({', '.join(map(str, array.shape))}{',' * (array.ndim == 1)})"
