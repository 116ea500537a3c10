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

import cv2
import numpy as np
import tritonclient.http as triton
from PIL import Image, ImageDraw, ImageOps
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.boxes import convert


def candidates(output: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (n, 4) in tensor pixels as left, top, right, bottom; scores (n,); classes (n,)."""
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
        return corners, scores, classes.astype(int)
    scores = output[4:]  # else: middle and size, and a score for each class
    if not ((scores >= 0) & (scores <= 1)).all():
        sys.exit(
            f"detect.py: {list(output.shape)} has more than boxes and scores of 0 to 1, as YOLO-pose has keypoints"
        )
    return convert(output[:4].T, "cxcywh", "xyxy"), scores.max(axis=0), scores.argmax(axis=0)


def boxes_of(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """The output beside ``transform`` and ``original_size``."""
    names = sorted(outputs.keys() - {"transform", "original_size"})
    if len(names) != 1 or len(outputs) != 3:
        masks = "; masks, as of YOLO-seg, need the model's own decoding" * (len(names) > 1)
        sys.exit(f"detect.py: the model gives {', '.join(outputs)}: not boxes, transform and original_size{masks}")
    return outputs[names[0]]


def main() -> None:
    """Send the photo, print a line for each box, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=Path)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--labels", type=Path, help="the names of the classes, one a line")
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
    boxes, scores, classes = candidates(boxes_of(outputs))

    sizes = convert(boxes, "xyxy", "xywh").tolist()  # OpenCV's suppression is by class, and leaves out low scores
    kept = cv2.dnn.NMSBoxesBatched(sizes, scores.tolist(), classes.tolist(), arguments.score, arguments.overlap)
    kept = np.array(kept, int)
    image = ImageOps.exif_transpose(Image.open(arguments.photo)).convert("RGB")  # upright, as the boxes are
    draw = ImageDraw.Draw(image)
    found = pp.boxes_to_original(boxes[kept], outputs["transform"], outputs["original_size"])
    for box, score, index in zip(found, scores[kept], classes[kept], strict=True):
        name = names[index] if index < len(names) else f"class {index}"
        print(f"{score:.2f}  {name:16} " + " ".join(f"{edge:7.1f}" for edge in box))
        draw.rectangle(box.tolist(), outline="yellow", width=3)
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
