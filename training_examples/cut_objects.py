"""Create a small data set for object detection from crops of the two sample photos."""

from io import BytesIO

import numpy as np
from PIL import Image

from pixprep.training.sources.coco import CocoImages


def cut_objects(photos: CocoImages, count: int, seed: int, size: tuple[int, int] | None = None) -> list[dict]:
    """Return samples for a Loader: random crops, each with the boxes that are mostly inside it.

    Args:
        photos: Photos with boxes.
        count: Number of crops.
        seed: Seed of the random crops.
        size: (height, width) of the crops. Default: random sizes, some tall and some wide.
    """
    random, samples = np.random.default_rng(seed), []
    while len(samples) < count:
        photo = photos[len(samples) % len(photos)]
        height, width = size or random.integers(200, photo["size"], endpoint=True)
        top, left = random.integers(0, photo["size"] - np.array([height, width]), endpoint=True)
        boxes = np.clip(photo["boxes"] - [left, top, left, top], 0, [width, height, width, height]).astype(np.float32)
        area, inside = (np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (photo["boxes"], boxes))
        file = BytesIO()
        Image.open(photo["image"]).crop((left, top, left + width, top + height)).save(file, "JPEG")
        kept = inside > 0.4 * area
        samples.append({"image": file.getvalue(), "boxes": boxes[kept], "labels": photo["labels"][kept]})
    return samples
