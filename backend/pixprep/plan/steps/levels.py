"""Steps that change the pixel values of a uint8 image after its geometry.

Each step is an immutable struct with the parameters for an image of known size:

- ``Curve`` maps pixel values by a look-up table, and ``Tone`` by a curve from the histogram of the image.
- ``Blend`` mixes the image with gray, ``Hue`` rotates the hue, and ``Hsv`` shifts hue, saturation and value.
- ``ColorMatrix`` computes linear combinations of the channels, and ``Permute`` reorders the channels.
- ``Trim`` crops the margins of the image.
- ``Filter`` convolves the image with a kernel.
- ``Warp`` samples the image at transformed coordinates, ``Take`` crops, pads or flips, and ``Resample`` resizes.
- ``Erase`` fills a rectangle.
- ``Mix`` computes a weighted sum of the results of other steps.
- ``Extern`` calls a custom operator.

``folded`` merges consecutive curves, and restricts a warp to the window that a later step keeps. Other steps are not
merged. The field ``like`` names the library whose rounding a step reproduces. torchvision (for uint8 tensors) and
Pillow differ by up to 18 after a change of hue, and by up to 127 after a rotation.

All steps operate on the decoded channels, RGB or gray, whatever the channel order of the tensor is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.profile import Method
from pixprep.plan.profiles.windows import Order
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.step import Step
from pixprep.plan.steps.warps import F64, Warp
from pixprep.spec import BlendLike, BorderMode, ColorLike, Like

U8 = npt.NDArray[np.uint8]


class Blend(Step, frozen=True):
    """Blends the image with gray: ``gray + factor * (value - gray)``.

    Attributes:
        gray: Gray value: ``own`` is the luma of the pixel itself, which changes the saturation. ``mean`` is the mean
            luma of the whole image, which changes the contrast.
        factor: Weight of the image. 0 returns only gray, and 1 returns the image unchanged. The factor may exceed 1.
        like: Library whose rounding and clipping the step reproduces.
    """

    gray: Literal["own", "mean"]
    factor: float
    like: BlendLike
    keeps_places = is_color = True

    @property
    def is_pointwise(self) -> bool:
        """See ``Traits``."""
        return self.gray == "own"

    @property
    def is_neutral(self) -> bool:
        """See ``Step``."""
        return self.factor == 1

    @property
    def keeps_gray_values(self) -> bool:
        """See ``Step``."""
        return self.gray == "own"

    def is_gray(self, *, was_gray: bool) -> bool:
        """See ``Traits``."""
        return was_gray or (self.gray == "own" and self.factor == 0)

    def __str__(self) -> str:
        gray = "the gray of each pixel" if self.gray == "own" else "the mean gray of the image"
        return f"blend with {gray}, factor {self.factor:.4g} ({self.like}'s rounding)"


class Trim(Step, frozen=True):
    """Crops the margins: the result is the smallest window that contains all dark pixels.

    The luma is stretched, so that its minimum becomes 0 and its maximum becomes 255. A pixel is dark if its stretched
    luma is below the threshold. An image with a constant luma does not change.

    The size of the result is known only after the image is decoded. The placement is therefore computed again after
    this step, which must be the first one.

    Attributes:
        threshold: Threshold of the stretched luma.
        like: Library whose luma the step uses. torchvision stretches it in float32, and Pillow in float64.
    """

    threshold: float
    like: ColorLike
    moves = keeps_gray = is_hosts = True
    no_places = "must come before trim, after which the position of the image in the photo is not known"

    def __str__(self) -> str:
        return f"crop to the pixels whose stretched luma is below {self.threshold:g} ({self.like}'s luma)"


class Hue(Step, frozen=True):
    """Rotates the hue by converting the image to HSV and back.

    Even a shift of 0 changes pixel values, because both conversions round.

    Attributes:
        shift: Rotation as a fraction of the full circle, -0.5 to 0.5.
        like: Library whose rounding the step reproduces.
    """

    shift: float
    like: BlendLike
    is_pointwise = keeps_places = is_color = keeps_gray_values = True

    def __str__(self) -> str:
        return f"rotate the hue by {self.shift:.4g} of the circle ({self.like}'s rounding)"


class ColorMatrix(Step, frozen=True):
    """Replaces each channel by a linear combination of the channels plus an offset.

    Each sum is computed in float32 in the order red, green, blue, offset; every product and every sum is rounded to
    float32. The result is clipped to 0 to 255 and rounded half up. For a gray image, only the first row of the matrix
    is used, with the gray value as red, green and blue.

    Attributes:
        numbers: Matrix (3, 4), row by row, as float32 numbers. Each row contains the factors of red, green and blue and
            the offset. The rows compute the new red, green and blue.
    """

    numbers: tuple[float, ...]
    is_pointwise = keeps_places = is_color = True

    def is_gray(self, *, was_gray: bool) -> bool:
        """See ``Traits``."""
        rows = [self.numbers[start : start + 4] for start in (0, 4, 8)]
        is_scale = all(row[:3].count(0) >= 2 for row in rows) and len({(sum(row[:3]), row[3]) for row in rows}) == 1
        return len({*rows}) == 1 or (was_gray and is_scale)

    def __str__(self) -> str:
        rows = (self.numbers[start : start + 4] for start in (0, 4, 8))
        words = "; ".join(" ".join(f"{number:.4g}" for number in row) for row in rows)
        return f"multiply (red, green, blue, 1) by the matrix {words}"


class Tone(Step, frozen=True):
    """Maps each channel by a tone curve that depends on its histogram.

    Attributes:
        kind: ``autocontrast`` maps the minimum and the maximum pixel value to 0 and 255. ``equalize`` equalizes the
            histogram.
        like: Library whose rounding the step reproduces.
    """

    kind: Literal["autocontrast", "equalize"]
    like: ColorLike
    keeps_places = keeps_gray = is_color = True

    def __str__(self) -> str:
        what = (
            "stretch each channel to 0 to 255" if self.kind == "autocontrast" else "equalize each channel's histogram"
        )
        return f"{what} ({self.like}'s rounding)"


class Permute(Step, frozen=True):
    """Reorders the channels. A gray image does not change.

    Attributes:
        order: Index of the source channel for each channel of the result.
    """

    order: tuple[int, ...]
    is_pointwise = keeps_places = keeps_gray = keeps_gray_values = True

    def __str__(self) -> str:
        return f"reorder the channels to {', '.join(map(str, self.order))}"


class Filter(Step, frozen=True):
    """Convolves each channel with a small kernel.

    **sharpness**: The pixels at the border, and images with fewer than 3 rows or columns, do not change. For every
    other pixel value p, the smoothed value is ``q = (2 * S + 13) // 26``, where S is 5 p plus the sum of the eight
    neighbors. Pillow computes ``q + factor * (p - q)`` in float32 and rounds after each operation. torchvision computes
    ``(1 - factor) * (q - p) + p`` in float32, with a fused multiply-add. The result is clipped to 0 to 255 and
    truncated.

    **blur**: The blur is separable and computed in float32 without fused operations. The horizontal pass convolves each
    row with the weights ``columns``, adding the products in order from the first tap to the last. The vertical pass
    convolves the result with the weights ``rows`` in the same way. The final result is rounded half to even. Beyond the
    border, the image is reflected without the edge pixel: position -1 is position 1. OpenCV's blur differs: it uses
    fused operations, and its vertical pass begins with the center tap and then adds pairs of rows at equal distances.

    Attributes:
        kind: ``sharpness`` blends the image with a smoothed copy. ``blur`` convolves the image with a Gaussian.
        like: Library whose arithmetic the step reproduces.
        factor: Weight of the image for ``sharpness``; the smoothed copy has the weight ``1 - factor``.
        rows, columns: Float32 weights of the vertical and the horizontal pass for ``blur``. Each pass has an odd number
            of weights, whose sum is 1.
    """

    kind: Literal["sharpness", "blur"]
    like: BlendLike
    factor: float = 1.0
    rows: tuple[float, ...] = ()
    columns: tuple[float, ...] = ()
    keeps_gray = True

    @property
    def is_neutral(self) -> bool:
        """See ``Step``."""
        return self.kind == "sharpness" and self.factor == 1

    @property
    def keeps_places(self) -> bool:
        """See ``Traits``. A blur adds float32 products in order from one side, so a flip changes its rounding."""
        return self.kind == "sharpness"

    def __str__(self) -> str:
        if self.kind == "sharpness":
            return f"blend with the smoothed image, factor {self.factor:.4g} ({self.like}'s rounding)"
        center = max(self.rows) * max(self.columns)
        return f"blur with a {len(self.rows)} x {len(self.columns)} kernel, center weight {center:.3g}"


class Take(Step, frozen=True):
    """Crops the image to a window, with padding where the window extends beyond the image, and then flips the result.

    Attributes:
        top, left, height, width: Window in pixels of the image.
        flips: Whether to flip the result (vertically, horizontally).
        fill: Pixel value of the padding per decoded channel, for the mode ``constant``.
        mode: Padding mode, as in ``numpy.pad``: ``constant`` fills with ``fill``, ``edge`` repeats the edge pixel,
            ``reflect`` reflects the image without repeating the edge pixel (position -1 is 1), and ``symmetric``
            reflects the image with the edge pixel (position -1 is 0). If necessary, the image is reflected repeatedly.
            ``first_pixel`` fills with the upper left pixel of the image, and is not a mode of ``numpy.pad``.
    """

    top: int
    left: int
    height: int
    width: int
    flips: tuple[bool, bool]
    fill: tuple[int, ...]
    mode: BorderMode = "constant"
    moves = True

    def is_inside(self, height: int, width: int) -> bool:
        """Return whether the window is entirely inside an image of this size."""
        return min(self.top, self.left) >= 0 and self.top + self.height <= height and self.left + self.width <= width

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """See ``Step``."""
        del height, width
        return self.height, self.width

    def of_labels(self, height: int, width: int, fill: tuple[int, ...]) -> Take:
        """See ``Step``."""
        del height, width
        return self.changed(fill=fill)

    def forward(self, height: int, width: int) -> F64:
        """Return the coordinate transform (see ``motions``), which does not depend on the size of the image."""
        del height, width
        a, c = (-1.0, self.width + self.left) if self.flips[1] else (1.0, -self.left)
        e, f = (-1.0, self.height + self.top) if self.flips[0] else (1.0, -self.top)
        return np.array([[a, 0.0, c], [0.0, e, f], [0.0, 0.0, 1.0]])


class Resample(Step, frozen=True):
    """Resizes the image. The result is uint8.

    Attributes:
        height, width: Size of the result in pixels.
        ratio: Pixels of the image per pixel of the result, as (y, x).
        begin: Position in the image at which the first pixel of the result begins, as (y, x).
        method: Filter, with or without antialiasing.
        like: Library whose arithmetic the resize reproduces.
        order: Channel order in which the library receives the image.
    """

    height: int
    width: int
    ratio: tuple[float, float]
    begin: tuple[float, float]
    method: Method
    like: Like
    order: Order = Order.AS_DECODED
    moves = is_hosts = True

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """See ``Step``."""
        del height, width
        return self.height, self.width

    def of_labels(self, height: int, width: int, fill: tuple[int, ...]) -> Resample:
        """See ``Step``."""
        del height, width, fill
        like = "dali" if any(self.begin) else PROFILES[self.like].labels
        return self.changed(method=Method("nearest", antialias=False), like=like)

    def forward(self, height: int, width: int) -> F64:
        """Return the coordinate transform for an image of this size (see ``motions``)."""
        del height, width
        (y, x), (top, left) = self.ratio, self.begin
        return np.array([[1 / x, 0.0, -left / x], [0.0, 1 / y, -top / y], [0.0, 0.0, 1.0]])


class Erase(Step, frozen=True):
    """Fills a rectangle of an image or a tensor with one value per channel, or with noise.

    Attributes:
        top, left, height, width: Rectangle in pixels.
        values: Fill values: one pixel value per decoded channel for an image, or one value per channel for a tensor. If
            the rectangle is filled with noise, ``values`` is empty.
        noise: Seed from which ``engine.kernels.noise`` generates the noise. It consists of two random 32-bit integers
            and the index of the rectangle in the tensor. None means that the rectangle is filled with ``values``.
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
    """Computes a weighted sum of the image and the results of several chains of steps.

    The sum is computed in float32, beginning with the image and continuing chain by chain. Every product and every sum
    is rounded to float32, and the final result is truncated.

    Attributes:
        weights: Float32 weights of the image and of each chain. Except for rounding, their sum is at most 1.
        chains: Chains of steps, each applied to the original image. No step changes the size of the image.
    """

    weights: tuple[float, ...]
    chains: tuple[tuple[LevelStep, ...], ...]
    is_hosts = True


LevelStep = Step
"""Any step on pixel values."""


def folded(steps: Iterable[LevelStep]) -> tuple[LevelStep, ...]:
    """Merge consecutive curves, and remove steps that do not change the image.

    A warp that is followed by a crop computes only the pixels inside the crop, because the pixels of a warp are
    independent of each other. Other steps are not merged, because every step rounds its result, and a merged step would
    return different values.
    """
    made: list[LevelStep] = []
    for step in steps:
        last = made[-1] if made else None
        if step.is_neutral:
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
    return tuple([step for step in made if not (isinstance(step, Curve) and step.table == _IDENTITY)])


_IDENTITY = bytes(range(256))


def size_after(steps: Iterable[LevelStep], height: int, width: int) -> tuple[int, int]:
    """Return the size (height, width) of an image of this size after the steps."""
    for step in steps:
        height, width = step.size_after(height, width)
    return height, width


def motions(steps: Iterable[LevelStep], height: int, width: int) -> Iterator[tuple[F64, tuple[int, int]]]:
    """Yield the coordinate transform and the size (height, width) of the result for each step that moves pixels.

    A transform is a homography, which is a 3 x 3 matrix in homogeneous coordinates. It maps a point (x, y) of the
    step's input to a point of the step's result. Coordinates are continuous, and (0, 0) is the upper left corner of the
    image.
    """
    for step in steps:
        motion = step.forward(height, width)
        height, width = step.size_after(height, width)
        if motion is not None:
            yield motion, (height, width)


def moving(steps: Iterable[LevelStep], height: int, width: int, fill: tuple[int, ...]) -> list[LevelStep]:
    """Return the steps that move pixels, changed for a segmentation map: with nearest-neighbor sampling and ``fill``.

    Args:
        steps: Steps on the pixel values of the image.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        fill: Label of the padding.

    Raises:
        ImageError: OPERATOR: The ``motion`` function of a custom operator failed (see ``Extern.forward``).
    """
    made: list[LevelStep] = []
    for step in steps:
        moved = step.of_labels(height, width, fill)
        made += () if moved is None else (moved,)
        height, width = step.size_after(height, width)
    return made
