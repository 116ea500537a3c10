"""Augmentation policies of torchvision v2 and timm, for training: RandAugment, AutoAugment, TrivialAugment and AugMix.

A policy applies randomly chosen color and geometric operations, its steps, to each image. ``plan.draws.policies``
contains the tables of operations and magnitudes, and samples from them.
"""

from __future__ import annotations

from functools import cache
from math import atan, degrees, inf
from typing import Annotated, ClassVar, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.color import (
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
from pixprep.pipeline.ops.filters import Sharpness
from pixprep.pipeline.ops.limits import Colour, Fraction, Within
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, SteadyOp, Whether, drawn, op_name
from pixprep.pipeline.ops.warp import Affine, Rotate, check_warp, look
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.motions import Look
from pixprep.plan.draws.philox import Words
from pixprep.plan.draws.policies import (
    KINDS,
    MOVING,
    TIMM,
    TIMM_BINS,
    WEIGHTS,
    AutoPolicy,
    Rules,
    Table,
    gammas,
    shares,
    threshold_of,
)
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps.levels import LevelStep, Mix, folded
from pixprep.spec import Color, ColorLike, Levels, WarpFilter

MAX_BINS = 1000
MAX_OPS = 20
MAX_MAGNITUDE = 100
MIN_ALPHA = 0.05
"""Minimum alpha; below it, sampling from the Dirichlet distribution can underflow in float64."""
_NUM_BINS = 10
"""Number of magnitude bins of torchvision's ``AutoAugment`` and ``AugMix``."""
FillColorOrNone = Annotated[Levels | None, Colour()]
Bins = Annotated[int, Within(2, MAX_BINS)]
Count = Annotated[int, Within(0, MAX_OPS)]


_TIMM_MATRIX = (("", 1.0), ("ShearX", 0.0), ("TranslateX", 0.0), ("ShearY", 0.0), ("", 1.0), ("TranslateY", 0.0))
"""Affine matrix of timm's warps, row by row.

Each entry is a pair: the operation whose magnitude becomes the entry, and the value of the entry for other operations.
"""


class _Policy(Drawn, LevelsOp, frozen=True, kw_only=True):
    """Base of the policies."""

    moves: ClassVar[bool] = True

    filter: WarpFilter | Literal["random"] = "nearest"
    fill: FillColorOrNone = None
    like: ColorLike = "pillow"

    @property
    def rules(self) -> Rules:
        """Rules that sample the steps and their magnitudes."""
        raise NotImplementedError

    @property
    def table(self) -> Table:
        """Operations that the policy may apply, with their magnitudes."""
        return self.rules.table

    def check(self) -> None:
        check_warp(self.like, self._filter({}))
        if self.filter == "random" and self.table not in TIMM:
            raise PipelineError('"filter": "random" is supported only by timm\'s policies')
        if self.table in TIMM and self.like != "pillow":
            raise PipelineError(
                f'"like" must be "pillow", not "{self.like}", because timm\'s policies process PIL images'
            )

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers.

        Each step uses a block for its operation, its magnitude, its sign, and whether it is applied. A random filter
        uses one more number per step.
        """
        return self.rules.steps + (-(-self.rules.steps // 4) if self.filter == "random" else 0)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the steps for an image: ``{"ops": [{"op": "ShearX", "magnitude": -0.09}, {"op": "Equalize"}]}``."""
        steps = self.rules.steps
        rows = uniforms(0, steps).tolist() if steps else []
        if self.filter == "random":
            u_filters = uniforms(steps, self.blocks - steps).ravel().tolist()
            rows = [[*row, u_filter] for row, u_filter in zip(rows, u_filters, strict=False)]
        return {"ops": self.rules.drawn(rows, height, width)}

    def in_words(self) -> str:
        return f"{self.rules}{self._look('rgb', {})}{', or bilinear' * (self.filter == 'random')}"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        steps: list[LevelStep] = []
        table = self.table
        for each in words["ops"]:
            name = each["op"]
            if name not in KINDS[table]:
                raise PipelineError(
                    f'unknown operation "{name}" in the recorded parameters: the policy supports '
                    f"{', '.join(KINDS[table])}"
                )
            if table in TIMM and name in MOVING[:4]:  # timm uses the magnitude as a matrix entry, not as an angle
                matrix = tuple(each["magnitude"] if entry == name else value for entry, value in _TIMM_MATRIX)
                steps.append(self._look(color, each).warp(matrix, (height, width)))
                continue
            for op in self._fixed_ops(table, each, self.fill):
                steps += op.steps({}, height, width, color)
        return tuple(steps)

    def _filter(self, step: Words) -> WarpFilter:
        """Return the filter of a geometric step; the result has no effect on other steps."""
        random_filter: WarpFilter = step.get("filter", "bicubic")
        return random_filter if self.filter == "random" else self.filter

    def _look(self, color: Color, step: Words) -> Look:
        return look(self._filter(step), self.fill, self.like, color)

    def fixed_ops(self, words: Words) -> list[Op]:
        moves = any(each["op"] in MOVING for each in words["ops"])
        if moves and self.fill is None and self.filter in WARPS[self.like].mixes_fill:
            raise PipelineError(
                f'{op_name(self)}: "fill": null cannot be verified, because no op with fixed parameters supports it: '
                'verify the pipeline with "fill": 0'
            )
        fill, table = 0 if self.fill is None else self.fill, self.table
        return [op for each in words["ops"] for op in self._fixed_ops(table, each, fill)]

    def _fixed_ops(self, table: Table, step: Words, fill: Levels | None) -> list[SteadyOp]:
        """Return the ops with fixed parameters that are equivalent to a sampled step.

        Args:
            table: Table of the policy.
            step: Operation with its magnitude, if any.
            fill: Fill color of geometric steps; None: see ``fill`` of ``RandAugment``.
        """
        name, magnitude = step["op"], step.get("magnitude", 0.0)
        is_x, identity = name.endswith("X"), _identity_ops(self._filter(step), self.like)

        def affine(**fields: object) -> list[SteadyOp]:
            return [drawn(identity["Affine"], fill=fill, **fields)]

        match name:
            case "Identity":
                return []
            case "ShearX" | "ShearY":  # torchvision shears by an angle about the first pixel
                angle = degrees(atan(magnitude))
                return affine(shear=(angle, 0.0) if is_x else (0.0, angle), center=(0.0, 0.0))
            case "TranslateX" | "TranslateY" if table in TIMM:  # not truncated, and in the opposite direction
                return affine(translate=(-magnitude, 0.0) if is_x else (0.0, -magnitude), center=(0.0, 0.0))
            case "TranslateX" | "TranslateY":
                pixels = float(int(magnitude))
                return affine(translate=(pixels, 0.0) if is_x else (0.0, pixels))
            case "Rotate":
                return [drawn(identity[name], angle=magnitude, fill=fill)]
            case "Posterize":  # timm's number of bits may exceed 8; 0 bits make the image black
                return [Posterize(min(8, int(magnitude))) if magnitude >= 1 else Brightness(factor=0.0)]
            case "Solarize":
                threshold = threshold_of(table, magnitude, self.like)
                return [Solarize(threshold)] if threshold <= 255 else []
            case "SolarizeAdd":
                return [SolarizeAdd(int(magnitude))]
            case "AutoContrast":
                return [Autocontrast(like=self.like)]
            case "Equalize" | "Invert":
                return [Equalize() if name == "Equalize" else Invert()]
        return [drawn(identity[name], factor=1.0 + magnitude)]


@cache
def _identity_ops(filter_: WarpFilter, like: ColorLike) -> dict[str, SteadyOp]:
    """Return ops that do not change the image; ``drawn`` makes copies of them with sampled parameters."""
    factors = {"Brightness": Brightness, "Color": Saturation, "Contrast": Contrast, "Sharpness": Sharpness}
    return {
        "Affine": Affine(filter=filter_, like=like),
        "Rotate": Rotate(angle=0.0, filter=filter_, like=like),
        **{name: kind(factor=1.0, like=like) for name, kind in factors.items()},
    }


class _SingleFilterPolicy(_Policy, frozen=True, kw_only=True):
    """Base of the policies that do not support ``"filter": "random"``."""

    filter: WarpFilter = "nearest"


class RandAugment(Whether, _SingleFilterPolicy, frozen=True, tag="rand_augment"):
    """Applies several random operations to each image, all with the same magnitude.

    The op reproduces torchvision v2's ``RandAugment``. Each operation is one of Identity, ShearX, ShearY, TranslateX,
    TranslateY, Rotate, Brightness, Color, Contrast, Sharpness, Posterize, Solarize, AutoContrast and Equalize; all are
    equally likely and may repeat. For the operations from ShearX to Sharpness, the magnitude is negative with
    probability 0.5. Shears keep the first pixel fixed.

    Args:
        num_ops: Number of operations per image.
        magnitude: Index of the magnitude bin; 0 is the weakest.
        num_magnitude_bins: Number of magnitude bins.
        p: Probability that the op is applied, 0 to 1.
        filter: Interpolation filter of geometric operations: ``nearest``, ``bilinear`` or, with ``"like": "pillow"``,
            ``bicubic``.
        fill: Color outside the image, 0 to 255: one number, or one per channel. null means black; with torchvision's
            bilinear filter, null and 0 yield different pixels at the edge of the image.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "rand_augment", "num_ops": 2, "magnitude": 9}
    """

    num_ops: Count = 2
    magnitude: int = 9
    num_magnitude_bins: Bins = 31
    p: Fraction = 1.0

    def check(self) -> None:
        super().check()
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise PipelineError(
                f'"magnitude" must be 0 to {self.num_magnitude_bins - 1}, not {self.magnitude}: it is an index '
                'below "num_magnitude_bins"'
            )

    @property
    def rules(self) -> Rules:
        return Rules("rand", self.num_ops, self.magnitude, self.num_magnitude_bins)


class TrivialAugment(Whether, _SingleFilterPolicy, frozen=True, tag="trivial_augment"):
    """Applies one random operation with a random magnitude to each image.

    The op reproduces torchvision v2's ``TrivialAugmentWide``. The operations are those of ``rand_augment``, with a
    wider range of magnitudes.

    Args:
        num_magnitude_bins: Number of magnitude bins per operation; all bins are equally likely.
        p: Probability that the op is applied, 0 to 1.
        filter, fill, like: as in ``rand_augment``.

    Example:
        {"op": "trivial_augment"}
    """

    num_magnitude_bins: Bins = 31
    p: Fraction = 1.0

    @property
    def rules(self) -> Rules:
        return Rules("trivial", 1, None, self.num_magnitude_bins)


class AutoAugment(Whether, _Policy, frozen=True, tag="auto_augment"):
    """Applies one of 25 sub-policies, chosen at random, to each image: two operations, each with its own probability.

    The op reproduces torchvision v2's ``AutoAugment``, and timm's ``AutoAugment``, which uses different magnitudes.

    Args:
        policy: Set of sub-policies. torchvision's sets are ``imagenet``, ``cifar10`` and ``svhn``. timm's sets are
            ``original``, which has the sub-policies of ``imagenet``; ``v0``, from EfficientNet; and ``originalr`` and
            ``v0r``, where Posterize keeps fewer bits at larger magnitudes.
        magnitude_std: Standard deviation of the magnitudes, for timm's policies.
        p: Probability that the op is applied, 0 to 1.
        filter, fill: as in ``rand_augment``; timm's policies also support ``"filter": "random"``, as in
            ``timm_rand_augment``.
        like: Library whose rounding the op reproduces; ``pillow`` for timm's policies.

    Example:
        {"op": "auto_augment", "policy": "imagenet"}
    """

    policy: AutoPolicy = "imagenet"
    magnitude_std: Annotated[float, Within(0, MAX_MAGNITUDE)] = 0.0
    p: Fraction = 1.0

    def check(self) -> None:
        super().check()
        if self.magnitude_std and self.policy not in TIMM:
            raise PipelineError(
                f'"magnitude_std" is supported only by timm\'s policies, but "{self.policy}" is torchvision\'s'
            )

    @property
    def rules(self) -> Rules:
        bins, max_bin = (TIMM_BINS, TIMM_BINS - 1.0) if self.policy in TIMM else (_NUM_BINS, inf)
        return Rules(self.policy, 2, None, bins, std=self.magnitude_std, most=max_bin)


class AugMix(Whether, _Policy, frozen=True, kw_only=True, tag="aug_mix"):
    """Mixes the image with several randomly augmented copies of it, with random weights.

    The op reproduces torchvision v2's ``AugMix``, which converts a PIL image to a tensor, so values are rounded as for
    tensors. Each copy is the result of a chain of operations: ShearX, ShearY, TranslateX, TranslateY, Rotate,
    Posterize, Solarize, AutoContrast, Equalize, Brightness, Color, Contrast or Sharpness, which are equally likely.
    Outputs with pixel coordinates, such as boxes and ``transform``, are not supported after this op.

    Args:
        filter: Interpolation filter of geometric operations: ``nearest`` or ``bilinear``.
        fill: as in ``rand_augment``.
        like: Library whose rounding the op reproduces.
        severity: Number of magnitudes to sample from, 1 to 10. The magnitude is sampled uniformly from the
            ``severity`` weakest of ten magnitudes.
        mixture_width: Number of augmentation chains.
        chain_depth: Number of operations per chain. -1 samples it from 1 to 3, with equal probability.
        alpha: Parameter of the Dirichlet distributions from which the weights of the image and of the chains are
            sampled.
        all_ops: Whether Brightness, Color, Contrast and Sharpness are included.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "aug_mix"}
    """

    moves: ClassVar[bool] = False  # the result contains the image itself, which does not move
    is_hosts: ClassVar[bool] = True
    no_places: ClassVar[str] = (
        "pixels have no unique source position after aug_mix, which adds several moved copies of the image: put this "
        "op before it"
    )

    severity: Annotated[int, Within(1, _NUM_BINS)] = 3
    mixture_width: Annotated[int, Within(1, MAX_OPS)] = 3
    chain_depth: int = -1
    alpha: Annotated[float, Within(MIN_ALPHA, MAX_MAGNITUDE)] = 1.0
    all_ops: bool = True
    filter: Literal["nearest", "bilinear"] = "bilinear"
    like: Literal["torchvision"] = "torchvision"
    p: Fraction = 1.0

    def check(self) -> None:
        super().check()
        if self.chain_depth != -1 and not 1 <= self.chain_depth <= MAX_OPS:
            raise PipelineError(
                f'"chain_depth" must be 1 to {MAX_OPS}, or -1 for a random depth of 1 to 3, not {self.chain_depth}'
            )

    @property
    def rules(self) -> Rules:
        depth = self.chain_depth if self.chain_depth > 0 else 3
        return Rules("mix" if self.all_ops else "mix_partial", depth, self.severity, _NUM_BINS, std=inf)

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers.

        Each operation uses one block; the last number of a chain's first block determines the depth of the chain. Each
        gamma variable of the weights uses one or more blocks.
        """
        return self.mixture_width * (self.rules.steps + 1) + 2

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the weights and the chains for an image.

        Returns:
            ``{"weights": [0.5, 0.2, 0.3], "chains": [[{"op": "Equalize"}], [{"op": "Rotate", "magnitude": 3.3}]]}``.
            The first weight is that of the image itself.
        """
        rules = self.rules
        rows = uniforms(0, self.mixture_width * rules.steps).tolist()
        chains = []
        for begin in range(0, len(rows), rules.steps):
            depth = rules.steps if self.chain_depth > 0 else 1 + int(rows[begin][3] * rules.steps)
            chains.append(rules.drawn(rows[begin : begin + depth], height, width))
        gamma_variables = gammas(self.alpha, uniforms, len(rows), 2 + self.mixture_width)
        image_weight, chains_weight = shares(gamma_variables[:2])
        chain_weights = shares(gamma_variables[2:]) * chains_weight
        return {"weights": [float(image_weight), *chain_weights.tolist()], "chains": chains}

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        chains = (super(AugMix, self).steps({"ops": chain}, height, width, color) for chain in words["chains"])
        return (Mix(tuple(words["weights"]), tuple(map(folded, chains))),)

    def in_words(self) -> str:
        rules = self.rules
        steps = rules.steps if self.chain_depth > 0 else f"1 to {rules.steps}"
        kinds = (
            f"AugMix's {len(KINDS[rules.table])} operations, with any of the {self.severity:g} weakest of {_NUM_BINS} "
            "magnitudes"
        )
        return f"mix the image and {self.mixture_width} chains of {steps} of {kinds}{self._look('rgb', {})}"

    def fixed_ops(self, words: Words) -> list[Op]:
        raise PipelineError("aug_mix: no op with fixed parameters mixes images: verify the pipeline without it")


class _TimmPolicy(_Policy, frozen=True, kw_only=True):
    """Base of the policies with timm's defaults."""

    filter: WarpFilter | Literal["random"] = "bicubic"
    fill: FillColorOrNone = 128
    like: Literal["pillow"] = "pillow"


class TimmRandAugment(_TimmPolicy, frozen=True, tag="timm_rand_augment"):
    """Applies several random operations to each image, all with a similar magnitude.

    The op reproduces timm's ``RandAugment``, which recipes specify as in ``rand-m9-mstd0.5-inc1``. Each operation is
    one of AutoContrast, Equalize, Invert, Rotate, Posterize, Solarize, SolarizeAdd, Color, Contrast, Brightness,
    Sharpness, ShearX, ShearY, TranslateX and TranslateY; all are equally likely and may repeat. Rotations, shears and
    translations are negative with probability 0.5.

    Args:
        num_ops: Number of operations per image, timm's ``n``.
        magnitude: Magnitude of the operations, 0 to ``magnitude_max``, timm's ``m``.
        magnitude_std: Standard deviation of the magnitude, timm's ``mstd``. ``uniform`` samples the magnitude uniformly
            from 0 to ``magnitude``.
        magnitude_max: Maximum magnitude, timm's ``mmax``; larger magnitudes are clipped to it.
        p: Probability that each operation is applied, 0 to 1.
        increasing: Whether the effect of color operations, Posterize and Solarize increases with the magnitude (timm's
            ``inc``). Color factors are then below 1 with probability 0.5. By default, a color factor increases from 0.1
            to 1.9 with the magnitude, and is 1 at a magnitude of 5.
        weighted: Whether operations are sampled without replacement, with timm's weights (``tweights``). The magnitudes
            are those of ``increasing``.
        filter: Interpolation filter of geometric operations: ``nearest``, ``bilinear`` or ``bicubic``. ``random``
            chooses bilinear or bicubic for each operation.
        fill: Color outside the image, 0 to 255: one number, or one per channel. timm uses the mean of the data set.
        like: Library whose rounding the op reproduces; timm processes PIL images.

    Example:
        {"op": "timm_rand_augment", "magnitude": 9, "magnitude_std": 0.5, "increasing": true}
    """

    num_ops: Count = 2
    magnitude: Annotated[float, Within(0, MAX_MAGNITUDE)] = 10.0
    magnitude_std: float | Literal["uniform"] = 0.0
    magnitude_max: Annotated[float, Within(0, MAX_MAGNITUDE)] = 10.0
    p: Fraction = 0.5
    increasing: bool = False
    weighted: bool = False

    def check(self) -> None:
        super().check()
        if self.weighted:
            Within(0, len(WEIGHTS)).check("num_ops", self.num_ops)
        if self.magnitude_std != "uniform":
            Within(0, MAX_MAGNITUDE).check("magnitude_std", self.magnitude_std)

    @property
    def rules(self) -> Rules:
        table: Table = "timm_weighted" if self.weighted else "timm_increasing" if self.increasing else "timm"
        std = inf if self.magnitude_std == "uniform" else self.magnitude_std
        return Rules(table, self.num_ops, self.magnitude, TIMM_BINS, self.p, std, self.magnitude_max)
