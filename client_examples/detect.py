"""Print the detections of a model in pixels of the photo, and draw them on the photo.

pip install ".[client]"
python detect.py photo.jpg --url localhost:8000 --labels names.txt --output detected.png

The model must have the output format of an Ultralytics export, or the output names of torchvision's detectors. The
server runs it in an ensemble that `pixprep build` created.
"""

import argparse
import sys
from http.client import HTTPException
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from PIL import Image, ImageDraw, ImageOps
from tritonclient.utils import InferenceServerException

import pixprep as pp


def draw(image: Image.Image, found: pp.Detections, names: list[str]) -> Image.Image:
    """Print a line for each object, and draw all of them."""
    tinted = np.asarray(image).copy()
    for mask in found.masks():
        tinted[mask] = tinted[mask] // 2 + np.array([110, 90, 0], np.uint8)
    drawn = Image.fromarray(tinted)
    pen = ImageDraw.Draw(drawn)
    for row, (box, score, index) in enumerate(zip(found.boxes, found.scores, found.classes, strict=True)):
        name = names[index] if index < len(names) else f"class {index}"
        corners = box.reshape(2, 2) if found.quads is None else found.quads[row]
        print(f"{score:.2f}  {name:16} " + " ".join(f"{place:7.1f}" for place in corners.ravel()))
        if found.quads is None:
            pen.rectangle(box.tolist(), outline="yellow", width=3)
        else:
            pen.polygon([(x, y) for x, y in corners.tolist()], outline="yellow", width=3)
        for x, y, sure in () if found.keypoints is None else found.keypoints[row].tolist():
            if sure >= 0.5:
                pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill="cyan")
                print(f"      point {x:7.1f} {y:7.1f}")
        pen.text((box[0] + 6, box[1] + 4), f"{name} {score:.2f}", fill="yellow", stroke_fill="black", stroke_width=2)
    return drawn


def main() -> None:
    """Send the photo, and print and draw the detections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--labels", type=Path, help="file of class names, one per line")
    tasks = "task of the exported model; default: segment if the model returns mask prototypes, or else detect"
    parser.add_argument("--task", choices=("detect", "segment", "pose", "obb"), help=tasks)
    parser.add_argument("--score", type=float, default=0.25, help="minimum score of a detection")
    parser.add_argument(
        "--overlap", type=float, default=0.45, help="IoU above which only the box with the higher score is kept"
    )
    parser.add_argument("--output", type=Path, default=Path("detected.png"))
    arguments = parser.parse_args()
    names = arguments.labels.read_text(encoding="utf-8").splitlines() if arguments.labels else []

    encoded = triton.InferInput("image", [1, 1], "BYTES")
    encoded.set_data_from_numpy(np.array([[arguments.photo.read_bytes()]], dtype=np.object_))
    with triton.InferenceServerClient(arguments.url) as client:
        answer = client.infer(arguments.model, [encoded])
    outputs = {entry["name"]: answer.as_numpy(entry["name"])[0] for entry in answer.get_response()["outputs"]}
    found = pp.detections(outputs, arguments.task, score=arguments.score, overlap=arguments.overlap)

    image = ImageOps.exif_transpose(Image.open(arguments.photo)).convert("RGB")  # EXIF-oriented, like the boxes
    draw(image, found, names).save(arguments.output)
    count = "1 box" if len(found.boxes) == 1 else f"{len(found.boxes)} boxes"
    print(f"{arguments.output}: {count} on {image.height} x {image.width} pixels")


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, HTTPException) as error:
        sys.exit(f"detect.py: {error}: check that `pixprep serve` is running and --url is its HTTP port")
    except (OSError, pp.PixprepError, InferenceServerException) as error:
        sys.exit(f"detect.py: {error}")
