"""Decoders turn encoded bytes into pixels, or into an ImageError with the reason. Each device has its own decoder."""

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
"""Decoded image. On the CPU it is a C-contiguous NumPy array of uint8: (height, width, 4) RGB with an unused fourth
byte, or (height, width, 1) gray. With four bytes per pixel, SIMD vectors contain complete pixels, and Pillow reads the
array without a copy. For a pipeline that takes pixels, it is a view of the input: (height, width, 3) RGB or
(height, width, 1) gray, with any strides."""


class Decoded(NamedTuple):
    """One decoded image.

    Attributes:
        pixels: Pixels on the decoder's device. Pixels that no output needs may be undefined; see ``Decoder.chunks``.
        placed: Size of the complete image, and its position in every output.
        is_recovered: Whether the image is a damaged JPEG that was decoded nevertheless, which ``damage="pillow"`` and
            ``damage="lenient"`` allow.
        is_fallback: Whether the GPU's decoders rejected the image, and the CPU decoded it.
    """

    pixels: Pixels
    placed: Placed
    is_recovered: bool = False
    is_fallback: bool = False


@dataclass(frozen=True)
class Kept:
    """A cached image, decoded earlier for the same plan. The CPU decoder accepts it in place of encoded bytes.

    Attributes:
        pixels: Copy of the complete ``Decoded.pixels`` of an image that was not ``reduced``.
    """

    pixels: Pixels


class Chunk(NamedTuple):
    """Images of a batch that are decoded together.

    Attributes:
        indices: Index of each image in the batch.
        images: Images in the decoder's own representation, each with its placement or the function that computes it.
    """

    indices: Sequence[int]
    images: Sequence[Any]


def neighbours(sizes: Sequence[int], budget: int) -> Iterator[tuple[int, int]]:
    """Split images into chunks (start, end) of neighbors that fit into a budget of bytes, or of a single image."""
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
    """Limits that are checked in the header before memory is allocated; each is also a parameter of the Triton model.

    Attributes:
        formats: Accepted formats. ``avif`` and ``heic`` need their decoders.
        max_image_bytes: Maximum number of bytes of an encoded image.
        max_side: Maximum height and width in pixels.
        max_pixels: Maximum product of height and width.
        max_expansion: Maximum number of decoded bytes, three per pixel, for each encoded byte; 0 means no limit. Every
            useful limit would also reject valid images: a blank page of 35 megapixels takes 18 kB as a one-bit PNG, a
            factor of 6,000. ``max_pixels`` bounds the cost of a decompression bomb. A JPEG with less data than its
            header requires is always rejected.
        max_scans: Maximum number of scans of a progressive JPEG. Each scan takes 30 ms at 50 megapixels, however few
            bytes it has. Encoders write about 10 scans.
        max_frames: Maximum number of frames of a GIF, WebP, PNG or TIFF; 0 means no limit. Only the first frame is
            decoded, and for AVIF and HEIC the still picture.
        max_boxes: Maximum number of boxes per image. Each box yields a tensor of the response. The default equals the
            default batch size of a classifier.
        max_box_pixels: Maximum number of pixels that all boxes of an image cover in total, counting only their parts
            inside the image. Resizing 50 megapixels takes 0.05 s with Pillow's arithmetic, and 2 to 3 s with
            PyTorch's and DALI's.
        max_clip_s: Maximum duration of a clip from its first to its last frame, in seconds.
        max_clip_frames: Maximum number of frames in the file of a clip.
        max_clip_pixels: Maximum product of height, width and number of requested frames of a clip.
        max_decode_s: Maximum time in seconds for decoding a clip, checked after every packet.
        max_pixels_in_flight: Maximum number of pixels of all images that a CPU engine processes at once; further images
            wait. A larger image is processed alone. Arrays of pixels do not count, because they are in memory already.
            A GPU has its own memory budget in bytes.
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
            raise ImageError("EMPTY", "no bytes")
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
                f"{called(name)}; only {', '.join(self.formats)} may come here (parameter formats): "
                "send it as one of these",
            )

    def check_size(self, height: int, width: int, n_bytes: int | None = None) -> None:
        """Raise the ImageError BAD_DIMENSIONS or TOO_MANY_PIXELS; ``n_bytes`` is the encoded size."""
        if not (1 <= height <= self.max_side and 1 <= width <= self.max_side):
            raise ImageError(
                "BAD_DIMENSIONS", f"{height} x {width} pixels; a side has 1 to {self.max_side} (parameter max_side)"
            )
        if height * width > self.max_pixels:
            raise ImageError(
                "TOO_MANY_PIXELS", f"{height} x {width} pixels; the limit is {self.max_pixels:,} (parameter max_pixels)"
            )
        if self.max_expansion and n_bytes and 3 * height * width > self.max_expansion * n_bytes:
            raise ImageError(
                "TOO_MANY_PIXELS",
                f"{height} x {width} pixels in {n_bytes:,} bytes, {3 * height * width // n_bytes:,} times as many; "
                f"the limit is {self.max_expansion:,} (parameter max_expansion)",
            )


def check_encoded(encoded: object) -> None:
    """Reject anything other than a list of encoded images.

    Without this check, the bytes of one image would count as a list with as many images as bytes, and allocate up to
    110 GiB of tensors.

    Raises:
        TypeError: The value is not such a list. The message names the expected type.
    """
    kinds = (bytes, bytearray, memoryview)
    if not isinstance(encoded, Sequence) or isinstance(encoded, (*kinds, str)):
        hint = ": write [image] for one" if isinstance(encoded, kinds) else _read(encoded)
        kind = f"{type(encoded).__name__}{hint or _arrays(encoded)}"
        raise TypeError(f"an engine takes a list of encoded images, each the bytes of a file; given was {kind}")
    if {*map(type, encoded)} <= {*kinds, Kept, ImageError}:  # 20 ns per image
        return
    for index, image in enumerate(encoded):
        if not isinstance(image, (*kinds, Kept, ImageError)):
            where = f"image {index + 1} of {len(encoded)}"
            raise TypeError(
                f"{where} is not the bytes of a file, but {type(image).__name__}{_read(image) or _arrays(image)}"
            )


def _read(value: object) -> str:
    """Return a hint for a path that was passed in place of an image's bytes."""
    return ": read the file, as by Path(name).read_bytes()" if isinstance(value, str | PathLike) else ""


def _arrays(value: object) -> str:
    """Return a hint for pixels that were passed in place of encoded images."""
    return ": a pipeline whose first op is pixels takes arrays" if hasattr(value, "__array_interface__") else ""


class Decoder(Protocol):
    """Decoder of one engine. Several threads of the engine may call it.

    Attributes:
        words: Description of the decoder for logs.
    """

    words: str

    def chunks(self, encoded: Sequence[Encoded], places: Sequence[Place], *, is_whole: bool = True) -> Iterator[Chunk]:
        """Split a batch into chunks. The images of a chunk are decoded together, and are in memory at the same time.

        ``places`` contains one function per image, which is called once with the height and width as soon as they are
        known. Unless ``is_whole``, pixels that no tensor needs may be left undecoded; their memory may then contain
        pixels of a different image.
        """

    def decode(self, chunk: Chunk) -> AbstractContextManager[list[Decoded | ImageError]]:
        """Decode the images of one of this decoder's chunks.

        Returns:
            For each image, in order, its pixels or an ImageError with the reason. The decoder owns the memory of the
            pixels, which remain valid until the context ends; on a GPU, until the work of the lane's stream ends.
        """

    def trim(self) -> None:
        """Free the memory that is kept for later images. Any thread may call this."""

    def close(self) -> None:
        """End the decoder's threads, if any. Nothing can be decoded afterwards."""
