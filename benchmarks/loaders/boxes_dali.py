"""Like DALI's SSD example: a COCO reader reads the boxes, and only the window of ``random_bbox_crop`` is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from loaders import SIDE, dali_crop

PACKAGES, WORKERS = dali_crop.PACKAGES, dali_crop.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers

    def samples() -> tuple[Any, Any]:
        encoded, boxes, labels = fn.readers.coco(
            file_root=str(folder / "files"),
            annotations_file=str(folder / "boxes.json"),
            ratio=True,
            ltrb=True,
            random_shuffle=True,
            initial_fill=1024,
        )
        begin, size, boxes, _ = fn.random_bbox_crop(
            boxes,
            labels,
            aspect_ratio=[0.5, 2.0],
            thresholds=[0, 0.1, 0.3, 0.5, 0.7, 0.9],
            scaling=[0.3, 1.0],
            bbox_layout="xyXY",
            allow_no_crop=True,
            num_attempts=40,
            all_boxes_above_threshold=False,  # as in SSD; the default rejects more windows, so that more is decoded
        )
        image = fn.decoders.image_slice(encoded, begin, size, jpeg_fancy_upsampling=True)
        image = fn.resize(image, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True)
        is_mirrored = fn.random.coin_flip()
        boxes = fn.bb_flip(boxes, ltrb=True, horizontal=is_mirrored)
        return dali_crop.normalized(image, is_mirrored), SIDE * boxes

    for tensors, boxes in dali_crop.batches(samples, threads):
        yield tensors.as_array(), [np.array(each) for each in boxes]
