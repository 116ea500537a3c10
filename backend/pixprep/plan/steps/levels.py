"""Steps on levels, done to an image after its geometry, uint8 to uint8.

Each step is frozen data, for an image of known size: a ``Curve`` looks levels up, a ``Blend`` mixes with gray, a
``Hue`` turns colours, an ``Hsv`` shifts them, a ``ColorMatrix`` mixes channels, a ``Tone`` is a curve by the image's
own histogram, a ``Permute`` exchanges channels, a ``Filter`` looks at neighbours, a ``Warp`` looks elsewhere, a
``Take`` crops, pads or mirrors, a ``Resample`` resizes, an ``Erase`` fills a rectangle, a ``Mix`` adds up what other
steps make, an ``Extern`` calls an operator of the user's. Two curves are one, and of a warp is made what a window shows
(``folded``); nothing else is. ``like`` says whose rounding it is: torchvision's tensors and Pillow differ by up to 18
levels in hue, and 127 in rotation.

Levels are those of the decoded channels, RGB or gray, whatever order the tensor has.
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
    """``gray + factor * (level - gray)``, rounded and clipped as ``like`` does it.

    Attributes:
        gray: ``own``: the luma of the pixel itself (saturation); ``mean``: the mean luma of the whole image (contrast).
        factor: 0: gray alone; 1: no change; may be over 1.
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
    """The hue turned, through HSV and back; by 0 it is no identity either, for both round on the way.

    Attributes:
        shift: -0.5 to 0.5 of a whole turn.
    """

    shift: float
    like: BlendLike
    is_pointwise = keeps_places = True

    def __str__(self) -> str:
        return f"turn the hue by {self.shift:.4g} of the circle ({self.like}'s rounding)"


class ColorMatrix(Step, frozen=True):
    """Sums of the channels, each times a factor, and of an offset.

    In float32, each product and sum rounded, in the order red, green, blue, offset; clipped to 0 to 255, and rounded
    half up. A gray image counts as red, green and blue that are alike, and takes the first row.

    Attributes:
        numbers: for red, green and blue the factors of red, green and blue, and the offset: 12 numbers of float32.
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
    """A curve for each channel that its own histogram makes.

    Attributes:
        kind: ``autocontrast``: lowest and highest level to 0 and 255. ``equalize``: each level as often.
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
    """The channels in another order: for each decoded channel the one that it becomes; a gray image stays."""

    order: tuple[int, ...]
    is_pointwise = keeps_places = keeps_gray = True

    def __str__(self) -> str:
        return f"take the channels {', '.join(map(str, self.order))}"


class Filter(Step, frozen=True):
    """A small convolution, of each channel by itself.

    **sharpness**: the outermost pixels, and images of fewer than 3 rows or columns, stay as they are. For any other
    level p, ``q = (2 * S + 13) // 26``, where S is the sum of its eight neighbours and of 5 p. Pillow, in float32:
    ``q + factor * (p - q)``, each operation rounded. torchvision, in float32: ``fused (1 - factor) * (q - p) + p``. The
    result is clipped to 0 to 255 and cut off.

    **blur**, in float32, no operation fused: for each row ``v = p * w``, to which the product of each further tap is
    added in order, with the weights ``columns`` of neighbours in the row; then likewise of these v with the weights
    ``rows``; rounded half to even. Beyond the edge lies the mirror image, without the edge itself: -1 is 1. OpenCV's
    is fused, and begins with the row in the middle, to which the sum of each two rows as far from it is added.

    Attributes:
        kind: ``sharpness``: by ``factor``, the blend of the image with its smoothed self; ``blur``: by ``rows`` and
            ``columns``, of which there are an odd number, and whose sum is 1.
        rows, columns: weights of float32.
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
        """See ``Traits``: a blur is summed in float32, from one side to the other."""
        return self.kind == "sharpness"

    def __str__(self) -> str:
        if self.kind == "sharpness":
            return f"blend with the smoothed image, factor {self.factor:.4g} ({self.like}'s rounding)"
        middle = max(self.rows) * max(self.columns)
        return f"blur by {len(self.rows)} x {len(self.columns)} pixels, of which the middle weighs {middle:.3g}"


class Take(Step, frozen=True):
    """A window of the image, (top, left, height, width), padded where it is outside, then mirrored.

    Attributes:
        fill: the level of each decoded channel outside, by the mode ``constant``.
        mode: by the others the image lies outside, too: the nearest pixel at the ``edge``, or the mirror image, without
            the edge itself (``reflect``: -1 is 1) or with it (``symmetric``: -1 is 0), again and again.
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
        """Tell whether an image of this size fills it."""
        return min(self.top, self.left) >= 0 and self.top + self.height <= height and self.left + self.width <= width

    def forward(self, height: int, width: int) -> F64:
        """Motion, whatever the size of the image: see ``motions``."""
        del height, width
        a, c = (-1.0, self.width + self.left) if self.flips[1] else (1.0, -self.left)
        e, f = (-1.0, self.height + self.top) if self.flips[0] else (1.0, -self.top)
        return np.array([[a, 0.0, c], [0.0, e, f], [0.0, 0.0, 1.0]])


class Resample(Step, frozen=True):
    """A resize of the image as it is here, to levels again.

    Attributes:
        height, width: of the result.
        ratio, begin: (y, x), see ``Placement``.
        method: filter and antialias.
        like: whose arithmetic.
        order: of the library's channels.
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
        """Motion of an image of this size: see ``motions``."""
        del height, width
        (y, x), (top, left) = self.ratio, self.begin
        return np.array([[1 / x, 0.0, -left / x], [0.0, 1 / y, -top / y], [0.0, 0.0, 1.0]])


class Erase(Step, frozen=True):
    """A rectangle of one value a channel, or of noise.

    Attributes:
        values: levels of the decoded channels, or values of the tensor's; none of noise.
        noise: of a tensor: two words and the number of the rectangle, of which ``engine.kernels.kernel`` makes its
            values.
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
    """The image and what each chain of steps makes of it, each times its weight, and added up.

    In float32, each product and each sum rounded, the image first, then chain after chain; the result is cut off.

    Attributes:
        weights: numbers of float32, the first of the image itself; their sum is at most 1, but for rounding.
        chains: steps on levels that keep the size.
    """

    weights: tuple[float, ...]
    chains: tuple[tuple[LevelStep, ...], ...]
    is_hosts = True


LevelStep = Step
"""Any of these."""


def folded(steps: Iterable[LevelStep]) -> tuple[LevelStep, ...]:
    """The same steps; neighbouring curves are one, and a step that changes nothing is none.

    A warp makes only what the window behind it shows, since each of its pixels depends on its own place alone. Nothing
    else is exact: each step rounds. Of two hues, two blends, or a curve and what is no curve, both are done.
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
    """(height, width) of an image after steps."""
    for step in steps:
        if isinstance(step, _WINDOWS):
            height, width = step.height, step.width
        elif isinstance(step, Extern) and step.size:
            height, width = step.size
    return height, width


def motions(steps: Iterable[LevelStep], height: int, width: int) -> Iterator[tuple[F64, tuple[int, int]]]:
    """Motions of the steps that move an image, each with the (height, width) of its result.

    A motion is 3 x 3: (x, y, 1) becomes (u, v, w), which lies at (u / w, v / w), continuous, from the corners.
    """
    for step in steps:
        motion = step.forward(height, width) if isinstance(step, Warp | Take | Resample | Extern) else None
        height, width = size_after([step], height, width)
        if motion is not None:
            yield motion, (height, width)


def moving(steps: Iterable[LevelStep], height: int, width: int, fill: tuple[int, ...]) -> list[Warp | Take | Resample]:
    """The steps that move an image of this size, for an image of labels: nearest, and ``fill`` where they look outside.

    Raises:
        ImageError: as ``Extern.forward``.
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
