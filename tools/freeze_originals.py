"""Regenerate the reference results of ``pixprep verify`` for the libraries in this environment, and keep the others.

    .venv-parity/bin/python tools/freeze_originals.py        Pillow, torchvision, OpenCV
    .venv-tensorflow/bin/python tools/freeze_originals.py    Pillow, TensorFlow, DALI

Pillow versions resize horizontally and vertically in different orders. The results of each order come from a Pillow
version that uses it: those of ``pillow12`` need an environment with Pillow 12.

The seven JPEGs that test decoding do not change. ``importers.verify.images`` generated five of them: a gradient with
noise, at 37 x 53 (4:2:0, quality 90), 33 x 32 (4:2:2, 75) and 29 x 27 (gray, 85), noise at 24 x 31 (4:4:4, 95), and
text at 33 x 45 (progressive, 60). ``scene`` in ``tests/support/images.py`` generated the other two, at 25 x 19 (4:4:0,
92) and 13 x 17 (RGB).
"""

from __future__ import annotations

import json
import logging
import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from pixprep.importers.verify import frozen
from pixprep.importers.verify.originals import Original, Originals
from pixprep.pipeline import ops

LIMIT_BYTES = 460_000
LOG = logging.getLogger("freeze_originals")


def main() -> int:
    """Write the file. Return 1 if it is too large for the package."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    shim = torchvision_shim()
    originals = Originals()
    arrays, libraries = (dict(part) for part in frozen.load())
    for op in frozen.every():
        key, original = frozen.key(op), original_of(originals, op)
        if original.library.version and not original.note:
            results = [run(originals, case) for case in frozen.cases(op)]
            arrays[key] = np.concatenate([result.reshape(-1) for result in results])
            libraries[key] = str(original)
        LOG.info("%-40s %s", key, libraries.get(key, "no library here"))
    names = np.frombuffer(json.dumps(libraries, sort_keys=True).encode(), np.uint8)
    np.savez_compressed(frozen.FILE, **dict(sorted(arrays.items())), libraries=names)
    size = frozen.FILE.stat().st_size
    LOG.info("%s: %d bytes", frozen.FILE.name, size)
    del shim
    return int(size > LIMIT_BYTES)


def original_of(originals: Originals, op: frozen.Op) -> Original:
    """Return the library function that an op reproduces."""
    if isinstance(op, ops.SteadyOp):
        return originals.colourist(op)
    return originals.decoder(op) if isinstance(op, ops.Decode) else originals.resizer(op)


def run(originals: Originals, case: frozen.Case) -> frozen.Array:
    """Return the pixels that the library computes for a case.

    Only the cases of ``decode`` decode JPEGs; the others use lossless images.
    """
    original = original_of(originals, case.op)
    is_decoding = isinstance(case.op, ops.Decode)
    return original.run(case.encoded if is_decoding else originals.decoder(ops.Decode()).run(case.encoded))


def torchvision_shim() -> object:
    """Make torchvision importable without its C++ extension, which has no wheel for CPU builds of PyTorch.

    Returns:
        The definitions of the missing operators. The operators exist as long as this object exists.
    """
    if find_spec("torch") is None:
        return None
    library = import_module("torch").library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


if __name__ == "__main__":
    sys.exit(main())
