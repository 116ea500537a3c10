"""Print what a detector finds in a photo, in the photo's own pixels; and draw a picture of it.

pip install ".[client,flow]"
python detect.py photo.jpg --url localhost:8000 --labels names.txt --output detected.png

The model is one that Ultralytics exported, or of that form, behind an ensemble of `pixprep build`. The extra
flow brings an OpenCV that leaves NumPy as `pixprep serve` needs it; the newest one replaces it.
"""

import argparse
import sys
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import tritonclient.http as triton
from PIL import Image, ImageDraw, ImageOps
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.boxes import convert


class Found(NamedTuple):
    """Candidates: boxes (n, 4) in tensor pixels as left, top, right, bottom; scores (n,); classes (n,); and the rest.

    ``rest`` (n, m) is what the task has more: coefficients of masks, keypoints as x, y, score, or an angle.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    rest: np.ndarray


def candidates(output: np.ndarray, task: str = "detect", masks: int = 0) -> Found:
    """The candidates in the first output of a YOLO export; ``masks`` is how many prototypes there are."""
    if output.ndim != 2 or (output.shape[1] != 6 and not 5 <= output.shape[0] < output.shape[1]):
        sys.exit(f"detect.py: an output of {list(output.shape)} is neither [4 + classes, n] nor [n, 6]")
    if output.shape[1] == 6:  # exported with nms=True, or end to end: corners, score, class
        corners, scores, classes = output[:, :4], output[:, 4], output[:, 5]
        is_finished = (corners[:, :2] <= corners[:, 2:]).all() and ((scores >= 0) & (scores <= 1)).all()
        if not (is_finished and (classes == classes.round()).all()):
            sys.exit(
                f"detect.py: the rows of {list(output.shape)} are not left, top, right, bottom, a score of 0 to 1 and "
                "a class: they need the model's own decoding, as its package does it"
            )
        return Found(corners, scores, classes.astype(int), output[:, 6:])
    more = {"detect": 0, "segment": masks, "pose": len(output) - 5, "obb": 1}[task]  # pose has one class
    scores = output[4 : len(output) - more]  # else: middle and size, and a score for each class
    if not len(scores) or not ((scores >= 0) & (scores <= 1)).all() or (task == "pose" and more % 3):
        sys.exit(
            f"detect.py: {list(output.shape)} is not boxes and scores of 0 to 1 of --task {task}; YOLO-pose has "
            "keypoints (--task pose), YOLO-obb an angle (--task obb), YOLO-seg a second output (--task segment)"
        )
    boxes = convert(output[:4].T, "cxcywh", "xyxy")
    return Found(boxes, scores.max(axis=0), scores.argmax(axis=0), output[len(output) - more :].T)


def outputs_of(outputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
    """The output beside ``transform`` and ``original_size``, and the prototypes of masks, where there are some."""
    others = {name: array for name, array in outputs.items() if name not in ("transform", "original_size")}
    flat = [array for array in others.values() if array.ndim == 2]
    prototypes = [array for array in others.values() if array.ndim == 3]
    if len(outputs) != len(others) + 2 or len(flat) != 1 or len(prototypes) > 1:
        masks = "; of YOLO-seg two outputs are known" * (len(others) > 1)
        if len(others) == 1 and len(prototypes) == 1 and len(outputs) == 3:
            return prototypes[0], None
        sys.exit(f"detect.py: the model gives {', '.join(outputs)}: not boxes, transform and original_size{masks}")
    return flat[0], prototypes[0] if prototypes else None


def kept_of(found: Found, task: str, score: float, overlap: float) -> np.ndarray:
    """The rows that stay: those that score enough, and of each class no two that overlap."""
    if task == "obb":
        kept: list[int] = []
        for label in np.unique(found.classes):
            (own,) = np.nonzero(found.classes == label)
            boxes, angles = (
                convert(found.boxes[own], "xyxy", "cxcywh").tolist(),
                np.degrees(found.rest[own, -1]).tolist(),
            )
            turned = [((x, y), (w, h), angle) for (x, y, w, h), angle in zip(boxes, angles, strict=True)]
            best = cv2.dnn.NMSBoxesRotated(turned, found.scores[own].tolist(), score, overlap)
            kept += own[np.array(best, int)].tolist()
        return np.array(sorted(kept, key=lambda row: -found.scores[row]), int)
    sizes = convert(found.boxes, "xyxy", "xywh").tolist()  # OpenCV's suppression is by class, and leaves out low scores
    kept_rows = cv2.dnn.NMSBoxesBatched(sizes, found.scores.tolist(), found.classes.tolist(), score, overlap)
    return np.array(kept_rows, int)


def masks_of(found: Found, prototypes: np.ndarray, outputs: dict[str, np.ndarray], boxes: np.ndarray) -> np.ndarray:
    """Masks (n, height, width) of the photo, each within its box; a prototype has a pixel for 4 x 4 of the tensor."""
    logits = np.tensordot(found.rest, prototypes, 1).astype(np.float32)
    masks = pp.mask_to_original(logits, outputs["transform"], outputs["original_size"], stride=4) > 0
    for mask, (left, top, right, bottom) in zip(masks, boxes.round().astype(int), strict=True):
        mask[:top] = mask[bottom:] = False
        mask[:, :left] = mask[:, right:] = False
    return masks


def main() -> None:
    """Send the photo, print a line for each box, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--labels", type=Path, help="the names of the classes, one a line")
    tasks = "what the model was exported for; default: segment where it gives prototypes of masks, or else detect"
    parser.add_argument("--task", choices=("detect", "segment", "pose", "obb"), help=tasks)
    parser.add_argument("--score", type=float, default=0.25, help="the least that counts")
    parser.add_argument("--overlap", type=float, default=0.45, help="over which the surer of two boxes stays alone")
    parser.add_argument("--output", type=Path, default=Path("detected.png"))
    arguments = parser.parse_args()
    names = arguments.labels.read_text(encoding="utf-8").splitlines() if arguments.labels else []

    encoded = triton.InferInput("image", [1, 1], "BYTES")
    encoded.set_data_from_numpy(np.array([[arguments.photo.read_bytes()]], dtype=np.object_))
    with triton.InferenceServerClient(arguments.url) as client:
        answer = client.infer(arguments.model, [encoded])
    outputs = {entry["name"]: answer.as_numpy(entry["name"])[0] for entry in answer.get_response()["outputs"]}
    output, prototypes = outputs_of(outputs)
    task = arguments.task or ("detect" if prototypes is None else "segment")
    if (task == "segment") != (prototypes is not None):
        sys.exit(f"detect.py: --task segment is for a model with prototypes of masks; it gives {', '.join(outputs)}")
    every = candidates(output, task, 0 if prototypes is None else len(prototypes))
    kept = kept_of(every, task, arguments.score, arguments.overlap)
    found = Found(*(each[kept] for each in every))

    image = ImageOps.exif_transpose(Image.open(arguments.photo)).convert("RGB")  # upright, as the boxes are
    transform = outputs["transform"]
    boxes = pp.boxes_to_original(found.boxes, transform, outputs["original_size"])
    if prototypes is not None:
        tinted = np.asarray(image).copy()
        for mask in masks_of(found, prototypes, outputs, boxes):
            tinted[mask] = tinted[mask] // 2 + np.array([110, 90, 0], np.uint8)
        image = Image.fromarray(tinted)
    draw = ImageDraw.Draw(image)
    for row, (box, score, index) in enumerate(zip(boxes, found.scores, found.classes, strict=True)):
        name = names[index] if index < len(names) else f"class {index}"
        shown = box
        if task == "obb":
            turned = [*convert(found.boxes[row], "xyxy", "cxcywh"), found.rest[row, -1]]
            (shown,) = pp.rotated_to_original([turned], transform)
            corners = pp.points_to_original(pp.quads_of(turned), transform).tolist()
            draw.polygon([(x, y) for x, y in corners], outline="yellow", width=3)
        else:
            draw.rectangle(box.tolist(), outline="yellow", width=3)
        print(f"{score:.2f}  {name:16} " + " ".join(f"{edge:7.1f}" for edge in shown))
        if task == "pose":
            points = found.rest[row].reshape(-1, 3)
            places = pp.points_to_original(points[:, :2], transform).tolist()
            for (x, y), sure in zip(places, points[:, 2], strict=True):
                if sure >= 0.5:
                    draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill="cyan")
                    print(f"      point {x:7.1f} {y:7.1f}")
        draw.text((box[0] + 6, box[1] + 4), f"{name} {score:.2f}", fill="yellow", stroke_fill="black", stroke_width=2)
    image.save(arguments.output)
    count = "1 box" if len(kept) == 1 else f"{len(kept)} boxes"
    print(f"{arguments.output}: {count} on {image.height} x {image.width} pixels")


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, HTTPException) as error:
        sys.exit(f"detect.py: {error}: is `pixprep serve` running at --url, its HTTP port?")
    except (OSError, InferenceServerException) as error:
        sys.exit(f"detect.py: {error}")
