"""Random numbers of a sample, made with integers and formulas only.

The numbers are a pure function of (seed, epoch, sample, attempt, op): Philox4x32-10 of a counter, so no generator has a
state. They do not depend on threads, batches, shards, devices or a resume, nor on other ops of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError

F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]
Words = Mapping[str, Any]
"""Random parameters of one op in a form that JSON supports.

Examples are ``{"top": 3, "left": 9, "height": 200, "width": 180}`` in pixels of the op's input, and ``{"flip": true}``.
"""

Span = tuple[float, float]
"""Minimum and maximum."""

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = np.arange(10, dtype=np.uint64)[:, None] * np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
"""Values added to the key, modulo 2^32, in each of the ten rounds."""
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MAX_BLOCKS = 1 << 16


def philox(counters: npt.NDArray[np.uint32], key: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Compute Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
        counters: Counters, uint32 (..., 4).
        key: Two integers below 2^32.

    Returns:
        Four random words of each counter, uint32 (..., 4).
    """
    words = np.ascontiguousarray(counters.reshape(-1, 4).T)
    even, odd = _rounds(words[::2], words[1::2], key)
    made: U32 = np.stack([even[0], odd[0], even[1], odd[1]], axis=-1).reshape(counters.shape)
    return made


def _rounds(even: U32, odd: U32, key: tuple[int, int]) -> tuple[U32, U32]:
    """Compute ``philox`` from words 0 and 2, and words 1 and 3: uint32 (2, ..., counters) each, C-contiguous.

    The upper and the lower half of a product are views of it, which take half the time of shifts and masks.
    """
    pair = (2, *[1] * (even.ndim - 1))
    for each in (np.array(key, np.uint64) + _WEYL).astype(np.uint32):
        halves = np.multiply(even, _MULTIPLIERS.reshape(pair), dtype="<u8").view("<u4")[::-1]
        even = halves[..., 1::2] ^ odd
        even ^= each.reshape(pair)
        odd = halves[..., ::2]
    return even, odd


def between(span: Span, uniform: float) -> float:
    """Map a uniform number in [0, 1) to a number of a span."""
    return span[0] + uniform * (span[1] - span[0])


@cache
def quantiles() -> npt.NDArray[np.float32]:
    """Return 65,536 equally likely quantiles of the standard normal distribution, float32 from -4.33 to 4.33."""
    inverse = NormalDist().inv_cdf
    table = np.array([inverse((place + 0.5) / 65536) for place in range(65536)], np.float32)
    table.flags.writeable = False
    return table


def span_words(span: Span, unit: str = "") -> str:
    """Describe a span by both ends, or by one number if they are equal."""
    return f"{span[0]:.4g}{unit}" if span[0] == span[1] else f"{span[0]:.4g} to {span[1]:.4g}{unit}"


class Drawn(Protocol):
    """A step that draws random numbers."""

    @property
    def key(self) -> str:
        """Key of the step's random numbers."""

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers that the step draws."""


class Numbers:
    """Uniform random numbers of one sample: blocks of four numbers per op, at least 0 and below 1.

    Attributes:
        seed, epoch, index, attempt: Values that the numbers are a function of.
    """

    __slots__ = ("_first", "attempt", "epoch", "index", "seed")

    def __init__(self, seed: int, epoch: int, index: int, attempt: int, first: Mapping[str, F64]) -> None:
        self.seed, self.epoch, self.index, self.attempt = seed, epoch, index, attempt
        self._first = first

    def blocks(self, key: str, begin: int, count: int) -> F64:
        """Return blocks of one op, float64 (count, 4); blocks that ``draw`` did not make yet are made now."""
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
"""Numbers that are all nearly a half, so that every event with a probability of one half happens.

They are for examples, and for checks of kernels.
"""


def draw(
    steps: Sequence[Drawn], *, seed: int, epoch: int, indices: Sequence[int], attempts: Sequence[int] | int = 0
) -> list[Numbers]:
    """Draw the numbers of several samples with one vectorized call; see ``Plan.draw``."""
    for name, value in (("seed", seed), ("epoch", epoch)):
        if not 0 <= value < 1 << 32:
            raise PipelineError(f"{name} must be 0 to {(1 << 32) - 1}, not {value}")
    samples = np.asarray(indices, np.uint64).reshape(-1)
    tries = np.broadcast_to(np.asarray(attempts, np.uint64), samples.shape)
    begin, parts = 0, []
    for step in steps:
        parts.append((step.key, begin, begin + step.blocks))
        begin += step.blocks
    if not steps:
        return [Numbers(seed, epoch, *each, {}) for each in zip(samples.tolist(), tries.tolist(), strict=True)]
    uniforms = _uniforms(seed, epoch, samples, tries, [(crc32(step.key.encode()), 0, step.blocks) for step in steps])
    return [
        Numbers(seed, epoch, index, attempt, {key: blocks[first:last] for key, first, last in parts})
        for index, attempt, blocks in zip(samples.tolist(), tries.tolist(), uniforms, strict=True)
    ]


def _uniforms(
    seed: int,
    epoch: int,
    indices: npt.NDArray[np.uint64],
    attempts: npt.NDArray[np.uint64],
    parts: Sequence[tuple[int, int, int]],
) -> F64:
    """Return uniform numbers, float64 (samples, blocks, 4), at least 0 and below 1.

    The key is (seed, epoch). The counter consists of the two halves of the sample's index, the op, and a word with the
    attempt in the upper and the block in the lower 16 bits. Higher bits of the attempt are stored in bits of the index
    from 2**40, which no source reaches.
    """
    assert all(begin + n <= _MAX_BLOCKS for _, begin, n in parts)
    even, odd = np.empty((2, 2, len(indices), sum(n for _, _, n in parts)), np.uint32)
    even[0], odd[0] = (indices & _LOW)[:, None], (indices >> _HALF)[:, None]
    at = 0
    for op, begin, n in parts:
        even[1, :, at : at + n], odd[1, :, at : at + n] = op, np.arange(begin, begin + n)
        at += n
    odd[0] |= (attempts >> np.uint64(16) << np.uint64(8)).astype(np.uint32)[:, None]
    odd[1] |= (attempts << np.uint64(16)).astype(np.uint32)[:, None]
    uniforms = np.empty((*even.shape[1:], 4))
    for place, words in enumerate(_rounds(even, odd, (seed, epoch))):
        for half in (0, 1):
            np.multiply(words[half], 2.0**-32, out=uniforms[:, :, place + 2 * half])
    return uniforms
