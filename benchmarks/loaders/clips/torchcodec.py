"""torchcodec on the CPU, then torchvision v2 on the uint8 tensors; a decoder of one FFmpeg thread for each clip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401  (makes torchvision importable beside a PyTorch for the CPU)
import torch
from torchcodec.decoders import VideoDecoder
from torchvision.transforms import v2

from loaders.clips import MEAN, SIDE, STD, endless, wanted

PACKAGES = ("torch", "torchvision", "torchcodec")


def prepare(folder: Path, threads: int, frames: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    torch.set_num_threads(1)
    transform = v2.Compose(
        [v2.Resize((SIDE, SIDE), antialias=True), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    )

    def one(path: str) -> Any:
        decoder = VideoDecoder(path, num_ffmpeg_threads=1, seek_mode="approximate")
        found = decoder.get_frames_at(wanted(decoder.metadata.num_frames, frames))
        return transform(found.data).numpy()

    return endless(folder, threads, one)
