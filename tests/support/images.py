"""Creates images from a seed, and encodes them in many formats."""

import base64
import importlib.util
import io
import struct
import warnings
import zlib
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image, ImageOps, features

PHOTOS = Path(__file__).parents[2] / "client_examples" / "images"


@cache
def photo(name="china"):
    """Return the encoded bytes of one of scikit-learn's two photos, 427 x 640."""
    return (PHOTOS / f"{name}.jpg").read_bytes()


def noise(height, width, channels=3, seed=0):
    return np.random.default_rng((seed, height, width, channels)).integers(0, 256, (height, width, channels), np.uint8)


def checkerboard(height, width, channels=3, cell=1):
    rows, columns = np.indices((height, width)) // cell
    return np.repeat(((rows + columns) % 2 * 255).astype(np.uint8)[:, :, None], channels, axis=2)


def gradient(height, width):
    """Return a gradient: red grows to the right, green grows downwards, and blue is their mean with a fine texture."""
    rows, columns = np.indices((height, width))
    red, green = columns * 255 // max(width - 1, 1), rows * 255 // max(height - 1, 1)
    return np.stack([red, green, (red + green) // 2 ^ (rows & 3)], axis=2).astype(np.uint8)


def scene(height, width, seed=0):
    """Return an image with edges, gradients and some grain, without any symmetry."""
    rng = np.random.default_rng((seed, height, width))
    pixels = gradient(height, width).astype(int)
    pixels[: height // 3, width // 2 :] //= 3
    pixels[height // 2 :, : width // 4] += 60
    return np.clip(pixels + rng.integers(-12, 13, pixels.shape), 0, 255).astype(np.uint8)


def save(image, format_name, **options):
    file = io.BytesIO()
    image.save(file, format_name, **options)
    return file.getvalue()


def png(pixels):
    """Encode uint8 pixels (height, width, 1 or 3) losslessly."""
    return save(Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels), "PNG", compress_level=1)


def jpeg(pixels, **options):
    return save(Image.fromarray(pixels), "JPEG", **{"quality": 92} | options)


def with_exif(orientation, *, order="little", format_name="JPEG", size=(24, 40)):
    exif = Image.Exif()
    exif.endian = "<" if order == "little" else ">"
    exif[0x0112] = orientation
    return save(Image.fromarray(scene(*size)), format_name, exif=exif)


def bare(encoded):
    """Return a JPEG without its JFIF and Adobe segments."""
    at = 2
    while encoded[at + 1] in (0xE0, 0xEE):
        at += 2 + int.from_bytes(encoded[at + 2 : at + 4], "big")
    return encoded[:2] + encoded[at:]


def renamed(encoded, names):
    """Return a JPEG whose three components have these unusual identifiers."""
    changed = bytearray(encoded)
    frame, scan = (changed.index(marker) for marker in (b"\xff\xc0", b"\xff\xda"))
    changed[frame + 10 : frame + 17 : 3] = changed[scan + 5 : scan + 10 : 2] = names
    return bytes(changed)


def cmyk():
    return save(Image.frombytes("CMYK", (30, 20), noise(20, 30, 4).tobytes()), "JPEG", quality=95)


def ycck():
    """Return a CMYK JPEG, encoded by Pillow, whose Adobe marker is changed to declare YCCK (transform 2)."""
    encoded = bytearray(cmyk())
    encoded[encoded.index(b"Adobe") + 11] = 2
    return bytes(encoded)


def read(encoded):
    """Open an image with Pillow and decode it."""
    image = Image.open(io.BytesIO(encoded))
    image.load()
    return image


def _palette(*, alpha):
    image = Image.fromarray(scene(24, 33)).quantize(32)
    return save(image, "PNG", **({"transparency": bytes(range(0, 256, 8))} if alpha else {}))


def _wide(values, mode, format_name):
    return save(Image.frombytes(mode, values.shape[::-1], values.tobytes()), format_name)


def _animated_gif():
    frames = [Image.fromarray(scene(20, 31, seed)) for seed in range(3)]
    return save(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)


def _png_rgb16():
    """Encode a 16-bit RGB PNG, which Pillow cannot write."""
    height, width = 9, 11
    values = np.random.default_rng(5).integers(0, 1 << 16, (height, width, 3), np.uint16).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@cache
def jpegs():
    """Return every kind of JPEG that pixprep decodes, by name."""
    pixels, odd = scene(48, 64), scene(37, 53)
    gray = Image.fromarray(odd).convert("L")
    by_sampling = {f"sampling {s}": simplejpeg.encode_jpeg(odd, 92, colorsubsampling=s) for s in _SAMPLINGS}
    return by_sampling | {
        "1x1": jpeg(noise(1, 1)),
        "1x17": jpeg(noise(1, 17)),
        "19x1": jpeg(noise(19, 1)),
        "baseline": jpeg(pixels),
        "quality 5": jpeg(pixels, quality=5),
        "quality 100": jpeg(noise(31, 29), quality=100),
        "progressive": jpeg(odd, progressive=True),
        "progressive 4:4:4": jpeg(odd, progressive=True, subsampling=0),
        "restart markers": jpeg(odd, restart_marker_rows=1),
        "gray": save(gray, "JPEG"),
        "gray progressive": save(gray, "JPEG", progressive=True),
        "rgb without transform": jpeg(odd, keep_rgb=True),
        "cmyk": cmyk(),
        "ycck": ycck(),
        "trailing junk": jpeg(odd) + b"\0junk after the image\xff\xd8\xff" * 40,
        "fill bytes": jpeg(odd).replace(b"\xff\xdb", b"\xff\xff\xff\xdb", 1),
        "icc profile": jpeg(odd, icc_profile=bytes(range(256)) * 700),
        "comment": jpeg(odd, comment=b"\xff\xc0 not a frame \xff\xda"),
        "photo": photo(),
    }


_SAMPLINGS = ("444", "422", "420", "440", "411")


@cache
def others():
    """Return every other kind of image, by name."""
    image = Image.fromarray(scene(24, 33))
    wide = np.random.default_rng(4).integers(0, 1 << 16, (12, 17), np.uint16)
    alpha = image.copy()
    alpha.putalpha(Image.fromarray(noise(24, 33, 1)[:, :, 0]))
    return {
        "png": save(image, "PNG"),
        "png 1x1": png(noise(1, 1)),
        "png alpha": save(alpha, "PNG"),
        "png gray": save(image.convert("L"), "PNG"),
        "png gray alpha": save(alpha.convert("LA"), "PNG"),
        "png 1 bit": save(image.convert("1"), "PNG"),
        "png palette": _palette(alpha=False),
        "png palette alpha": _palette(alpha=True),
        "png rgb 16 bits": _png_rgb16(),
        "webp": save(image, "WEBP", quality=80),
        "webp lossless alpha": save(alpha, "WEBP", lossless=True),
        "bmp": save(image, "BMP"),
        "bmp palette": save(image.quantize(16), "BMP"),
        "tiff": save(image, "TIFF"),
        "tiff lzw": save(image, "TIFF", compression="tiff_lzw"),
        "tiff cmyk": save(image.convert("CMYK"), "TIFF"),
        "gif": save(image.quantize(64), "GIF"),
        "gif animated": _animated_gif(),
        "png gray 16 bits": _wide(wide, "I;16", "PNG"),
        "tiff gray 16 bits": _wide(wide, "I;16", "TIFF"),
    }


class Made(Mapping):
    """Images by name. Each image is encoded when it is first read, so that tests may use the names at no cost.

    Args:
        makers: For each name, a function that returns the encoded image.
    """

    def __init__(self, makers):
        self._makers = {name: cache(make) for name, make in makers.items()}

    def __getitem__(self, name):
        return self._makers[name]()

    def __iter__(self):
        return iter(self._makers)

    def __len__(self):
        return len(self._makers)


def _heic(make, **options):
    file = io.BytesIO()
    heif_library().from_pillow(make()).save(file, format="HEIF", **options)
    return file.getvalue()


def _heic_of_10_bits():
    deep = np.random.default_rng(3).integers(0, 1 << 12, (37, 53, 3), np.uint16) << 4
    file = io.BytesIO()
    heif_library().from_bytes("RGB;16", (53, 37), deep.tobytes()).save(file)
    return file.getvalue()


def _avif(make, **options):
    return save(make(), "AVIF", **options)


def _avif_animated():
    image = Image.fromarray(scene(48, 64))
    return save(image, "AVIF", save_all=True, append_images=[image.transpose(Image.ROTATE_180)] * 2)


@cache
def stills():
    """Return every kind of AVIF and HEIC for which an encoder is installed, by name."""

    def odd():
        return Image.fromarray(scene(37, 53))

    def alpha():
        image = odd()
        image.putalpha(Image.fromarray(noise(37, 53, 1)[:, :, 0]))
        return image

    kinds = {
        "": lambda: Image.fromarray(scene(48, 64)),
        " odd": odd,
        " 1x1": lambda: Image.fromarray(noise(1, 1)),
        " gray": lambda: odd().convert("L"),
        " alpha": alpha,
        " china": lambda: read(photo("china")),
    }

    def flower():
        return read(photo("flower")).reduce(2)

    def wide():
        return Image.fromarray(scene(150, 200))

    makers = {}
    if features.check("avif"):
        makers |= {f"avif{name}": partial(_avif, make) for name, make in kinds.items()} | {
            "avif 4:4:4": partial(_avif, odd, subsampling="4:4:4", quality=95),
            "avif full range": partial(_avif, odd, range="full"),
            "avif animated": _avif_animated,
            "avif flower": partial(_avif, flower),
        }
    if heif_library() is not None:
        makers |= {f"heic{name}": partial(_heic, make) for name, make in kinds.items()} | {
            "heic 4:4:4": partial(_heic, odd, chroma=444, quality=95),
            "heic 10 bits": _heic_of_10_bits,
            "heic of tiles": partial(_heic, wide, tile_size=64),
            "heic with a thumbnail": partial(_heic, wide, thumbnails=[64]),
            "heic flower": partial(_heic, flower, tile_size=128),
        }
    return Made(makers)


def heif_library():
    """Return pillow-heif if it is installed, or None."""
    return importlib.import_module("pillow_heif") if importlib.util.find_spec("pillow_heif") else None


def expected_pixels(encoded, *, gray=False, upright=True):
    """Decode an image with Pillow, following the rules of the ``decode`` op. Return (height, width, 3 or 1)."""
    image = read(encoded)
    if upright:
        image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about palettes with alpha
        return np.atleast_3d(np.asarray(image.convert("L" if gray else "RGB")))


GONE = "cannot be read: No such file or directory"
NO_IMAGE = "not a JPEG, PNG, WebP, BMP, TIFF or GIF file"
JUNK = {
    "no bytes": b"",
    "one byte": b"\xff",
    "text": b"not an image at all",
    "html": b"<!doctype html><title>404</title>" * 20,
    "base64": base64.b64encode(bytes(range(256))),
    "json": b'{"b64": "/9j/4AAQ"}',
    "jpeg magic only": b"\xff\xd8\xff",
    "jpeg by curl -d": b"\xff\xd8\xff\xe0" + b"\x10" * 2000,
    "jpeg markers only": b"\xff\xd8\xff\xd9",
    "png magic only": b"\x89PNG\r\n\x1a\n",
    "gif magic only": b"GIF89a",
    "webp magic only": b"RIFF\0\0\0\0WEBP",
    "bmp magic only": b"BM",
    "tiff magic only": b"II*\0",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "jpeg and zeros": b"\xff\xd8\xff" + bytes(4096),
    "pdf": b"%PDF-1.7\n",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
}
