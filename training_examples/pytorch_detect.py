"""Train a small detector on padded batches of images of different sizes, with the pipeline file that also serves it.

python pytorch_detect.py --output trained/detector
python serve_trained.py --trained trained/detector --pipeline detection.json
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from cut_objects import cut_objects
from measures import CELL, UNIT, measured
from torch import nn

import pixprep as pp

HERE = Path(__file__).parent
PIPELINE = pp.load(HERE / "detection.json")
PHOTOS = pp.read.coco(HERE.parent / "client_examples" / "images", HERE / "instances.json")
CLASSES = len(PHOTOS.classes)


def loss_of(outputs: torch.Tensor, batch: pp.Batch) -> torch.Tensor:
    """Return the mean loss per image.

    It is the sum of a classification loss for all grid cells inside the image, and of an L1 loss for the distances to
    the box edges in cells near the centre of a box.
    """
    loss = torch.zeros(())
    rows, columns = np.mgrid[: outputs.shape[2], : outputs.shape[3]] * CELL + CELL / 2
    for output, boxes, labels, size in zip(outputs, batch["boxes"], batch["labels"], batch["true_size"], strict=True):
        classes, edges = np.zeros((CLASSES, *rows.shape), np.float32), output[CLASSES:]
        for (x1, y1, x2, y2), label in zip(boxes.tolist(), labels.tolist(), strict=True):
            inside = (abs(columns - (x1 + x2) / 2) < 0.3 * (x2 - x1)) & (abs(rows - (y1 + y2) / 2) < 0.3 * (y2 - y1))
            classes[label][inside] = 1
            target = np.stack([columns - x1, rows - y1, x2 - columns, y2 - rows])[:, inside] / UNIT
            loss = loss + (edges[:, inside] - torch.tensor(target, dtype=torch.float32)).abs().sum() / inside.size
        is_image = torch.from_numpy((rows < size[0]) & (columns < size[1]))  # exclude the padding
        predicted, true = output[:CLASSES, is_image], torch.from_numpy(classes)[:, is_image]
        loss = loss + nn.functional.binary_cross_entropy_with_logits(predicted, true)
    return loss / len(outputs)


def main() -> None:
    """Train on padded batches, evaluate in serving mode on other crops, and write the files that serving needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("trained/detector"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    layers = [(3, 16, 2, 1), (16, 32, 2, 1), (32, 64, 2, 1), (64, 64, 2, 1), (64, 64, 1, 2), (64, 64, 1, 4)]
    blocks = [(nn.Conv2d(i, o, 3, s, d, d), nn.BatchNorm2d(o), nn.ReLU()) for i, o, s, d in layers]
    model = nn.Sequential(*(layer for block in blocks for layer in block), nn.Conv2d(64, CLASSES + 4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    train = cut_objects(PHOTOS, 96, seed=0)
    options = {"batch_size": 8, "shuffle": True, "seed": 1, "group_by": "aspect", "last": "pad"}
    with pp.Loader(train, PIPELINE.for_training(), **options) as loader:
        for epoch in range(12):
            for batch in loader:  # each batch contains only tall or only wide images, which need less padding
                images = torch.from_numpy(batch.padded("tensor"))
                loss = loss_of(model(images), batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, shape of the last batch {tuple(images.shape)}")
    model.eval()
    valid = cut_objects(PHOTOS, 40, seed=1, size=(320, 400))
    paths = [str(output.resolve() / f"{number:02}.jpg") for number in range(len(valid))]
    for path, sample in zip(paths, valid, strict=True):
        Path(path).write_bytes(sample["image"])
    with pp.Loader(valid, PIPELINE.for_serving(), batch_size=len(valid)) as loader, torch.inference_mode():
        (batch,) = loader  # the boxes are in the coordinates of the served tensors
        logits = model(torch.from_numpy(tensor := batch.padded("tensor"))).numpy()
    truth = {"boxes": batch.padded("boxes"), "labels": batch.padded("labels")}
    name, number = measured(logits, truth)
    print(f"{name} on {len(valid)} validation images: {number:.4f}")
    np.savez(output / "evaluation.npz", paths=paths, tensor=tensor, logits=logits, number=number, **truth)
    names = {"input_names": ["tensor"], "output_names": ["logits"], "dynamo": False}
    any_size = {name: {0: "batch", 2: f"{name}_rows", 3: f"{name}_columns"} for name in ("tensor", "logits")}
    torch.onnx.export(model, (torch.from_numpy(tensor[:1]),), output / "model.onnx", dynamic_axes=any_size, **names)


if __name__ == "__main__":
    main()
