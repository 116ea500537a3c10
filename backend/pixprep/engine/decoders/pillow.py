"""Convert Pillow images to pixels, read their size and EXIF data, and prepare Pillow's AVIF plug-in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, ImageSequence, features

from pixprep.engine.decoders import USUAL
from pixprep.engine.decoders.deep import stored
from pixprep.engine.decoders.exif import exif_orientation
from pixprep.engine.decoders.png import samples
from pixprep.errors import ImageError, SetupError, printable
from pixprep.spec import Alpha

U8 = npt.NDArray[np.uint8]
MAX_PAGES = 1024
"""Maximum number of pages in a TIFF whose channels are stored as separate pages."""


def prepare_avif() -> None:
    """Limit Pillow to one thread per AVIF, because the engine already decodes one image per thread.

    Raises:
        SetupError: The installed Pillow does not support AVIF.
    """
    if not features.check("avif"):
        raise SetupError(
            f"formats contains avif, which the installed Pillow {PIL.__version__} does not support: "
            'pip install "pillow>=11.3", whose wheels support it'
        )
    from PIL import AvifImagePlugin  # noqa: PLC0415  (Pillow 11.0 does not have this module)

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def _on_checkerboard(image: Image.Image) -> Image.Image:
    """Composite an RGBA image onto a checkerboard, with the integer arithmetic of Inkling 2 in transformers."""
    rows, columns = np.arange(image.height)[:, None] // 8, np.arange(image.width) // 8
    board = np.where((rows + columns) % 2 == 0, 204, 153)[:, :, None]
    pixels = np.asarray(image).astype(np.int32)
    opacity = pixels[:, :, 3:]
    return Image.fromarray(((pixels[:, :, :3] * opacity + board * (255 - opacity) + 127) // 255).astype(np.uint8))


OPENCV_LUMA: dict[str, tuple[int, int, int, int]] = {
    "png": (9797, 19234, 3737, 0),  # libpng's png_set_rgb_to_gray, which truncates
    "webp": (9798, 19235, 3735, 1 << 14),  # cvtColor
    "bmp": (9798, 19234, 3736, 1 << 14),  # icvCvt_BGR2Gray_8u_C3C1R in grfmt_bmp.cpp, whose weights have 14 bits
    "tiff": (9798, 19234, 3736, 1 << 14),
}
"""OpenCV's grayscale conversion for each format: the weights of red, green and blue, and an offset. The unit is
1/32768."""
_LUMA_ROWS = 256


def opencv_gray(image: Image.Image, name: str) -> U8:
    """Convert an image with 8 bits per sample to gray as OpenCV's decoder for its format does.

    Returns:
        uint8 array (height, width, 1).
    """
    gray = np.empty((image.height, image.width, 1), np.uint8)
    *weights, half = OPENCV_LUMA[name]
    for top in range(0, image.height, _LUMA_ROWS):  # in blocks, because the 32-bit sums need more memory
        block = image.crop((0, top, image.width, min(top + _LUMA_ROWS, image.height))).convert("RGB")
        gray[top : top + _LUMA_ROWS, :, 0] = (np.asarray(block) @ np.array(weights, np.int32) + half) >> 15
    return gray


def divided(pixels: U8, factors: tuple[int, int]) -> U8:
    """Average blocks of ``factors`` (y, x) pixels, with the rounding of ``Image.reduce``.

    Args:
        pixels: Array of uint8 (height, width, channels) with 1, 3 or 4 channels. A fourth channel is not used.
        factors: Height and width of a block. Blocks at the lower and the right edge may be smaller.
    """
    height, width, channels = pixels.shape
    mode, raw = ("L", "L") if channels == 1 else ("RGB", "RGBX")
    if channels == 3:
        raw = "RGB"
    image = Image.frombuffer(mode, (width, height), np.ascontiguousarray(pixels), "raw", raw, 0, 1)
    image = image.reduce(factors[::-1])
    found = np.frombuffer(image.tobytes("raw", "L" if channels == 1 else "RGBX"), np.uint8)
    return found.reshape(image.height, image.width, -1)


def array_of(image: Image.Image, *, is_gray: bool, alpha: Alpha) -> U8:
    """Return the pixels of an image, uint8, (height, width, 1) gray, or (height, width, 4) RGB with an unused byte.

    With ``"alpha": "keep"``, the fourth byte is the alpha, which is 255 for an image without alpha.

    Args:
        image: Pillow image with 8 bits per sample.
        is_gray: Whether to convert the image to gray.
        alpha: Treatment of a transparent image, as in the op ``decode``.
    """
    if image.format == "BMP" and image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0):
        image = image.convert(
            "RGB"
        )  # the writer did not set the fourth byte; browsers also show such an image as opaque
    if alpha == "keep":
        return np.asarray(image.convert("RGBA"))
    # As in transformers' convert_to_rgb, an image is transparent if it has an alpha channel, or a transparent color or
    # palette entry.
    if alpha != "drop" and ("A" in image.getbands() or image.info.get("transparency") is not None):
        image = image.convert("RGBA")
        if alpha == "white":
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        else:
            image = _on_checkerboard(image)
    if image.mode == "P":  # via RGBA, because Pillow warns if it converts a palette with alpha to any other mode
        image = image.convert("RGBA")
    if is_gray:
        return np.asarray(image.convert("L"))[:, :, None]
    if image.mode != "RGB":
        image = image.convert("RGB")
    # Pillow stores RGB with a fourth byte. Exporting the raw mode RGBX takes 400 MB less memory for 50 megapixels than
    # converting the image to RGBX.
    pixels = np.frombuffer(image.tobytes("raw", "RGBX"), np.uint8)
    return pixels.reshape(image.height, image.width, 4)


def recompressed(pixels: npt.NDArray[np.uint8], format_: str, quality: int) -> npt.NDArray[np.uint8]:
    """Encode pixels (height, width, 1 or 3) with a lossy format, and decode them again."""
    file = BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, format_, quality=quality)
    decoded = np.asarray(Image.open(file).convert("L" if pixels.shape[2] == 1 else "RGB"))
    return decoded.reshape(pixels.shape)


def labels_of(
    encoded: bytes | bytearray | memoryview, check_size: Callable[[tuple[int, ...]], None]
) -> npt.NDArray[Any]:
    """Return the labels in a PNG, which are its gray values or the indices of its palette: integers (height, width).

    Args:
        encoded: Bytes of the PNG.
        check_size: Function that is called with the (height, width) of the PNG before it is decoded.

    Raises:
        ImageError: BAD_RECORD: The file is not a PNG, is damaged, or is a color image; or ``check_size`` raised.
    """
    if (found := samples(memoryview(encoded), check_size)) is not None:
        return found
    try:
        with Image.open(BytesIO(encoded), formats=("PNG",)) as image:
            check_size((image.height, image.width))
            labels = np.asarray(image)
            _check_upright(image)
            mode = image.mode
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError("BAD_RECORD", f"Pillow cannot read the file as a PNG: {_text_of(error)}") from None
    if labels.ndim != 2:
        raise ImageError(
            "BAD_RECORD", f"must not be a color PNG ({mode}): save the labels as grayscale, or with a palette"
        )
    if mode == "L" and encoded[24] < 8:  # offset 24: bits per pixel. Pillow scales 1, 2 and 4 bits to 0 to 255
        labels = labels // (255 // ((1 << encoded[24]) - 1))
    return labels


def _check_upright(image: Image.Image) -> None:
    """Reject a PNG with an EXIF orientation, because it would not be applied. Pillow itself applies that of a TIFF."""
    if image.format == "PNG" and exif_orientation(exif_of(image)) > 1:
        fix = "rotate the pixels and remove the tag"
        raise ImageError("BAD_RECORD", f"has an EXIF orientation, which is supported only for photos: {fix}")


def values_of(encoded: bytes, check: Callable[[tuple[int, ...]], None]) -> npt.NDArray[Any]:
    """Return the values in a ``.npy`` file, a PNG or a TIFF, and check the size first.

    The pages of a TIFF become channels. The values of a palette PNG are the indices of its palette.
    """
    file = BytesIO(encoded)
    try:
        if encoded[:6] == b"\x93NUMPY":
            files: Any = np.lib.format
            read = {1: files.read_array_header_1_0, 2: files.read_array_header_2_0}
            shape, _, dtype = read[files.read_magic(file)[0]](file)
            if dtype.hasobject or len(shape) not in (2, 3):
                raise ImageError("BAD_RECORD", f"must be numeric with 2 or 3 axes, not {dtype} of shape {shape}")
            check(shape)
            if int(np.prod(shape, dtype=object)) * dtype.itemsize > len(encoded):
                raise ImageError("BAD_RECORD", "ends before its last value")
            array: npt.NDArray[Any] = np.load(BytesIO(encoded), allow_pickle=False)
            return array
        with Image.open(file, formats=("PNG", "TIFF")) as image:
            check((image.height, image.width))
            count = getattr(image, "n_frames", 1)
            if count == 1:
                array = stored(image, lambda: Image.open(BytesIO(encoded)))
                _check_upright(image)
                return array
            if count > MAX_PAGES:
                raise ImageError("BAD_RECORD", f"has {count} pages, but at most {MAX_PAGES} are supported")
            pages = []
            for page in ImageSequence.Iterator(image):
                check((page.height, page.width))
                pages.append(np.asarray(page))
            return np.stack(pages, axis=-1)
    except (OSError, SyntaxError, ValueError, KeyError, Image.DecompressionBombError) as error:
        raise ImageError("BAD_RECORD", f"cannot be read as .npy, PNG or TIFF: {printable(error)}") from None


def size_of(encoded: Path | bytes | bytearray | memoryview, *, is_upright: bool) -> tuple[int, int]:
    """Return (height, width) from the header of an image, without decoding.

    Args:
        encoded: Bytes of the image, or the path of its file, of which only the header is read.
        is_upright: Whether to apply the EXIF orientation.

    Raises:
        ImageError: UNREADABLE: Pillow cannot open the image.
    """
    if isinstance(encoded, Path) and not encoded.is_file():  # reading from a FIFO would wait for its writer
        raise ImageError("UNREADABLE", "is not a file")
    try:
        file = encoded if isinstance(encoded, Path) else BytesIO(encoded)
        with Image.open(file, formats=[name.upper() for name in USUAL]) as image:
            is_turned = is_upright and exif_orientation(exif_of(image)) >= 5
            return (image.width, image.height) if is_turned else (image.height, image.width)
    except Exception as error:  # noqa: BLE001  (plug-ins raise many types of errors for damaged files)
        raise ImageError("UNREADABLE", f"Pillow cannot read the header: {_text_of(error)}") from None


def _text_of(error: Exception) -> str:
    """Return the message of a Pillow error, without the memory address of the file object."""
    return printable(re.sub(r" <_io\.BytesIO object at 0x\w+>", "", str(error)))


def check_not_interpolated(layers: Sequence[tuple[int, int, int, int]]) -> None:
    """Reject a JPEG with sampling factors for which libjpeg-turbo can interpolate the chroma (jdsample.c).

    Pillow always requests this interpolation.

    Args:
        layers: Component ID, horizontal and vertical sampling factor, and quantization table number of each component.

    Raises:
        ImageError: UNSUPPORTED: The chroma would be interpolated.
    """
    across, down = (max(layer[axis] for layer in layers) for axis in (1, 2))
    if any((across / h, down / v) in ((2, 1), (1, 2), (2, 2)) for _, h, v, _ in layers):
        factors = ", ".join(f"{h} x {v}" for _, h, v, _ in layers)
        raise ImageError(
            "UNSUPPORTED", f'a JPEG with the sampling factors {factors} is not supported with "chroma": "fast"'
        )


def exif_of(image: Image.Image) -> bytes:
    """Return the EXIF data of an image.

    This includes EXIF data in the hexadecimal text that ImageMagick writes into a PNG.
    """
    exif: bytes | None = image.info.get("exif")
    if exif is None:
        lines = str(image.info.get("Raw profile type exif", "")).split("\n")
        try:
            exif = bytes.fromhex("".join(lines[3:]))  # skip an empty line, the name and the length
        except ValueError:
            exif = b""
    return exif
