"""Decoders convert encoded images to pixels, or to an ImageError with the reason. Each device has its own decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Protocol

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


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that are checked in the header of an image, before memory for its pixels is allocated.

    Each limit is also a parameter of the Triton model.

    Attributes:
        formats: Accepted formats. ``avif`` and ``heic`` require optional decoders.
        max_image_bytes: Maximum number of bytes of an encoded image.
        max_side: Maximum height and width in pixels.
        max_pixels: Maximum product of height and width.
        max_expansion: Maximum ratio of decoded bytes, three per pixel, to encoded bytes; 0 means no limit. Every useful
            limit would also reject valid images, for example a blank page of 35 megapixels, which takes 18 kB as a
            one-bit PNG, a ratio of 6,000. ``max_pixels`` bounds the cost of a decompression bomb. A JPEG with less data
            than its header requires is always rejected.
        max_scans: Maximum number of scans of a progressive JPEG. Each scan takes 30 ms at 50 megapixels, even if it
            consists of a few bytes. Encoders write about 10 scans.
        max_frames: Maximum number of frames of a GIF, WebP, PNG or TIFF; 0 means no limit. Only the first frame is
            decoded. For AVIF and HEIC, only the primary image is decoded.
        max_boxes: Maximum number of boxes per image. Each box produces one tensor of the response. The default equals
            the default batch size of a classifier.
        max_box_pixels: Maximum total number of pixels of all boxes of an image, where only the part of a box inside
            the image counts. Resizing 50 megapixels takes 0.05 s with Pillow's arithmetic, and 2 to 3 s with PyTorch's
            and DALI's.
        max_clip_s: Maximum duration of a clip from its first to its last frame, in seconds.
        max_clip_frames: Maximum number of frames in the file of a clip.
        max_clip_pixels: Maximum product of height, width and number of requested frames of a clip.
        max_decode_s: Maximum time in seconds for decoding a clip, checked after every packet.
        max_pixels_in_flight: Maximum total number of pixels of the images that a CPU engine processes at the same time;
            further images wait. An image above the maximum is processed alone. Images that are passed as arrays do not
            count, because they are already in memory. On a GPU, a memory budget in bytes applies instead.
    """

    formats: tuple[Format, ...] = USUAL
    max_image_bytes: int = 20 << 20
    max_side: int = 16384
    max_pixels: int = 50_000_000
    max_expansion: int = 0
    max_scans: int = 100
    max_frames: int = 0
    max_boxes: int = 64
    max_box_pixels: int = 256_000_000
    max_clip_s: int = 600
    max_clip_frames: int = 50_000
    max_clip_pixels: int = 500_000_000
    max_decode_s: int = 60
    max_pixels_in_flight: int = 256_000_000

    def check_bytes(self, n_bytes: int) -> None:
        """Raise the ImageError EMPTY or TOO_LARGE_BYTES if the number of bytes is not allowed."""
        if n_bytes == 0:
            raise ImageError("EMPTY", "the image is empty")
        if n_bytes > self.max_image_bytes:
            raise ImageError(
                "TOO_LARGE_BYTES",
                f"{n_bytes:,} bytes; the limit is {self.max_image_bytes:,} (parameter max_image_bytes)",
            )

    def check_format(self, name: Format) -> None:
        """Raise the ImageError UNSUPPORTED if the format is not allowed."""
        if name not in self.formats:
            raise ImageError(
                "UNSUPPORTED",
                f"{called(name)} is not accepted (parameter formats: {', '.join(self.formats)}): convert the image",
            )

    def check_size(self, height: int, width: int, n_bytes: int | None = None) -> None:
        """Raise the ImageError BAD_DIMENSIONS or TOO_MANY_PIXELS if the size of the image is not allowed.

        ``n_bytes`` is the number of encoded bytes, for ``max_expansion``.
        """
        if not (1 <= height <= self.max_side and 1 <= width <= self.max_side):
            raise ImageError(
                "BAD_DIMENSIONS",
                f"{height} x {width} pixels; height and width must be 1 to {self.max_side} (parameter max_side)",
            )
        if height * width > self.max_pixels:
            raise ImageError(
                "TOO_MANY_PIXELS", f"{height} x {width} pixels; the limit is {self.max_pixels:,} (parameter max_pixels)"
            )
        if self.max_expansion and n_bytes and 3 * height * width > self.max_expansion * n_bytes:
            raise ImageError(
                "TOO_MANY_PIXELS",
                f"{height} x {width} pixels in {n_bytes:,} bytes, an expansion by a factor of "
                f"{3 * height * width // n_bytes:,}; the limit is {self.max_expansion:,} (parameter max_expansion)",
            )


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
