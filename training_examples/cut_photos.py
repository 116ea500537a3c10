"""Create a small data set for image classification: 320 crops of the two sample photos, with one folder per class.

python cut_photos.py FOLDER
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

PHOTOS = Path(__file__).parents[1] / "client_examples" / "images"
CLASSES = ("china", "flower")
STRIPS = {"train": (0, 2, 4), "valid": (1, 3)}  # of five vertical strips, so that the sets do not overlap
COUNTS = {"train": 120, "valid": 40}  # crops per class


def cut_photos(folder: Path) -> None:
    """Write the crops to FOLDER/train/china/000.jpg and so on. Their edge lengths are random, from 64 pixels."""
    random = np.random.default_rng(0)
    for name in CLASSES:
        photo = Image.open(PHOTOS / f"{name}.jpg")
        strip = photo.width // 5
        for part, count in COUNTS.items():
            (folder / part / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                width, height = random.integers(64, strip, size=2, endpoint=True).tolist()
                left = strip * int(random.choice(STRIPS[part])) + int(random.integers(strip - width, endpoint=True))
                upper = int(random.integers(photo.height - height, endpoint=True))
                piece = photo.crop((left, upper, left + width, upper + height))
                piece.save(folder / part / name / f"{number:03}.jpg", quality=90)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    cut_photos(parser.parse_args().folder)
