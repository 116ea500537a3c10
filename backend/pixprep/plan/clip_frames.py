"""Selects the frames of a clip by their times alone, with exact numbers."""

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
    """Choice of frames.

    Attributes:
        frames: Number of frames.
        rule: Selection rule. ``uniform``: frames ``i (n - 1) / (frames - 1)``, truncated, out of n: the first, the
            last, and frames between them at equal distances. ``segments``: a random frame from each of ``frames`` equal
            parts. ``step``: every ``by``-th frame. ``fps``: frames shown at times ``1 / by`` seconds apart.
        by: Step or rate, see ``rule``.
        start: First frame of a step or a rate: the remaining frames are after the selection, on both sides, or split at
            random.
        repeats: Whether a clip that is too short repeats its last frame; if False, it is rejected.
    """

    frames: int
    rule: Rule
    by: Fraction = Fraction(1)
    start: Start = "first"
    repeats: bool = False

    def __str__(self) -> str:
        which = {
            "uniform": "from the first to the last, equally far apart",
            "segments": "one of each equal part at random",
            "step": "one after the other" if self.by == 1 else f"one of every {self.by}",
            "fps": f"at {float(self.by):g} a second",
        }[self.rule]
        begin = {"first": "", "middle": ", from the middle", "random": ", from a random one on"}[self.start]
        return f"{self.frames} frames, {which}{begin}"

    @property
    def least(self) -> int:
        """Number of frames in the shortest sufficient clip with 25 frames per second."""
        if self.rule == "step":
            return int((self.frames - 1) * self.by) + 1
        return int((self.frames - 1) / self.by * 25) + 2 if self.rule == "fps" else self.frames

    def indices(self, times: Sequence[Fraction], drawn: Sequence[float] = ()) -> list[int]:
        """Return the indices of the selected frames in ascending order; a clip that is too short repeats some.

        Args:
            times: Time of every frame in seconds, in ascending order; at least one.
            drawn: Uniform numbers in [0, 1): one per segment for ``segments``, and one for a ``random`` start. Missing
                numbers count as 0.5.

        Raises:
            ValueError: The clip is too short. The message contains its number of frames or seconds.
        """
        count = len(times)
        span = self.least if self.rule == "step" else self.frames
        if self.rule != "fps" and count < span and not self.repeats:
            raise ValueError(f"{count} frames")
        if self.rule == "uniform":
            return [index * (count - 1) // max(self.frames - 1, 1) for index in range(self.frames)]
        if self.rule == "segments":
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
        """Return the distance from the first frame; ``left`` is the excess length of the clip."""
        if left <= 0 or self.start == "first":
            return Fraction(0)
        if self.start == "middle":
            return left / 2
        uniform = Fraction(drawn[0] if drawn else HALF)
        return uniform * (left + 1) if self.rule == "step" else uniform * left
