"""Decoder of the CPU: libjpeg-turbo for JPEG (``turbo``), libheif for HEIC (pillow-heif), Pillow for other formats.

Pillow also decodes the few JPEGs that simplejpeg does not support. Because Pillow does not let the caller choose the
IDCT or the chroma upsampling, these JPEGs are rejected with ``"idct": "fast"``. With ``"chroma": "fast"`` they are
rejected if Pillow would interpolate their chroma.

A JPEG counts as damaged if libjpeg-turbo warns about truncated or corrupt data that change pixels. (``flaws`` lists the
warnings about flaws that do not change pixels.) ``strict`` rejects a damaged JPEG. ``lenient`` accepts the pixels that
libjpeg-turbo recovers, which are the same in Pillow, OpenCV and browsers. ``pillow`` accepts every file that Pillow
loads. Pillow rejects files that end before the last row.

A PNG with damaged ancillary chunks is accepted (``png``) if the chunks do not affect its transparency or orientation.
If they do, it is accepted only with ``lenient``, which ignores these chunks as libpng does.
"""

from __future__ import annotations

import io
import logging
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.engine.decoders import (
    KINDS,
    NAMES,
    Chunk,
    Damage,
    Decoded,
    Encoded,
    Format,
    Kept,
    Limits,
    deep,
    flaws,
    heif,
    tiff,
    turbo,
    webp,
)
from pixprep.engine.decoders.exif import exif_orientation, oriented, reduction_of, stored_region, with_plain_exif
from pixprep.engine.decoders.flaws import END, has_end_marker, with_end_marker, without_flaws
from pixprep.engine.decoders.header import JpegHeader, is_plain, read_header
from pixprep.engine.decoders.memory import Budget, Memory
from pixprep.engine.decoders.pillow import (
    OPENCV_LUMA,
    array_of,
    check_not_interpolated,
    divided,
    exif_of,
    opencv_gray,
    prepare_avif,
)
from pixprep.errors import ImageError, PixprepError, needed
from pixprep.plan.placement import Part, ReducingGap, Reduction
from pixprep.plan.plan import Place, Placed, Plan

U8 = npt.NDArray[np.uint8]

_LOG = logging.getLogger(__name__)
_PNG_BITS = 24
"""Offset in bytes of the bit depth in a PNG."""
_SHORT_CHUNK = re.compile(r"(?:T|APNG contains t)runcated (\w{4}) chunk")
"""Pillow's message about a PNG chunk that is intact, but has fewer bytes than its type requires."""
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # TIFF 6.0, section 15

AHEAD = 16
"""Number of images whose headers are read, and whose placements are computed, before the first of them is decoded. If
this Python code alternated with decoding, it would take four times as long, because decoding evicts its data from the
caches of the core."""
MIN_SAVED_PIXELS = 128 * 128
"""Minimum number of pixels that decoding only a region of a JPEG must save. At 320 x 240, decoding the region for a
center crop of 224 saves 30,000 pixels and 14 % of the time."""


class Read(NamedTuple):
    """An image whose header has been read.

    Attributes:
        encoded: Bytes of the image, or ``Kept``.
        place: Function that computes the placement from height and width. If ``placed`` is set, it was already called.
        name: Format of the image; not used for ``Kept``.
        header: Header of a JPEG; None for other formats.
        placed: Placement of the image; None if its size is not known yet.
        part: Region of the EXIF-oriented image that the tensors need. None means all pixels.
    """

    encoded: Any
    place: Place
    name: Format = "jpeg"
    header: JpegHeader | None = None
    placed: Placed | None = None
    part: Part | None = None


class CpuDecoder:
    """Decoder of the CPU; see ``Decoder``. A chunk is one image, so that its pixels stay in the core's cache.

    Args:
        plan: Plan that specifies the channels, the size and the arithmetic of the decoded images.
        limits: Limits that are checked in the header.
        damage: How to treat a damaged JPEG; see ``Engine``.

    Raises:
        SetupError: The limits allow a format for which no decoder is installed.
    """

    words = "libjpeg-turbo and Pillow"

    def __init__(self, plan: Plan, limits: Limits, *, damage: Damage = "strict") -> None:
        if "avif" in limits.formats:
            prepare_avif()
        self._open_heic: Any = needed("heic") if "heic" in limits.formats else None
        self._plan = plan
        self._is_gray = plan.is_gray
        self._is_fast_idct = plan.idct == "fast"
        turbo.has_own_huffman()  # raises for an invalid setting, before the first image
        self._options = turbo.Options(plan.is_gray, self._is_fast_idct, plan.chroma == "fast")
        self._damage = damage
        self._is_strict = damage in ("strict", "structural")
        self._limits = limits
        self._budget = Budget(limits.max_pixels_in_flight)
        self._buffers: deque[U8] = deque()
        self._draft = None if plan.gap is None else plan.gap.draft
        self._warned: set[str] = set()

    def chunks(
        self, encoded: Sequence[Encoded | Kept], places: Sequence[Place], *, is_whole: bool = True
    ) -> Iterator[Chunk]:
        """See ``Decoder``. The largest image is first, so that all threads finish at about the same time."""
        sizes = [0 if isinstance(image, Kept) else len(image) for image in encoded]
        largest_first = sorted(range(len(encoded)), key=sizes.__getitem__, reverse=True)
        for begin in range(0, len(largest_first), AHEAD):
            indices = largest_first[begin : begin + AHEAD]
            read = [self.read(encoded[index], places[index], is_whole=is_whole) for index in indices]
            for index, image in zip(indices, read, strict=True):
                yield Chunk((index,), (image,))

    @contextmanager
    def decode(self, chunk: Chunk) -> Iterator[list[Decoded | ImageError]]:
        """See ``Decoder``."""
        with Memory(self._budget, self._buffers) as memory:
            yield [self._decoded(image, memory) for image in chunk.images]

    @contextmanager
    def decoded(self, encoded: Encoded) -> Iterator[Decoded | ImageError]:
        """Decode one image and place it with ``plan.place``."""
        with self.decode(Chunk((0,), (self.read(encoded, self._plan.place),))) as (image,):
            yield image

    def read(self, encoded: Encoded | Kept, place: Place, *, is_whole: bool = True) -> Read | ImageError:
        """Read the header of an image and compute its placement, or return the reason why it is rejected."""
        try:
            if isinstance(encoded, Kept):
                return Read(encoded, place, placed=place(*encoded.pixels.shape[:2]))
            data = memoryview(encoded).cast("B")
            name, header = read_header(data, self._limits, is_strict=self._is_strict)
            if header is None:
                return Read(encoded, place, name)
            placed = place(*header.size(is_upright=self._plan.apply_exif_orientation))
            is_large = header.height * header.width > MIN_SAVED_PIXELS
            part = None if is_whole or not is_large or self._options.is_fast_chroma else self._plan.part(placed)
            return Read(encoded, place, name, header, placed, part)
        except ImageError as error:
            return error.as_value()

    def _decoded(self, image: Read | ImageError, memory: Memory) -> Decoded | ImageError:
        try:
            return image if isinstance(image, ImageError) else self._decode(image, memory)
        except ImageError as error:
            return error.as_value()

    def trim(self) -> None:
        """See ``Decoder``. The buffer of an image that is being decoded is not freed."""
        self._buffers.clear()

    def close(self) -> None:
        """See ``Decoder``. This decoder does not have threads of its own."""

    def _decode(self, image: Read, memory: Memory) -> Decoded:
        decoded = self._decode_whole(image, memory)
        gap = decoded.placed.gap
        return decoded if gap is None else _shrunk(decoded, gap, is_jpeg=image.header is not None)

    def _decode_whole(self, image: Read, memory: Memory) -> Decoded:
        """Decode one image without the reduction by integer factors, which ``_shrunk`` performs."""
        encoded, place, name, header, placed, part = image
        if isinstance(encoded, Kept):
            assert placed is not None
            return Decoded(encoded.pixels, placed)
        if header is None:
            is_recovered = False
            try:
                pixels = self._pillow(encoded, name, memory)
            except ImageError as error:
                is_lenient, is_png = self._damage == "lenient", name == "png" and error.reason == "CORRUPT"
                repaired = flaws.repaired_png(memoryview(encoded).cast("B"), is_lenient=is_lenient) if is_png else None
                if repaired is None:
                    raise
                encoded, is_recovered = repaired
                pixels = self._pillow(encoded, name, memory)
            return Decoded(pixels, place(*pixels.shape[:2]), is_recovered)
        assert placed is not None
        memory.take(header.height * header.width)
        if header.components in (1, 3):
            decoded = self._turbo(encoded, header, placed, memory, part)
            if decoded is not None:
                # arrays from Pillow are read-only, and their alpha channel is already set
                if self._plan.alpha == "keep" and decoded.pixels.flags.writeable:
                    decoded.pixels[:, :, 3] = 255
                return decoded
        return self._unsupported_by_turbo(encoded, header, placed, memory)

    def _turbo(
        self, encoded: Encoded, header: JpegHeader, placed: Placed, memory: Memory, part: Part | None
    ) -> Decoded | None:
        """Decode a JPEG or a region of it with libjpeg-turbo. Return None if TurboJPEG does not support it."""
        orientation = header.orientation if self._plan.apply_exif_orientation else 1
        denominator = placed.denominator if self._plan.reduced else placed.draft
        rows, columns = -(-header.height // denominator), -(-header.width // denominator)
        buffer = memory.buffer(rows * columns * (1 if self._is_gray else 4)).reshape(rows, columns, -1)
        area, everything = header.height * header.width, (0, 0, placed.height, placed.width)
        if denominator == 1 and is_plain(header):
            part = part or everything
            if area - (part[2] - part[0]) * (part[3] - part[1]) < MIN_SAVED_PIXELS:
                part = everything
            if part != everything or header.frame != 0xC2 or turbo.has_own_huffman():
                where = stored_region(part, orientation, placed.height, placed.width)
                if turbo.decode_part(encoded, buffer, where, self._options):
                    return Decoded(buffer if orientation == 1 else oriented(buffer, orientation, part), placed)
        is_recovered = False
        try:
            pixels = turbo.decode(encoded, buffer, self._options, is_strict=True)
        except ValueError as error:
            message = str(error)
            if _is_unsupported(message):
                return None
            damage = self._jpeg_error(message, encoded)
            repaired = self._without_flaws(encoded, header, buffer)
            if repaired is not None:
                pixels = repaired
            elif self._is_strict or (self._damage == "pillow" and not self._loads_with_pillow(encoded, header)):
                raise damage from None
            else:
                is_recovered = True
                try:
                    pixels = self._partial(encoded, buffer)
                except ValueError:
                    return self._recovered(encoded, header, placed, memory, damage)
        if orientation != 1:
            pixels = oriented(pixels, orientation)
        if denominator > 1 and placed.gap is None:
            placed = placed.reduced(reduction_of(denominator, orientation, placed.height, placed.width))
        return Decoded(pixels, placed, is_recovered)

    def _jpeg_error(self, message: str, encoded: Encoded) -> ImageError:
        """Convert a message of libjpeg-turbo to an ImageError.

        A warning also becomes an error, because it means that some pixels differ from those of the original image.
        """
        hint = "" if self._damage == "lenient" else " (parameter damage)"
        if message.startswith("Premature end of JPEG file"):
            zeros = len(encoded) - len(bytes(encoded).rstrip(b"\0"))
            if zeros > 1:
                return ImageError(
                    "TRUNCATED", f"the JPEG has no end marker, and its last {zeros:,} bytes are zeros{hint}"
                )
            return ImageError("TRUNCATED", f"the JPEG ends after {len(encoded):,} bytes, before its last row{hint}")
        if message.startswith("Unsupported") and "marker" not in message:
            return ImageError("UNSUPPORTED", f"libjpeg-turbo: {message}")
        return ImageError("CORRUPT", f"libjpeg-turbo: {message.removeprefix('Corrupt JPEG data: ')}{hint}")

    def _without_flaws(self, encoded: Encoded, header: JpegHeader, buffer: U8) -> U8 | None:
        """Decode a JPEG after removing its harmless flaws; return None if the damage changes pixels."""
        repaired = without_flaws(encoded, header)
        try:
            return None if repaired is None else turbo.decode(repaired, buffer, self._options, is_strict=True)
        except ValueError:
            return None

    def _partial(self, encoded: Encoded, buffer: U8) -> U8:
        """Decode as much of a damaged JPEG as libjpeg-turbo can.

        If an error follows a warning, TurboJPEG reports only a warning. simplejpeg then returns the unchanged buffer,
        which may contain the image of a different client. Conversely, an error may occur after the last row was
        written, in a broken segment before the end of the file. In both cases the last byte of the buffer shows whether
        the last row was written: it is set to 0 before one decode and to 255 before a second one, and one of them must
        change it.

        Raises:
            ValueError: libjpeg-turbo did not write the last row.
        """
        for value in (0, 255):
            buffer[-1, -1, -1] = value
            with suppress(ValueError):
                turbo.decode(encoded, buffer, self._options, is_strict=False)
            if buffer[-1, -1, -1] != value:
                return buffer
        raise ValueError("the last row was not written")

    def _unsupported_by_turbo(self, encoded: Encoded, header: JpegHeader, placed: Placed, memory: Memory) -> Decoded:
        """Decode a JPEG that only Pillow supports.

        libjpeg-turbo detects damage in CMYK JPEGs, and Pillow in other kinds.
        """
        if self._is_fast_idct:
            raise ImageError("UNSUPPORTED", 'this kind of JPEG, such as CMYK, is not supported with "idct": "fast"')
        warning = turbo.warning(encoded, "CMYK") if header.components == 4 else None
        if (
            warning is not None
            and turbo.warning(complete := with_end_marker(encoded, header, scan=header.scan), "CMYK") is None
        ):
            encoded, warning = complete, None
        is_pillows = header.components != 4 or (warning is not None and _is_unsupported(warning))
        if is_pillows and self._is_strict and not has_end_marker(encoded, header.scan):  # Pillow does not report it
            raise self._jpeg_error("Premature end of JPEG file", encoded)
        if warning is None or _is_unsupported(warning) or self._damage == "pillow":
            is_recovered = warning is not None and not _is_unsupported(warning)
            try:
                return Decoded(self._pillow(encoded, "jpeg", memory, header), placed, is_recovered)
            except ImageError as error:
                damage = error.as_value()
        else:
            damage = self._jpeg_error(warning, encoded)
        if self._damage != "lenient" or damage.reason not in ("TRUNCATED", "CORRUPT"):
            raise damage
        return self._recovered(encoded, header, placed, memory, damage)

    def _loads_with_pillow(self, encoded: Encoded, header: JpegHeader) -> bool:
        """Return whether Pillow loads a damaged JPEG."""
        plain = with_plain_exif(encoded, orientation=header.orientation, scan=header.scan)
        try:
            with self._opened(plain, "jpeg") as image:
                image.load()
        except Exception:  # noqa: BLE001  (see _pillow)
            return False
        return True

    def _recovered(
        self, encoded: Encoded, header: JpegHeader, placed: Placed, memory: Memory, damage: ImageError
    ) -> Decoded:
        """Decode a damaged JPEG with Pillow.

        Pillow rejects data that end early. An end-of-image marker is appended, so that libjpeg-turbo fills the
        missing rows.
        """
        if self._plan.chroma == "fast" or self._is_fast_idct:  # Pillow supports neither
            raise damage
        try:
            pixels = self._pillow(bytes(encoded) + END, "jpeg", memory, header)
        except ImageError:
            raise damage from None
        return Decoded(pixels, placed, is_recovered=True)

    def _pillow(self, encoded: Encoded, name: Format, memory: Memory, header: JpegHeader | None = None) -> U8:
        orientation = 1
        if header is not None:
            orientation, encoded = (
                header.orientation,
                with_plain_exif(encoded, orientation=header.orientation, scan=header.scan),
            )
        if name in ("avif", "heic"):
            still = heif.read(memoryview(encoded).cast("B"), name, self._limits)
            memory.take(max(still.pixels, still.height * still.width))
            encoded = still.encoded
        page = tiff.read(memoryview(encoded).cast("B")) if name == "tiff" else None
        try:
            with self._opened(encoded, name, page) as image:
                self._limits.check_size(image.height, image.width, len(encoded))
                if name == "tiff":  # tiles are decoded completely, even if the image covers a small part of them
                    tags = image.tag_v2  # type: ignore[attr-defined]
                    self._limits.check_size(tags.get(_TILE_LENGTH, 1), tags.get(_TILE_WIDTH, 1))
                self._check_draft(image)
                if name == "jpeg":
                    if self._draft is not None:
                        image.draft(None, self._draft[::-1])
                    if self._is_gray:
                        image.draft("L", None)
                    if self._plan.chroma == "fast" and image.mode != "L":
                        check_not_interpolated(image.layer)  # type: ignore[attr-defined]
                else:
                    memory.take(image.height * image.width)
                    self._check_frames(encoded, name)
                pixels, alpha = None, self._plan.alpha
                if name == "webp" and not self._is_gray and alpha == "drop":
                    buffer = memory.buffer(4 * image.height * image.width)
                    pixels = webp.decoded(encoded, buffer.reshape(image.height, image.width, 4))
                if pixels is None:
                    eight = self._eight_bits(image, encoded, name, page)
                    pixels = self._opencv_gray(eight, encoded, name, page)
                if pixels is None:
                    pixels = array_of(eight, is_gray=self._is_gray, alpha=alpha)
                if KINDS[name].turns:  # only now, because the EXIF data may follow the pixels of a PNG
                    orientation = exif_orientation(exif_of(image))
                return (
                    oriented(pixels, orientation)
                    if self._plan.apply_exif_orientation and orientation in range(2, 9)
                    else pixels
                )
        except PixprepError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise self._too_many_pixels(str(error)) from None
        except Exception as error:  # noqa: BLE001  (Pillow's plugins raise almost any type on damaged bytes)
            if name == "png" and (short := _SHORT_CHUNK.fullmatch(str(error))):
                raise ImageError("CORRUPT", f"the {short[1]} chunk of the PNG is too short") from None
            if "truncated" in str(error).lower():
                raise ImageError("TRUNCATED", f"the {NAMES[name]} ends after {len(encoded):,} bytes") from None
            raise ImageError(
                "CORRUPT", f"the {NAMES[name]} is damaged, or of a kind that Pillow does not support"
            ) from None

    def _check_draft(self, image: Image.Image) -> None:
        """Raise an ImageError if Pillow would resize the image in its original mode and then convert it to RGB."""
        if self._draft is not None and image.mode not in ("RGB", "L"):
            mode = f"an image of Pillow's mode {image.mode}, which Pillow resizes before it converts it to RGB"
            raise ImageError("UNSUPPORTED", f'"draft": true of resize_by_rule does not support {mode}')

    def _opencv_gray(self, image: Image.Image, encoded: Encoded, name: Format, page: tiff.Page | None) -> U8 | None:
        """Convert an image to gray as OpenCV does. Return None for a JPEG, or if the plan does not request this.

        Raises:
            ImageError: UNSUPPORTED: OpenCV's gray values are not reproduced for this kind of image.
        """
        if self._plan.gray_like != "opencv" or name == "jpeg":
            return None
        bits = page.bits if page else memoryview(encoded).cast("B")[_PNG_BITS] if name == "png" else 8
        if name not in OPENCV_LUMA or bits > 8:
            what = f"a {NAMES[name]} with {bits} bits per sample"
            raise ImageError("UNSUPPORTED", f'"gray_like": "opencv" of decode does not support {what}')
        return opencv_gray(image.convert("RGBA") if image.mode == "P" else image, name)

    def _eight_bits(self, image: Image.Image, encoded: Encoded, name: Format, page: tiff.Page | None) -> Image.Image:
        """Convert an image to 8 bits per sample. Log a warning if the lost precision may matter."""
        bits = page.bits if page else memoryview(encoded).cast("B")[_PNG_BITS] if name == "png" else 8
        if page is not None:
            tiff.with_palette(image)
            if page.extra:
                self._warn("bands", f"decode ignores {page.extra} extra sample(s) per pixel of a TIFF ({page.words})")
        if bits <= 8:
            transparent: Any = image.info.get("transparency")
            is_one_value = image.mode in ("1", "L") and isinstance(transparent, int) and transparent < 1 << bits
            if is_one_value and self._plan.alpha == "keep":
                # Pillow scales gray values of 1, 2 or 4 bits to 0 to 255, but not the transparent value
                image.info["transparency"] = transparent * 255 // ((1 << bits) - 1)
            return image
        return deep.levels(
            image,
            None if page and page.is_planar else lambda: self._opened(encoded, name, page),
            bits=bits,
            window=self._plan.window,
            is_inverted=page is not None and page.is_inverted,
            keeps_transparency=self._plan.alpha != "drop",
            warn=self._warn,
        )

    def _warn(self, kind: str, words: str) -> None:
        """Log a warning about an image, unless one of the same kind was logged before."""
        if kind not in self._warned:
            self._warned.add(kind)
            _LOG.warning("%s; further warnings of this kind are not logged", words)

    def _too_many_pixels(self, message: str) -> ImageError:
        """Return the error for an image that Pillow rejects as too large, with the lower one of the two limits."""
        found = re.search(r"\d+", message)
        size = f"{int(found[0]):,} pixels" if found else "more pixels than Pillow decodes"
        max_pixels = 2 * (
            Image.MAX_IMAGE_PIXELS or self._limits.max_pixels
        )  # Pillow raises at twice the size at which it warns
        if self._limits.max_pixels <= max_pixels:
            return ImageError(
                "TOO_MANY_PIXELS", f"{size}; the limit is {self._limits.max_pixels:,} (parameter max_pixels)"
            )
        setting = "Pillow's limit for all formats except JPEG, twice PIL.Image.MAX_IMAGE_PIXELS"
        return ImageError("TOO_MANY_PIXELS", f"{size}; the limit is {max_pixels:,} ({setting})")

    def _opened(self, encoded: Encoded, name: Format, page: tiff.Page | None = None) -> Image.Image:
        if page is not None:
            return tiff.opened(encoded, page)
        if name != "heic":
            return Image.open(io.BytesIO(encoded), formats=[name.upper()])
        picture: Image.Image = self._open_heic(bytes(encoded))
        return picture

    def _check_frames(self, encoded: Encoded, name: Format) -> None:
        """Reject an animation with too many frames. A separate image object is used, because seeking decodes frames."""
        if not self._limits.max_frames:
            return
        with Image.open(io.BytesIO(encoded), formats=[name.upper()]) as image:
            try:
                image.seek(self._limits.max_frames)
            except EOFError:
                return
        raise ImageError("UNSUPPORTED", f"more than {self._limits.max_frames} frames (parameter max_frames)")


def _shrunk(decoded: Decoded, gap: ReducingGap, *, is_jpeg: bool) -> Decoded:
    """Reduce decoded pixels by integer factors, as Pillow does before a resize with ``reducing_gap``."""
    placed = decoded.placed
    denominator = placed.draft if is_jpeg else 1
    factors = gap.factors(placed.height, placed.width, denominator)
    reduction = Reduction(denominator, (0.0, 0.0), factors)
    pixels = decoded.pixels if factors == (1, 1) else divided(decoded.pixels, factors)
    return decoded._replace(pixels=pixels, placed=placed.reduced(reduction))


def is_whole(encoded: Encoded) -> bool:
    """Return whether libjpeg-turbo decodes a JPEG with 1 or 3 components without a warning.

    The JPEG is decoded to gray at an eighth of its size, which produces the same warnings as a full decode in 60 % of
    the time (90 % for a progressive JPEG).
    """
    return turbo.warning(encoded, "GRAY") is None


def _is_unsupported(message: str) -> bool:
    """Return whether a message of TurboJPEG means that it does not support this kind of JPEG."""
    return "subsampling" in message or "color conversion" in message
