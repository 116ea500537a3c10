"""Ops that choose, for each image, which steps on levels are done to it: in training only, as torchvision v2 and timm.

``pixprep.plan.draws.kinds`` has the tables, and ``plan.draws.policies`` what is drawn.
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
from pixprep.pipeline.ops.limits import Colour, Share, Within
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, SteadyOp, Whether, drawn, op_name
from pixprep.pipeline.ops.warp import Affine, Rotate, check_warp, look
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.kinds import KINDS, MOVING, TIMM, TIMM_BINS, WEIGHTS, AutoPolicy, Table
from pixprep.plan.draws.motions import Look
from pixprep.plan.draws.philox import Words
from pixprep.plan.draws.policies import Rules, gammas, shares, threshold_of
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps.levels import LevelStep, Mix, folded
from pixprep.spec import Color, ColorLike, Levels, WarpFilter

MAX_BINS = 1000
MAX_OPS = 20
MAX_LEVEL = 100
MIN_ALPHA = 0.05
"""The least alpha: below it, float64 may hold none of the numbers whose shares are the weights."""
_BIN = 10
"""Bins of an ``AutoAugment`` of torchvision's, and of an ``AugMix``."""
MarginOrNone = Annotated[Levels | None, Colour()]
Bins = Annotated[int, Within(2, MAX_BINS)]
Count = Annotated[int, Within(0, MAX_OPS)]


_TIMM_MATRIX = (("", 1.0), ("ShearX", 0.0), ("TranslateX", 0.0), ("ShearY", 0.0), ("", 1.0), ("TranslateY", 0.0))
"""Matrix of timm's warps: the step whose magnitude stands there, and the number where it is another step."""


class _Policy(Drawn, LevelsOp, frozen=True, kw_only=True):
    moves: ClassVar[bool] = True

    filter: WarpFilter | Literal["random"] = "nearest"
    fill: MarginOrNone = None
    like: ColorLike = "pillow"

    @property
    def rules(self) -> Rules:
        """Rules by which steps are chosen."""
        raise NotImplementedError

    @property
    def table(self) -> Table:
        """Kinds and magnitudes of the library."""
        return self.rules.table

    def check(self) -> None:
        check_warp(self.like, self._filter({}))
        if self.filter == "random" and self.table not in TIMM:
            raise PipelineError('"filter": "random" is of timm\'s policies')
        if self.table in TIMM and self.like != "pillow":
            raise PipelineError(f'"like" must be "pillow", not "{self.like}": timm works on PIL images')

    @property
    def blocks(self) -> int:
        """One a step: which, how strong, its sign, and whether; and a number each for a random filter."""
        return self.rules.steps + (-(-self.rules.steps // 4) if self.filter == "random" else 0)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """The steps: ``{"ops": [{"op": "ShearX", "magnitude": -0.09}, {"op": "Equalize"}]}``."""
        steps = self.rules.steps
        rows = uniforms(0, steps).tolist() if steps else []
        if self.filter == "random":
            filters = uniforms(steps, self.blocks - steps).ravel().tolist()
            rows = [[*row, which] for row, which in zip(rows, filters, strict=False)]
        return {"ops": self.rules.drawn(rows, height, width)}

    def in_words(self) -> str:
        return f"{self.rules}{self._look('rgb', {})}{', or bilinear' * (self.filter == 'random')}"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        made: list[LevelStep] = []
        table = self.table
        for each in words["ops"]:
            name = each["op"]
            if name not in KINDS[table]:
                raise PipelineError(f'no draw of a policy is "{name}"; there are {", ".join(KINDS[table])}')
            if table in TIMM and name in MOVING[:4]:  # by the number itself, and not its angle
                matrix = tuple(each["magnitude"] if place == name else number for place, number in _TIMM_MATRIX)
                made.append(self._look(color, each).warp(matrix, (height, width)))
                continue
            for op in self._fixed(table, each, self.fill):
                made += op.steps({}, height, width, color)
        return tuple(made)

    def _filter(self, step: Words) -> WarpFilter:
        """The filter of a step that moves pixels; of one that does not, any."""
        drawn: WarpFilter = step.get("filter", "bicubic")
        return drawn if self.filter == "random" else self.filter

    def _look(self, color: Color, step: Words) -> Look:
        return look(self._filter(step), self.fill, self.like, color)

    def fixed(self, words: Words) -> list[Op]:
        moves = any(each["op"] in MOVING for each in words["ops"])
        if moves and self.fill is None and self.filter in WARPS[self.like].mixes_fill:
            raise PipelineError(f'{op_name(self)}: a "fill" that is null is of no fixed op: verify it with 0')
        fill, table = 0 if self.fill is None else self.fill, self.table
        return [op for each in words["ops"] for op in self._fixed(table, each, fill)]

    def _fixed(self, table: Table, step: Words, fill: Levels | None) -> list[SteadyOp]:
        """One step, by the library's rules; ``fill`` of None: black, as ``rand_augment`` has it."""
        name, magnitude = step["op"], step.get("magnitude", 0.0)
        is_x, still = name.endswith("X"), _still(self._filter(step), self.like)

        def moved(**fields: object) -> list[SteadyOp]:
            return [drawn(still["Affine"], fill=fill, **fields)]

        match name:
            case "Identity":
                return []
            case "ShearX" | "ShearY":  # torchvision shears by an angle, about the first pixel
                angle = degrees(atan(magnitude))
                return moved(shear=(angle, 0.0) if is_x else (0.0, angle), center=(0.0, 0.0))
            case "TranslateX" | "TranslateY" if table in TIMM:  # of parts of pixels, the other way
                return moved(translate=(-magnitude, 0.0) if is_x else (0.0, -magnitude), center=(0.0, 0.0))
            case "TranslateX" | "TranslateY":
                pixels = float(int(magnitude))
                return moved(translate=(pixels, 0.0) if is_x else (0.0, pixels))
            case "Rotate":
                return [drawn(still[name], angle=magnitude, fill=fill)]
            case "Posterize":  # timm's may be 12, and 0, which is black
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
        return [drawn(still[name], factor=1.0 + magnitude)]


@cache
def _still(filter_: WarpFilter, like: ColorLike) -> dict[str, SteadyOp]:
    """Ops that change nothing, to be ``drawn``."""
    factors = {"Brightness": Brightness, "Color": Saturation, "Contrast": Contrast, "Sharpness": Sharpness}
    return {
        "Affine": Affine(filter=filter_, like=like),
        "Rotate": Rotate(angle=0.0, filter=filter_, like=like),
        **{name: kind(factor=1.0, like=like) for name, kind in factors.items()},
    }


class _PolicyOfOneFilter(_Policy, frozen=True, kw_only=True):
    filter: WarpFilter = "nearest"


class RandAugment(Whether, _PolicyOfOneFilter, frozen=True, tag="rand_augment"):
    """Applies a few random steps to each image, all with one magnitude.

    The op equals torchvision v2's ``RandAugment``. Each step is one of Identity, ShearX, ShearY, TranslateX,
    TranslateY, Rotate, Brightness, Color, Contrast, Sharpness, Posterize, Solarize, AutoContrast and Equalize; all are
    equally likely and may repeat. For the steps from ShearX to Sharpness, the magnitude is negative half of the time. A
    shear keeps the first pixel in place.

    Args:
        num_ops: Number of steps per image.
        magnitude: Index of the magnitude's bin; 0 changes least.
        num_magnitude_bins: Number of bins.
        p: Probability that the op is applied, 0 to 1.
        filter: Interpolation filter of geometric steps: ``nearest``, ``bilinear`` or, with ``"like": "pillow"``,
            ``bicubic``.
        fill: Color outside the image, 0 to 255: one number, or one per channel. null is black, except that
            torchvision's bilinear filter differs from 0 at the edge.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "rand_augment", "num_ops": 2, "magnitude": 9}
    """

    num_ops: Count = 2
    magnitude: int = 9
    num_magnitude_bins: Bins = 31
    p: Share = 1.0

    def check(self) -> None:
        super().check()
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise PipelineError(
                f'"magnitude" must be 0 to {self.num_magnitude_bins - 1}, '
                f'below "num_magnitude_bins", not {self.magnitude}'
            )

    @property
    def rules(self) -> Rules:
        return Rules("rand", self.num_ops, self.magnitude, self.num_magnitude_bins)


class TrivialAugment(Whether, _PolicyOfOneFilter, frozen=True, tag="trivial_augment"):
    """Applies one random step with a random magnitude to each image.

    The op equals torchvision v2's ``TrivialAugmentWide``. The steps are those of ``rand_augment``, with a wider range
    of magnitudes.

    Args:
        num_magnitude_bins: Number of magnitudes of a step, which are equally likely.
        p: Probability that the op is applied, 0 to 1.
        filter, fill, like: as in ``rand_augment``.

    Example:
        {"op": "trivial_augment"}
    """

    num_magnitude_bins: Bins = 31
    p: Share = 1.0

    @property
    def rules(self) -> Rules:
        return Rules("trivial", 1, None, self.num_magnitude_bins)


class AutoAugment(Whether, _Policy, frozen=True, tag="auto_augment"):
    """Applies the two steps of a random pair out of 25 to each image, each step with the pair's probability.

    The op equals torchvision v2's ``AutoAugment``, and timm's, which has different magnitudes.

    Args:
        policy: Set of pairs. torchvision's sets are ``imagenet``, ``cifar10`` and ``svhn``. timm's are ``original``,
            the pairs of ``imagenet``; ``v0``, EfficientNet's; and ``originalr`` and ``v0r``, in which a stronger
            posterize keeps fewer bits.
        magnitude_std: Standard deviation of each magnitude, for timm's policies.
        p: Probability that the op is applied, 0 to 1.
        filter, fill: as in ``rand_augment``; timm's policies also support ``"filter": "random"``, as in
            ``timm_rand_augment``.
        like: Library whose rounding the op reproduces; ``pillow`` for timm's policies.

    Example:
        {"op": "auto_augment", "policy": "imagenet"}
    """

    policy: AutoPolicy = "imagenet"
    magnitude_std: Annotated[float, Within(0, MAX_LEVEL)] = 0.0
    p: Share = 1.0

    def check(self) -> None:
        super().check()
        if self.magnitude_std and self.policy not in TIMM:
            raise PipelineError(f'"magnitude_std" is of timm\'s policies, and "{self.policy}" is torchvision\'s')

    @property
    def rules(self) -> Rules:
        bins, most = (TIMM_BINS, TIMM_BINS - 1.0) if self.policy in TIMM else (_BIN, inf)
        return Rules(self.policy, 2, None, bins, std=self.magnitude_std, most=most)


class AugMix(Whether, _Policy, frozen=True, kw_only=True, tag="aug_mix"):
    """Mixes the image with a few random chains of steps, with random weights.

    The op equals torchvision v2's ``AugMix``, which converts a PIL image to a tensor, so its rounding is that of
    tensors. Each step is one of ShearX, ShearY, TranslateX, TranslateY, Rotate, Posterize, Solarize, AutoContrast,
    Equalize, Brightness, Color, Contrast and Sharpness; all are equally likely. Ops that need the position of a pixel
    in the photo cannot follow this op.

    Args:
        filter: Interpolation filter of geometric steps: ``nearest`` or ``bilinear``.
        fill: as in ``rand_augment``.
        like: Library whose rounding the op reproduces.
        severity: Number of the lowest of a step's 10 magnitudes from which one is drawn; all are equally likely.
        mixture_width: Number of chains.
        chain_depth: Number of steps per chain; -1: 1 to 3, equally likely.
        alpha: Parameter of the Dirichlet distributions, from which the weights of the image and of the chains are
            drawn.
        all_ops: Whether Brightness, Color, Contrast and Sharpness are included.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "aug_mix"}
    """

    moves: ClassVar[bool] = False  # what it moves is added to what it does not
    is_hosts: ClassVar[bool] = True
    no_places: ClassVar[str] = (
        "nobody knows where a pixel came from behind aug_mix, which adds up those of several places: put this before it"
    )

    severity: Annotated[int, Within(1, _BIN)] = 3
    mixture_width: Annotated[int, Within(1, MAX_OPS)] = 3
    chain_depth: int = -1
    alpha: Annotated[float, Within(MIN_ALPHA, MAX_LEVEL)] = 1.0
    all_ops: bool = True
    filter: Literal["nearest", "bilinear"] = "bilinear"
    like: Literal["torchvision"] = "torchvision"
    p: Share = 1.0

    def check(self) -> None:
        super().check()
        if self.chain_depth != -1 and not 1 <= self.chain_depth <= MAX_OPS:
            raise PipelineError(f'"chain_depth" must be 1 to {MAX_OPS}, or -1, which is 1 to 3, not {self.chain_depth}')

    @property
    def rules(self) -> Rules:
        depth = self.chain_depth if self.chain_depth > 0 else 3
        return Rules("mix" if self.all_ops else "mix_partial", depth, self.severity, _BIN, std=inf)

    @property
    def blocks(self) -> int:
        """One a step, the last number of a chain's first how many it has; one or more for each weight."""
        return self.mixture_width * (self.rules.steps + 1) + 2

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"weights": [0.5, 0.2, 0.3], "chains": [[{"op": "Equalize"}], [{"op": "Rotate", "magnitude": 3.3}]]}``.

        The first weight is of the image itself.
        """
        rules = self.rules
        rows = uniforms(0, self.mixture_width * rules.steps).tolist()
        chains = []
        for begin in range(0, len(rows), rules.steps):
            depth = rules.steps if self.chain_depth > 0 else 1 + int(rows[begin][3] * rules.steps)
            chains.append(rules.drawn(rows[begin : begin + depth], height, width))
        parts = gammas(self.alpha, uniforms, len(rows), 2 + self.mixture_width)
        own, shared = shares(parts[:2])
        return {"weights": [float(own), *(shares(parts[2:]) * shared).tolist()], "chains": chains}

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        chains = (super(AugMix, self).steps({"ops": chain}, height, width, color) for chain in words["chains"])
        return (Mix(tuple(words["weights"]), tuple(map(folded, chains))),)

    def in_words(self) -> str:
        rules = self.rules
        steps = rules.steps if self.chain_depth > 0 else f"1 to {rules.steps}"
        kinds = f"AugMix's {len(KINDS[rules.table])} steps, any of the {self.severity:g} least of {_BIN} strengths"
        return f"add the image and {self.mixture_width} chains of {steps} of {kinds}{self._look('rgb', {})}"

    def fixed(self, words: Words) -> list[Op]:
        raise PipelineError("aug_mix: no fixed op adds images up: verify the pipeline without it")


class _TimmPolicy(_Policy, frozen=True, kw_only=True):
    filter: WarpFilter | Literal["random"] = "bicubic"
    fill: MarginOrNone = 128
    like: Literal["pillow"] = "pillow"


class TimmRandAugment(_TimmPolicy, frozen=True, tag="timm_rand_augment"):
    """Applies a few random steps to each image, all with about the same magnitude.

    The op equals timm's ``RandAugment``, which recipes name like ``rand-m9-mstd0.5-inc1``. Each step is one of
    AutoContrast, Equalize, Invert, Rotate, Posterize, Solarize, SolarizeAdd, Color, Contrast, Brightness, Sharpness,
    ShearX, ShearY, TranslateX and TranslateY; all are equally likely and may repeat. Half of the rotations, shears and
    translations are negative.

    Args:
        num_ops: Number of steps per image, timm's ``n``.
        magnitude: Magnitude of the steps, 0 to ``magnitude_max``, timm's ``m``.
        magnitude_std: Standard deviation of the magnitude, timm's ``mstd``. ``uniform`` draws the magnitude from 0 to
            ``magnitude``.
        magnitude_max: Maximum magnitude, timm's ``mmax``; larger magnitudes are clipped to it.
        p: Probability of each step, 0 to 1.
        increasing: Whether color steps, posterize and solarize change more with a larger magnitude, and half of the
            factors are below 1, timm's ``inc``. Otherwise, a factor is 0.1 to 1.9, and the middle magnitude is a factor
            of 1.
        weighted: Whether the steps are chosen as with ``increasing``, but some with a higher probability and none
            twice, timm's ``tweights``.
        filter: Interpolation filter of geometric steps: ``nearest``, ``bilinear`` or ``bicubic``. ``random`` draws
            bilinear or bicubic for each step.
        fill: Color outside the image, 0 to 255: one number, or one per channel; timm uses its mean.
        like: Library whose rounding the op reproduces: timm processes PIL images.

    Example:
        {"op": "timm_rand_augment", "magnitude": 9, "magnitude_std": 0.5, "increasing": true}
    """

    num_ops: Count = 2
    magnitude: Annotated[float, Within(0, MAX_LEVEL)] = 10.0
    magnitude_std: float | Literal["uniform"] = 0.0
    magnitude_max: Annotated[float, Within(0, MAX_LEVEL)] = 10.0
    p: Share = 0.5
    increasing: bool = False
    weighted: bool = False

    def check(self) -> None:
        super().check()
        if self.weighted:
            Within(0, len(WEIGHTS)).check("num_ops", self.num_ops)
        if self.magnitude_std != "uniform":
            Within(0, MAX_LEVEL).check("magnitude_std", self.magnitude_std)

    @property
    def rules(self) -> Rules:
        table: Table = "timm_weighted" if self.weighted else "timm_increasing" if self.increasing else "timm"
        std = inf if self.magnitude_std == "uniform" else self.magnitude_std
        return Rules(table, self.num_ops, self.magnitude, TIMM_BINS, self.p, std, self.magnitude_max)
