"""One file per contender of the same training input, each run in a process of its own. Each file has three names.

    PACKAGES       the packages whose versions determine its speed
    WORKERS        for each number of threads the numbers of worker processes to try; () where it has none
    prepare(folder, threads, workers)
                   gives batches without end: (images, labels), images float32 (64, 3, 224, 224), or (64, 224, 224, 3)
                   where the library's models want that

The task is torchvision's ImageNet training preset: a random resized crop of 224 with area 0.08 to 1 and aspect 3/4 to
4/3, bilinear and antialiased, a random flip, ``(level / 255 - mean) / std``; shuffled, whole batches only. ``folder``
has a folder ``files`` with a folder of JPEGs for each class, and ``shard.tar`` with the same in WebDataset's form.
``colour_*`` add a jitter of brightness, contrast, saturation and hue after the flip.
"""

from __future__ import annotations

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE, BATCH = 224, 64
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
