"""Write docs/explain.png: the picture that `pixprep explain --output` writes, reduced to 256 colours."""

from pathlib import Path

from PIL import Image

import pixprep as pp
from pixprep.show.pictures import stages

ROOT = Path(__file__).parent.parent
PHOTO = ROOT / "client_examples" / "images" / "china.jpg"
PICTURE = ROOT / "docs" / "explain.png"


def drawn() -> Image.Image:
    """Return the picture before its colours are reduced."""
    return stages(pp.presets.imagenet(), PHOTO.read_bytes(), title="pipeline.json", name=PHOTO.name)


if __name__ == "__main__":
    drawn().quantize(256, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
