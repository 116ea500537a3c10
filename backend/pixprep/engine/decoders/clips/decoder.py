"""Decoder of clips, with FFmpeg on the CPU or with a decoder on a GPU. A chunk is one clip."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import av
import av.logging
import numpy as np

from pixprep.engine.decoders import Chunk, Decoded, Encoded, Limits, Pixels
from pixprep.engine.decoders.clips.ffmpeg import Elsewhere, Frames, decode
from pixprep.engine.decoders.memory import Budget, Memory
from pixprep.errors import ImageError
from pixprep.plan.plan import Place, Placed, Plan

av.logging.set_level(None)  # no log messages about damaged clips, because they contain text from the clips


class ClipDecoder:
    """See ``Decoder``. ``Decoded.pixels`` is the list of the requested frames.

    Args:
        plan: Plan whose input is clips.
        limits: Limits of the engine.
        ready: Function that converts a frame to the device and the layout of the kernels.
        elsewhere: Decoder on the device, which is tried first. A clip that the CPU decodes instead is a fallback.
    """

    def __init__(
        self, plan: Plan, limits: Limits, ready: Callable[[Pixels], Pixels], elsewhere: Elsewhere | None = None
    ) -> None:
        assert plan.clip is not None
        self._plan = plan
        self._clip = plan.clip
        self._limits = limits
        self._ready = ready
        self._elsewhere = elsewhere
        self.words = "NVDEC, and FFmpeg for clips that NVDEC does not support" if elsewhere else "FFmpeg"
        self._budget = Budget(limits.max_pixels_in_flight)

    def chunks(self, encoded: Sequence[Encoded], places: Sequence[Place], *, is_whole: bool = True) -> Iterator[Chunk]:
        """See ``Decoder``. The largest clip is first."""
        del is_whole  # frames are always decoded completely
        for index in sorted(range(len(encoded)), key=lambda index: -len(encoded[index])):
            yield Chunk((index,), ((encoded[index], places[index]),))

    @contextmanager
    def decode(self, chunk: Chunk) -> Iterator[list[Decoded | ImageError]]:
        """See ``Decoder``."""
        ((encoded, place),) = chunk.images
        with Memory(self._budget, deque()) as memory:
            try:
                result: Decoded | ImageError = self._decoded(encoded, place, memory)
            except ImageError as error:
                result = error.as_value()
            yield [result]

    def trim(self) -> None:
        """See ``Decoder``. This decoder does not cache memory."""

    def close(self) -> None:
        """See ``Decoder``. This decoder does not have threads of its own."""

    def _decoded(self, encoded: Encoded, place: Place, memory: Memory) -> Decoded:
        placed: Placed | None = None
        rate = 0.0

        def choose(frames: Frames) -> Sequence[int]:
            nonlocal placed, rate
            sampling = self._clip.sampling

            def indices_of(drawn: Sequence[float] = ()) -> Sequence[int]:
                try:
                    return sampling.indices(frames.times, drawn, frames.rate)
                except ValueError as error:
                    raise ImageError("DOES_NOT_FIT", f"{error}: the clip is too short for {sampling}") from None

            count = sampling.frames if sampling.rate is None else len(indices_of())
            placed = place(frames.height, frames.width, count)
            row = placed.rows[0] if placed.rows else placed  # a clip has one row of inputs
            assert isinstance(row, Placed)
            indices = indices_of(row.draws[self._clip.drawn.key]["uniforms"] if self._clip.drawn else ())
            rate = len(indices) / len(frames.times) * frames.rate
            memory.take(len({*indices}) * frames.height * frames.width)
            return indices

        clip = decode(
            encoded,
            choose,
            self._limits,
            is_gray=self._plan.is_gray,
            apply_rotation=self._clip.apply_rotation,
            elsewhere=self._elsewhere,
        )
        assert placed is not None
        frames = tuple(clip.indices)
        rows = tuple(_selected(row, frames, rate) if isinstance(row, Placed) else row for row in placed.rows)
        placed = _selected(placed, frames, rate)._replace(rows=rows)
        if clip.is_elsewhere:
            return Decoded(clip.frames, placed)
        ready = {id(frame): self._ready(frame) for frame in clip.frames}
        return Decoded([ready[id(frame)] for frame in clip.frames], placed, is_fallback=self._elsewhere is not None)


def _selected(placed: Placed, frames: tuple[int, ...], rate: float) -> Placed:
    """Return the placement of a clip with the indices and the rate of the selected frames (frames per second)."""
    each = {id(placement): placement._replace(rate=rate) for placement in placed.placements.values()}
    placements = {name: each[id(placement)] for name, placement in placed.placements.items()}
    return placed._replace(frames=frames, placements=placements)


def sample_clip(frames: int, height: int, width: int) -> bytes:
    """Return a clip for testing decoders: MPEG-4 video in an MP4, each frame with a random color."""
    memory = io.BytesIO()
    with av.open(memory, "w", format="mp4") as file:
        track = file.add_stream("mpeg4", rate=25)
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        for _ in range(frames):
            pixels = np.full((height, width, 3), [*os.urandom(3)], np.uint8)
            file.mux(track.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(track.encode())
    return memory.getvalue()
