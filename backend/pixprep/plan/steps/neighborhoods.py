"""Steps that compute each pixel value from a neighborhood, and steps that add noise or compression artifacts."""

from __future__ import annotations

from typing import Literal

from pixprep.plan.steps.step import Step

NeighborhoodKind = Literal["mean", "median", "weights"]
"""Kinds of filters, in the order of ``enum neighborhoods`` in ``engine/kernels/arguments.h``."""


class Neighborhood(Step, frozen=True):
    """Filters each channel with a square neighborhood, as OpenCV's ``blur``, ``medianBlur`` and ``filter2D`` do.

    Beyond the border, the image is reflected without the edge pixel; ``median`` repeats the edge pixel instead.

    **mean**: Mean of all values, rounded to the nearest integer. Ties do not occur.

    **weights**: ``sum(weight * value)`` in float32 with fused multiply-adds, in row-major order and without the weights
    that are 0, rounded half to even and clipped. OpenCV computes the last values of a row, up to 31 of them, without
    fused operations. This changes about 10 values per million by one.

    Attributes:
        kind: ``mean`` is a box blur, ``median`` the median, and ``weights`` a correlation with a kernel.
        size: Height and width of the neighborhood, odd.
        weights: Float32 weights of the kernel, row by row, for ``weights``.
    """

    kind: NeighborhoodKind
    size: int
    weights: tuple[float, ...] = ()
    keeps_gray = is_hosts = True

    def __str__(self) -> str:
        what = {"mean": "the mean", "median": "the median", "weights": "a weighted sum"}[self.kind]
        return f"replace each value by {what} of {self.size} x {self.size} values"


class Clahe(Step, frozen=True):
    """Equalizes the histogram of each tile of the lightness, with limited contrast, as OpenCV's ``createCLAHE`` does.

    A color image is converted to CIELAB with 8 bits per value, and back afterwards.

    The image is divided into ``grid`` tiles of equal size. If its height or width is not a multiple, it is extended by
    reflection. The counts in the histogram of a tile are clipped to ``max(1, int(clip_limit * pixels / 256))``. The
    clipped excess is distributed equally over all levels, and the remainder is added to levels at equal distances. The
    look-up table of the tile is the cumulative histogram multiplied by ``255 / pixels`` in float32, rounded half to
    even. The new value of a pixel is the bilinear interpolation, in float32, between the tables of the four tiles whose
    centers are nearest.

    Attributes:
        clip_limit: Limit of the contrast.
        grid: Number of tiles (columns, rows).
    """

    clip_limit: float
    grid: tuple[int, int]
    keeps_gray = is_hosts = True

    def __str__(self) -> str:
        columns, rows = self.grid
        return f"equalize the lightness in {columns} x {rows} tiles, clip limit {self.clip_limit:.4g}"


class Noise(Step, frozen=True):
    """Adds normally distributed noise: ``value + trunc((n * std + mean) * 255)``, computed in float32 and clipped.

    ``n`` is the noise of ``engine.kernels.noise.noise`` for an array of shape (height, width, channels).

    Attributes:
        mean, std: Mean and standard deviation as fractions of 255.
        seed: Seed of the noise, two integers below 2^32.
        is_shared: Whether all channels of a pixel have the same noise.
    """

    mean: float
    std: float
    seed: tuple[int, int]
    is_shared: bool = False
    is_hosts = True

    @property
    def keeps_gray(self) -> bool:
        """See ``Traits``."""
        return self.is_shared

    def __str__(self) -> str:
        return f"add noise with the mean {self.mean:.4g} and the standard deviation {self.std:.4g}, times 255"


class Compress(Step, frozen=True):
    """Encodes the image with a lossy format and decodes it again.

    Albumentations passes RGB to OpenCV, which expects BGR. Red and blue are therefore swapped during the compression.

    Attributes:
        quality: Quality of the encoder, 1 to 100.
        format: Format of the compressed image.
    """

    quality: int
    format: Literal["jpeg", "webp"]
    is_hosts = True

    def __str__(self) -> str:
        return f"compress as {self.format} with the quality {self.quality}"
