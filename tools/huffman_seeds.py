"""Write seeds and a dictionary of markers for `make fuzz-huffman`, and print the path of Pillow's libjpeg-turbo."""

import io
import itertools
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, _imaging

SIZES = ((8, 8), (17, 33), (40, 56))
TABLES: tuple[dict[str, bool], ...] = ({}, {"optimize": True}, {"progressive": True})
MARKERS = (0x00, 0x01, 0xC0, 0xC1, 0xC2, 0xC4, 0xD0, 0xD1, 0xD7, 0xD9, 0xDA, 0xDB, 0xDD, 0xFF)


def main() -> None:
    """Write the files to the folder given as the first argument."""
    folder = Path(sys.argv[1])
    (folder / "seeds").mkdir(parents=True, exist_ok=True)
    words = "".join(f'"\\xff\\x{marker:02x}"\n' for marker in MARKERS)
    (folder / "dictionary").write_text(words, encoding="ascii")
    ImageFile.MAXBLOCK = 1 << 20  # otherwise, Pillow cannot write noise at quality 100
    random, choices = np.random.default_rng(0), itertools.cycle(range(256))
    options = itertools.product(SIZES, (2, 60, 100), (0, 1, 2), TABLES, (0, 2), ("RGB", "L"))
    for number, ((height, width), quality, subsampling, tables, interval, mode) in enumerate(options):
        noise = random.integers(0, 256, (height, width, 3)) if quality == 100 else 0
        ramps = np.add.outer(np.arange(height) * 5, np.arange(width) * 4)[..., None] + np.arange(3) * 40
        image = Image.fromarray((ramps + noise).astype(np.uint8)).convert(mode)
        memory = io.BytesIO()
        image.save(memory, "JPEG", quality=quality, subsampling=subsampling, restart_marker_blocks=interval, **tables)
        (folder / "seeds" / f"{number:03}").write_bytes(bytes([next(choices) * 37 % 256]) + memory.getvalue())
    sys.stdout.write(libjpeg())


def libjpeg() -> str:
    """Return the path of the libjpeg-turbo that Pillow's extension module has loaded."""
    _ = _imaging
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in lines if "libjpeg" in line)


if __name__ == "__main__":
    main()
