"""torchcodec on the CPU, followed by torchvision v2. The settings are the seek mode, and the library that resizes.

``v2`` resizes the decoded uint8 tensors with antialiasing; ``FFmpeg`` resizes in the decoder with swscale.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401  (makes torchvision importable with a PyTorch for the CPU)
import torch
from torchcodec.decoders import VideoDecoder
from torchcodec.transforms import Resize
from torchvision.transforms import v2

from loaders.clips import MEAN, SIDE, STD, ClipTask, endless, wanted

PACKAGES = ("torch", "torchvision", "torchcodec")
SETTINGS = ("exact, v2", "exact, FFmpeg", "approximate, v2", "approximate, FFmpeg")


def prepare(folder: Path, threads: int, task: ClipTask) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    name, clips, frames, setting, ffmpeg_threads = task
    torch.set_num_threads(1)
    mode, resizer = setting.split(", ")
    within = [Resize((SIDE, SIDE))] if resizer == "FFmpeg" else None
    after = [] if within else [v2.Resize((SIDE, SIDE), antialias=True)]
    transform = v2.Compose([*after, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def one(path: str) -> Any:
        decoder = VideoDecoder(path, num_ffmpeg_threads=ffmpeg_threads, seek_mode=mode, transforms=within)
        return transform(decoder.get_frames_at(wanted(decoder.metadata.num_frames, frames)).data).numpy()

    return endless(folder / name, threads, clips, one)
