"""Steps that change the pixel values of an image after its geometry, uint8 to uint8.

Each step is frozen data for an image of known size. A ``Curve`` looks pixel values up, a ``Blend`` mixes with gray, a
``Hue`` rotates the hue, an ``Hsv`` shifts hue, saturation and value, a ``ColorMatrix`` mixes channels, a ``Tone``
applies a curve from the image's own histogram, a ``Permute`` reorders channels, a ``Filter`` combines neighbors, a
``Warp`` samples at transformed coordinates, a ``Take`` crops, pads or mirrors, a ``Resample`` resizes, an ``Erase``
fills a rectangle, a ``Mix`` adds the results of other steps, and an ``Extern`` calls an operator of the user.

``folded`` merges two neighboring curves, and limits a warp to the window that a later step keeps; it merges no other
steps. ``like`` names the library whose rounding a step reproduces: torchvision's tensors and Pillow differ by up to 18
pixel values in hue, and 127 in rotation.

The pixel values are those of the decoded channels, RGB or gray, whatever the channel order of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles import BLURS, PROFILES
from pixprep.plan.profiles.profile import Method
from pixprep.plan.profiles.windows import Order
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.operators import Extern
from pixprep.plan.steps.step import Step
from pixprep.plan.steps.warps import F64, Warp
from pixprep.spec import BlendLike, BlurLike, ColorLike, Like, Matrix, PaddingMode

U8 = npt.NDArray[np.uint8]


class Blend(Step, frozen=True):
    """Computes ``gray + factor * (level - gray)``, rounded and clipped as ``like`` does.

    Attributes:
        gray: Gray value of the blend. ``own`` is the luma of the pixel itself (saturation); ``mean`` is the mean luma
            of the whole image (contrast).
        factor: Weight of the image. 0 returns gray alone, and 1 the unchanged image; the factor may exceed 1.
    """

    gray: Literal["own", "mean"]
    factor: float
    like: BlendLike
    keeps_places = True

    @property
    def is_pointwise(self) -> bool:
        """See ``Traits``."""
        return self.gray == "own"

    def is_gray(self, *, was_gray: bool) -> bool:
        """See ``Traits``."""
        return was_gray or (self.gray == "own" and self.factor == 0)

    def __str__(self) -> str:
        gray = "the gray of each pixel" if self.gray == "own" else "the mean gray of the image"
        return f"blend with {gray}, factor {self.factor:.4g} ({self.like}'s rounding)"


class Hue(Step, frozen=True):
    """Rotates the hue by a conversion to HSV and back.

    A shift of 0 changes pixel values as well, because both conversions round.

    Attributes:
        shift: Rotation as a fraction of the full circle, -0.5 to 0.5.
    """

    shift: float
    like: BlendLike
    is_pointwise = keeps_places = True

    def __str__(self) -> str:
        return f"turn the hue by {self.shift:.4g} of the circle ({self.like}'s rounding)"


class ColorMatrix(Step, frozen=True):
    """Replaces each channel by a weighted sum of the channels and an offset.

    The sums are computed in float32 in the order red, green, blue, offset. Each product and each sum is rounded. The
    result is clipped to 0 to 255 and rounded half up. A gray image is treated as equal red, green and blue, and uses
    the first row.

    Attributes:
        numbers: 12 float32 numbers: one row each for red, green and blue, with the factors of red, green and blue and
            the offset.
    """

    numbers: tuple[float, ...]
    is_pointwise = keeps_places = True

    def is_gray(self, *, was_gray: bool) -> bool:
        """See ``Traits``."""
        rows = [self.numbers[start : start + 4] for start in (0, 4, 8)]
        is_scale = all(row[:3].count(0) >= 2 for row in rows) and len({(sum(row[:3]), row[3]) for row in rows}) == 1
        return len({*rows}) == 1 or (was_gray and is_scale)

    def __str__(self) -> str:
        rows = (self.numbers[start : start + 4] for start in (0, 4, 8))
        words = "; ".join(" ".join(f"{number:.4g}" for number in row) for row in rows)
        return f"mix red, green, blue and 1 by {words}"


class Tone(Step, frozen=True):
    """Applies to each channel a curve that depends on the histogram of that channel.

    Attributes:
        kind: ``autocontrast`` maps the lowest and the highest pixel value to 0 and 255. ``equalize`` makes the
            histogram uniform.
    """

    kind: Literal["autocontrast", "equalize"]
    like: ColorLike
    keeps_places = keeps_gray = True

    def __str__(self) -> str:
        what = (
            "stretch each channel to 0 to 255" if self.kind == "autocontrast" else "equalize each channel's histogram"
        )
        return f"{what} ({self.like}'s rounding)"


class Permute(Step, frozen=True):
    """Reorders the channels: ``order`` contains the source channel of each channel. A gray image does not change."""

    order: tuple[int, ...]
    is_pointwise = keeps_places = keeps_gray = True

    def __str__(self) -> str:
        return f"take the channels {', '.join(map(str, self.order))}"


class Filter(Step, frozen=True):
    """Convolves each channel with a small kernel.

    **sharpness**: The outermost pixels, and images with fewer than 3 rows or columns, do not change. For any other
    pixel value p, ``q = (2 * S + 13) // 26``, where S is the sum of its eight neighbors and 5 p. Pillow computes
    ``q + factor * (p - q)`` in float32 and rounds each operation. torchvision computes
    ``fused (1 - factor) * (q - p) + p`` in float32. The result is clipped to 0 to 255 and truncated.

    **blur**: All operations are in float32, and none is fused. Each row is filtered first: ``v = p * w`` for the first
    tap, and the products of the further taps are added in order; ``columns`` contains the weights. The columns of v are
    filtered likewise with the weights ``rows``. The result is rounded half to even. The image is mirrored beyond the
    edge without the edge pixel itself: position -1 is position 1. OpenCV's blur uses fused operations. It begins with
    the row in the middle, and adds the sum of each two rows at the same distance.

    Attributes:
        kind: ``sharpness`` blends the image with its smoothed copy by ``factor``. ``blur`` convolves with ``rows`` and
            ``columns``, each of an odd number of weights with the sum 1.
        rows, columns: Float32 weights of the vertical and the horizontal pass.
    """

    kind: Literal["sharpness", "blur"]
    like: BlendLike
    factor: float = 1.0
    rows: tuple[float, ...] = ()
    columns: tuple[float, ...] = ()
    keeps_gray = True

    @property
    def is_hosts(self) -> bool:
        """See ``Traits``."""
        return self.kind == "blur" and BLURS[cast("BlurLike", self.like)].is_hosts

    @property
    def keeps_places(self) -> bool:
        """See ``Traits``. A blur adds in float32 from one side to the other, so a mirror changes its result."""
        return self.kind == "sharpness"

    def __str__(self) -> str:
        if self.kind == "sharpness":
            return f"blend with the smoothed image, factor {self.factor:.4g} ({self.like}'s rounding)"
        middle = max(self.rows) * max(self.columns)
        return f"blur by {len(self.rows)} x {len(self.columns)} pixels, of which the middle weighs {middle:.3g}"


class Take(Step, frozen=True):
    """Crops a window (top, left, height, width) of the image, pads it outside of the image, and then mirrors it.

    Attributes:
        fill: Pixel value of each decoded channel outside of the image, for the mode ``constant``.
        mode: Padding mode. The modes other than ``constant`` continue the image: ``edge`` repeats the nearest pixel,
            ``reflect`` mirrors without the edge pixel (-1 is 1), ``symmetric`` mirrors with it (-1 is 0); both repeat.
    """

    top: int
    left: int
    height: int
    width: int
    flips: tuple[bool, bool]
    fill: tuple[int, ...]
    mode: PaddingMode = "constant"
    moves = True

    def is_inside(self, height: int, width: int) -> bool:
        """Tell whether the window is entirely inside an image of this size."""
        return min(self.top, self.left) >= 0 and self.top + self.height <= height and self.left + self.width <= width

    def forward(self, height: int, width: int) -> F64:
        """Return the coordinate transform, which does not depend on the size of the image (see ``motions``)."""
        del height, width
        a, c = (-1.0, self.width + self.left) if self.flips[1] else (1.0, -self.left)
        e, f = (-1.0, self.height + self.top) if self.flips[0] else (1.0, -self.top)
        return np.array([[a, 0.0, c], [0.0, e, f], [0.0, 0.0, 1.0]])


class Resample(Step, frozen=True):
    """Resizes the image at this step; the result is uint8.

    Attributes:
        height, width: Size of the result in pixels.
        ratio, begin: Ratio and offset as (y, x); see ``Placement``.
        method: Filter, and whether it antialiases.
        like: Library whose arithmetic the resize reproduces.
        order: Channel order of that library.
    """

    height: int
    width: int
    ratio: tuple[float, float]
    begin: tuple[float, float]
    method: Method
    like: Like
    order: Order = Order.AS_DECODED
    moves = is_hosts = True

    def forward(self, height: int, width: int) -> F64:
        """Return the coordinate transform of an image of this size (see ``motions``)."""
        del height, width
        (y, x), (top, left) = self.ratio, self.begin
        return np.array([[1 / x, 0.0, -left / x], [0.0, 1 / y, -top / y], [0.0, 0.0, 1.0]])


class Erase(Step, frozen=True):
    """Fills a rectangle with one value per channel, or with noise.

    Attributes:
        values: Pixel values of the decoded channels, or values of the tensor's channels; empty for noise.
        noise: Two words and the index of the rectangle in a tensor; ``engine.kernels.kernel`` makes the noise from
            them.
    """

    top: int
    left: int
    height: int
    width: int
    values: tuple[float, ...]
    noise: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        where = f"{self.height} x {self.width} from row {self.top}, column {self.left}"
        return f"fill {where} with {', '.join(f'{value:.4g}' for value in self.values) or 'noise'}"


class Mix(Step, frozen=True):
    """Adds the image and the results of several chains of steps, each times its weight.

    The sum is computed in float32, the image first and then chain by chain. Each product and each sum is rounded, and
    the result is truncated.

    Attributes:
        weights: Float32 weights; the first is that of the image itself. Their sum is at most 1, apart from rounding.
        chains: Chains of steps that keep the size of the image.
    """

    weights: tuple[float, ...]
    chains: tuple[tuple[LevelStep, ...], ...]
    is_hosts = True


LevelStep = Step
"""Any of these steps."""


def folded(steps: Iterable[LevelStep]) -> tuple[LevelStep, ...]:
    """Merge neighboring curves, and drop steps that change nothing.

    A warp followed by a window computes only this window, since each pixel of a warp depends on its own coordinates
    alone. No other merge is exact, because each step rounds: two hues, two blends, or a curve and a different step both
    run.
    """
    made: list[LevelStep] = []
    for step in steps:
        last = made[-1] if made else None
        if isinstance(step, Blend) and step.factor == 1:
            continue
        if isinstance(step, Filter) and step.kind == "sharpness" and step.factor == 1:
            continue
        if isinstance(step, Curve) and isinstance(last, Curve):
            made[-1] = Curve(step.of(np.frombuffer(last.table, np.uint8)).tobytes())
        elif isinstance(step, Take) and isinstance(last, Warp) and step.is_inside(last.height, last.width):
            top, left = last.top + step.top, last.left + step.left
            made[-1] = last.changed(top=top, left=left, height=step.height, width=step.width)
            if any(step.flips):
                made.append(step.changed(top=0, left=0))
        else:
            made.append(step)
    return tuple([step for step in made if not (isinstance(step, Curve) and step.table == _SAME)])


_SAME = bytes(range(256))


_WINDOWS = (Warp, Take, Resample)


def size_after(steps: Iterable[LevelStep], height: int, width: int) -> tuple[int, int]:
    """Return the (height, width) of an image after the steps."""
    for step in steps:
        if isinstance(step, _WINDOWS):
            height, width = step.height, step.width
        elif isinstance(step, Extern) and step.size:
            height, width = step.size
    return height, width


def motions(steps: Iterable[LevelStep], height: int, width: int) -> Iterator[tuple[F64, tuple[int, int]]]:
    """Yield the coordinate transform of each step that moves pixels, with the (height, width) of its result.

    A transform is a 3 x 3 matrix that maps (x, y, 1) to (u, v, w), which is the point (u / w, v / w). Coordinates are
    continuous, and (0, 0) is the upper left corner of the image.
    """
    for step in steps:
        motion = step.forward(height, width) if isinstance(step, Warp | Take | Resample | Extern) else None
        height, width = size_after([step], height, width)
        if motion is not None:
            yield motion, (height, width)


def moving(steps: Iterable[LevelStep], height: int, width: int, fill: tuple[int, ...]) -> list[Warp | Take | Resample]:
    """Return the steps that move pixels, changed for an image of labels.

    They use the filter ``nearest``, and ``fill`` outside of the image.

    Raises:
        ImageError: The function of an operator's transform fails, as in ``Extern.forward``.
    """
    made: list[Warp | Take | Resample] = []
    for step in steps:
        size = size_after([step], height, width)
        if isinstance(step, Warp):
            made.append(step.changed(filter="nearest", fill=fill))
        elif isinstance(step, Take):
            made.append(step.changed(fill=fill))
        elif isinstance(step, Resample):
            method = Method("nearest", antialias=False)
            made.append(step.changed(method=method, like="dali" if any(step.begin) else PROFILES[step.like].labels))
        elif isinstance(step, Extern) and (motion := step.forward(height, width)) is not None:
            back = np.linalg.inv(motion)
            depth = back[2, 2] or 1e-12 * np.abs(back[2]).max()  # the horizon may go through the first corner
            numbers = (back / depth).ravel().tolist()
            matrix = cast("Matrix", tuple(numbers[: 8 if any(numbers[6:8]) else 6]))
            made.append(Warp(matrix, size, 0, 0, *size, fill, "nearest", "pillow"))
        height, width = size
    return made
