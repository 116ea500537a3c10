"""Ops that choose, for each image, which steps on levels are done to it: in training only, with torchvision v2's rules.

``pixprep.draws.policies`` has the tables and what is drawn.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pixprep.errors import PipelineError
from pixprep.ops.op import Levels, Op, check_fill, need_channels, need_whole_levels
from pixprep.spec import ColorLike, ImageSpec, Side

MAX_BINS = 1000
MAX_OPS = 20


class _Policy(Op, frozen=True, kw_only=True):
    home: ClassVar[Side | None] = "training"

    num_magnitude_bins: int = 31
    filter: Literal["nearest", "bilinear"] = "nearest"
    fill: Levels | None = None
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        if self.fill is not None:
            check_fill(self.fill)
        if not 2 <= self.num_magnitude_bins <= MAX_BINS:
            raise PipelineError(f'"num_magnitude_bins" must be 2 to {MAX_BINS}, not {self.num_magnitude_bins}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels."""
        need_whole_levels(image)
        if self.fill is not None:
            need_channels("fill", self.fill, image)
        return image


class RandAugment(_Policy, frozen=True, tag="rand_augment"):
    """Do a few steps that are chosen anew for each image, all of one strength.

    torchvision v2's ``RandAugment``. Each step is one of Identity, ShearX, ShearY, TranslateX, TranslateY, Rotate,
    Brightness, Color, Contrast, Sharpness, Posterize, Solarize, AutoContrast and Equalize, each as likely, also twice.
    From shears to Sharpness, half of the magnitudes are negative. A shear leaves the first pixel where it is.

    Args:
        num_ops: steps an image.
        magnitude: the bin of each magnitude; 0 changes least.
        num_magnitude_bins: how many there are.
        filter: of what moves pixels, ``nearest`` or ``bilinear``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel. None: black; at the edge,
            torchvision's bilinear then differs from 0.
        like: whose rounding.
    """

    num_ops: int = 2
    magnitude: int = 9

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        if not 0 <= self.num_ops <= MAX_OPS:
            raise PipelineError(f'"num_ops" must be 0 to {MAX_OPS}, not {self.num_ops}')
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise PipelineError(
                f'"magnitude" must be 0 to {self.num_magnitude_bins - 1}, '
                f'below "num_magnitude_bins", not {self.magnitude}'
            )


class TrivialAugment(_Policy, frozen=True, tag="trivial_augment"):
    """Do one step that is chosen anew for each image, of any strength.

    torchvision v2's ``TrivialAugmentWide``: the steps of ``rand_augment``, whose magnitudes go further.

    Args:
        num_magnitude_bins: how many magnitudes a step has, each as likely.
        filter: of what moves pixels, ``nearest`` or ``bilinear``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel. None: black; at the edge,
            torchvision's bilinear then differs from 0.
        like: whose rounding.
    """
