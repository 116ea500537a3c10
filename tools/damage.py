"""Count which damage of JPEGs is found: by libjpeg-turbo, by their structure, and by nvImageCodec.

    python tools/damage.py            # 240 files for each kind of damage, half a minute

Photos of the client examples in three encodings are damaged, always the same way. Then for each file: does
libjpeg-turbo warn (``strict``), do the markers tell of it (``structural``), does nvImageCodec's CPU decoder refuse it?
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from nvidia import nvimgcodec
from PIL import Image

from pixprep.decoders.cpu import is_whole
from pixprep.decoders.header import read_jpeg_header, read_whole_header
from pixprep.decoders.structure import structure

PHOTOS = Path(__file__).parents[1] / "client_examples" / "images" / "sizes"
ENCODINGS = {
    "baseline": {},
    "with restart markers": {"restart_marker_rows": 1},
    "progressive": {"progressive": True},
}
END = b"\xff\xd9"
Numbers = np.random.Generator
Change = Callable[[bytes, int, int, Numbers], bytes]


def _place(begin: int, end: int, numbers: Numbers) -> int:
    return int(numbers.integers(begin, end))


def cut(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
    """The rest did not arrive."""
    return encoded[: _place(begin, end, numbers)]


def closed(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
    """The rest did not arrive, and somebody wrote an end."""
    return cut(encoded, begin, end, numbers) + END


def lost(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
    """1,400 bytes, a packet, are not there."""
    at = _place(begin, end - 1400, numbers)
    return encoded[:at] + encoded[at + 1400 :]


def zeros(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
    """512 bytes, a sector, are zeros."""
    at = _place(begin, end - 512, numbers)
    return encoded[:at] + bytes(512) + encoded[at + 512 :]


def noise(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
    """512 bytes are those of something else."""
    at = _place(begin, end - 512, numbers)
    return encoded[:at] + numbers.bytes(512) + encoded[at + 512 :]


def text(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
    """As text: each byte 10 has become 13 and 10."""
    del begin, end, numbers
    return encoded.replace(b"\n", b"\r\n")


def changed(count: int) -> Change:
    """Some bytes of the data are other ones."""

    def change(encoded: bytes, begin: int, end: int, numbers: Numbers) -> bytes:
        """Other values."""
        damaged = bytearray(encoded)
        for _ in range(count):
            at = _place(begin, end, numbers)
            damaged[at] = (damaged[at] + int(numbers.integers(1, 256))) % 256
        return bytes(damaged)

    return change


DAMAGES: dict[str, Change] = {
    "cut off": cut,
    "cut off, an end written": closed,
    "1,400 bytes lost": lost,
    "512 bytes of zeros": zeros,
    "512 bytes of noise": noise,
    "10 become 13, 10": text,
    "three bytes changed": changed(3),
    "one byte changed": changed(1),
}


def is_structured(encoded: bytes) -> bool:
    """Whether the markers tell of no damage."""
    found = structure(encoded)
    header = read_whole_header(memoryview(encoded), found) if found else None
    return header is not None and len(encoded) - header.scan >= header.least


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--count", type=int, default=80, help="files for each damage and encoding; default: %(default)s"
    )
    arguments = parser.parse_args()
    none = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY
    codec = nvimgcodec.Decoder(device_id=none, backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)])
    numbers = np.random.default_rng(0)
    photos = [Image.open(path).convert("RGB") for path in sorted(PHOTOS.glob("*.jpg"))]
    for name, change in DAMAGES.items():
        for encoding, options in ENCODINGS.items():
            row = {"damage": name, "encoding": encoding, "files": 0, "strict": 0, "structural": 0, "nvImageCodec": 0}
            for index in range(arguments.count):
                file = io.BytesIO()
                photos[index % len(photos)].save(file, "JPEG", quality=85, **options)
                encoded = file.getvalue()
                damaged = change(encoded, read_jpeg_header(encoded).scan, encoded.rindex(END), numbers)
                row["files"] += 1
                row["strict"] += not is_whole(damaged)
                row["structural"] += not is_structured(damaged)
                (decoded,) = codec.decode([nvimgcodec.CodeStream(damaged)])
                row["nvImageCodec"] += decoded is None
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
