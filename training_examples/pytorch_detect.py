"""Train a small detector on padded batches of photos of several sizes, with the file that will serve it.

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


def loss_of(answers: torch.Tensor, batch: pp.Batch) -> torch.Tensor:
    """The loss of each cell that shows a photo: its class, and in the middle of a box that box's four edges."""
    loss = torch.zeros(())
    rows, columns = np.mgrid[: answers.shape[2], : answers.shape[3]] * CELL + CELL / 2
    for answer, boxes, labels, size in zip(answers, batch["boxes"], batch["labels"], batch["true_size"], strict=True):
        classes, edges = np.zeros((CLASSES, *rows.shape), np.float32), answer[CLASSES:]
        for (x1, y1, x2, y2), label in zip(boxes.tolist(), labels.tolist(), strict=True):
            inside = (abs(columns - (x1 + x2) / 2) < 0.3 * (x2 - x1)) & (abs(rows - (y1 + y2) / 2) < 0.3 * (y2 - y1))
            classes[label][inside] = 1
            wanted = np.stack([columns - x1, rows - y1, x2 - columns, y2 - rows])[:, inside] / UNIT
            loss = loss + (edges[:, inside] - torch.tensor(wanted, dtype=torch.float32)).abs().sum() / inside.size
        is_photo = torch.from_numpy((rows < size[0]) & (columns < size[1]))  # and no padding
        told, true = answer[:CLASSES, is_photo], torch.from_numpy(classes)[:, is_photo]
        loss = loss + nn.functional.binary_cross_entropy_with_logits(told, true)
    return loss / len(answers)


def main() -> None:
    """Train on padded batches, evaluate on other windows as serving sees them, write what serving needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("trained/detector"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    layers = [(3, 16, 2, 1), (16, 32, 2, 1), (32, 64, 2, 1), (64, 64, 2, 1), (64, 64, 1, 2), (64, 64, 1, 4)]
    blocks = [(nn.Conv2d(i, o, 3, s, d, d), nn.BatchNorm2d(o), nn.ReLU()) for i, o, s, d in layers]
    model = nn.Sequential(*(layer for block in blocks for layer in block), nn.Conv2d(64, CLASSES + 4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    pieces = cut_objects(PHOTOS, 96, seed=0), PIPELINE.for_training()
    with pp.Loader(*pieces, batch_size=8, shuffle=True, seed=1, group_by="aspect", last="pad") as loader:
        for epoch in range(12):
            for batch in loader:  # batches contain only tall or only wide images, which need less padding
                images = torch.from_numpy(batch.padded("tensor"))
                loss = loss_of(model(images), batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, the last batch is {tuple(images.shape)}")
    model.eval()
    valid = cut_objects(PHOTOS, 40, seed=1, size=(320, 400))
    paths = [str(output.resolve() / f"{number:02}.jpg") for number in range(len(valid))]
    for path, sample in zip(paths, valid, strict=True):
        Path(path).write_bytes(sample["image"])
    with pp.Loader(valid, PIPELINE.for_serving(), batch_size=len(valid)) as loader, torch.inference_mode():
        (batch,) = loader  # the boxes have the coordinates that serving uses for the photo
        answers = model(torch.from_numpy(tensor := batch.padded("tensor"))).numpy()
    truth = {"boxes": batch.padded("boxes"), "labels": batch.padded("labels")}
    name, number = measured(answers, truth)
    print(f"{name} {number:.4f} of {len(valid)} other windows")
    np.savez(output / "evaluation.npz", paths=paths, tensor=tensor, logits=answers, number=number, **truth)
    names = {"input_names": ["tensor"], "output_names": ["logits"], "dynamo": False}
    any_size = {name: {0: "batch", 2: f"{name}_rows", 3: f"{name}_columns"} for name in ("tensor", "logits")}
    torch.onnx.export(model, (torch.from_numpy(tensor[:1]),), output / "model.onnx", dynamic_axes=any_size, **names)


if __name__ == "__main__":
    main()
