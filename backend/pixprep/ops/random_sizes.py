"""Ops whose resize is drawn anew for each sample of each epoch: in training only, with torchvision v2's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pixprep.draws.philox import Words
from pixprep.draws.sizes import Jitter, Size
from pixprep.errors import PipelineError
from pixprep.ops.geometry import Resize, check_like
from pixprep.ops.op import ImageOp, Op, check_side, check_sides, need_levels, settle, shown
from pixprep.ops.random import MAX_ZOOM
from pixprep.plan import geometry_steps
from pixprep.plan.lowered import Lowered
from pixprep.profiles import PROFILES
from pixprep.spec import Filter, ImageSpec, Like, Side

MAX_SIZES = 1000


class _RandomSize(ImageOp, frozen=True, kw_only=True):
    """Fields and methods of every random resize."""

    home: ClassVar[Side | None] = "training"

    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of any size up to the largest; refuses values that are not the decoder's levels."""
        need_levels(image)
        if self.filter in PROFILES[self.like].real:
            image = replace(image, values="real")
        return image.within((1, 1), self._most)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.resized(self._step(key))

    @property
    def _most(self) -> tuple[int | None, int | None]:
        """The largest (height, width)."""
        raise NotImplementedError

    def _step(self, key: str) -> geometry_steps.Resize:
        """The step of a plan that does it."""
        raise NotImplementedError

    @property
    def _way(self) -> dict[str, object]:
        """Fields of the resize that does it."""
        return {"filter": self.filter, "antialias": self.antialias, "like": self.like}


class RandomShortestSize(_RandomSize, frozen=True, tag="random_shortest_size"):
    """Resize the shorter side to one of several sizes, drawn at random; the aspect ratio is kept.

    torchvision v2's ``RandomShortestSize``, of its detectors' training: one scale makes both sides, as with
    ``"mode": "scale"`` of ``resize``. A side has one pixel at least, where torchvision raises.

    Args:
        min_size: of the shorter side, in pixels: one size, or several, each as likely as another.
        max_size: the most pixels of the longer side; where it would be passed, both sides are smaller.
        filter, antialias, like: as in ``resize``.
    """

    min_size: int | tuple[int, ...]
    max_size: int | None = None

    def check(self) -> None:
        """See ``Op.check``."""
        check_like(self)
        if not 1 <= len(self._sizes) <= MAX_SIZES:
            raise PipelineError(f'"min_size" must be 1 to {MAX_SIZES} sizes, not {len(self._sizes):,}')
        for size in self._sizes:
            check_side("min_size", size)
        if self.max_size is not None:
            check_side("max_size", self.max_size)

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return [Resize(words["size"], mode="scale", rounding="down", max_size=self.max_size, **self._way)]  # type: ignore[arg-type]

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.min_size,) if isinstance(self.min_size, int) else self.min_size

    @property
    def _most(self) -> tuple[int | None, int | None]:
        return self.max_size, self.max_size

    def _step(self, key: str) -> geometry_steps.Resize:
        return geometry_steps.Resize(
            rule="shorter",
            height=max(self._sizes),
            width=max(self._sizes),
            filter=self.filter,
            antialias=bool(self.antialias),
            like=self.like,
            most=self.max_size,
            scales=(True, True),
            drawn=Size(key=key, sizes=self._sizes),
        )


class ScaleJitter(_RandomSize, frozen=True, tag="scale_jitter"):
    """Resize by a random scale: large-scale jitter. Behind it ``random_crop`` with ``pad_if_needed`` makes one size.

    torchvision v2's ``ScaleJitter``: a scale of 1 makes the largest size inside ``height`` x ``width`` of the same
    aspect ratio. Both sides are computed in float32 and cut to whole pixels, as there; a side has one pixel at least,
    where torchvision raises.

    Args:
        height: of what an image fits into at a scale of 1, in pixels; torchvision's ``target_size[1]``.
        width: of the same, ``target_size[0]``; default: ``height``.
        scale_range: from and to; at most 16.
        filter, antialias, like: as in ``resize``.
    """

    height: int
    width: int | None = None
    scale_range: tuple[float, float] = (0.1, 2.0)

    def check(self) -> None:
        """See ``Op.check``."""
        check_like(self)
        settle(self, "width", self.height)
        check_sides(self.height, self.width)
        lowest, highest = self.scale_range
        if not 0 < lowest <= highest <= MAX_ZOOM:
            raise PipelineError(
                f'"scale_range" must rise from over 0 to {MAX_ZOOM:g} at most, not {shown(self.scale_range)}'
            )

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return [Resize(height=words["height"], width=words["width"], **self._way)]  # type: ignore[arg-type]

    @property
    def _most(self) -> tuple[int | None, int | None]:
        assert self.width is not None
        height, width = (int(side * self.scale_range[1]) + 1 for side in (self.height, self.width))  # float32 rounds
        return height, width

    def _step(self, key: str) -> geometry_steps.Resize:
        assert self.width is not None
        return geometry_steps.Resize(
            rule="both",
            height=self.height,
            width=self.width,
            filter=self.filter,
            antialias=bool(self.antialias),
            like=self.like,
            drawn=Jitter(key=key, height=self.height, width=self.width, scale=self.scale_range),
        )
