"""Ops of Albumentations that displace each pixel separately, with OpenCV's arithmetic."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pixprep.errors import ImageError
from pixprep.pipeline.ops.alignment import Warp as WarpOp
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.elastic import MAX_ALPHA, NO_MATRIX
from pixprep.pipeline.ops.filters import MAX_TAPS
from pixprep.pipeline.ops.limits import FillColor, Spread, Within, spans
from pixprep.pipeline.ops.neighborhoods import Signed
from pixprep.pipeline.ops.ranged import Ranged
from pixprep.pipeline.ops.warp import check_side
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, span_words
from pixprep.plan.lowered import colour
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.warps import Displacement, Grid, Lens, Smooth, Warp
from pixprep.spec import Color, PaddingMode, WarpFilter

MAX_CELLS = 64


class _Distortion(Ranged, frozen=True, kw_only=True):
    """Base class of the distortions. Masks, boxes and points are transformed as in ``elastic``."""

    moves: ClassVar[bool] = True
    no_matrix: ClassVar[str] = NO_MATRIX
    no_boxes = WarpOp.no_boxes

    filter: WarpFilter = "bilinear"
    padding_mode: PaddingMode = "constant"
    fill: FillColor = 0

    def check(self) -> None:
        super().check()
        check_padding(self.padding_mode, self.fill)

    def displacement(self, words: Words, height: int, width: int) -> Displacement:
        """Return the displacement for an image of this size. Each field must contain a single number."""
        raise NotImplementedError

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        check_side("opencv", height, width)
        size, fill, identity = (height, width), colour(self.fill, color), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
        found = self.displacement(words, height, width)
        return (Warp(identity, size, 0, 0, *size, fill, self.filter, "opencv", found, self.padding_mode),)


class GridDistortion(_Distortion, frozen=True, tag="grid_distortion"):
    """Stretches and compresses the columns and rows of a grid by random factors; the size does not change.

    The op reproduces Albumentations' ``GridDistortion``, including its rounding: a cell has ``width // cells`` whole
    pixels, and the remaining pixels form a narrower cell. Masks are transformed like the image. A box becomes the
    bounding box of the pixels that show it, and a point moves with the nearest pixel.

    Args:
        cells: Number of columns and of rows of the grid.
        limit: Minimum and maximum of a random number. Each factor is 1 plus such a number. A single number x means the
            range from -x to x.
        normalized: Whether the stretched grid is scaled to the size of the image. If false, parts of the image may be
            cut off or padded.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "grid_distortion", "limit": 0.2}
    """

    needs_seed: ClassVar[bool] = True  # without random factors, the op would not change the image
    cells: Annotated[int, Within(1, MAX_CELLS)] = 5
    limit: Annotated[float | tuple[float, float], Spread(-0.99, 10)] = 0.3
    normalized: bool = True

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers: one for ``p``, and one number per column and row."""
        return 1 + (2 * (self.cells + 1) + 3) // 4

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the factors: ``{"columns": [1.1, 0.9], "rows": [1.0, 0.8]}``.

        The result is empty if the op is not applied.
        """
        (u_apply, *_), *u_factors = uniforms(0, self.blocks).tolist()
        if u_apply >= self.p:
            return {}
        factors = [1 + between(spans(self.limit)[0], u) for row in u_factors for u in row]
        return {"columns": factors[: self.cells + 1], "rows": factors[self.cells + 1 : 2 * self.cells + 2]}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f", in {self.p:g} of the images"
        return f"stretch a grid of {self.cells} x {self.cells} cells by 1 + ({span_words(spans(self.limit)[0])}){some}"

    def displacement(self, words: Words, height: int, width: int) -> Displacement:
        if min(height, width) < self.cells:
            raise ImageError(
                "DOES_NOT_FIT", f"{height} x {width} pixels are too small for grid_distortion with {self.cells} cells"
            )
        return Grid(tuple(words["columns"]), tuple(words["rows"]), self.normalized)

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return self.fixed_steps(words, height, width, color) if words else ()


class OpticalDistortion(_Distortion, frozen=True, tag="optical_distortion"):
    """Distorts the image like a lens; the size does not change.

    The op reproduces Albumentations' ``OpticalDistortion``. Masks, boxes and points are transformed as in
    ``grid_distortion``.

    Args:
        k: Strength, -1 to 1, where positive numbers shrink the center: one number, or the minimum and maximum of a
            random strength.
        model: Model of the lens: ``camera`` or ``fisheye``.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "optical_distortion", "k": [-0.05, 0.05]}
    """

    ranges: ClassVar[Any] = {"k": between}
    phrase: ClassVar[str] = "distort like a {0.model} lens, k {k} ({0.filter})"
    k: Signed = (-0.05, 0.05)
    model: Literal["camera", "fisheye"] = "camera"

    def displacement(self, words: Words, height: int, width: int) -> Displacement:
        return Lens(float(self.k), self.model)  # type: ignore[arg-type]  # one number


class ElasticDistortion(_Distortion, frozen=True, tag="elastic_distortion"):
    """Displaces pixels by smooth random noise; the size does not change.

    The op reproduces Albumentations' ``ElasticTransform`` with the noise distribution ``gaussian``; ``elastic``
    reproduces torchvision's transform. The noise itself differs from Albumentations' noise. For the same noise, the
    displacement differs by less than 1e-6 pixels times ``alpha``. Masks, boxes and points are transformed as in
    ``grid_distortion``.

    Args:
        alpha: Strength of the displacement. A pixel moves by ``alpha`` times the blurred noise. Before the blur, the
            absolute value of the noise is at most 1.
        sigma: Standard deviation of the blur in pixels, 1 or more.
        kernel_size: Size of the blur's kernel, odd. Default: ``8 * sigma + 1``, rounded to an odd number. With
            ``approximate``, Albumentations uses 17.
        same: Whether x and y have the same displacement.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "elastic_distortion", "alpha": 120, "sigma": 6}
    """

    needs_seed: ClassVar[bool] = True
    phrase: ClassVar[str] = "displace the pixels by smooth noise, alpha {0.alpha:.4g}, sigma {0.sigma:.4g} ({0.filter})"
    alpha: Annotated[float, Within(0, MAX_ALPHA)] = 1.0
    sigma: Annotated[float, Within(1, 1000)] = 50.0
    kernel_size: Annotated[int | None, Within(1, MAX_TAPS)] = None
    same: bool = False

    def displacement(self, words: Words, height: int, width: int) -> Displacement:
        taps = (self.kernel_size or round(8 * self.sigma + 1)) | 1
        return Smooth(self.alpha, self.sigma, taps, self.same, tuple(words["seed"]))
