"""Pipelines whose files are pinned byte for byte in tests/golden."""

from pathlib import Path

import pixprep as pp

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = Path(__file__).parents[1] / "docs" / "pipeline.schema.json"
CANONICAL = {
    "imagenet": pp.presets.imagenet(),
    "clip": pp.presets.clip(),
    "efficientnet_lite0": pp.presets.efficientnet_lite0(),
    "letterbox": pp.presets.letterbox(),
    "branches": pp.Pipeline(
        [
            pp.decode(name="decoded", color="bgr", apply_exif_orientation=False),
            pp.original_size(),
            pp.letterbox(64, 96, fill=(1, 2, 3), anchor="top_left", name="boxed"),
            pp.transform(name="boxes"),
            pp.tensor(dtype="uint8", layout="hwc", name="pixels"),
            pp.crop(1, 2, 30, 40, from_="decoded"),
            pp.flip("vertical"),
            pp.resize(height=16, width=16, filter="lanczos", antialias=False),
            pp.pad(20, 24, fill=7),
            pp.normalize(mean=(0.1, 0.2, 0.3), std=0.5, scale=1),
            pp.tensor(dtype="float16"),
        ]
    ),
}
