"""An elastic displacement of pixels: what a ``levels.Warp`` has in place of a matrix."""

from __future__ import annotations

from typing import NamedTuple


class Elastic(NamedTuple):
    """Displacement of each pixel by smooth noise, as torchvision v2's ``ElasticTransform`` makes it.

    Of an image of H x W pixels, x: **noise** is ``n * 2^-23 - 1``, n of 24 bits, the upper ones of the words that
    Philox4x32-10 makes of the counters (i, 0, 0, 0), its key the halves of the seed: pixels 4 i to 4 i + 3, row by row.
    It is **blurred** along the rows by a bell curve of ``int(8 * sigma + 1) | 1`` weights in 2^-28, sigma that of x,
    and rounded to 2^-24; then along the columns, with as many weights, sigma that of y, and rounded to float32. Beyond
    the edge lies the mirror image, without the edge itself. Every sum is of whole numbers below 2^53: each order gives
    the same. The displacement is ``blurred * alpha / W``, in float32. Of y: the second word of the counters is 1, the
    number of weights is by sigma of y, and H is in the place of W.

    A sum of whole numbers is not PyTorch's, of float32: a field differs from its by some 1e-7 of half the image.

    Attributes:
        alpha: (x, y): how far; (0, 0): the image stays exactly as it is.
        sigma: (x, y) of the bell curves, in pixels; (0, 0): nothing is blurred.
        seed: of the noise, below 2^64.
    """

    alpha: tuple[float, float]
    sigma: tuple[float, float]
    seed: int

    @property
    def reach(self) -> int:
        """Pixels to each side that a blur sees; it needs an image with more on each axis."""
        return max(taps(sigma) for sigma in self.sigma) // 2


def taps(sigma: float) -> int:
    """Number of weights of a bell curve, as torchvision counts them: odd."""
    return int(8 * sigma + 1) | 1
