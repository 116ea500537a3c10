"""Compute the optical flow between frames with OpenCV on the CPU."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from pixprep.spec import Preset

_PRESETS: dict[Preset, int] = {
    "ultrafast": cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST,
    "fast": cv2.DISOPTICAL_FLOW_PRESET_FAST,
    "medium": cv2.DISOPTICAL_FLOW_PRESET_MEDIUM,
}


def flow(frames: npt.NDArray[np.uint8], preset: Preset, out: npt.NDArray[np.float32]) -> None:
    """Write the optical flow from each frame to the next one.

    Args:
        frames: Array of uint8, (frames, height, width, 3) RGB or (frames, height, width, 1) gray.
        preset: Preset of OpenCV's DIS optical flow.
        out: Array of float32 (frames - 1, 2, height, width) for the flow in pixels, to the right and down.
    """
    dis = cv2.DISOpticalFlow_create(  # type: ignore[attr-defined]
        _PRESETS[preset]
    )  # one object per call, because OpenCV's object is not thread-safe
    grays = [frame if frame.shape[2] == 1 else cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    for before, after, target in zip(grays, grays[1:], out, strict=False):
        target[...] = dis.calc(before, after, None).transpose(2, 0, 1)
