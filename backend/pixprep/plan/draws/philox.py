"""Generates the random numbers of samples with a counter-based generator (Philox4x32-10).

The random numbers of an op depend only on the seed, the epoch, the index of the sample, the attempt and the key of the
op. Because the generator is stateless, the numbers do not depend on threads, batches, shards, devices, resuming, or the
other ops of the pipeline.
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
"""Random parameters of one op for one image. They are JSON-serializable.

Examples: ``{"top": 3, "left": 9, "height": 200, "width": 180}`` in pixels of the op's input, or ``{"flip": true}``.
"""

Span = tuple[float, float]
"""Minimum and maximum of a range."""

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = np.arange(10, dtype=np.uint64)[:, None] * np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
"""Weyl sequence, which contains the values that are added to the key in each of the ten rounds, modulo 2^32."""
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MAX_BLOCKS = 1 << 16


def philox(counters: npt.NDArray[np.uint32], key: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Return the random numbers of Philox4x32-10.

    The algorithm is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
        counters: Counters, uint32 (..., 4).
        key: Key of the generator, which consists of two integers below 2^32.

    Returns:
        Four random 32-bit words for each counter, uint32 (..., 4).
    """
    words = np.ascontiguousarray(counters.reshape(-1, 4).T)
    even, odd = _rounds(words[::2], words[1::2], key)
    made: U32 = np.stack([even[0], odd[0], even[1], odd[1]], axis=-1).reshape(counters.shape)
    return made


def _rounds(even: U32, odd: U32, key: tuple[int, int]) -> tuple[U32, U32]:
    """Apply the ten rounds of Philox.

    The upper and the lower half of each product are read through views of the product's array, which takes half the
    time of shifting and masking.

    Args:
        even: Words 0 and 2 of the counters, uint32 (2, ..., counters), C-contiguous.
        odd: Words 1 and 3 of the counters, with the same shape.
        key: Key of the generator, which consists of two integers below 2^32.

    Returns:
        Random words in two arrays: words 0 and 2, and words 1 and 3.
    """
    pair = (2, *[1] * (even.ndim - 1))
    for each in (np.array(key, np.uint64) + _WEYL).astype(np.uint32):
        halves = np.multiply(even, _MULTIPLIERS.reshape(pair), dtype="<u8").view("<u4")[::-1]
        even = halves[..., 1::2] ^ odd
        even ^= each.reshape(pair)
        odd = halves[..., ::2]
    return even, odd


def between(span: Span, uniform: float) -> float:
    """Map a uniform random number in [0, 1) to the range ``span``."""
    return span[0] + uniform * (span[1] - span[0])


@cache
def quantiles() -> npt.NDArray[np.float32]:
    """Return a table of the standard normal distribution: 65,536 equally likely values, float32 from -4.33 to 4.33."""
    inverse = NormalDist().inv_cdf
    table = np.array([inverse((index + 0.5) / 65536) for index in range(65536)], np.float32)
    table.flags.writeable = False
    return table


def span_words(span: Span, unit: str = "") -> str:
    """Format a range as ``min to max``, or as one number if both are equal."""
    return f"{span[0]:.4g}{unit}" if span[0] == span[1] else f"{span[0]:.4g} to {span[1]:.4g}{unit}"


class Drawn(Protocol):
    """Step that uses random numbers."""

    @property
    def key(self) -> str:
        """Key that identifies the step's random numbers."""

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers that the step uses."""


class Numbers:
    """Uniform random numbers of one sample.

    The numbers of each op form a sequence of blocks of four numbers in [0, 1).

    Args:
        seed: Seed, 0 to 2^32 - 1.
        epoch: Epoch, 0 to 2^32 - 1.
        index: Index of the sample in its source.
        attempt: Attempt number of the sample.
        first: First blocks of each op, which were computed in advance, by the key of the op.
    """

    __slots__ = ("_first", "attempt", "epoch", "index", "seed")

    def __init__(self, seed: int, epoch: int, index: int, attempt: int, first: Mapping[str, F64]) -> None:
        self.seed, self.epoch, self.index, self.attempt = seed, epoch, index, attempt
        self._first = first

    def blocks(self, key: str, begin: int, count: int) -> F64:
        """Return ``count`` blocks of random numbers of an op, float64 (count, 4).

        Blocks that were not computed in advance are computed now.

        Args:
            key: Key of the op.
            begin: Index of the first block.
            count: Number of blocks.
        """
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
"""Random numbers that are all 0.49, so that every event with a probability of 0.5 occurs.

They are used for examples, and for checking kernels.
"""


def draw(
    steps: Sequence[Drawn], *, seed: int, epoch: int, indices: Sequence[int], attempts: Sequence[int] | int = 0
) -> list[Numbers]:
    """Return the random numbers of several samples, computed in one vectorized call (see ``Plan.draw``)."""
    for name, value in (("seed", seed), ("epoch", epoch)):
        if not 0 <= value < 1 << 32:
            raise PipelineError(f"{name} must be an integer from 0 to {(1 << 32) - 1}, not {value}")
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
    """Return uniform random numbers in [0, 1), float64 (samples, blocks, 4).

    The key of Philox is (seed, epoch). The four words of the counter are the lower and the upper half of the sample's
    index, a hash of the op's key, and a word with the attempt in its upper and the block in its lower 16 bits. If the
    attempt has more than 16 bits, its upper bits are added to the index from bit 40 on, which no index reaches.

    Args:
        seed: Seed, 0 to 2^32 - 1.
        epoch: Epoch, 0 to 2^32 - 1.
        indices: Indices of the samples.
        attempts: Attempt numbers of the samples.
        parts: For each op, the hash of its key, the index of its first block, and the number of blocks.
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
    for first, words in enumerate(_rounds(even, odd, (seed, epoch))):
        for half in (0, 1):
            np.multiply(words[half], 2.0**-32, out=uniforms[:, :, first + 2 * half])
    return uniforms
