"""torchvision's SSD preset with ``RandomIoUCrop``, on Pillow images and ``tv_tensors.BoundingBoxes``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401  (makes torchvision importable with a PyTorch for the CPU)
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes

from loaders import SIDE, torch_pil

PACKAGES, WORKERS = torch_pil.PACKAGES, torch_pil.WORKERS


class _Boxed(Dataset[tuple[Any, Any]]):
    def __init__(self, folder: Path) -> None:
        found = json.loads((folder / "boxes.json").read_text(encoding="utf-8"))
        self._images = [folder / "files" / image["file_name"] for image in found["images"]]
        corners: list[list[list[float]]] = [[] for _ in self._images]
        for each in found["annotations"]:
            left, top, width, height = each["bbox"]
            corners[each["image_id"]].append([left, top, left + width, top + height])
        self._boxes = [torch.tensor(each, dtype=torch.float32) for each in corners]
        crop = [v2.RandomIoUCrop(), v2.Resize((SIDE, SIDE), antialias=True), v2.SanitizeBoundingBoxes()]
        self._transform = torch_pil.transform(crop=crop)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, boxes = Image.open(self._images[index]).convert("RGB"), self._boxes[index]
        corners: Any = BoundingBoxes(boxes, format="XYXY", canvas_size=(image.height, image.width))  # type: ignore[call-overload]
        image, target = self._transform(image, {"boxes": corners, "labels": torch.zeros(len(boxes))})
        return image, target["boxes"].numpy()


def _together(samples: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    images, boxes = zip(*samples, strict=True)
    return torch.stack(images), list(boxes)


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    return torch_pil.endless(_Boxed(folder), threads, workers, _together)
