"""Ops of Albumentations that filter the neighborhood of each pixel with OpenCV's arithmetic."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.filters import MAX_TAPS
from pixprep.pipeline.ops.limits import Within, shown
from pixprep.pipeline.ops.ranged import Ranged, odd
from pixprep.plan.draws.philox import Words, between
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.neighborhoods import Clahe as Equalization
from pixprep.plan.steps.neighborhoods import Neighborhood
from pixprep.spec import Color, as_tuple

F32 = npt.NDArray[np.float32]
OddSize = Annotated[int | tuple[int, int], Within(1, MAX_TAPS, lengths=(1, 2))]
Share = Annotated[float | tuple[float, float], Within(0, 1, lengths=(1, 2))]
Signed = Annotated[float | tuple[float, float], Within(-1, 1, lengths=(1, 2))]


class _Sized(Ranged, frozen=True):
    """Base class of the ops with an odd ``kernel``."""

    ranges: ClassVar[Any] = {"kernel": odd}
    kernel: OddSize = (3, 7)

    def check(self) -> None:
        super().check()
        if not all(size % 2 for size in as_tuple(self.kernel)):
            raise PipelineError(f'"kernel" must be odd, not {shown(self.kernel)}')


class BoxBlur(_Sized, frozen=True, tag="box_blur"):
    """Replaces each pixel value by the mean of its neighborhood.

    The op reproduces Albumentations' ``Blur``, which calls OpenCV's ``blur``. Beyond the border, the image is reflected
    without the edge pixel.

    Args:
        kernel: Height and width of the neighborhood in pixels, odd: one number, or the minimum and maximum of a random
            size.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "box_blur", "kernel": [3, 7]}
    """

    phrase: ClassVar[str] = "replace each value by the mean of its neighborhood of size {kernel}"

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (Neighborhood("mean", int(self.kernel)),)  # type: ignore[arg-type]  # one number


class MedianBlur(_Sized, frozen=True, tag="median_blur"):
    """Replaces each pixel value by the median of its neighborhood.

    The op reproduces Albumentations' ``MedianBlur``, which calls OpenCV's ``medianBlur``. Beyond the border, the edge
    pixel is repeated.

    Args:
        kernel: as in ``box_blur``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "median_blur", "kernel": 3}
    """

    phrase: ClassVar[str] = "replace each value by the median of its neighborhood of size {kernel}"

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (Neighborhood("median", int(self.kernel)),)  # type: ignore[arg-type]  # one number


class MotionBlur(_Sized, frozen=True, tag="motion_blur"):
    """Blurs the image along a line, as if the camera had moved.

    The op reproduces Albumentations' ``MotionBlur``, which calls OpenCV's ``filter2D``. The kernel contains a line
    through its center, whose pixels have equal weights. Pixels equal OpenCV's up to a size of 11; for larger kernels,
    OpenCV uses a Fourier transform, and about 2 % of the values differ by one.

    Args:
        kernel: as in ``box_blur``. It is also the length of the line.
        angle: Angle of the line in degrees, clockwise: one number, or the minimum and maximum of a random angle.
        direction: Position of the line: 0 centers it, 1 begins it at the center of the kernel, and -1 ends it there.
            One number, or the minimum and maximum of a random position.
        shift_x, shift_y: Shift of the line in units of a quarter of its length, -1 to 1: one number, or the minimum and
            maximum of a random shift.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "motion_blur", "angle": [0, 360]}
    """

    ranges: ClassVar[Any] = {
        "kernel": odd, "angle": between, "direction": between, "shift_x": between, "shift_y": between,
    }  # fmt: skip
    phrase: ClassVar[str] = (
        "blur along a line of length {kernel}, angle {angle} degrees, direction {direction}, shift {shift_x}, {shift_y}"
    )
    angle: Annotated[float | tuple[float, float], Within(-360, 360, lengths=(1, 2))] = 0.0
    direction: Signed = 0.0
    shift_x: Signed = 0.0
    shift_y: Signed = 0.0

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        size = int(self.kernel)  # type: ignore[arg-type]  # one number
        line = line_kernel(size, self.angle, self.direction, self.shift_x, self.shift_y)  # type: ignore[arg-type]
        return (_weighted(line),)


def line_kernel(size: int, angle: float, direction: float, shift_x: float, shift_y: float) -> F32:
    """Return the kernel of ``motion_blur``, float32 (size, size).

    The line has ``size`` points at equal distances. They are rounded to pixels, half to even, and clipped to the
    kernel.
    """
    half = size // 2
    begin, end = -half * (1 - max(direction, 0.0)), half * (1 + min(direction, 0.0))
    t = np.linspace(begin, end, size)
    x = half + np.cos(np.deg2rad(angle)) * t + shift_x * half / 2
    y = half + np.sin(np.deg2rad(angle)) * t + shift_y * half / 2
    columns, rows = (np.round(each).clip(0, size - 1).astype(int) for each in (x, y))
    kernel = np.zeros((size, size), np.float32)
    kernel[rows, columns] = 1
    line: F32 = kernel / kernel.sum()
    return line


class Sharpen(Ranged, frozen=True, tag="sharpen"):
    """Sharpens the image with a 3 x 3 kernel.

    The op reproduces Albumentations' ``Sharpen`` with the method ``kernel``, which calls OpenCV's ``filter2D``. The
    kernel is a weighted mean of the identity and of a kernel with ``8 + lightness`` in the center and -1 around it.

    Args:
        alpha: Weight of the sharpened image, 0 to 1: one number, or the minimum and maximum of a random weight.
        lightness: Lightness of the sharpened image, where 1 keeps the mean of the image: one number, or the minimum and
            maximum of a random lightness.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "sharpen", "alpha": [0.2, 0.5]}
    """

    ranges: ClassVar[Any] = {"alpha": between, "lightness": between}
    phrase: ClassVar[str] = "sharpen with a 3 x 3 kernel, alpha {alpha}, lightness {lightness}"
    alpha: Share = (0.2, 0.5)
    lightness: Annotated[float | tuple[float, float], Within(0, 100, lengths=(1, 2))] = (0.5, 1.0)

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        effect = np.full((3, 3), -1, np.float32)
        effect[1, 1] = 8 + float(self.lightness)  # type: ignore[arg-type]  # one number
        identity = np.zeros((3, 3), np.float32)
        identity[1, 1] = 1
        alpha = float(self.alpha)  # type: ignore[arg-type]  # one number
        return (_weighted(np.float32(1 - alpha) * identity + np.float32(alpha) * effect),)


def _weighted(kernel: F32) -> Neighborhood:
    return Neighborhood("weights", len(kernel), tuple(kernel.ravel().tolist()))


class Clahe(Ranged, frozen=True, tag="clahe"):
    """Equalizes the histogram of the lightness in tiles of the image, with limited contrast (CLAHE).

    The op reproduces Albumentations' ``CLAHE``, which calls OpenCV's ``createCLAHE`` on the lightness in CIELAB. For a
    gray image, it equalizes the gray values.

    Args:
        clip_limit: Maximum contrast, relative to a uniform histogram: one number, or the minimum and maximum of a
            random limit.
        grid: Number of tiles, [columns, rows].
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "clahe", "clip_limit": 2.0}
    """

    ranges: ClassVar[Any] = {"clip_limit": between}
    phrase: ClassVar[str] = "equalize the lightness in {0.grid[0]} x {0.grid[1]} tiles, clip limit {clip_limit}"
    clip_limit: Annotated[float | tuple[float, float], Within(0, 1000, lengths=(1, 2))] = 4.0
    grid: Annotated[tuple[int, int], Within(1, 64, lengths=(2,))] = (8, 8)

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (Equalization(float(self.clip_limit), self.grid),)  # type: ignore[arg-type]  # one number
