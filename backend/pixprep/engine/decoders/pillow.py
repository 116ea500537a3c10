"""Images of Pillow's: their pixels and EXIF data, and the plug-ins for AVIF and HEIC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, features

from pixprep.engine.decoders import USUAL
from pixprep.engine.decoders.exif import exif_orientation
from pixprep.errors import ImageError, SetupError, printable

U8 = npt.NDArray[np.uint8]


def prepare_avif() -> None:
    """Let Pillow decode an AVIF on one thread, as each lane decodes an image of its own."""
    if not features.check("avif"):
        raise SetupError(
            f"the formats name avif, which this Pillow ({PIL.__version__}) does not decode: "
            'pip install "pillow>=11.3", of which the wheels do'
        )
    from PIL import AvifImagePlugin  # noqa: PLC0415  (Pillow 11.0 has none)

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def array_of(image: Image.Image, *, is_gray: bool, is_on_white: bool) -> U8:
    """Pixels of an image: uint8 (height, width, 1) gray, or (height, width, 4) RGB and a byte without meaning.

    Args:
        image: Pillow's, with 8 bits per sample.
        is_gray: Gray is wanted.
        is_on_white: Transparent pixels are laid on white.
    """
    if image.format == "BMP" and image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0):
        image = image.convert("RGB")  # its writer left the fourth byte empty: browsers show it opaque, too
    # What transformers' convert_to_rgb takes for transparent: a channel, or a colour or palette entries that are.
    if is_on_white and ("A" in image.getbands() or image.info.get("transparency") is not None):
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    if image.mode == "P":  # by way of RGBA: Pillow warns when a palette with alpha becomes anything else
        image = image.convert("RGBA")
    if is_gray:
        return np.asarray(image.convert("L"))[:, :, None]
    if image.mode != "RGB":
        image = image.convert("RGB")
    # Pillow's RGB has a fourth byte in memory: asked for with it, 50 megapixels need 400 MB less than by way of RGBX.
    pixels = np.frombuffer(image.tobytes("raw", "RGBX"), np.uint8)
    return pixels.reshape(image.height, image.width, 4)


def labels_of(
    encoded: bytes | bytearray | memoryview, check_size: Callable[[tuple[int, ...]], None]
) -> npt.NDArray[Any]:
    """The numbers that a PNG stores, gray or indices of its palette: integers (height, width).

    Args:
        encoded: its bytes.
        check_size: is given its (height, width) before anything is decoded.

    Raises:
        ImageError: BAD_RECORD: it is no PNG, damaged, or in colours; or what ``check_size`` raises.
    """
    try:
        with Image.open(BytesIO(encoded), formats=("PNG",)) as image:
            check_size((image.height, image.width))
            labels = np.asarray(image)
            mode = image.mode
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError("BAD_RECORD", f"no PNG that Pillow reads: {printable(error)}") from None
    if labels.ndim != 2:
        raise ImageError("BAD_RECORD", f"a PNG in colours ({mode}): save the labels as gray, or with a palette")
    if mode == "L" and encoded[24] < 8:  # bits per pixel; Pillow scales 2 and 4 bits to 0 to 255
        labels = labels // (255 // ((1 << encoded[24]) - 1))
    return labels


def size_of(encoded: Path | bytes | bytearray | memoryview, *, is_upright: bool) -> tuple[int, int]:
    """Return (height, width) from the header of an image, without decoding.

    Args:
        encoded: Its bytes, or its file; only the header of a file is read.
        is_upright: turned by its EXIF orientation.

    Raises:
        ImageError: UNREADABLE: Pillow opens none.
    """
    if isinstance(encoded, Path) and not encoded.is_file():  # a FIFO would wait for its writer
        raise ImageError("UNREADABLE", "is no file")
    try:
        file = encoded if isinstance(encoded, Path) else BytesIO(encoded)
        with Image.open(file, formats=[name.upper() for name in USUAL]) as image:
            is_turned = is_upright and exif_orientation(exif_of(image)) >= 5
            return (image.width, image.height) if is_turned else (image.height, image.width)
    except Exception as error:  # noqa: BLE001  (of damaged files plug-ins raise many kinds)
        raise ImageError("UNREADABLE", f"no header that Pillow reads: {printable(error)}") from None


def check_not_interpolated(layers: Sequence[tuple[int, int, int, int]]) -> None:
    """Refuse a JPEG for whose sampling libjpeg-turbo has an interpolation, which Pillow always asks for (jdsample.c).

    Args:
        layers: Number, horizontal and vertical sampling factor, and quantization table of each component.
    """
    across, down = (max(layer[axis] for layer in layers) for axis in (1, 2))
    if any((across / h, down / v) in ((2, 1), (1, 2), (2, 2)) for _, h, v, _ in layers):
        factors = ", ".join(f"{h} x {v}" for _, h, v, _ in layers)
        raise ImageError(
            "UNSUPPORTED", f'a JPEG of a rare kind or sampling ({factors}), which "chroma": "fast" does not read'
        )


def exif_of(image: Image.Image) -> bytes:
    """EXIF data where the format has a place for it, or as ImageMagick writes it into a PNG, in hexadecimal text."""
    exif: bytes | None = image.info.get("exif")
    if exif is None:
        lines = str(image.info.get("Raw profile type exif", "")).split("\n")
        try:
            exif = bytes.fromhex("".join(lines[3:]))  # after an empty line, the name and the length
        except ValueError:
            exif = b""
    return exif
