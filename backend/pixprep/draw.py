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
Words = Mapping[str, Any]
"""What was drawn for one op, as JSON holds it: ``{"top": 3, "left": 9, "height": 200, "width": 180}`` in pixels of the
image that the op takes, or ``{"flip": true}``."""

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MOST_BLOCKS = 1 << 16
_CHOICES, _FIRST_CHOICES = 20, 4
"""How often ``random_iou_crop`` chooses an overlap; torchvision goes on until a window is found, or the choice is 1.0.
After 20 choices that is the case in 95 % of the images in which no window fits, and here the whole image is kept.
The numbers of the first choices are made with the batch's others, at a fiftieth of the time; and of the rest as many
at a time."""


def philox(counters: npt.NDArray[np.uint32], key: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
        counters: uint32 (..., 4).
        key: two numbers below 2^32.

    Returns:
        uint32 (..., 4): four random words of each counter.
    """
    x0, x1, x2, x3 = (counters[..., index].astype(np.uint64) for index in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            (product1 >> _HALF) ^ x1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _HALF) ^ x3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


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
    count = sum(n for _, _, n in parts)
    counters = np.empty((len(indices), count, 4), np.uint32)
    counters[:, :, 0] = (indices & _LOW)[:, None]
    counters[:, :, 1] = (indices >> _HALF)[:, None]
    at = 0
    for op, begin, n in parts:
        assert begin + n <= _MOST_BLOCKS
        counters[:, at : at + n, 2] = op
        counters[:, at : at + n, 3] = np.arange(begin, begin + n)
        at += n
    counters[:, :, 3] |= (attempts << np.uint64(16)).astype(np.uint32)[:, None]
    return philox(counters, (seed, epoch)) * np.float64(2.0**-32)


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
        for choice in range(0, _CHOICES, _FIRST_CHOICES):
            several = numbers.blocks(self.key, choice * self._each, _FIRST_CHOICES * self._each)
            for blocks in several.reshape(_FIRST_CHOICES, self._each, 4):
                overlap = self.overlaps[int(blocks[0, 0] * len(self.overlaps))]
                if overlap >= 1:
                    return _window(0, 0, height, width)
                window = self._first(height, width, blocks[1:], boxes, overlap)
                if window is not None:
                    return window
        return _window(0, 0, height, width)

    def _first(self, height: int, width: int, uniforms: F64, boxes: F64, overlap: float) -> Words | None:
        """The first of the trials that has the overlap; all are looked at together."""
        least, more = self.scale[0], self.scale[1] - self.scale[0]
        image = np.array([width, height])
        sides = (image * (least + more * uniforms[:, :2])).astype(np.int64)  # (trials, 2), x before y, as all here
        first = ((image - sides) * uniforms[:, 2:]).astype(np.int64)
        last = first + sides
        columns, rows = sides.T
        area = columns * rows
        fits = (columns >= self.ratio[0] * rows) & (columns <= self.ratio[1] * rows) & (area > 0)
        begin, end = boxes[:, :2], boxes[:, 2:]
        middles = (begin + end) * 0.5
        inside = (middles > first[:, None]) & (middles < last[:, None])  # (trials, boxes, 2)
        enough = inside[:, :, 0] & inside[:, :, 1] & fits[:, None]
        if overlap > 0:
            common = np.maximum(np.minimum(end, last[:, None]) - np.maximum(begin, first[:, None]), 0)
            shared, own = common[:, :, 0] * common[:, :, 1], end - begin
            enough &= shared >= overlap * (own[:, 0] * own[:, 1] + area[:, None] - shared)
        trial, box = divmod(int(enough.argmax()), len(boxes))
        if not enough[trial, box]:
            return None
        return _window(*first[trial, ::-1].tolist(), *sides[trial, ::-1].tolist())


RandomStep = ResizedCrop | Crop | Flip | ZoomOut | IouCrop


def within(window: Words, boxes: F64) -> npt.NDArray[np.bool_]:
    """Which boxes have their middle inside a window: bool (n,) of float64 (n, 4) xyxy."""
    x, y = ((boxes[:, :2] + boxes[:, 2:]) / 2).T
    left, top = window["left"], window["top"]
    kept: npt.NDArray[np.bool_] = (x > left) & (x < left + window["width"])
    kept &= (y > top) & (y < top + window["height"])
    return kept


def _window(top: int, left: int, height: int, width: int) -> Words:
    return {"top": top, "left": left, "height": height, "width": width}
