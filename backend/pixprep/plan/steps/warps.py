"""A warp: the step on levels whose pixels look elsewhere, by a matrix or by an elastic displacement."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles import WARPS
from pixprep.plan.profiles.warps import Computed
from pixprep.plan.steps.step import Step
from pixprep.spec import Matrix, PaddingMode, WarpFilter, WarpLike

F64 = npt.NDArray[np.float64]


class Elastic(NamedTuple):
    """Displacement of each pixel by smooth noise, as torchvision v2's ``ElasticTransform`` makes it.

    Of an image of H x W pixels, x: **noise** is ``n * 2^-23 - 1``, n of 24 bits, the upper ones of the words that
    Philox4x32-10 makes of the counters (i, 0, 0, 0), its key the halves of the seed: pixels 4 i to 4 i + 3, row by row.
    It is **blurred** along the rows by a bell curve of ``int(8 * sigma + 1) | 1`` weights in 2^-28, sigma that of x,
    and rounded to 2^-24; then along the columns, with as many weights, sigma that of y, and rounded to float32. Beyond
    the edge lies the mirror image, without the edge itself. Every sum is of integers below 2^53: each order gives
    the same. The displacement is ``blurred * alpha / W``, in float32. Of y: the second word of the counters is 1, the
    number of weights is by sigma of y, and H is in the place of W.

    A sum of integers is not PyTorch's, of float32: a field differs from its by some 1e-7 of half the image.

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


class Warp(Step, frozen=True):
    """Each pixel of the result looks at a place of the image, which ``matrix`` says, as ``like`` computes it.

    (x', y') is a pixel of the whole result, of which the window ``top``, ``left``, ``height``, ``width`` is made; the
    image has H x W pixels. One operation after the other, each rounded, but where "fused" is said.

    The library's profile describes its arithmetic (``compute``).

    Attributes:
        matrix: (a, b, c, d, e, f), from the result to the image: ``x = a x' + b y' + c``, ``y = d x' + e y' + f``; of a
            perspective (g, h), too, and both over ``g x' + h y' + 1``. In continuous coordinates from the corners;
            torchvision's six numbers begin in the middle of either image. OpenCV's are from centre to centre of pixels,
            and a perspective has (g, h, i), over ``g x' + h y' + i``.
        whole: (height, width) of the whole result.
        top, left, height, width: the window of it that is made.
        fill: the level of each decoded channel where it looks outside; None: black, see above.
        filter: nearest, bilinear, or, of pillow and opencv, bicubic.
        like: whose coordinates and rounding.
        elastic: displaces the pixels; the matrix changes nothing then, and the result is as large as the image.
        padding_mode: of opencv, as of a ``levels.Take``; of dali, constant or edge.
    """

    matrix: Matrix
    whole: tuple[int, int]
    top: int
    left: int
    height: int
    width: int
    fill: tuple[int, ...] | None
    filter: WarpFilter
    like: WarpLike
    elastic: Elastic | None = None
    padding_mode: PaddingMode = "constant"
    moves = True

    def __str__(self) -> str:
        if self.elastic is not None:
            return f"displace the pixels by the noise of seed {self.elastic.seed} ({self.filter})"
        a, b, c, d, e, f, *below = self.matrix
        g, h, i = (*below, 1.0)[:3] if below else (0.0, 0.0, 1.0)
        over = f", both over {g:.4g} x {_signed(h)} y {_signed(i)}" if below else ""
        x, y = (f"{p:.4g} x {_signed(q)} y {_signed(r)}" for p, q, r in ((a, b, c), (d, e, f)))
        return f"look at x = {x}, y = {y}{over} ({self.filter}, {self.like}'s rounding)"

    @property
    def is_hosts(self) -> bool:
        """Tell whether a GPU has no kernel for it."""
        return self.elastic is not None or WARPS[self.like].is_hosts

    @property
    def is_perspective(self) -> bool:
        """Tell whether parallels may meet."""
        return len(self.matrix) > 6

    def computed(self, height: int, width: int) -> Computed:
        """Arithmetic by which kernels make it of an image of H x W pixels."""
        return WARPS[self.like].compute(self.filter, self.matrix, self.whole, (height, width))

    def forward(self, height: int, width: int) -> F64:
        """Motion from an image of H x W pixels to the result: see ``motions``.

        Its sign is that by which what the middle of the result shows has a w over 0.
        """
        back = np.array([*self.matrix, *(0.0, 0.0, 1.0)[len(self.matrix) - 6 :]]).reshape(3, 3)
        origin = WARPS[self.like].origin
        if origin == "pixel":
            back = _shift(0.5, 0.5) @ back @ _shift(-0.5, -0.5)
        if origin == "middle" and not self.is_perspective:
            back = _shift(width / 2, height / 2) @ back @ _shift(-self.whole[1] / 2, -self.whole[0] / 2)
        middle = self.whole[1] / 2, self.whole[0] / 2, 1
        motion: F64 = _shift(-self.left, -self.top) @ np.linalg.inv(back)
        return motion if back[2] @ middle >= 0 else -motion


def _signed(number: float) -> str:
    return f"{'-' if number < 0 else '+'} {abs(number):.4g}"


def _shift(x: float, y: float) -> F64:
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])
