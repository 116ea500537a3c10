"""Clips: their containers, and the frames that are wanted of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pixprep.engine.decoders import Decoder, Limits, Pixels
from pixprep.errors import needing
from pixprep.plan.plan import Plan


def clip_decoder(
    plan: Plan,
    limits: Limits,
    *,
    ready: Callable[[Pixels], Pixels],
    elsewhere: Callable[[], Callable[[Any], Any] | None] | None = None,
) -> Decoder:
    """The decoder of clips.

    Args:
        plan: which takes clips.
        limits: of a clip.
        ready: makes a frame what the kernels of a device read.
        elsewhere: makes the device's ``ffmpeg.Elsewhere``, or nothing.

    Raises:
        SetupError: PyAV is not installed.
    """
    with needing('decode_video needs PyAV: pip install "av>=17"'):
        from pixprep.engine.decoders.clips.decoder import ClipDecoder  # noqa: PLC0415  (FFmpeg, for clips only)
    return ClipDecoder(plan, limits, ready, elsewhere() if elsewhere else None)
