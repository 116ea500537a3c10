"""Ops that choose, for each image, which steps on levels are done to it: in training only, with torchvision v2's rules.

``pixprep.draws.policies`` has the tables and what is drawn.
"""

from __future__ import annotations

from math import atan, degrees
from typing import Any, ClassVar, Literal

import numpy as np

from pixprep.draws.philox import Words
from pixprep.draws.policies import Policy, Table
from pixprep.draws.warps import Look
from pixprep.errors import PipelineError
from pixprep.ops.color import Autocontrast, Brightness, Contrast, Equalize, Posterize, Saturation, Solarize
from pixprep.ops.filters import Sharpness
from pixprep.ops.op import ImageOp, Op, check_fill, need_channels, need_whole_levels, op_name
from pixprep.ops.warp import Affine, Rotate
from pixprep.plan.lowered import Lowered
from pixprep.spec import ColorLike, ImageSpec, Levels, Side

MAX_BINS = 1000
MAX_OPS = 20


class _Policy(ImageOp, frozen=True, kw_only=True):
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

    def policy(self, before: Lowered, key: str, *, table: Table, count: int, magnitude: int | None) -> Lowered:
        """Lowered ops so far, with steps of a table; see ``draws.policies.Policy``."""
        fill = None if self.fill is None else before.colour(self.fill)
        return before.do(
            Policy(
                key=key,
                table=table,
                count=count,
                magnitude=magnitude,
                bins=self.num_magnitude_bins,
                look=Look(filter=self.filter, fill=fill, like=self.like),
            )
        )

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return [op for each in words["ops"] for op in self._fixed(each["op"], each.get("magnitude", 0.0))]

    def _fixed(self, name: str, magnitude: float) -> list[Op]:
        """One step, by torchvision's rules: see ``draws.policies.Policy``."""
        look: dict[str, Any] = {"filter": self.filter, "fill": 0 if self.fill is None else self.fill, "like": self.like}
        moves = name.startswith(("Shear", "Translate", "Rotate"))
        if moves and self.fill is None and (self.like, self.filter) == ("torchvision", "bilinear"):
            raise PipelineError(f'{op_name(self)}: a "fill" that is null is of no fixed op: verify it with 0')
        is_x = name.endswith("X")
        match name:
            case "Identity":
                return []
            case "ShearX" | "ShearY":
                angle = degrees(atan(magnitude))
                return [Affine(shear=(angle, 0.0) if is_x else (0.0, angle), center=(0.0, 0.0), **look)]
            case "TranslateX" | "TranslateY":
                pixels = float(int(magnitude))
                return [Affine(translate=(pixels, 0.0) if is_x else (0.0, pixels), **look)]
            case "Rotate":
                return [Rotate(angle=magnitude, **look)]
            case "Posterize":
                return [Posterize(int(magnitude))]
            case "Solarize":
                threshold = 255 * magnitude
                return [Solarize(float(np.float32(threshold)) if self.like == "torchvision" else threshold)]
            case "AutoContrast":
                return [Autocontrast(like=self.like)]
            case "Equalize":
                return [Equalize()]
        factors = {"Brightness": Brightness, "Color": Saturation, "Contrast": Contrast, "Sharpness": Sharpness}
        return [factors[name](factor=1.0 + magnitude, like=self.like)]


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

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return self.policy(before, key, table="rand", count=self.num_ops, magnitude=self.magnitude)


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

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return self.policy(before, key, table="trivial", count=1, magnitude=None)
