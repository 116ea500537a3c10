"""Warp: the step that samples the image at coordinates from a matrix or an elastic displacement."""

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

    The x displacement of an image of H x W pixels is made in three steps.

    1. **Noise**: ``n * 2^-23 - 1``, where n is the upper 24 bits of a Philox4x32-10 word. The counters are
       (i, 0, 0, 0), and the key is the two halves of the seed. Counter i makes the pixels 4 i to 4 i + 3, row by row.
    2. **Blur**: The rows are convolved with a Gaussian of ``int(8 * sigma + 1) | 1`` weights, which are multiples of
       2^-28; sigma is that of x. The result is rounded to 2^-24. The columns are then convolved with as many weights
       for the sigma of y, and rounded to float32. The image is mirrored beyond the edge, without the edge pixel. All
       sums are of integers below 2^53, so their order does not matter.
    3. **Scale**: The displacement is ``blurred * alpha / W`` in float32.

    For the y displacement the second word of the counters is 1, sigma of y determines the number of weights, and H
    replaces W.

    PyTorch adds in float32 instead of integers. The two displacements differ by about 1e-7 of half the image.

    Attributes:
        alpha: Strength of the displacement as (x, y); (0, 0) leaves the image exactly unchanged.
        sigma: Standard deviations (x, y) of the Gaussians in pixels; (0, 0) does not blur.
        seed: Seed of the noise, below 2^64.
    """

    alpha: tuple[float, float]
    sigma: tuple[float, float]
    seed: int

    @property
    def reach(self) -> int:
        """Radius of the blur in pixels; each side of the image must be longer."""
        return max(taps(sigma) for sigma in self.sigma) // 2


def taps(sigma: float) -> int:
    """Return the number of weights of a Gaussian as torchvision counts them; it is odd."""
    return int(8 * sigma + 1) | 1


class Warp(Step, frozen=True):
    """Samples the image at coordinates: ``matrix`` maps each pixel of the result to them.

    ``like`` names the library whose arithmetic the warp reproduces.

    (x', y') is a pixel of the whole result, and the step makes the window ``top``, ``left``, ``height``, ``width`` of
    it; the image has H x W pixels. Operations run in the given order, and each is rounded unless a formula contains
    "fused".

    The library's profile describes its arithmetic (``compute``).

    Attributes:
        matrix: Matrix (a, b, c, d, e, f) from the result to the image: ``x = a x' + b y' + c``,
            ``y = d x' + e y' + f``. A perspective has (g, h) as well, and divides both by ``g x' + h y' + 1``.
            Coordinates are continuous and begin at the upper left corner, except that the origin of torchvision's six
            numbers is the center of either image. OpenCV's coordinates begin at the center of the first pixel, and its
            perspective has (g, h, i) and divides by ``g x' + h y' + i``.
        whole: Size (height, width) of the whole result.
        top, left, height, width: Window of the whole result that the step makes.
        fill: Pixel value of each decoded channel for coordinates outside of the image; None: Black, with the rule of
            the library's profile.
        filter: Interpolation: nearest, bilinear, or bicubic (only pillow and opencv).
        like: Library whose coordinates and rounding the warp reproduces.
        elastic: Displacement of the pixels. The matrix is then unused, and the result is as large as the image.
        padding_mode: Padding mode outside of the image. opencv supports those of ``levels.Take``; dali supports
            constant and edge.
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
        """Tell whether the step runs on the host because the GPU lacks a kernel for it."""
        return self.elastic is not None or WARPS[self.like].is_hosts

    @property
    def is_perspective(self) -> bool:
        """Tell whether the matrix is a perspective, which does not keep parallel lines parallel."""
        return len(self.matrix) > 6

    def computed(self, height: int, width: int) -> Computed:
        """Return the arithmetic with which the kernels make the warp of an image of H x W pixels."""
        return WARPS[self.like].compute(self.filter, self.matrix, self.whole, (height, width))

    def forward(self, height: int, width: int) -> F64:
        """Return the coordinate transform from an image of H x W pixels to the result (see ``motions``).

        Its sign is chosen so that w is positive for the point that the center of the result shows.
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
