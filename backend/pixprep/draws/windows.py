"""Random numbers of a sample, and the window or the flip that they make of a random op. Integers and formulas only.

The numbers are a pure function of (seed, epoch, sample, attempt, op): Philox4x32-10 of a counter, so that no generator
has a state. They do not depend on threads, batches, shards, devices or a resume, nor on other ops of the pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError

F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]
Words = Mapping[str, Any]
"""What was drawn for one op, as JSON holds it: ``{"top": 3, "left": 9, "height": 200, "width": 180}`` in pixels of the
image that the op takes, or ``{"flip": true}``."""

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = np.arange(10, dtype=np.uint64)[:, None] * np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
"""What is added to the key, modulo 2^32, in each of ten rounds."""
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MOST_BLOCKS = 1 << 16
_ROUNDED_DOWN = 1 - 1e-9
"""By more than what is lost to rounding."""
_CHOICES, _FIRST_CHOICES = 20, 4
"""How often ``random_iou_crop`` chooses an overlap; torchvision goes on until a window is found, or the choice is 1.0.
After 20 choices that is the case in 95 % of the images in which no window fits, and here the whole image is kept.
The numbers of the first choices are made with the batch's others, at a fiftieth of the time; those of the rest at
once."""


def philox(counters: npt.NDArray[np.uint32], key: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
        counters: uint32 (..., 4).
        key: two numbers below 2^32.

    Returns:
        uint32 (..., 4): four random words of each counter.
    """
    words = np.ascontiguousarray(counters.reshape(-1, 4).T)
    even, odd = _rounds(words[::2], words[1::2], key)
    made: U32 = np.stack([even[0], odd[0], even[1], odd[1]], axis=-1).reshape(counters.shape)
    return made


def _rounds(even: U32, odd: U32, key: tuple[int, int]) -> tuple[U32, U32]:
    """``philox`` of words 0 and 2, and words 1 and 3: uint32 (2, ..., counters) each, C-contiguous.

    The upper and the lower half of a product are views of it, which take half the time of shifts and masks.
    """
    pair = (2, *[1] * (even.ndim - 1))
    for each in (np.array(key, np.uint64) + _WEYL).astype(np.uint32):
        halves = np.multiply(even, _MULTIPLIERS.reshape(pair), dtype="<u8").view("<u4")[::-1]
        even = halves[..., 1::2] ^ odd
        even ^= each.reshape(pair)
        odd = halves[..., ::2]
    return even, odd


class Drawn(Protocol):
    """What draws numbers."""

    @property
    def key(self) -> str:
        """Names its numbers."""

    @property
    def blocks(self) -> int:
        """How many blocks of four numbers it takes."""


class Numbers:
    """The uniform numbers of one sample: for each op blocks of four, at least 0 and below 1.

    Attributes:
        seed, epoch, index, attempt: what they are a function of.
    """

    __slots__ = ("_first", "attempt", "epoch", "index", "seed")

    def __init__(self, seed: int, epoch: int, index: int, attempt: int, first: Mapping[str, F64]) -> None:
        self.seed, self.epoch, self.index, self.attempt = seed, epoch, index, attempt
        self._first = first

    def blocks(self, key: str, begin: int, count: int) -> F64:
        """float64 (count, 4): blocks of one op; those that ``draw`` made already, or others."""
        first = self._first.get(key)
        if first is not None and begin + count <= len(first):
            part: F64 = first[begin : begin + count]
            return part
        samples = np.array([self.index], np.uint64), np.array([self.attempt], np.uint64)
        made: F64 = _uniforms(self.seed, self.epoch, *samples, [(crc32(key.encode()), begin, count)])[0]
        return made


class _Example(Numbers):
    def blocks(self, key: str, begin: int, count: int) -> F64:
        del key, begin
        return np.full((count, 4), 0.49)


EXAMPLE: Numbers = _Example(0, 0, 0, 0, {})
"""Every number is nearly a half, so that what happens to half of the images happens: for examples, and to check kernels
with."""


def draw(
    steps: Sequence[Drawn], *, seed: int, epoch: int, indices: Sequence[int], attempts: Sequence[int] | int = 0
) -> list[Numbers]:
    """The numbers of samples, by one vectorised call; see ``Plan.draw``."""
    for name, value in (("seed", seed), ("epoch", epoch)):
        if not 0 <= value < 1 << 32:
            raise PipelineError(f"{name} must be 0 to {(1 << 32) - 1}, not {value}")
    those = np.asarray(indices, np.uint64).reshape(-1)
    tries = np.broadcast_to(np.asarray(attempts, np.uint64), those.shape)
    begin, parts = 0, []
    for step in steps:
        parts.append((step.key, begin, begin + step.blocks))
        begin += step.blocks
    uniforms = _uniforms(seed, epoch, those, tries, [(crc32(step.key.encode()), 0, step.blocks) for step in steps])
    return [
        Numbers(seed, epoch, index, attempt, {key: blocks[first:last] for key, first, last in parts})
        for index, attempt, blocks in zip(those.tolist(), tries.tolist(), uniforms, strict=True)
    ]


def _uniforms(
    seed: int,
    epoch: int,
    indices: npt.NDArray[np.uint64],
    attempts: npt.NDArray[np.uint64],
    parts: Sequence[tuple[int, int, int]],
) -> F64:
    """float64 (samples, blocks, 4), at least 0 and below 1.

    The key is (seed, epoch); the counter is the two halves of the sample's index, the op, and the attempt in the upper
    and the block in the lower 16 bits.
    """
    assert all(begin + n <= _MOST_BLOCKS for _, begin, n in parts)
    even, odd = np.empty((2, 2, len(indices), sum(n for _, _, n in parts)), np.uint32)
    even[0], odd[0] = (indices & _LOW)[:, None], (indices >> _HALF)[:, None]
    at = 0
    for op, begin, n in parts:
        even[1, :, at : at + n], odd[1, :, at : at + n] = op, np.arange(begin, begin + n)
        at += n
    odd[1] |= (attempts << np.uint64(16)).astype(np.uint32)[:, None]
    uniforms = np.empty((*even.shape[1:], 4))
    for place, words in enumerate(_rounds(even, odd, (seed, epoch))):
        for half in (0, 1):
            np.multiply(words[half], 2.0**-32, out=uniforms[:, :, place + 2 * half])
    return uniforms


@dataclass(frozen=True, kw_only=True)
class ClipFrames:
    """Numbers that choose the frames of a clip.

    Attributes:
        key: names them.
        count: how many.
    """

    key: str
    count: int

    @property
    def blocks(self) -> int:
        """Of four numbers each."""
        return -(-self.count // 4)

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """As they are; what they choose depends on the times of the frames."""
        del height, width, boxes
        return {"uniforms": numbers.blocks(self.key, 0, self.blocks).ravel()[: self.count].tolist()}


@dataclass(frozen=True, kw_only=True)
class ResizedCrop:
    """The window of torchvision's ``RandomResizedCrop``.

    Attributes:
        key: names its numbers.
        scale: of the window's area to the image's, from and to.
        ratio: width to height, from and to.
    """

    key: str
    scale: tuple[float, float]
    ratio: tuple[float, float]
    blocks: ClassVar[int] = 10  # one a try: area, ratio, top, left
    is_inside: ClassVar[bool] = True

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The first of ten tries whose window fits, or ``fallback``."""
        del boxes
        lowest, highest = math.log(self.ratio[0]), math.log(self.ratio[1])
        for area, ratio, top, left in numbers.blocks(self.key, 0, self.blocks).tolist():
            share = self.scale[0] + area * (self.scale[1] - self.scale[0])
            size = fitting(height, width, share, math.exp(lowest + ratio * (highest - lowest)))
            if size is not None:
                return _window(int(top * (height - size[0] + 1)), int(left * (width - size[1] + 1)), *size)
        rows, columns = fallback(height, width, self.ratio)
        return _window((height - rows) // 2, (width - columns) // 2, rows, columns)


def fitting(height: int, width: int, share: float, ratio: float) -> tuple[int, int] | None:
    """(height, width) of the window of a share of the area and a ratio of the sides; None if it does not fit inside."""
    area = height * width * share
    columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    return (rows, columns) if 0 < columns <= width and 0 < rows <= height else None


def fallback(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """(height, width) of the largest window in the middle whose ratio is allowed."""
    if width / height < min(ratio):
        return round(width / min(ratio)), width
    if width / height > max(ratio):
        return height, round(height * max(ratio))
    return height, width


@dataclass(frozen=True, kw_only=True)
class Crop:
    """The window of torchvision's ``RandomCrop``, which may reach into a margin.

    Attributes:
        key: names its numbers.
        height, width: of the window.
        padding: (top, left, bottom, right), added before.
        pad_if_needed: an image that is still too small gets what it lacks on both sides.
    """

    key: str
    height: int
    width: int
    padding: tuple[int, int, int, int]
    pad_if_needed: bool
    blocks: ClassVar[int] = 1  # top, left

    @property
    def is_inside(self) -> bool:
        """Whether no window reaches outside the image."""
        return not any(self.padding) and not self.pad_if_needed

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """A window, each place as likely as another.

        Raises:
            ImageError: DOES_NOT_FIT.
        """
        del boxes
        u_top, u_left = numbers.blocks(self.key, 0, 1)[0, :2].tolist()
        top = self._start(u_top, height, self.height, self.padding[0], self.padding[2])
        left = self._start(u_left, width, self.width, self.padding[1], self.padding[3])
        if top is None or left is None:
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels are too small for the window of {self.height} x {self.width}",
            )
        return _window(top, left, self.height, self.width)

    def _start(self, uniform: float, length: int, window: int, before: int, after: int) -> int | None:
        padded = before + length + after
        if padded < window:
            if not self.pad_if_needed:
                return None
            before += window - padded
            padded += 2 * (window - padded)
        return int(uniform * (padded - window + 1)) - before


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A mirror, or none.

    Attributes:
        key: names its numbers.
        axis: as in the plan's ``Flip``.
        p: how often.
    """

    key: str
    axis: Literal["horizontal", "vertical"]
    p: float
    blocks: ClassVar[int] = 1  # whether
    is_inside: ClassVar[bool] = True

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Whether to mirror."""
        del height, width, boxes
        return {"flip": bool(numbers.blocks(self.key, 0, 1)[0, 0] < self.p)}


@dataclass(frozen=True, kw_only=True)
class ZoomOut:
    """The canvas of torchvision's ``RandomZoomOut``.

    Attributes:
        key: names its numbers.
        p: how often.
        side_range: the canvas's sides to the image's, from and to.
    """

    key: str
    p: float
    side_range: tuple[float, float]
    blocks: ClassVar[int] = 1  # whether, side, left, top
    is_inside: ClassVar[bool] = False

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The canvas as a window around the image; the image itself where it is left as it is."""
        del boxes
        whether, side, left, top = numbers.blocks(self.key, 0, 1)[0].tolist()
        if whether >= self.p:
            return _window(0, 0, height, width)
        factor = self.side_range[0] + side * (self.side_range[1] - self.side_range[0])
        rows, columns = int(height * factor), int(width * factor)
        return _window(-int((rows - height) * top), -int((columns - width) * left), rows, columns)


@dataclass(frozen=True, kw_only=True)
class IouCrop:
    """The window of torchvision's ``RandomIoUCrop``.

    Attributes:
        key: names its numbers.
        scale: of each side of the window to the image's, from and to.
        ratio: width to height, from and to.
        overlaps: the least IoU of the window with some box whose middle it has; 1 and more: the whole image.
        trials: windows for each choice of an overlap.
    """

    key: str
    scale: tuple[float, float]
    ratio: tuple[float, float]
    overlaps: tuple[float, ...]
    trials: int
    is_inside: ClassVar[bool] = True

    @property
    def blocks(self) -> int:
        """Of the first choices of an overlap, which do for nearly every image."""
        return _FIRST_CHOICES * self._each

    @property
    def _each(self) -> int:
        """Blocks of one choice: the overlap, and one a trial: width, height, left, top."""
        return 1 + self.trials

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """A window.

        Args:
            height: of the image.
            width: of the image.
            numbers: of the sample.
            boxes: float64 (n, 4) xyxy in the image's pixels.
        """
        if boxes is None or not len(boxes):
            return _window(0, 0, height, width)
        each = [
            ((x1 + x2) * 0.5, (y1 + y2) * 0.5, x1, y1, x2, y2, (x2 - x1) * (y2 - y1))
            for x1, y1, x2, y2 in boxes.tolist()
        ]
        # An IoU is at most the box's share of the window, and no window is smaller than this.
        least = int(width * self.scale[0]) * int(height * self.scale[0]) * _ROUNDED_DOWN
        for choice, count in ((0, _FIRST_CHOICES), (_FIRST_CHOICES, _CHOICES - _FIRST_CHOICES)):
            several = numbers.blocks(self.key, choice * self._each, count * self._each).reshape(count, self._each, 4)
            for uniform, trials in zip(several[:, 0, 0].tolist(), several[:, 1:], strict=True):
                overlap = self.overlaps[int(uniform * len(self.overlaps))]
                if overlap >= 1:
                    return _window(0, 0, height, width)
                able = [box for box in each if box[-1] >= overlap * least]
                window = self._first(height, width, trials, able, overlap) if able else None
                if window is not None:
                    return window
        return _window(0, 0, height, width)

    def _first(
        self, height: int, width: int, trials: F64, boxes: Sequence[tuple[float, ...]], overlap: float
    ) -> Words | None:
        """The first of the trials that has the overlap with one of the boxes: (middle, begin, end, area) each."""
        least, more = self.scale[0], self.scale[1] - self.scale[0]
        (narrowest, widest), largest = self.ratio, max(box[-1] for box in boxes) / _ROUNDED_DOWN
        for across, down, u_left, u_top in trials.tolist():
            columns, rows = int(width * (least + more * across)), int(height * (least + more * down))
            area = columns * rows
            if not narrowest * rows <= columns <= widest * rows or not (area > 0 and area * overlap <= largest):
                continue
            left, top = int((width - columns) * u_left), int((height - rows) * u_top)
            right, bottom = left + columns, top + rows
            for x, y, x1, y1, x2, y2, own in boxes:
                if left < x < right and top < y < bottom:
                    shared = max(min(x2, right) - max(x1, left), 0) * max(min(y2, bottom) - max(y1, top), 0)
                    if shared >= overlap * (own + area - shared):
                        return _window(top, left, rows, columns)
        return None


RandomStep = ResizedCrop | Crop | Flip | ZoomOut | IouCrop


def within(window: Words, boxes: F64) -> npt.NDArray[np.bool_]:
    """Which boxes have their middle inside a window: bool (n,) of float64 (n, 4) xyxy."""
    first, sides = np.array([[window["left"], window["top"]], [window["width"], window["height"]]])
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = (middles > first) & (middles < first + sides)
    kept: npt.NDArray[np.bool_] = inside[:, 0] & inside[:, 1]
    return kept


def _window(top: int, left: int, height: int, width: int) -> Words:
    return {"top": top, "left": left, "height": height, "width": width}
