"""Train a semantic segmentation model with the pipeline file that also serves it, and export the model to ONNX.

python pytorch_segment.py --output trained/segmented
python serve_trained.py --trained trained/segmented --pipeline segmentation.json
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from measures import measured
from PIL import Image
from torch import nn

import pixprep as pp

HERE = Path(__file__).parent
PIPELINE = pp.load(HERE / "segmentation.json")
IGNORE = 255  # label that the op `mask` assigns to pixels outside the photo


def tiles(folder: Path) -> tuple[list[dict], list[dict], int]:
    """Cut the sample photos into tiles, and write them to a folder.

    Returns:
        Samples for training and for validation, which alternate like the squares of a chessboard, and the number of
        classes including the background.
    """
    folder.mkdir(parents=True, exist_ok=True)
    photos = pp.read.coco(HERE.parent / "client_examples" / "images", HERE / "instances.json", masks=True)
    parts = [], []
    for photo in photos:
        classes = np.zeros(photo["size"], np.uint8)
        for label, mask in zip(photo["labels"].tolist(), np.asarray(photo["masks"]), strict=True):
            classes[mask > 0] = 1 + label
        pixels = np.asarray(Image.open(photo["image"]))
        for row, column in np.ndindex(3, 4):
            place = slice(142 * row, 142 * (row + 1)), slice(160 * column, 160 * (column + 1))
            file = folder / f"{Path(photo['name']).stem}-{row}{column}.png"
            Image.fromarray(pixels[place]).save(file)
            parts[(row + column) % 2].append({"image": file, "mask": classes[place]})
    return *parts, 1 + len(photos.classes)


def main() -> None:
    """Train on random crops, evaluate in serving mode on the other tiles, and write the files that serving needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("trained/segmented"))
    output = parser.parse_args().output
    train, valid, classes = tiles(output / "tiles")

    torch.manual_seed(0)
    down = [(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in ((3, 16), (16, 32), (32, 64))]
    wide = [(nn.Conv2d(64, 64, 3, 1, d, dilation=d), nn.BatchNorm2d(64), nn.ReLU()) for d in (2, 4)]
    head = nn.Conv2d(64, classes, 1), nn.Upsample(scale_factor=8, mode="bilinear")
    model = nn.Sequential(*(layer for layers in (*down, *wide, head) for layer in layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    training = PIPELINE.for_training()  # applies the same crop and flip to the image and its mask
    with pp.Loader(train, training, batch_size=16, shuffle=True, seed=1, epoch_samples=320) as loader:
        for epoch in range(6):
            for images, masks in loader.torch("tensor", "mask"):
                loss = nn.functional.cross_entropy(model(images), masks.long(), ignore_index=IGNORE)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")

    model.eval()
    with pp.Loader(valid, PIPELINE.for_serving(), batch_size=len(valid)) as loader, torch.inference_mode():
        (batch,) = loader
        logits = model(batch.torch("tensor")).numpy()
    truth = {"mask": batch["mask"]}
    name, number = measured(logits, truth)
    print(f"{name} on {len(valid)} validation images: {number:.4f}")
    paths = [str(sample["image"].resolve()) for sample in valid]
    np.savez(output / "evaluation.npz", paths=paths, tensor=batch["tensor"], logits=logits, number=number, **truth)
    names = {"input_names": ["tensor"], "output_names": ["logits"]}
    any_batch = {"tensor": {0: "batch"}, "logits": {0: "batch"}}
    example = (batch.torch("tensor")[:1],)
    torch.onnx.export(model, example, output / "model.onnx", dynamo=False, dynamic_axes=any_batch, **names)


if __name__ == "__main__":
    main()
