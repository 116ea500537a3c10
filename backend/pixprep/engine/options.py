"""Options of an engine: limits and decoding. The Loader, the Triton model and the commands also accept them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pixprep.errors import ImageError, PipelineError
from pixprep.formats import CODECS, DAMAGES, USUAL, Codec, Damage, Format, called
from pixprep.options import Shell


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


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Validated options of an ``Engine``, which documents them. Pass them as ``Engine(pipeline, **vars(options))``.

    Attributes:
        device: Device to run on: cpu, gpu, or the index of a GPU such as gpu:1.
        threads: Number of threads; default: one for each core of this process.
        damage: Which damaged JPEGs to reject; default: strict on the CPU, structural on a GPU.
        decoder: JPEG decoder on a GPU.

    Raises:
        PipelineError: The value of an option is invalid.
    """

    device: str = "cpu"
    threads: int | None = None
    limits: Annotated[Limits, Shell(is_hidden=True)] = field(default_factory=Limits)
    damage: Damage | None = None
    decoder: Codec = "consistent"
    odd_range: Annotated[bool, Shell(is_hidden=True)] = False

    def __post_init__(self) -> None:
        for name, value, choices in (("damage", self.damage, DAMAGES), ("decoder", self.decoder, CODECS)):
            if value is not None and value not in choices:
                raise PipelineError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        if self.threads is not None and not (isinstance(self.threads, int) and self.threads >= 1):
            raise PipelineError(f"threads must be an integer of at least 1, not {self.threads!r}")
        if not isinstance(self.limits, Limits):
            example = "Limits(max_pixels=100_000_000)"
            raise PipelineError(f"limits must be a pixprep.Limits, such as {example}, not {self.limits!r}")


DEFAULT = EngineOptions()
