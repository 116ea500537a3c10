"""Ops that choose, for each image, which steps on levels are done to it: in training only, as torchvision v2 and timm.

``pixprep.draws.kinds`` has the tables, and ``draws.policies`` what is drawn.
"""

from __future__ import annotations

from math import atan, degrees, inf
from typing import Any, ClassVar, Literal

from pixprep.draws.kinds import TIMM, TIMM_BINS, WEIGHTS, AutoPolicy, Table
from pixprep.draws.philox import Words
from pixprep.draws.policies import AugMix as Mixed
from pixprep.draws.policies import Policy, threshold_of
from pixprep.draws.warps import Look
from pixprep.errors import PipelineError
from pixprep.ops.color import (
    Autocontrast,
    Brightness,
    Contrast,
    Equalize,
    Invert,
    Posterize,
    Saturation,
    Solarize,
    SolarizeAdd,
)
from pixprep.ops.filters import Sharpness
from pixprep.ops.op import ImageOp, Op, check_fill, check_range, need_channels, need_whole_levels, op_name
from pixprep.ops.warp import Affine, Rotate, check_filter
from pixprep.plan.lowered import Lowered
from pixprep.spec import ColorLike, ImageSpec, Levels, Side
from pixprep.steps.warps import WarpFilter

MAX_BINS = 1000
MAX_OPS = 20
MAX_LEVEL = 100
MIN_ALPHA = 0.05
"""The least alpha: below it, float64 may hold none of the numbers whose shares are the weights."""
_BIN = 10
"""Bins of an ``AutoAugment`` of torchvision's, and of an ``AugMix``."""


class _Policy(ImageOp, frozen=True, kw_only=True):
    home: ClassVar[Side | None] = "training"

    filter: WarpFilter = "nearest"
    fill: Levels | None = None
    like: ColorLike = "pillow"

    @property
    def table(self) -> Table:
        """Whose kinds and magnitudes."""
        raise NotImplementedError

    def check(self) -> None:
        """See ``Op.check``."""
        if self.fill is not None:
            check_fill(self.fill)
        check_filter(self.filter, self.like)
        if self.table in TIMM and self.like != "pillow":
            raise PipelineError(f'"like" must be "pillow", not "{self.like}": timm works on PIL images')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels."""
        need_whole_levels(image)
        if self.fill is not None:
            need_channels("fill", self.fill, image)
        return image

    def policed(self, before: Lowered, key: str, policy: type[Policy] = Policy, **rules: Any) -> Lowered:
        """Lowered ops so far, with steps of the table; see ``draws.policies.Policy`` for the rules."""
        fill = None if self.fill is None else before.colour(self.fill)
        look = Look(filter=self.filter, fill=fill, like=self.like)
        return before.do(policy(key=key, table=self.table, look=look, **rules))

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return [op for each in words["ops"] for op in self._fixed(each["op"], each.get("magnitude", 0.0))]

    def _fixed(self, name: str, magnitude: float) -> list[Op]:
        """One step, by the library's rules: see ``draws.policies.Policy``."""
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
            case "TranslateX" | "TranslateY" if self.table in TIMM:  # of parts of pixels, the other way
                moved = (-magnitude, 0.0) if is_x else (0.0, -magnitude)
                return [Affine(translate=moved, center=(0.0, 0.0), **look)]
            case "TranslateX" | "TranslateY":
                pixels = float(int(magnitude))
                return [Affine(translate=(pixels, 0.0) if is_x else (0.0, pixels), **look)]
            case "Rotate":
                return [Rotate(angle=magnitude, **look)]
            case "Posterize":
                return [Posterize(min(8, int(magnitude))) if magnitude >= 1 else Brightness(factor=0.0)]
            case "Solarize":
                threshold = threshold_of(self.table, magnitude, self.like)
                return [Solarize(threshold)] if threshold <= 255 else []
            case "SolarizeAdd":
                return [SolarizeAdd(int(magnitude))]
            case "AutoContrast":
                return [Autocontrast(like=self.like)]
            case "Equalize" | "Invert":
                return [Equalize() if name == "Equalize" else Invert()]
        factors = {"Brightness": Brightness, "Color": Saturation, "Contrast": Contrast, "Sharpness": Sharpness}
        return [factors[name](factor=1.0 + magnitude, like=self.like)]


def _check_bins(bins: int) -> None:
    if not 2 <= bins <= MAX_BINS:
        raise PipelineError(f'"num_magnitude_bins" must be 2 to {MAX_BINS}, not {bins}')


def _check_count(count: int, most: int = MAX_OPS) -> None:
    if not 0 <= count <= most:
        raise PipelineError(f'"num_ops" must be 0 to {most}, not {count}')


class RandAugment(_Policy, frozen=True, tag="rand_augment"):
    """Do a few steps that are chosen anew for each image, all of one strength.

    torchvision v2's ``RandAugment``. Each step is one of Identity, ShearX, ShearY, TranslateX, TranslateY, Rotate,
    Brightness, Color, Contrast, Sharpness, Posterize, Solarize, AutoContrast and Equalize, each as likely, also twice.
    From shears to Sharpness, half of the magnitudes are negative. A shear leaves the first pixel where it is.

    Args:
        num_ops: steps an image.
        magnitude: the bin of each magnitude; 0 changes least.
        num_magnitude_bins: how many there are.
        filter: of what moves pixels, ``nearest``, ``bilinear`` or, of ``like`` ``pillow``, ``bicubic``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel. None: black; at the edge,
            torchvision's bilinear then differs from 0.
        like: whose rounding.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31

    @property
    def table(self) -> Table:
        """See ``_Policy.table``."""
        return "rand"

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        _check_bins(self.num_magnitude_bins)
        _check_count(self.num_ops)
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise PipelineError(
                f'"magnitude" must be 0 to {self.num_magnitude_bins - 1}, '
                f'below "num_magnitude_bins", not {self.magnitude}'
            )

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        bins = self.num_magnitude_bins
        return self.policed(before, key, count=self.num_ops, magnitude=self.magnitude, bins=bins)


class TrivialAugment(_Policy, frozen=True, tag="trivial_augment"):
    """Do one step that is chosen anew for each image, of any strength.

    torchvision v2's ``TrivialAugmentWide``: the steps of ``rand_augment``, whose magnitudes go further.

    Args:
        num_magnitude_bins: how many magnitudes a step has, each as likely.
        filter: of what moves pixels, ``nearest``, ``bilinear`` or, of ``like`` ``pillow``, ``bicubic``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel. None: black; at the edge,
            torchvision's bilinear then differs from 0.
        like: whose rounding.
    """

    num_magnitude_bins: int = 31

    @property
    def table(self) -> Table:
        """See ``_Policy.table``."""
        return "trivial"

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        _check_bins(self.num_magnitude_bins)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return self.policed(before, key, count=1, magnitude=None, bins=self.num_magnitude_bins)


class AutoAugment(_Policy, frozen=True, tag="auto_augment"):
    """Do the two steps of one of 25 pairs, which is chosen anew for each image, each step as often as the pair says.

    torchvision v2's ``AutoAugment``, and timm's, which has other magnitudes.

    Args:
        policy: torchvision's: ``imagenet``, ``cifar10`` or ``svhn``; timm's: ``original``, the pairs of ``imagenet``,
            ``v0``, those of EfficientNet, and ``originalr`` and ``v0r``, whose posterize keeps fewer bits the stronger
            it is.
        magnitude_std: of timm's: the standard deviation of each magnitude.
        filter: of what moves pixels, ``nearest``, ``bilinear`` or, of ``like`` ``pillow``, ``bicubic``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel. None: black; at the edge,
            torchvision's bilinear then differs from 0.
        like: whose rounding; of timm's ``pillow``.
    """

    policy: AutoPolicy = "imagenet"
    magnitude_std: float = 0.0

    @property
    def table(self) -> Table:
        """See ``_Policy.table``."""
        return self.policy

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        check_range("magnitude_std", self.magnitude_std, 0, MAX_LEVEL)
        if self.magnitude_std and self.policy not in TIMM:
            raise PipelineError(f'"magnitude_std" is of timm\'s policies, and "{self.policy}" is torchvision\'s')

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        is_timms = self.policy in TIMM
        bins, most = (TIMM_BINS, TIMM_BINS - 1.0) if is_timms else (_BIN, inf)
        return self.policed(before, key, count=2, magnitude=None, bins=bins, std=self.magnitude_std, most=most)


class AugMix(_Policy, frozen=True, kw_only=True, tag="aug_mix"):
    """Add up the image and a few chains of steps that are chosen anew for it, by weights that are drawn, too.

    torchvision v2's ``AugMix``, which makes a tensor of a PIL image, so that its rounding is that of tensors. Each step
    is one of ShearX, ShearY, TranslateX, TranslateY, Rotate, Posterize, Solarize, AutoContrast, Equalize, Brightness,
    Color, Contrast and Sharpness, each as likely. Nothing behind it says where a pixel came from.

    Args:
        severity: of the 10 magnitudes of a step, least first, so many are drawn from, each as likely.
        mixture_width: how many chains.
        chain_depth: steps of a chain; -1: 1 to 3, as often.
        alpha: of Dirichlet's distributions, which the share of the image and those of the chains have.
        all_ops: with Brightness, Color, Contrast and Sharpness.
        filter: of what moves pixels, ``nearest`` or ``bilinear``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel. None: black; at the edge,
            torchvision's bilinear then differs from 0.
        like: ``torchvision``: whose rounding.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    filter: Literal["nearest", "bilinear"] = "bilinear"
    like: Literal["torchvision"] = "torchvision"

    @property
    def table(self) -> Table:
        """See ``_Policy.table``."""
        return "mix" if self.all_ops else "mix_partial"

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        check_range("severity", self.severity, 1, _BIN)
        check_range("mixture_width", self.mixture_width, 1, MAX_OPS)
        check_range("alpha", self.alpha, MIN_ALPHA, MAX_LEVEL)
        if self.chain_depth != -1 and not 1 <= self.chain_depth <= MAX_OPS:
            raise PipelineError(f'"chain_depth" must be 1 to {MAX_OPS}, or -1, which is 1 to 3, not {self.chain_depth}')

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        is_deep = self.chain_depth > 0
        return self.policed(
            before,
            key,
            Mixed,
            count=self.chain_depth if is_deep else 3,
            magnitude=self.severity,
            bins=_BIN,
            std=inf,
            width=self.mixture_width,
            is_deep=is_deep,
            alpha=self.alpha,
        )

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        del words
        raise PipelineError("aug_mix: no fixed op adds images up: verify the pipeline without it")


class _TimmPolicy(_Policy, frozen=True, kw_only=True):
    filter: WarpFilter = "bicubic"
    fill: Levels | None = 128
    like: Literal["pillow"] = "pillow"


class TimmRandAugment(_TimmPolicy, frozen=True, tag="timm_rand_augment"):
    """Do a few steps that are chosen anew for each image, all of about one strength.

    timm's ``RandAugment``, which a recipe names like ``rand-m9-mstd0.5-inc1``. Each step is one of AutoContrast,
    Equalize, Invert, Rotate, Posterize, Solarize, SolarizeAdd, Color, Contrast, Brightness, Sharpness, ShearX, ShearY,
    TranslateX and TranslateY, each as likely, also twice. Half of the rotations, shears and translations are negative.

    Args:
        num_ops: steps an image: ``n``.
        magnitude: their strength, 0 to ``magnitude_max``: ``m``.
        magnitude_std: its standard deviation: ``mstd``; ``uniform``: any strength from 0 to ``magnitude``.
        magnitude_max: what is over it becomes it: ``mmax``.
        p: how often each of the steps is done.
        increasing: colours, posterize and solarize change more the stronger they are, and half of the factors are
            below 1: ``inc``. Else a factor is 0.1 to 1.9, and 1 is in the middle of the strengths.
        weighted: as ``increasing``, but some steps are likelier, and none is done twice: ``tweights``.
        filter: of what moves pixels, ``nearest``, ``bilinear`` or ``bicubic``.
        fill: the colour of what is outside the image, 0 to 255: one number, or one a channel; timm's is its mean.
        like: ``pillow``: timm works on PIL images.
    """

    num_ops: int = 2
    magnitude: float = 10.0
    magnitude_std: float | Literal["uniform"] = 0.0
    magnitude_max: float = 10.0
    p: float = 0.5
    increasing: bool = False
    weighted: bool = False

    @property
    def table(self) -> Table:
        """See ``_Policy.table``."""
        return "timm_weighted" if self.weighted else "timm_increasing" if self.increasing else "timm"

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        _check_count(self.num_ops, len(WEIGHTS) if self.weighted else MAX_OPS)
        check_range("p", self.p, 0, 1)
        for name in ("magnitude", "magnitude_std", "magnitude_max"):
            value = getattr(self, name)
            check_range(name, 0 if value == "uniform" else value, 0, MAX_LEVEL)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return self.policed(
            before,
            key,
            count=self.num_ops,
            magnitude=self.magnitude,
            bins=TIMM_BINS,
            p=self.p,
            std=inf if self.magnitude_std == "uniform" else self.magnitude_std,
            most=self.magnitude_max,
        )
