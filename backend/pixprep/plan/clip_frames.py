"""Selects frames of a video clip by their timestamps, with exact rational arithmetic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Rule = Literal["uniform", "segments", "step", "fps"]
Start = Literal["first", "middle", "random"]
HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Rule that selects a fixed number of frames from a clip.

    Attributes:
        frames: Number of selected frames.
        rule: Selection rule for a clip of n frames.

            - ``uniform``: the frames ``i * (n - 1) / (frames - 1)``, truncated to integers. They include the first and
              the last frame, and are evenly spaced.
            - ``segments``: one frame from each of ``frames`` segments of equal length, ``(i + u) * n / frames``,
              truncated to integers. u depends on ``start``.
            - ``step``: every ``by``-th frame.
            - ``fps``: the frames that are displayed at ``by`` timestamps per second.
        by: Number of frames per step for the rule ``step``, or number of frames per second for ``fps``.
        start: Start of the selection for the rules ``step`` and ``fps``: at the ``first`` frame, in the ``middle`` (so
            that the selection is centered in the clip), or at a ``random`` frame. For ``segments``, the position of the
            frame in its segment: the first frame (u = 0), the frame in the middle (u = 1/2), or a random frame.
        repeats: Whether the last frame is repeated if a clip is too short. If False, such clips are rejected.
    """

    frames: int
    rule: Rule
    by: Fraction = Fraction(1)
    start: Start = "first"
    repeats: bool = False

    def __str__(self) -> str:
        at = {"first": "the first", "middle": "the middle", "random": "a random"}[self.start]
        which = {
            "uniform": "evenly spaced from the first to the last",
            "segments": f"{at} one from each of as many equal segments",
            "step": "consecutive" if self.by == 1 else f"one of every {self.by}",
            "fps": f"at {float(self.by):g} frames per second",
        }[self.rule]
        begin = {"first": "", "middle": ", from the middle of the clip", "random": ", from a random start"}[self.start]
        return f"{self.frames} frames, {which}{begin * (self.rule != 'segments')}"

    @property
    def least(self) -> int:
        """Minimum number of frames that a clip must have, if its frame rate is 25 frames per second."""
        if self.rule == "step":
            return int((self.frames - 1) * self.by) + 1
        return int((self.frames - 1) / self.by * 25) + 2 if self.rule == "fps" else self.frames

    def indices(self, times: Sequence[Fraction], drawn: Sequence[float] = ()) -> list[int]:
        """Return the indices of the selected frames in ascending order.

        If the clip is too short, an index may occur several times.

        Args:
            times: Timestamps of all frames in seconds, in ascending order. There is at least one.
            drawn: Uniform random numbers in [0, 1): one number per segment for the rule ``segments``, or one number for
                a ``random`` start. Missing numbers are replaced by 0.5.

        Raises:
            ValueError: The clip is too short. The message contains its length in frames or seconds.
        """
        count = len(times)
        span = self.least if self.rule == "step" else self.frames
        if self.rule != "fps" and count < span and not self.repeats:
            raise ValueError(f"{count} frames")
        if self.rule == "uniform":
            return [index * (count - 1) // max(self.frames - 1, 1) for index in range(self.frames)]
        if self.rule == "segments":
            if self.start != "random":
                offset = 1 if self.start == "middle" else 0
                return [(2 * index + offset) * count // (2 * self.frames) for index in range(self.frames)]
            uniforms = [*drawn, *[HALF] * self.frames]
            return [
                min(int((index + uniforms[index]) * count / self.frames), count - 1) for index in range(self.frames)
            ]
        if self.rule == "step":
            begin = self._begin(Fraction(count - span), drawn)
            return [min(int(begin) + int(index * self.by), count - 1) for index in range(self.frames)]
        last = times[-1] - times[0]
        length = (self.frames - 1) / self.by
        if length > last and not self.repeats:
            raise ValueError(f"{float(last):.3f} s from the first frame to the last")
        begin = times[0] + self._begin(last - length, drawn)
        return [max(bisect_right(times, begin + index / self.by) - 1, 0) for index in range(self.frames)]

    def _begin(self, left: Fraction, drawn: Sequence[float]) -> Fraction:
        """Return the offset of the selection from the first frame.

        Args:
            left: Length of the clip minus the length of the selection, in frames or seconds.
            drawn: Uniform random numbers in [0, 1), see ``indices``.
        """
        if left <= 0 or self.start == "first":
            return Fraction(0)
        if self.start == "middle":
            return left / 2
        uniform = Fraction(drawn[0] if drawn else HALF)
        return uniform * (left + 1) if self.rule == "step" else uniform * left
