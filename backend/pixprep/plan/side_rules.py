"""Implements the size rules of transformers, Pillow and MMOCR that keep the aspect ratio of the image."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

from pixprep.errors import ImageError
from pixprep.plan.sizes import Bounds, Size, Sizer, detr_size, max_detr_side
from pixprep.spec import upward

MAX_IDEFICS_SIDE = 4096
"""Maximum length in pixels of the longer side with the rule ``idefics3``."""

Rule = Literal[
    "shrink",
    "contain",
    "contain_down",
    "keep",
    "longer",
    "longer_down",
    "longer_even",
    "longer_half_up",
    "bounded",
    "multiple",
    "shorter_up",
    "shorter_even",
    "shorter_down",
    "shorter_half_up",
    "detr",
    "half",
    "idefics3",
    "idefics3_capped",
    "up",
    "thumbnail",
    "thumbnail_gap",
    "pillow_contain",
    "pillow_thumbnail",
    "text_max",
    "text_min",
    "text_long",
    "text_line",
    "nearer",
    "nearer_32",
    "square",
]


@dataclass(frozen=True)
class SideRule(Sizer):
    """Size rule that keeps the aspect ratio of the image, and rounds both sides to multiples of a number.

    Attributes:
        rule: Name of the formula; see the op ``resize_by_rule``.
        height, width: Requested size in pixels. Both are equal if the formula uses only one number.
        multiple: Both sides of the result are multiples of this number.
        min_side: Minimum length of both sides of the result. ``text_line`` limits only the width.
        max_side: Maximum length of the longer side of the result. ``text_line`` limits only the width.
        max_tiles: Maximum number of tiles of ``multiple`` pixels into which the result is split.
    """

    rule: Rule
    height: int
    width: int
    multiple: int = 1
    min_side: int = 1
    max_side: int | None = None
    max_tiles: int | None = None

    def size(self, height: int, width: int) -> Size:
        """Return the size of the result for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: A side of the result would be 0, or the longer side would be too long.
        """
        rows, columns = self._sides(height, width)
        if not (rows and columns):
            raise ImageError("DOES_NOT_FIT", f"a side of {height} x {width} pixels would be resized to 0")
        max_rows, max_columns = self.bounds.max_sides
        if (max_rows and rows > max_rows) or (max_columns and columns > max_columns):
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels would be resized to {rows} x {columns}, but the limit is {max_rows} x "
                f"{max_columns}",
            )
        return rows, columns

    def _sides(self, height: int, width: int) -> Size:
        match self.rule:
            case "shrink":
                ratio = max(height / self.height, width / self.width)
                if ratio > 1:
                    height, width = floor(height / ratio), floor(width / ratio)
                return self._upward(height, width)
            case "contain":
                scale = min(self.height / height, self.width / width)
                return int(height * scale), int(width * scale)
            case "contain_down" if height <= self.height and width <= self.width:
                return height, width
            case "contain_down":
                scale = min(self.height / height, self.width / width)
                return int(height * scale), int(width * scale)
            case "keep":
                return height, width
            case "square":
                return self.height, self.width
            case "longer_down" if height >= width:
                return self.height, int(self.height * (width / height))
            case "longer_down":
                return int(self.height * (height / width)), self.height
            case "longer" | "longer_even":
                return self._by_longer(height, width)
            case "longer_half_up":
                scale = self.height / max(height, width)
                return int(height * scale + 0.5), int(width * scale + 0.5)
            case "bounded":
                return self._bounded(height, width)
            case "multiple":
                return height // self.multiple * self.multiple, width // self.multiple * self.multiple
            case "shorter_up":
                return self._upward(*self._by_shorter(height, width))
            case "shorter_even":
                scale = self.height / min(height, width)
                return self._upward(round(height * scale), round(width * scale))
            case "shorter_half_up":
                return self._by_detectron2(height, width)
            case "shorter_down":
                return self._by_vilt(height, width)
            case "idefics3" | "idefics3_capped":
                return self._by_idefics3(height, width)
            case "up":
                return self._by_up(height, width)
            case "thumbnail" | "thumbnail_gap":
                return self._by_thumbnail(height, width)
            case "pillow_contain" | "pillow_thumbnail":
                return self._by_pillow(height, width)
            case "half":
                return self._by_half(height, width)
            case "text_max" | "text_min" | "text_long":
                return self._by_text(height, width)
            case "text_line":
                return self._by_line(height, width)
            case "nearer" | "nearer_32":
                return self._by_nearer(height, width)
            case "detr":
                assert self.max_side is not None
                rows, columns = detr_size(height, width, self.height, self.max_side)
                return self._upward(int(rows), int(columns))

    def _upward(self, rows: int, columns: int) -> Size:
        """Round both sides up to multiples of ``multiple``."""
        return upward(rows, self.multiple), upward(columns, self.multiple)

    def _by_longer(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for Aria, or for DeepSeek-VL and Janus (``longer_even``)."""
        scale = self.height / max(height, width)
        if self.rule == "longer_even":
            rows, columns = round(height * scale), round(width * scale)
        else:
            rows = self.height if height > width else int(height * scale)
            columns = self.height if width >= height else int(width * scale)
        return max(rows, self.min_side), max(columns, self.min_side)

    def _by_shorter(self, height: int, width: int) -> Size:
        """Return the size that torchvision's ``resize`` computes for a given shorter side."""
        if width <= height:
            return int(self.height * height / width), self.height
        return self.height, int(self.height * width / height)

    def _bounded(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for Idefics 2.

        The longer side is at most ``self.height``, and both sides are at least ``self.min_side``.
        """
        ratio, longest = width / height, self.height
        if width >= height and width > longest:
            width, height = longest, int(longest / ratio)
        elif height > width and height > longest:
            height, width = longest, int(longest * ratio)
        return max(height, self.min_side), max(width, self.min_side)

    def _by_detectron2(self, height: int, width: int) -> Size:
        """Return the size that ``ResizeShortestEdge`` of detectron2 computes.

        If the longer side of the result exceeds its maximum, both sides are scaled again.
        """
        assert self.max_side is not None
        scale = self.height / min(height, width)
        rows, columns = (float(self.height), scale * width) if height < width else (scale * height, float(self.height))
        if max(rows, columns) > self.max_side:
            scale = self.max_side / max(rows, columns)
            rows, columns = rows * scale, columns * scale
        return int(rows + 0.5), int(columns + 0.5)

    def _by_vilt(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for ViLT.

        The longer side is at most ``int(1333 / 800 * shorter)``, where ``shorter`` is the requested shorter side.
        """
        scale, longest = self.height / min(height, width), int(1333 / 800 * self.height)
        rows, columns = (self.height, scale * width) if height < width else (scale * height, self.height)
        if max(rows, columns) > longest:
            scale = longest / max(rows, columns)
            rows, columns = scale * rows, scale * columns
        rows, columns = int(rows + 0.5), int(columns + 0.5)
        return rows // self.multiple * self.multiple, columns // self.multiple * self.multiple

    def _by_idefics3(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for Idefics 3, and for UltraVBert if ``max_tiles`` is given.

        The longer side is ``self.height``. It is shortened by the length of a tile until the result is split into at
        most ``max_tiles`` tiles, or the longer side is at most one tile long.
        """
        longest = self.height
        size = self._even(height, width, longest)
        while self.max_tiles is not None and longest > self.multiple:
            rows, columns = self._by_up(*size)
            if rows * columns <= self.max_tiles * self.multiple**2:
                break
            longest -= self.multiple
            size = self._even(height, width, longest)
        return size

    @staticmethod
    def _even(height: int, width: int, longest: int) -> Size:
        """Return the size whose longer side is ``longest``, and whose shorter side is rounded up to an even number.

        If the longer side exceeds ``MAX_IDEFICS_SIDE``, both sides are then scaled down, and the shorter side may be
        odd.
        """
        ratio = width / height
        rows, columns = (int(longest / ratio), longest) if width >= height else (longest, int(longest * ratio))
        rows, columns = (rows + rows % 2, columns) if width >= height else (rows, columns + columns % 2)
        rows, columns = max(rows, 1), max(columns, 1)
        ratio, longest = columns / rows, MAX_IDEFICS_SIDE
        if columns >= rows and columns > longest:
            rows, columns = int(longest / ratio), longest
        elif rows > columns and rows > longest:
            rows, columns = longest, int(longest * ratio)
        return max(rows, 1), max(columns, 1)

    def _by_up(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for the vision encoder of Idefics 3.

        The longer side is rounded up to a multiple of ``self.multiple``. The shorter side is scaled so that the aspect
        ratio is kept, and then also rounded up to such a multiple.
        """
        ratio, multiple = width / height, self.multiple
        if width >= height:
            columns = upward(width, multiple)
            return upward(int(columns / ratio), multiple), columns
        rows = upward(height, multiple)
        return rows, upward(int(rows * ratio), multiple)

    def _by_thumbnail(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for Donut. This size never exceeds the size of the image.

        Raises:
            ImageError: DOES_NOT_FIT: The rule is ``thumbnail_gap``, and a side shrinks by a factor of 4 or more.
        """
        rows, columns = min(height, self.height), min(width, self.width)
        if (rows, columns) != (height, width):
            if height > width:
                columns = int(width * rows / height)
            elif width > height:
                rows = int(height * columns / width)
        if self.rule == "thumbnail_gap" and (height >= 4 * rows or width >= 4 * columns):
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels would be resized to {rows} x {columns}; Pillow reduces an image that "
                'shrinks by a factor of 4 or more in two steps, which the rule "thumbnail_gap" does not support',
            )
        return rows, columns

    def _by_half(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for GLM-Image: about half of the image's size, within limits."""
        assert self.max_side is not None
        shortest, longest, multiple = min(height, width), max(height, width), self.multiple
        if shortest < multiple or longest / shortest > 4:
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels are not supported: both sides must have at least {multiple} pixels, and "
                "one side must be at most four times as long as the other",
            )
        scale = self.height / shortest if shortest < self.height else 1.0
        if longest * scale > self.max_side:
            scale = self.max_side / longest
        sides = [max(multiple, round(side // 2 * scale / multiple) * multiple) for side in (height, width)]
        if max(sides) > self.max_side:
            ratio = max(sides) / self.max_side
            sides = [max(multiple, floor(side / ratio / multiple) * multiple) for side in sides]
        return sides[0], sides[1]

    def _by_pillow(self, height: int, width: int) -> Size:
        """Return the size that ``ImageOps.contain`` or ``Image.thumbnail`` of Pillow computes."""
        ratio, target, is_thumbnail = width / height, self.width / self.height, self.rule == "pillow_thumbnail"
        if is_thumbnail and height <= self.height and width <= self.width:
            return height, width
        if ratio == target:
            return self.height, self.width
        if not is_thumbnail:
            is_wider = ratio > target
            rows = round(height / width * self.width) if is_wider else self.height
            return rows, self.width if is_wider else round(width / height * self.height)
        if ratio > target:
            number = self.width / ratio
            sides = [max(side, 1) for side in (floor(number), ceil(number))]
            return min(sides, key=lambda rows: abs(ratio - self.width / rows)), self.width
        number = self.height * ratio
        columns = min(floor(number), ceil(number), key=lambda columns: abs(ratio - columns / self.height))
        return self.height, max(columns, 1)

    def _by_text(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for the text detection of PP-OCRv5."""
        assert self.max_side is not None
        side = min(height, width) if self.rule == "text_min" else max(height, width)
        is_kept = side <= self.height if self.rule == "text_max" else self.rule == "text_min" and side >= self.height
        scale = 1.0 if is_kept else self.height / side
        rows, columns = int(height * scale), int(width * scale)
        if max(rows, columns) > self.max_side:
            scale = self.max_side / max(rows, columns)
            rows, columns = int(rows * scale), int(columns * scale)
        multiple = self.multiple
        return max(round(rows / multiple) * multiple, multiple), max(round(columns / multiple) * multiple, multiple)

    def _by_line(self, height: int, width: int) -> Size:
        """Return the size that MMOCR's ``RescaleToHeight`` computes. The width is limited and then rounded."""
        assert self.max_side is not None
        columns = ceil(self.height / height * width)
        columns = min(max(columns, self.min_side), self.max_side)
        return self.height, round(columns / self.multiple) * self.multiple

    def _by_nearer(self, height: int, width: int) -> Size:
        """Return the size that transformers computes for ZoeDepth: both sides have the scale that is nearer to 1."""
        scale, across = self.height / height, self.width / width
        scale = across if abs(1 - across) < abs(1 - scale) else scale
        multiple = 1 / 32 if self.rule == "nearer_32" else self.multiple
        return int(round(scale * height / multiple) * multiple), int(round(scale * width / multiple) * multiple)

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        is_capped = self.rule == "idefics3_capped"  # its multiple is the size of a tile
        multiples = (1, 1) if is_capped else (1 if self.rule == "text_line" else self.multiple, self.multiple)
        sides: tuple[int | None, int | None]
        match self.rule:
            case "shrink":
                sides = self._upward(self.height, self.width)
            case (
                "contain"
                | "contain_down"
                | "keep"
                | "longer_down"
                | "thumbnail"
                | "pillow_contain"
                | "pillow_thumbnail"
            ):
                sides = self.height, self.width
            case "square":
                return Bounds((self.height, self.width), (self.height, self.width), None)
            case "idefics3" | "idefics3_capped":
                longest = min(self.height, MAX_IDEFICS_SIDE)
                sides = longest, longest
            case "longer" | "longer_even" | "longer_half_up" | "bounded":
                longest = max(self.height, self.min_side)
                sides = longest, longest
            case "shorter_down":
                longest = int(1333 / 800 * self.height)
                sides = longest, longest
            case "shorter_half_up":
                assert self.max_side is not None
                sides = self.max_side, self.max_side
            case "half" | "text_max" | "text_min" | "text_long":
                assert self.max_side is not None
                longest = max(self.max_side, self.multiple)
                longest = longest if self.rule == "half" else upward(longest, self.multiple)
                sides = longest, longest
            case "text_line":
                assert self.max_side is not None
                sides = self.height, upward(self.max_side, self.multiple)
            case "detr":
                assert self.max_side is not None
                longest = max_detr_side(self.max_side)
                sides = self._upward(longest, longest)
            case _:
                sides = None, None
        return Bounds(multiples, sides, None)

    def __str__(self) -> str:
        size = f"{self.height}" if self.height == self.width else f"{self.height} x {self.width}"
        to = {
            "shrink": f"to fit into {size}, never enlarging, rounded up",
            "contain": f"to fit into {size}",
            "contain_down": f"to fit into {size}, never enlarging",
            "keep": f"not at all, at most {size}",
            "square": f"to {size} x {size}",
            "longer_down": f"the longer side to {size}",
            "longer": f"the longer side to {size}",
            "longer_even": f"the longer side to {size}, rounded half to even",
            "longer_half_up": f"the longer side to {size}, rounded half up",
            "bounded": f"the longer side to at most {size}",
            "multiple": "rounded down",
            "shorter_up": f"the shorter side to {size}, rounded up",
            "shorter_even": f"the shorter side to {size}, rounded half to even and then up",
            "shorter_half_up": f"the shorter side to {size}, the longer to at most {self.max_side}, rounded half up",
            "shorter_down": f"the shorter side to {size}, the longer side to at most 1333 / 800 of it, rounded down",
            "idefics3": f"the longer side to {size}, the shorter side to an even number",
            "idefics3_capped": f"the longer side to {size}, or less for more than {self.max_tiles} tiles",
            "up": "rounded up",
            "thumbnail": f"to fit into {size}, never enlarging",
            "pillow_contain": f"to fit into {size}",
            "pillow_thumbnail": f"to fit into {size}, never enlarging",
            "half": f"to half its size, the shorter side at least {size}, the longer side at most {self.max_side}",
            "text_max": f"the longer side to at most {size}",
            "text_min": f"the shorter side to at least {size}, the longer side to at most {self.max_side}",
            "text_long": f"the longer side to {size}",
            "text_line": f"the height to {size}, the width to at most {self.max_side}, rounded half to even",
            "nearer": f"the side whose scale is nearer to 1 to {size}, rounded half to even",
            "nearer_32": f"the side whose scale is nearer to 1 to {size}, rounded to 1/32 and then down",
            "detr": f"the shorter side to {size}, the longer side to at most {self.max_side}, rounded up",
        }[self.rule]
        to += "" if self.multiple == 1 or self.max_tiles else f" to multiples of {self.multiple}"
        sides = "columns" if self.rule == "text_line" else "per side"
        return to + ("" if self.min_side <= 1 else f", at least {self.min_side} {sides}")
