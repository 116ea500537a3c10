"""Freezes digests of tensors: the results of hundreds of lists of ops for six images that are defined by integer
formulas.

``FROZEN`` has one line per list. A line contains the ops, written as in a pipeline file. For each image, it also
contains either the digest of the tensors of all epochs or the reason for the error. No image file is decoded. The
digests are the same on the x86-64 levels up to v3, with NumPy 1.26 and 2.4, and with the vector code of NumPy and of
glibc disabled. A new list is a line without ``digests``, which ``tests/golden/remake.py`` computes.
"""

import json
from hashlib import sha256

import msgspec
import numpy as np

import pixprep as pp
from pixprep.pipeline.ops import OPS
from support.canonical import GOLDEN

FROZEN = GOLDEN / "pixels.jsonl"
EPOCHS = 3
"""Number of samples that each random op draws for each image."""


def image(height, width, channels=3):
    """Return an image of gradients, an edge, a stripe of one colour, a texture of lines, and grain from the middle bits
    of a hash.
    """
    y, x, c = np.indices((height, width, channels), dtype=np.uint64)
    levels = 255 * (x * (3 - c) + y * (c + 1)) // (3 * width + 3 * height)
    levels = np.where(x * 5 > y * 3 + 40, levels, 255 - levels)
    levels = np.where((y // 3) % 5 == 2, 255 * ((x + c) % 2), levels)
    grain = (((y * 65537 + x * 257 + c * 17 + 1) * 2654435761) >> np.uint64(11)) % 64
    levels = np.where((x + 2 * y) % 41 < 3, 200 - 60 * c, levels + grain)
    return np.minimum(levels, 255).astype(np.uint8)


IMAGES = [
    image(67, 91), image(140, 41) // 2 + 40, image(33, 150), image(7, 9), image(64, 48, 1) // 3 + 9, image(192, 144),
]  # fmt: skip
"""Sizes of the images: two are larger or smaller than most sizes below; the others are tall, wide, tiny or gray.

The sides of the last two are 4 and 12 times those of a 16 x 12 image. Two images have little contrast.
"""
BOXES = [
    [[1, 1, 5, 4], [width // 2, height // 3, width - 1, height]] for height, width in (i.shape[:2] for i in IMAGES)
]


def digests(ops_text):
    """Return the digest of the tensors for each image, or the reason for the error."""
    ops = [msgspec.convert(entry, OPS[entry["op"]]) for entry in json.loads(ops_text)]
    return " ".join(_digest(ops, index) for index in range(len(IMAGES)))


def _digest(ops, index):
    state = sha256()
    is_random = any(op.home == "training" for op in ops)
    boxes = BOXES[index] if any(isinstance(op, pp.ops.RandomIouCrop) for op in ops) else None
    for epoch in range(EPOCHS if is_random else 1):
        try:
            tensor = pp.apply(ops, IMAGES[index], seed=7, epoch=epoch, index=index, boxes=boxes)
        except pp.ImageError as error:
            return error.reason
        except pp.PipelineError:
            return "channels"
        state.update(f"{tensor.dtype} {tensor.shape} ".encode() + np.ascontiguousarray(tensor).tobytes())
    return state.hexdigest()[:8]


def frozen():
    """Return the contents of ``FROZEN`` as a mapping from each list of ops, as text, to its digests.

    The digests of a new list are None.
    """
    with FROZEN.open(encoding="utf-8") as lines:
        return {json.dumps(line["ops"]): line.get("digests") for line in map(json.loads, lines)}


def changed(now):
    """Return a message that names the lines of ``FROZEN`` whose tensors have changed, or an empty string."""
    lines = [f"{ops}\n  frozen {was}\n  now    {now[ops]}" for ops, was in frozen().items() if was and now[ops] != was]
    return "\n".join(
        [f"{len(lines)} of {len(now)} lists of ops give other tensors than they did:", *lines[:20]] * bool(lines)
    )


def write(*, accepts_changes):
    """Add the digests that lines of ``FROZEN`` lack. If other lines have changed, either rewrite them or list them and
    stop.
    """
    now = {ops: digests(ops) for ops in frozen()}
    if (moved := changed(now)) and not accepts_changes:
        return moved
    lines = [f'{{"ops": {ops}, "digests": "{words}"}}\n' for ops, words in now.items()]
    FROZEN.write_text("".join(lines), encoding="utf-8")
    return ""
