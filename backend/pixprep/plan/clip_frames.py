"""Selects frames of a video clip by their timestamps, with exact rational arithmetic."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Literal

import numpy as np

Rule = Literal["uniform", "rounded", "trimmed", "segments", "step", "fps", "seconds"]
Short = Literal["refuse", "repeat", "loop"]
Start = Literal["first", "middle", "random"]
HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Rule that selects frames from a clip.

    Attributes:
        frames: Number of selected frames. With ``rate``, it is the maximum number.
        rule: Selection rule for a clip of n frames.

            - ``uniform``: the frames ``i * (n - 1) / (frames - 1)``, truncated to integers. They include the first and
              the last frame, and are evenly spaced.
            - ``rounded``: as ``uniform``, but rounded to the nearest integer, with ties to even.
            - ``trimmed``: as ``uniform``, without the first and the last second of a clip of more than ``frames *
              rate + 2`` seconds, and without duplicates. The products are computed in float64, as by NumPy.
            - ``segments``: one frame from each of ``frames`` segments of equal length, ``(i + u) * n / frames``,
              truncated to integers. u depends on ``start``.
            - ``step``: every ``by``-th frame.
            - ``fps``: the frames that are displayed at ``by`` timestamps per second.
            - ``seconds``: evenly spaced frames from the first to the last frame of a window of ``by`` seconds.
        by: Number of frames per step for the rule ``step``, number of frames per second for ``fps``, or length of the
            window for ``seconds``.
        start: Start of the selection for the rules ``step``, ``fps`` and ``seconds``: at the ``first`` frame, in the
            ``middle`` (so that the selection is centered in the clip), or at a ``random`` frame. For ``segments``, the
            position of the frame in its segment: the first frame (u = 0), the frame in the middle (u = 1/2), or a
            random frame.
        short: Treatment of a clip that is too short: ``refuse`` rejects it, ``repeat`` repeats frames, and ``loop``
            continues with the first frame.
        clips: Number of evenly spaced clips of ``frames`` frames each, instead of one clip at ``start``. Each rule then
            reproduces a library: ``step`` selects the frames of mmaction2's ``SampleFrames`` in test mode, ``fps``
            selects those of torchvision's ``VideoClips`` with ``UniformClipSampler``, and ``seconds`` selects those of
            PyTorchVideo's ``ConstantClipsPerVideoSampler`` with ``UniformTemporalSubsample``.
        clip: Index of the only selected clip, from 0. None means all clips, one after the other.
        rate: Number of selected frames per second of the clip. None means that ``frames`` frames are selected.
        min_frames: Minimum number of selected frames with ``rate``, but not more than the clip has.
        multiple: The number of selected frames with ``rate`` is rounded down to a multiple of this number.
    """

    frames: int
    rule: Rule
    by: Fraction = Fraction(1)
    start: Start = "first"
    short: Short = "refuse"
    clips: int | None = None
    clip: int | None = None
    rate: float | None = None
    min_frames: int = 1
    multiple: int = 1

    def __str__(self) -> str:
        if self.rate is not None:
            few = f"{self.min_frames} to {self.frames}" if self.min_frames > 1 else f"up to {self.frames}"
            whole = f", a multiple of {self.multiple}" if self.multiple > 1 else ""
            words = str(replace(self, rate=None)).partition(" frames, ")[2]
            return f"{self.rate:g} frames per second ({few} frames{whole}), {words}"
        at = {"first": "the first", "middle": "the middle", "random": "a random"}[self.start]
        which = {
            "uniform": "evenly spaced from the first to the last",
            "rounded": "evenly spaced from the first to the last, rounded to the nearest frame",
            "trimmed": "evenly spaced, without the first and the last second of a long clip",
            "segments": f"{at} one from each of as many equal segments",
            "step": "consecutive" if self.by == 1 else f"one of every {self.by}",
            "fps": f"at {float(self.by):g} frames per second",
            "seconds": f"evenly spaced in a window of {float(self.by):g} s",
        }[self.rule]
        if self.clips is not None:
            clip = f"clip {self.clip} of" if self.clip is not None else "each of"
            return f"{self.frames} frames, {which}, of {clip} {self.clips} evenly spaced clips"
        begin = {"first": "", "middle": ", from the middle of the clip", "random": ", from a random start"}[self.start]
        return f"{self.frames} frames, {which}{begin * (self.rule != 'segments')}"

    @property
    def least(self) -> int:
        """Minimum number of frames that a clip must have, if its frame rate is 25 frames per second."""
        if self.rate is not None:
            return max(self.min_frames, self.multiple, int(self.multiple / self.rate * 25) + 2)
        if self.rule == "step":
            return int((self.frames - 1) * self.by) + 1
        if self.rule == "seconds":
            return max(int(self.by * 25) + 2, self.frames)
        return int((self.frames - 1) / self.by * 25) + 2 if self.rule == "fps" else self.frames

    @property
    def example(self) -> int:
        """Number of selected frames. With ``rate``, it is the number for a clip of ten seconds."""
        return self.frames if self.rate is None else max(self._count(10.0, self.frames), self.multiple)

    def _count(self, seconds: float, most: int) -> int:
        """Return the number of frames to select with ``rate`` from a clip of this duration, at most ``most``."""
        assert self.rate is not None
        return int(min(max(seconds * self.rate, self.min_frames), most)) // self.multiple * self.multiple

    def indices(self, times: Sequence[Fraction], drawn: Sequence[float] = (), rate: float = 25.0) -> list[int]:
        """Return the indices of the selected frames, in ascending order within each clip.

        An index may occur several times if the clip is too short, or if ``clips`` overlap.

        Args:
            times: Timestamps of all frames in seconds, in ascending order. There is at least one.
            drawn: Uniform random numbers in [0, 1): one number per segment for the rule ``segments``, or one number for
                a ``random`` start. Missing numbers are replaced by 0.5.
            rate: Number of frames per second that the container specifies.

        Raises:
            ValueError: The clip is too short. The message contains its length in frames or seconds.
        """
        if self.clips is not None:
            rules = {"step": self._stepped, "fps": self._at_rate, "seconds": self._in_windows}
            found = rules[self.rule](times)
            return [index for clip in (found if self.clip is None else [found[self.clip]]) for index in clip]
        count = len(times)
        if self.rule == "trimmed":
            return self._trimmed(count, rate)
        if self.rate is not None:
            chosen = self._count(count / rate, min(self.frames, count))
            if not chosen:
                raise ValueError(f"{count} frames")
            return replace(self, frames=chosen, rate=None).indices(times)
        span = self.least if self.rule == "step" else self.frames
        if self.rule not in ("fps", "seconds") and count < span and self.short == "refuse":
            raise ValueError(f"{count} frames")
        if self.rule == "seconds":
            return self._window(times, self._begin(max(_duration(times) - self.by, Fraction(0)), drawn))
        if self.rule == "uniform":
            return _spaced(count - 1, self.frames)
        if self.rule == "rounded":
            return [int(index) for index in np.linspace(0, count - 1, self.frames).round()]
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
        if length > last and self.short == "refuse":
            raise ValueError(f"{float(last):.3f} s from the first frame to the last")
        begin = times[0] + self._begin(last - length, drawn)
        return [max(bisect_right(times, begin + index / self.by) - 1, 0) for index in range(self.frames)]

    def _stepped(self, times: Sequence[Fraction]) -> list[list[int]]:
        """Return the frames of every clip for the rule ``step``, like mmaction2's ``SampleFrames(test_mode=True)``.

        The offset of clip k is ``k * (n - span) / (clips - 1)``, rounded to the nearest integer with ties to even. A
        single clip is centered. If the clip is too short, ``repeat`` repeats the last selected frame.
        """
        assert self.clips is not None
        count, last = len(times), max(len(times) - self.least, 0)
        if count < self.least and self.short == "refuse":
            raise ValueError(f"{count} frames")
        between = last / max(self.clips - 1, 1)
        starts = [last // 2] if self.clips == 1 else [round(k * between) for k in range(self.clips)]
        steps = [index * int(self.by) for index in range(self.frames)]
        if self.short == "loop":
            return [[(start + step) % count for step in steps] for start in starts]
        return [
            [start + min(step, (count - 1 - start) // int(self.by) * int(self.by)) for step in steps]
            for start in starts
        ]

    def _at_rate(self, times: Sequence[Fraction]) -> list[list[int]]:
        """Return the frames of every clip for the rule ``fps``, like torchvision's ``VideoClips(frame_rate=by)``.

        The video is resampled to ``by`` frames per second: frame i of the resampled video is frame ``floor(i * step)``
        of the file, computed in float32, where ``step`` is the average frame rate of the file divided by ``by``. The
        resampled video has ``m = floor(n / step)`` frames, or ``ceil(n / step)`` if ``step`` is an integer. Clip k
        begins at resampled frame ``floor(k * (m - frames) / (clips - 1))``.
        """
        assert self.clips is not None
        count = len(times)
        average = float((count - 1) / (times[-1] - times[0])) if count > 1 else float(self.by)
        step = average / float(self.by)
        if step.is_integer():
            grid = np.arange(0, count, int(step))
        else:
            resampled = np.arange(floor(count * float(self.by) / average), dtype=np.float32) * np.float32(step)
            grid = resampled.astype(np.int64)
        if len(grid) < (self.frames if self.short == "refuse" else 1):
            raise ValueError(f"{len(grid)} frames at {float(self.by):g} frames per second")
        starts = _spaced(max(len(grid) - self.frames, 0), self.clips)
        return [grid[np.minimum(start + np.arange(self.frames), len(grid) - 1)].tolist() for start in starts]

    def _in_windows(self, times: Sequence[Fraction]) -> list[list[int]]:
        """Return the frames of every clip for the rule ``seconds``.

        The window of clip k begins at ``k * (duration - by) / clips``, as in PyTorchVideo's
        ``ConstantClipsPerVideoSampler``.
        """
        assert self.clips is not None
        last = max(_duration(times) - self.by, Fraction(0))
        return [self._window(times, last * k / self.clips) for k in range(self.clips)]

    def _window(self, times: Sequence[Fraction], begin: Fraction) -> list[int]:
        """Return evenly spaced frames of the window that begins ``begin`` seconds after the first frame.

        The window contains the frames whose timestamps are at or after its beginning, and before its end.
        """
        first = bisect_left(times, times[0] + begin)
        count = bisect_left(times, times[0] + begin + self.by) - first
        if self.short == "refuse" and _duration(times) < self.by:
            raise ValueError(f"{float(_duration(times)):.3f} s")
        if count < (self.frames if self.short == "refuse" else 1):
            raise ValueError(f"{count} frames in {float(self.by):g} s")
        return [first + index for index in _spaced(count - 1, self.frames)]

    def _trimmed(self, count: int, rate: float) -> list[int]:
        """Return the indices that the rule ``trimmed`` selects, like the video processor of SmolVLM."""
        assert self.rate is not None
        length, first, last = count / rate, 0, count - 1
        chosen = max(1, min(round(self.rate * length), self.frames))
        if length - 2 > self.frames * self.rate:
            first, last = int(rate), min(int(count - rate), last)
            first, last = (first, last) if first < last else (0, count - 1)
        return [*dict.fromkeys(np.linspace(first, last, chosen, dtype=int).tolist())]

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


def _duration(times: Sequence[Fraction]) -> Fraction:
    """Return the duration of a clip. The last frame is assumed to last as long as the other frames on average."""
    return (times[-1] - times[0]) * Fraction(len(times), max(len(times) - 1, 1))


def _spaced(last: int, count: int) -> list[int]:
    """Return ``count`` evenly spaced integers from 0 to ``last``, rounded down. If ``count`` is 1, the integer is 0."""
    return [index * last // max(count - 1, 1) for index in range(count)]
