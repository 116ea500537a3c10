"""Remake the frozen vectors of ``pixprep verify`` with the libraries of this environment; the others' are kept.

    .venv-parity/bin/python tools/freeze_originals.py        Pillow, torchvision, OpenCV
    .venv-frozen/bin/python tools/freeze_originals.py        Pillow, TensorFlow, DALI

The same libraries give the same file, whichever environment comes first.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep import ops
from pixprep.verify import frozen
from pixprep.verify.images import gradient, noise, text
from pixprep.verify.originals import Original, Originals

LIMIT_BYTES = 400_000
LOG = logging.getLogger("freeze_originals")


def filters() -> Iterator[ops.Resize]:
    """A resize of each filter that has an original; ``nearest`` once."""
    seen = set()
    for (like, antialias), names in ops.FILTERS.items():
        if like == "pillow" and not antialias:  # Pillow has no such switch
            continue
        for name in names:
            op = ops.Resize(height=1, width=1, like=like, filter=name, antialias=antialias)
            key = frozen.resize_key(op)
            if key not in seen:
                seen.add(key)
                yield op


def sized(op: ops.Resize, height: int, width: int) -> ops.Resize:
    """The same filter, to another size."""
    return ops.Resize(height=height, width=width, like=op.like, filter=op.filter, antialias=op.antialias)


def jpegs() -> dict[str, bytes]:
    """A few small JPEGs of the common kinds, made from whole numbers alone."""
    photo = ((gradient(64, 80).astype(np.uint16) * 3 + noise(64, 80)) // 4).astype(np.uint8)
    kinds = {
        "420": (photo[:37, :53], {"subsampling": 2, "quality": 90}),
        "422": (photo[5:38, 7:39], {"subsampling": 1, "quality": 75}),
        "444": (noise(24, 31), {"subsampling": 0, "quality": 95}),
        "progressive": (text(33, 45), {"progressive": True, "quality": 60}),
        "gray": (photo[:29, :27, 1], {"quality": 85}),
    }
    result = {}
    for name, (pixels, options) in kinds.items():
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", **options)
        result[name] = file.getvalue()
    return result


def main() -> int:
    """Write the file; 1 if it is larger than the package should carry."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    shim = torchvision_shim()
    arrays, libraries = frozen.load(frozen.FILE) if frozen.FILE.exists() else ({}, {})
    if "sizes" not in arrays:  # the JPEGs stay as they are: other environments have decoded them
        images = dict(sorted(jpegs().items()))
        arrays |= {f"jpeg {name}": np.frombuffer(encoded, np.uint8) for name, encoded in images.items()}
        sizes = [Image.open(io.BytesIO(encoded)).size[::-1] for encoded in images.values()]
        arrays["sizes"] = np.array(sizes, np.int32)
    encoded = [array.tobytes() for name, array in sorted(arrays.items()) if name.startswith("jpeg ")]
    originals = Originals()

    def freeze(key: str, original: Original, outputs: Iterator[npt.NDArray[np.generic]]) -> None:
        if original.library.is_usable:
            arrays[key] = np.concatenate([output.reshape(-1) for output in outputs])
            libraries[key] = str(original.library)
        LOG.info("%-40s %s", key, libraries.get(key, "not to be had"))

    for idct in ("accurate", "fast"):
        for chroma in ("fancy", "fast"):
            decoder = originals.decoder(op := ops.Decode(idct=idct, chroma=chroma))
            freeze(frozen.decode_key(op), decoder, map(decoder.run, encoded))
    for op in filters():
        resizers = [originals.resizer(sized(op, *size)) for _, size in frozen.CASES]
        freeze(
            frozen.resize_key(op),
            resizers[0],
            (resizer.run(frozen.source(index)) for index, resizer in enumerate(resizers)),
        )
    frozen.save(frozen.FILE, arrays, libraries)
    size = frozen.FILE.stat().st_size
    LOG.info("%s: %d bytes", frozen.FILE.name, size)
    del shim
    return int(size > LIMIT_BYTES)


def torchvision_shim() -> object:
    """What lets torchvision be imported without its C++ extension, which has no wheel for a CPU's PyTorch."""
    if find_spec("torch") is None:
        return None
    library = import_module("torch").library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


if __name__ == "__main__":
    sys.exit(main())
