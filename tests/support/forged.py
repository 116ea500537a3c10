"""Builds malicious images that no encoder writes."""

import struct
import zlib

from PIL import Image

from support.images import jpeg, noise, save


def chunk(name, body, *, is_right=True):
    """Return one PNG chunk, with a wrong checksum unless ``is_right``."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body) ^ (not is_right))


def png(height, width, *chunks, depth=8, color=2, interlace=0):
    """Return a PNG with this header, followed by these chunks and IEND."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


def zeros(n_bytes):
    """Return a zlib stream of this many zeros, which takes about a thousandth of their size.

    Each full mebibyte repeats the same compressed block.
    """
    deflate = zlib.compressobj(9, wbits=-15)
    block = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    rest = deflate.compress(bytes(n_bytes % (1 << 20))) + deflate.flush()
    adler = n_bytes % 65521 << 16 | 1  # RFC 1950, section 8.2
    return b"\x78\xda" + block * (n_bytes >> 20) + rest + struct.pack(">I", adler)


def segment(marker, body):
    """Return one JPEG segment."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def frame(height, width, components=3, *, marker=0xC0, precision=8, sampling=0x11):
    """Return a start-of-frame segment of a JPEG."""
    body = struct.pack(">BHHB", precision, height, width, components % 256)
    return segment(marker, body + b"".join(bytes([i % 256 + 1, sampling, 0]) for i in range(components)))


def parts(encoded):
    """Split a JPEG at its frame header, and return the data before the header, the header, and the data after it."""
    start = next(at for marker in (b"\xff\xc0", b"\xff\xc2") if (at := encoded.find(marker)) >= 0)
    end = start + 2 + int.from_bytes(encoded[start + 2 : start + 4], "big")
    return encoded[:start], encoded[start:end], encoded[end:]


def reframed(new, *, progressive=False):
    """Return a small JPEG whose frame header is replaced."""
    before, _, after = parts(jpeg(noise(16, 16), subsampling=0, progressive=progressive))
    return before + new + after


def bmp(width, height, *, bits=24, compression=0, data=b"", colours=0):
    """Return a BMP with this header, followed by ``data``."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) + header + data


def gif(width, height, *, frames=1, frame=None):
    """Return a GIF with this many frames. Each frame contains the data of one pixel."""
    picture = b"\x2c" + struct.pack("<HHHHB", 0, 0, *(frame or (width, height)), 0) + b"\x02\x02\x4c\x01\0"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + picture * frames + b"\x3b"


def vp8l(width, height):
    """Return a single-colour lossless WebP whose header declares this size."""
    encoded = bytearray(save(Image.new("RGB", (16, 16)), "WEBP", lossless=True))
    at = encoded.index(b"VP8L") + 9
    encoded[at : at + 4] = struct.pack("<I", (width - 1) | (height - 1) << 14)
    return bytes(encoded)


def webp(width, height, frame=b""):
    """Return a WebP whose canvas has this size, and whose only animation frame is a complete 16 x 16 WebP."""
    body = frame[12:]
    chunks = b"ANIM" + struct.pack("<I", 6) + bytes(6) + b"ANMF" + struct.pack("<I", 16 + len(body))
    chunks += bytes(6) + b"\x0f\0\0\x0f\0\0" + bytes(4) + body if frame else b""
    size = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    return b"RIFF" + struct.pack("<I", 22 + len(chunks)) + b"WEBPVP8X\x0a\0\0\0\x02\0\0\0" + size + chunks


def tags(width, height, *, compression=1, n_bytes=16):
    """Return the tags of a grayscale TIFF with a single strip, whose data follows the tags."""
    return {256: width, 257: height, 258: 8, 259: compression, 262: 1, 273: 122, 277: 1, 278: height, 279: n_bytes}


def tiff(entries, data=b""):
    """Return a TIFF with one directory, whose entries each have a single number, followed by ``data``."""
    fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + fields + bytes(4) + data
