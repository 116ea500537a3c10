"""Train an image classifier with the pipeline file that also serves it, and export the model to ONNX.

python pytorch_train.py [PHOTOS] --output trained

PHOTOS/train and PHOTOS/valid contain one folder of photos per class.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from cut_photos import cut_photos
from measures import measured
from torch import nn

import pixprep as pp

PIPELINE = pp.load(Path(__file__).with_name("photos.json"))


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return a convolutional block that halves the height and the width."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


def main() -> None:
    """Train in training mode, evaluate in serving mode, and write the files that serving needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="?", help="folder; default: crops of the two sample photos")
    parser.add_argument("--output", type=Path, default=Path("trained"))
    options = parser.parse_args()
    photos, output = options.photos or options.output / "photos", options.output
    if options.photos is None:
        cut_photos(photos)

    train = pp.read.files(photos / "train")
    torch.manual_seed(0)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(train.classes))
    model = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), *head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    with pp.Loader(train, PIPELINE.for_training(), batch_size=24, shuffle=True, seed=1) as loader:
        for epoch in range(15):
            for images, labels in loader.torch("tensor", "label"):
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")

    model.eval()
    valid = pp.read.files(photos / "valid", classes=train.classes)
    with pp.Loader(valid, PIPELINE.for_serving(), batch_size=len(valid)) as loader, torch.inference_mode():
        (batch,) = loader
        logits = model(batch.torch("tensor")).numpy()
    truth = {"label": batch["label"]}
    _, number = measured(logits, truth)
    print(f"accuracy on {len(valid)} validation photos: {number:.3f}")
    paths = [str((photos / "valid" / name).resolve()) for name in batch["name"]]
    np.savez(output / "evaluation.npz", paths=paths, tensor=batch["tensor"], logits=logits, number=number, **truth)
    names = {"input_names": ["tensor"], "output_names": ["logits"]}
    any_batch = {"tensor": {0: "batch"}, "logits": {0: "batch"}}
    example = (batch.torch("tensor")[:1],)
    torch.onnx.export(model, example, output / "model.onnx", dynamo=False, dynamic_axes=any_batch, **names)
    (output / "labels.txt").write_text("\n".join(train.classes) + "\n")


if __name__ == "__main__":
    main()
