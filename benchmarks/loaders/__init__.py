"""Contenders for the same training input: one module each, which runs in its own process and defines three names.

    PACKAGES       packages whose versions determine its speed
    WORKERS        numbers of worker processes to try, by number of threads; () if it does not use processes
    prepare(folder, threads, workers)
                   yields batches endlessly: (images, targets), with images float32 (64, 3, 224, 224), or
                   (64, 224, 224, 3) if the library's models require it; targets are described below

The task is torchvision's ImageNet training preset: a random resized crop of 224 with area 0.08 to 1 and aspect ratio
3/4 to 4/3, bilinear and antialiased, a random flip, and ``(value / 255 - mean) / std``. The batches are shuffled and
complete. ``folder`` contains ``files``, with a folder of JPEGs per class, and ``shard.tar``, with the same photos in
WebDataset's format. The targets are the 64 labels.

``colour_*`` add a colour jitter (brightness, contrast, saturation and hue) after the flip.

``masks_*`` also crop and flip the PNG mask of each photo, and resize it with the filter nearest. The masks are in the
folder ``masks``. The targets are integers, (64, 224, 224) or (64, 224, 224, 1).

``boxes_*`` replace the random resized crop by two steps: the random crop of SSD (Liu et al., 2016), whose IoU with a
box is at least a random threshold, and a resize to 224 x 224. The boxes are in ``boxes.json``, in COCO's format. The
targets are a list of 64 arrays (n, 4): the boxes whose center is inside the crop, as xyxy in pixels of the result.
"""

from __future__ import annotations

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE, BATCH = 224, 64
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
TASKS = {"": "", "colour": ", colours", "masks": ", masks", "boxes": ", boxes"}
"""Suffix of a cell's title for each task. The names of a task's contenders begin with the name of the task."""


def task_of(name: str) -> str:
    """Return the task of a contender, which is a key of ``TASKS``."""
    first = name.partition("_")[0]
    return first if first in TASKS else ""
