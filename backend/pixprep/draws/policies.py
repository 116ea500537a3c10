"""torchvision's ``RandAugment`` and ``TrivialAugmentWide``: which steps on levels, and how strong.

Both choose from fourteen kinds. The magnitudes of a kind are float32, evenly spaced in as many bins as wanted. Half of
those that may have a sign are negative. docs/decisions.md has what is odd about the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import atan, degrees
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from pixprep.draws.philox import F64, Numbers, Words
from pixprep.draws.warps import Look, Motion, mapped, rotated
from pixprep.errors import PipelineError
from pixprep.steps import levels
from pixprep.steps.levels import Blend, Filter, LevelStep, Tone

Table = Literal["rand", "trivial"]
_F32 = np.float32


class Kind(NamedTuple):
    """One kind of step that can be chosen.

    Attributes:
        ends: the first and the last magnitude; None: it has none.
        is_signed: half of its magnitudes are negative.
        is_whole: they are rounded to whole numbers.
        of: the side of the image that the last magnitude is a part of.
    """

    ends: tuple[float, float] | None = None
    is_signed: bool = False
    is_whole: bool = False
    of: Literal["height", "width"] | None = None

    def magnitude(self, index: int, bins: int, height: int, width: int) -> float:
        """Magnitude of a bin, without its sign."""
        assert self.ends is not None
        first, last = self.ends
        if self.is_whole:  # torchvision divides here
            return round(float(_F32(first) - _F32(index) / _F32((bins - 1) / (first - last))))
        side = {None: 1, "height": height, "width": width}[self.of]
        return spaced(first, last * side, bins, index)


def spaced(first: float, last: float, count: int, index: int) -> float:
    """An element of ``torch.linspace(first, last, count)``: float32, reckoned from the nearer end, rounded once."""
    step = float((_F32(last) - _F32(first)) / _F32(count - 1))
    if index < count // 2:
        return float(_F32(float(_F32(first)) + step * index))
    return float(_F32(float(_F32(last)) - step * (count - 1 - index)))


def _kinds(*, shear: float, shift: tuple[Kind, Kind], turn: float, blend: float, bits: float) -> Mapping[str, Kind]:
    """By name, in torchvision's order."""
    return {
        "Identity": Kind(),
        **dict.fromkeys(("ShearX", "ShearY"), Kind((0.0, shear), is_signed=True)),
        **dict(zip(("TranslateX", "TranslateY"), shift, strict=True)),
        "Rotate": Kind((0.0, turn), is_signed=True),
        **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), Kind((0.0, blend), is_signed=True)),
        "Posterize": Kind((8.0, bits), is_whole=True),
        "Solarize": Kind((1.0, 0.0)),
        "AutoContrast": Kind(),
        "Equalize": Kind(),
    }


_PART = (0.0, 150.0 / 331.0)
KINDS: Mapping[Table, Mapping[str, Kind]] = {
    "rand": _kinds(
        shear=0.3,
        shift=(Kind(_PART, is_signed=True, of="width"), Kind(_PART, is_signed=True, of="height")),
        turn=30.0,
        blend=0.9,
        bits=4.0,
    ),
    "trivial": _kinds(shear=0.99, shift=(Kind((0.0, 32.0), is_signed=True),) * 2, turn=135.0, blend=0.99, bits=2.0),
}
"""``rand``: of ``RandAugment``; ``trivial``: of ``TrivialAugmentWide``."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Steps that are chosen for each image, one after the other.

    Attributes:
        key: names its numbers.
        table: ``rand``, ``trivial``: whose kinds and magnitudes.
        count: of steps.
        magnitude: the bin of every step; None: drawn.
        bins: how many magnitudes a kind has.
        look: how a step moves pixels; ``like`` is whose rounding every step has.
    """

    key: str
    table: Table
    count: int
    magnitude: int | None
    bins: int
    look: Look
    is_pointwise: ClassVar[bool] = False
    keeps_places: ClassVar[bool] = False

    @property
    def blocks(self) -> int:
        """One a step: kind, bin, sign, and one that is not used."""
        return self.count

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The steps: ``{"ops": [{"op": "ShearX", "magnitude": -0.09}, {"op": "Equalize"}]}``."""
        del boxes
        kinds, chosen = KINDS[self.table], []
        names = tuple(kinds)
        for which, place, sign, _ in numbers.blocks(self.key, 0, self.count).tolist() if self.count else ():
            name = names[int(which * len(names))]
            kind = kinds[name]
            words: dict[str, str | float] = {"op": name}
            if kind.ends is not None:
                index = int(place * self.bins) if self.magnitude is None else self.magnitude
                size = kind.magnitude(index, self.bins, height, width)
                words["magnitude"] = 0.0 - size if kind.is_signed and sign < 0.5 else size
            chosen.append(words)
        return {"ops": chosen}

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Steps for an image of this size."""
        those = (self._steps(each["op"], each.get("magnitude", 0.0), height, width) for each in words["ops"])
        return tuple(step for steps in those for step in steps)

    def _steps(self, name: str, magnitude: float, height: int, width: int) -> tuple[LevelStep, ...]:
        like = self.look.like
        match name:
            case "ShearX" | "ShearY":  # torchvision shears by an angle, about the first pixel
                angle = degrees(atan(magnitude))
                shear = (angle, 0.0) if name == "ShearX" else (0.0, angle)
                return (mapped(height, width, Motion(shear=shear), replace(self.look, center=(0.0, 0.0))),)
            case "TranslateX" | "TranslateY":
                pixels = int(magnitude)
                shift = (pixels, 0) if name == "TranslateX" else (0, pixels)
                return (mapped(height, width, Motion(translate=shift), self.look),)
            case "Rotate":
                return rotated(height, width, magnitude, self.look)
            case "Brightness":
                return (levels.brightness(1.0 + magnitude, like),)
            case "Color":
                return (Blend("own", 1.0 + magnitude, like),)
            case "Contrast":
                return (Blend("mean", 1.0 + magnitude, like),)
            case "Sharpness":
                return (Filter("sharpness", like, 1.0 + magnitude),)
            case "Posterize":
                return (levels.posterize(int(magnitude)),)
            case "Solarize":
                threshold = 255 * magnitude
                if like == "torchvision":  # which compares levels with a float32
                    threshold = float(_F32(threshold))
                return (levels.solarize(threshold),)
            case "AutoContrast":
                return (Tone("autocontrast", like),)
            case "Equalize":
                return (Tone("equalize", "pillow"),)
            case "Identity":
                return ()
            case _:
                raise PipelineError(f'no draw of a policy is "{name}"; there are {", ".join(KINDS[self.table])}')

    def __str__(self) -> str:
        how = "any strength" if self.magnitude is None else f"strength {self.magnitude} of 0 to {self.bins - 1}"
        name = "RandAugment" if self.table == "rand" else "TrivialAugmentWide"
        return f"do {self.count} of {name}'s {len(KINDS[self.table])} steps, {how}{self.look}"
