"""Show training images of a detector: the augmentations of SSD with their boxes, applied to photos in COCO's format.

python coco_boxes.py --output boxes.png
"""

import argparse
from pathlib import Path

from PIL import Image, ImageDraw

import pixprep as pp

HERE = Path(__file__).parent
SSD = pp.Pipeline(
    [
        pp.decode(),
        pp.random_zoom_out(fill=(123, 117, 104)),
        pp.random_iou_crop(),
        pp.resize(height=300, width=300),
        pp.random_flip(),
        pp.boxes(min_visible=0.1),
        pp.tensor(dtype="uint8", layout="hwc"),
    ]
)
COLOURS = ("red", "yellow", "cyan")
COLUMNS, ROWS = 4, 3


def main() -> None:
    """Draw the photos of several epochs into one picture. Each epoch samples new random parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=HERE.parent / "client_examples" / "images")
    parser.add_argument("--annotations", type=Path, default=HERE / "instances.json")
    parser.add_argument("--output", type=Path, default=Path("boxes.png"))
    options = parser.parse_args()

    photos = pp.read.coco(options.photos, options.annotations)
    sheet = Image.new("RGB", (300 * COLUMNS, 300 * ROWS))
    with pp.Loader(photos, SSD.for_training(), batch_size=1, shuffle=True, seed=1) as loader:
        tiles = (batch for _ in range(COLUMNS * ROWS) for batch in loader)
        for number, batch in zip(range(COLUMNS * ROWS), tiles, strict=False):
            tile = Image.fromarray(batch["tensor"][0])
            draw = ImageDraw.Draw(tile)
            for box, label in zip(batch["boxes"][0].tolist(), batch["labels"][0].tolist(), strict=True):
                draw.rectangle(box, outline=COLOURS[label % len(COLOURS)], width=2)
                draw.text((box[0] + 4, box[1] + 3), photos.classes[label], fill=COLOURS[label % len(COLOURS)])
            sheet.paste(tile, (300 * (number % COLUMNS), 300 * (number // COLUMNS)))
            print(f"{batch['name'][0]}: {len(batch['boxes'][0])} boxes; {batch.draws[0]}")
    sheet.save(options.output)


if __name__ == "__main__":
    main()
