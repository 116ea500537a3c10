"""Decoders convert encoded images to pixels, or to an ImageError with the reason. Each device has its own decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Protocol

from pixprep.engine.options import Limits as Limits
from pixprep.errors import ImageError
from pixprep.formats import CODECS as CODECS
from pixprep.formats import DAMAGES as DAMAGES
from pixprep.formats import FORMATS as FORMATS
from pixprep.formats import KINDS as KINDS
from pixprep.formats import NAMES as NAMES
from pixprep.formats import USUAL as USUAL
from pixprep.formats import Codec as Codec
from pixprep.formats import Damage as Damage
from pixprep.formats import Format as Format
from pixprep.formats import Kind as Kind
from pixprep.formats import called as called
from pixprep.plan.plan import Place, Placed

Encoded = bytes | bytearray | memoryview
Pixels = Any
"""Pixels of a decoded image, uint8. On the CPU they are a C-contiguous NumPy array, (height, width, 4) RGB with an
unused fourth byte, or (height, width, 1) gray. With four bytes per pixel, SIMD vectors contain complete pixels, and
pixels are copied from Pillow without a conversion. If a pipeline begins with ``pixels``, they are a view of the input,
(height, width, 3) RGB or (height, width, 1) gray, with any strides."""


class Decoded(NamedTuple):
    """One decoded image.

    Attributes:
        pixels: Pixels on the decoder's device. Pixels that no output needs may be undefined; see ``Decoder.chunks``.
        placed: Size of the complete image, and its placement in every output.
        is_recovered: Whether the image is a damaged file that was decoded nevertheless, because ``damage`` is
            ``"pillow"`` or ``"lenient"``.
        is_fallback: Whether the CPU decoded the image because the decoders of the GPU rejected it.
    """

    pixels: Pixels
    placed: Placed
    is_recovered: bool = False
    is_fallback: bool = False


@dataclass(frozen=True)
class Kept:
    """Pixels of an image that is already decoded, such as cached pixels.

    The CPU decoder accepts such an image in place of encoded bytes.

    Attributes:
        pixels: Complete copy of ``Decoded.pixels`` of the same plan, decoded at the full size of the image, or an array
            (height, width, 3) RGB with any strides.
    """

    pixels: Pixels


class Chunk(NamedTuple):
    """Images of a batch that are decoded together.

    Attributes:
        indices: Index of each image in the batch.
        images: Images in the decoder's own representation. Each contains its placement, or the function that computes
            the placement.
    """

    indices: Sequence[int]
    images: Sequence[Any]


def neighbours(sizes: Sequence[int], budget: int) -> Iterator[tuple[int, int]]:
    """Split images into chunks (start, end) of neighbors whose total size in bytes does not exceed a budget.

    An image that is larger than the budget is a chunk of its own.
    """
    start = used = 0
    for index, size in enumerate(sizes):
        if index > start and used + size > budget:
            yield start, index
            start, used = index, 0
        used += size
    if sizes:
        yield start, len(sizes)


def check_encoded(encoded: object) -> None:
    """Check that the value is a list of encoded images.

    Without this check, the bytes of a single image would be treated as a list with one image per byte, for which up to
    110 GiB of tensors would be allocated.

    Raises:
        TypeError: The value is not such a list.
    """
    kinds = (bytes, bytearray, memoryview)
    if not isinstance(encoded, Sequence) or isinstance(encoded, (*kinds, str)):
        hint = ": pass [image] for a single image" if isinstance(encoded, kinds) else _path_hint(encoded)
        kind = f"{type(encoded).__name__}{hint or _array_hint(encoded)}"
        raise TypeError(f"encoded must be a list of images, each the bytes of a file, not {kind}")
    if {*map(type, encoded)} <= {*kinds, Kept, ImageError}:  # 20 ns per image
        return
    for index, image in enumerate(encoded):
        if not isinstance(image, (*kinds, Kept, ImageError)):
            where = f"image {index + 1} of {len(encoded)}"
            raise TypeError(
                f"{where} must be the bytes of a file, not {type(image).__name__}"
                f"{_path_hint(image) or _array_hint(image)}"
            )


def _path_hint(value: object) -> str:
    """Return a hint for a path that was passed in place of an image's bytes."""
    return ": read the file with Path(name).read_bytes()" if isinstance(value, str | PathLike) else ""


def _array_hint(value: object) -> str:
    """Return a hint for pixels that were passed in place of encoded images."""
    return ": only a pipeline whose first op is pixels accepts arrays" if hasattr(value, "__array_interface__") else ""


class Decoder(Protocol):
    """Interface of a decoder. Several threads of an engine may call it at the same time.

    Attributes:
        words: Description of the decoder for logs.
    """

    words: str

    def chunks(self, encoded: Sequence[Encoded], places: Sequence[Place], *, is_whole: bool = True) -> Iterator[Chunk]:
        """Split a batch into chunks. The images of a chunk are decoded together, and are in memory at the same time.

        Args:
            encoded: The encoded images.
            places: Functions that compute the placement of each image. Each is called once with the height and width of
                the image, as soon as they are known.
            is_whole: Whether to decode all pixels. If False, pixels that no tensor needs may remain undecoded; their
                memory may then contain pixels of a different image.
        """

    def decode(self, chunk: Chunk) -> AbstractContextManager[list[Decoded | ImageError]]:
        """Decode the images of one of this decoder's chunks.

        Returns:
            The decoded image, or an ImageError with the reason, for each image in order. The decoder owns the memory of
            the pixels. They are valid until the context exits, or on a GPU until the work queued on the stream of the
            lane has finished.
        """

    def trim(self) -> None:
        """Free the memory that is cached for later images. Any thread may call this."""

    def close(self) -> None:
        """Stop the threads of the decoder, if any. It cannot be used afterwards."""
