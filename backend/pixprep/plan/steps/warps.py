"""A warp: the step on levels whose pixels look elsewhere, by a matrix or by an elastic displacement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import floor
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.steps.step import Step
from pixprep.spec import PaddingMode, WarpLike

F64 = npt.NDArray[np.float64]
Matrix = tuple[float, ...]
"""(a, b, c, d, e, f), and of a perspective (g, h), or OpenCV's (g, h, i): see ``Warp``."""
WarpFilter = Literal["nearest", "bilinear", "bicubic"]
WARP_FILTERS: Mapping[WarpLike, tuple[WarpFilter, ...]] = {
    "pillow": ("nearest", "bilinear", "bicubic"),
    "torchvision": ("nearest", "bilinear"),
    "opencv": ("nearest", "bilinear", "bicubic"),
    "dali": ("nearest", "bilinear"),
}
"""Filters of a warp, by ``like``."""


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


class Warp(Step, frozen=True):
    """Each pixel of the result looks at a place of the image, which ``matrix`` says, as ``like`` computes it.

    (x', y') is a pixel of the whole result, of which the window ``top``, ``left``, ``height``, ``width`` is made; the
    image has H x W pixels. One operation after the other, each rounded, but where "fused" is said.

    **pillow, bilinear**, in float64: ``x = (a * (x' + 0.5) + b * (y' + 0.5)) + c``, ``y`` likewise of d, e, f. The
    fill unless ``0 <= x < W and 0 <= y < H``. ``u = x - 0.5``, ``i = floor(u)``, ``dx = u - i``; of y likewise v, j,
    dy. Of the levels at columns i, i + 1 of rows j, j + 1, all of them clamped to the image:
    ``upper = p00 + (p01 - p00) * dx``, ``lower = p10 + (p11 - p10) * dx``, ``upper + (lower - upper) * dy`` cut off.

    **pillow, bicubic**: the same of columns i - 1 to i + 2 of rows j - 1 to j + 2; in place of the line of two levels
    the cubic of four, ``b + t * (c - a + t * (2 * (a - b) + c - d + t * (b - a - c + d)))``; clipped to 0 to 255.

    **pillow, nearest**: with ``fixed``, six whole numbers, ``x = (A x' + B y' + C) >> 16``, ``y = (D x' + E y' + F) >>
    16``. Without, in float64: x begins as ``(c + b * 0.5) + a * 0.5``; for each row b is added, then for each column a;
    y begins as ``(f + e * 0.5) + d * 0.5``, and so on; both are cut off, and negative ones are outside. The level
    there; the fill outside. Of a perspective x and y are those of bilinear.

    **torchvision**, in float32: with the six numbers of ``grid``, ``gx = ((x' - (w - 1) / 2) * A + (y' - (h - 1) / 2) *
    B) + C``, where h x w is the size of the ``whole`` result; ``x = fused (gx + 1) * (W / 2) - 0.5``; y likewise.
    ``nearest``: the level at x and y, rounded half to even, or the fill. ``bilinear``: ``i = floor(x)``, ``r = x - i``,
    ``l = 1 - r``, of y likewise ``j``, ``t``, ``s``: ``v = p00 * (s * l)``, ``v = fused p01 * (s * r) + v``,
    ``v = fused p10 * (t * l) + v``, ``v = fused p11 * (t * r) + v``, with 0 for a level outside. ``m`` is made likewise
    of ones in place of the levels. The result is ``(v - fill) * m + fill``, and v where the fill is None, rounded half
    to even.

    **a perspective**: pillow's x and y are divided by ``(g * (x' + 0.5) + h * (y' + 0.5)) + 1``. torchvision's gx is
    ``((x' + 0.5) * A + (y' + 0.5) * B) + C`` divided by the same, and less 1; all of it in float32.

    **opencv**, an affine map: ``X = P + round(a * x' * 1024)`` in 32 bits, with ``P = round((b * y' + c) * 1024) +
    512`` for nearest, 16 for the others; Y likewise of d, e, f. Every operation is rounded in float64; ``round`` is
    half to even, and gives -2^31 where 32 bits do not hold the result. The place in 32nds of a pixel is ``X >> 5``;
    of nearest the pixel is ``X >> 10``.

    **opencv, a perspective**: with k the first column of the block that has x', ``w = (g * k + h * y' + i) + g *
    (x' - k)``, ``x = ((a * k + b * y' + c) + a * (x' - k)) * (32 / w)``, y likewise, rounded half to even: the
    place in 32nds of a pixel. Nearest has 1 in place of 32. 0 where w is 0. A block has ``1024 // min(16, h)``
    columns, h those of the whole result.

    Of the place in 32nds the whole pixel i, cut to 16 bits, and the rest dx; of y likewise j and dy. **bilinear**:
    ``(((p00 * (32 - dx) + p01 * dx) * (32 - dy) + (p10 * (32 - dx) + p11 * dx) * dy) + 512) >> 10``. **bicubic**:
    of columns i - 1 to i + 2 of rows j - 1 to j + 2 the sum of each level times its weight (``opencv_weights``),
    ``(sum + 16384) >> 15``, clipped. Outside lies what ``padding_mode`` says. These are OpenCV 4's; OpenCV 5 has
    others.

    **dali**, an affine map, in float32: ``x = (c + a * 0.5) + b * (y' + 0.5)`` in the first column of the whole result;
    ``256 * a`` is added from every 256th column to the next such, and a from each column to the one behind it; y
    likewise of d, e, f. **nearest**: the level at x and y, rounded down. **bilinear**: ``u = x - 0.5``, ``i =
    floor(u)``, ``dx = u - i``; of y likewise v, j, dy: ``upper = p00 * (1 - dx) + p01 * dx``, ``lower`` likewise,
    ``upper + (lower - upper) * dy``, rounded half up. Outside lies the fill, or the nearest pixel at the edge. So DALI
    2.4's CPU operators compute.

    **elastic**, of torchvision alone: gx is the displacement and ``fused step * x' - last`` in the left half of the
    image, ``fused last - step * (W - 1 - x')`` in the right one; ``last = (W - 1) / W``, ``step = 2 * last / (W - 1)``.

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
        return self.elastic is not None or self.like == "dali"

    @property
    def is_perspective(self) -> bool:
        """Tell whether parallels may meet."""
        return len(self.matrix) > 6

    @property
    def block(self) -> int:
        """Columns after which OpenCV's perspective begins anew, perhaps more than there are."""
        return 1024 // min(16, self.whole[0])

    @property
    def fixed(self) -> tuple[int, int, int, int, int, int] | None:
        """(A, B, C, D, E, F) of pillow's nearest, in 65,536ths of a pixel; None: it does without."""
        if self.is_perspective:
            return None
        (a, b, c, d, e, f), (height, width) = self.matrix, self.whole
        corners = ((0, 0), (width, height), (0, height), (width, 0))
        is_far = any(max(abs(x * a + y * b + c), abs(x * d + y * e + f)) >= 32768 for x, y in corners)
        if is_far or (b == 0 and d == 0):
            return None
        numbers = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
        return tuple(floor(number * 65536.0 + 0.5) for number in numbers)  # type: ignore[return-value]

    def grid(self, height: int, width: int) -> npt.NDArray[np.float32]:
        """float32 (2, 3): (A, B, C), (D, E, F) of torchvision, for an image of H x W pixels."""
        matrix = np.array(self.matrix[:6], np.float32).reshape(2, 3)
        scaled: npt.NDArray[np.float32] = matrix / np.array([[0.5 * width], [0.5 * height]], np.float32)
        return scaled

    def forward(self, height: int, width: int) -> F64:
        """Motion from an image of H x W pixels to the result: see ``motions``.

        Its sign is that by which what the middle of the result shows has a w over 0.
        """
        back = np.array([*self.matrix, *(0.0, 0.0, 1.0)[len(self.matrix) - 6 :]]).reshape(3, 3)
        if self.like == "opencv":
            back = _shift(0.5, 0.5) @ back @ _shift(-0.5, -0.5)
        if self.like == "torchvision" and not self.is_perspective:
            back = _shift(width / 2, height / 2) @ back @ _shift(-self.whole[1] / 2, -self.whole[0] / 2)
        middle = self.whole[1] / 2, self.whole[0] / 2, 1
        motion: F64 = _shift(-self.left, -self.top) @ np.linalg.inv(back)
        return motion if back[2] @ middle >= 0 else -motion


@lru_cache
def opencv_weights() -> npt.NDArray[np.int16]:
    """int16 (1024, 16): for each place, 32 dy + dx, the weights of OpenCV's bicubic, row by row, whose sum is 32,768.

    In float32, of dx / 32: the cubic with A = -0.75, its last weight 1 less the others. A product of two, times 32,768,
    is rounded half to even, at most 32,767. The rest to the sum is added to the largest of the last two by two, or
    taken from the smallest: the first of these.
    """
    x, a, one = np.arange(32, dtype=np.float32) / np.float32(32), np.float32(-0.75), np.float32(1)
    first = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    second, third = (((a + 2) * t - (a + 3)) * t * t + one for t in (x, one - x))
    taps = np.stack([first, second, third, one - first - second - third], 1)
    products = taps[:, None, :, None] * taps[None, :, None, :] * np.float32(32768)
    weights = np.rint(products).clip(-32768, 32767).astype(np.int32).reshape(1024, 4, 4)
    missing = 32768 - weights.sum((1, 2))
    corners = weights[:, 2:4, 2:4].reshape(1024, 4)
    which = np.where(missing > 0, corners.argmax(1), corners.argmin(1))
    rows, columns = 2 + which // 2, 2 + which % 2
    weights[np.arange(1024), rows, columns] += missing
    made: npt.NDArray[np.int16] = weights.reshape(1024, 16).astype(np.int16)
    return made


def _signed(number: float) -> str:
    return f"{'-' if number < 0 else '+'} {abs(number):.4g}"


def _shift(x: float, y: float) -> F64:
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])
