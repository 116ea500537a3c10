"""Implements the size rules of vision-language models, which compute the size of a resized image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil, floor, sqrt
from typing import Literal, NamedTuple

from pixprep.errors import ImageError
from pixprep.spec import upward

Size = tuple[int, int]
"""Height and width in pixels."""
Small = Literal["keep", "truncate", "round"]
PatchRule = Literal["naflex", "gemma", "muse", "kimi", "nemotron", "glm5", "pix2struct"]
MAX_SIDE = 16384


class Bounds(NamedTuple):
    """Limits of the sizes that a rule returns for images of any size.

    Attributes:
        multiples: The height is a multiple of the first number, and the width is a multiple of the second.
        max_sides: Maximum height and width in pixels. None means unlimited.
        max_pixels: Maximum number of pixels. None means the product of the maximum height and width.
    """

    multiples: tuple[int, int]
    max_sides: tuple[int | None, int | None]
    max_pixels: int | None


class Sizer:
    """Rule that computes the height and width of a resized image from the height and width of the original image.

    Attributes:
        fill: Pixel value of the padding, if the rule also pads the resized image.
    """

    fill: int = 0

    def size(self, height: int, width: int) -> Size:
        """Return the size of the result for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: The rule does not support the image.
        """
        raise NotImplementedError

    @property
    def color(self) -> str:
        """Name of the color ``fill``."""
        return {0: "black", 255: "white"}.get(self.fill, f"the pixel value {self.fill}")

    @property
    def pads(self) -> bool:
        """Whether the rule also pads the resized image."""
        return False

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the window (top, left, height, width) that pads the resized image, for an image of this size."""
        return 0, 0, *self.size(height, width)

    def cuts(self, height: int, width: int) -> Size:
        """Return the numbers of rows and columns of slices into which an image of this size is cut."""
        del height, width
        return 1, 1

    def has_thumbnail(self, height: int, width: int) -> bool:
        """Return whether a thumbnail is added for an image of this size, provided that the plan includes thumbnails."""
        del height, width
        return True

    @property
    def bounds(self) -> Bounds:
        """Limits of the size of the resized image. If the rule also pads the image, padding is included in the size."""
        raise NotImplementedError


def _multiples(factor: int, max_pixels: int) -> Bounds:
    """Return the limits of a rule whose sides are multiples of ``factor`` and whose number of pixels is limited."""
    longest = min(MAX_SIDE, max_pixels // factor) // factor * factor
    return Bounds((factor, factor), (longest, longest), max_pixels)


def checked(rule: Sizer, rows: int, columns: int) -> Size:
    """Return the size of a result, or raise ImageError if a side exceeds the bounds of its rule.

    A narrow image has the largest sides.
    """
    max_rows, max_columns = rule.bounds.max_sides
    if (max_rows and rows > max_rows) or (max_columns and columns > max_columns):
        raise ImageError(
            "DOES_NOT_FIT",
            f"the image would be resized to {rows} x {columns} pixels, but the limit is {max_rows} x {max_columns}",
        )
    return rows, columns


def detr_size(
    height: float, width: float, size: int, most: int, *, is_original: bool = False, is_yolos: bool = False
) -> tuple[float, float]:
    """Return the height and width that transformers 5 computes with ``get_size_with_aspect_ratio``.

    Args:
        height: Height of the image.
        width: Width of the image.
        size: Requested length of the shorter side.
        most: Requested maximum length of the longer side; see ``max_detr_side``.
        is_original: Whether the function of this name in DETR's own code is used, which computes the longer side from
            the rounded shorter side.
        is_yolos: Whether YOLOS's version of the function is used.
    """
    shortest, longest = min(height, width), max(height, width)
    is_over = longest / shortest * size > most
    exact = most * shortest / longest if is_over else size
    shorter = round(exact)
    if is_original:
        exact = shorter = max(1, shorter)
    if shorter == shortest and (height <= width or not is_yolos):
        return height, width
    return (int(exact * height / width), shorter) if width < height else (shorter, int(exact * width / height))


def max_detr_side(most: int) -> int:
    """Return the maximum length of the longer side of a size from ``detr_size``.

    The maximum exceeds ``most``, because images whose shorter side has the requested length after rounding do not
    change. For example, with ``most=1333``, an image of 600 x 1334 is not resized. If the shorter side has n pixels,
    the longer side may have up to ``most * n / (n - 0.5)`` pixels. This function returns the limit for n = 16.
    """
    return most + most // 31


@dataclass(frozen=True)
class PixelBudget(Sizer):
    """Size rule that rounds both sides to multiples of ``factor``, and limits the total number of pixels.

    This rule reproduces ``smart_resize`` of transformers. Each side is rounded to the nearest multiple, with ties to
    even. If the result would have too many pixels, both sides of the image are instead scaled down to the limit by one
    factor, and rounded down to multiples. If it would have too few pixels, both sides are scaled up and rounded up.

    Attributes:
        factor: Both sides of the result are multiples of this number.
        min_pixels, max_pixels: Minimum and maximum number of pixels of the result, in all frames together.
        frames: Number of frames. The pixels of the image are counted once per frame. 0 means the number of frames of
            the clip, which ``Resize.of_frames`` inserts.
        small: How to handle images with a side shorter than ``factor``. ``keep``: handle them like all other images.
            ``truncate``: first scale the image so that both sides are at least ``factor``, and truncate the sides to
            integers, as for GLM-4.1V. ``round``: first scale the image so that the height is at least ``factor``, then
            scale it so that the width is at least ``factor``, and round the other side each time, as for PaddleOCR-VL.
        max_ratio: Maximum ratio of the longer to the shorter side of an image.
        temporal: Number of frames per patch. To compare the number of pixels with the limits, ``frames`` is rounded to
            a multiple of this number, with ties to even. A clip must have at least this number of frames.
    """

    factor: int
    min_pixels: int
    max_pixels: int
    frames: int = 1
    small: Small = "keep"
    max_ratio: float = 200.0
    temporal: int = 1

    def size(self, height: int, width: int) -> Size:
        """Return the size of the result for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: The aspect ratio of the image is too extreme, the image is too small, or a side
                of the result would be too long.
        """
        height, width = self._enlarged(height, width)
        if max(height, width) / min(height, width) > self.max_ratio:
            raise ImageError(
                "DOES_NOT_FIT",
                f"one side of {height} x {width} pixels is more than {self.max_ratio:g} times as long as the other",
            )
        factor, frames = self.factor, self.frames
        if frames < self.temporal:
            raise ImageError("DOES_NOT_FIT", f"a clip must have at least {self.temporal} frames, not {frames}")
        whole = round(frames / self.temporal) * self.temporal
        rows, columns = round(height / factor) * factor, round(width / factor) * factor
        if whole * rows * columns > self.max_pixels:
            scale = sqrt((frames * height * width) / self.max_pixels)
            rows = max(factor, floor(height / scale / factor) * factor)
            columns = max(factor, floor(width / scale / factor) * factor)
        elif whole * rows * columns < self.min_pixels:
            scale = sqrt(self.min_pixels / (frames * height * width))
            rows = ceil(height * scale / factor) * factor
            columns = ceil(width * scale / factor) * factor
        if not rows * columns:
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels are too small: the nearest multiple of {factor} is 0 for one of the sides, "
                "and the minimum number of pixels is 0",
            )
        return checked(self, rows, columns)

    def _enlarged(self, height: int, width: int) -> Size:
        """Return the size after a small image is enlarged as ``small`` specifies."""
        factor = self.factor
        if self.small == "truncate" and min(height, width) < factor:
            scale = max(factor / height, factor / width)
            return int(height * scale), int(width * scale)
        if self.small == "round":
            if height < factor:
                height, width = factor, round((width * factor) / height)
            if width < factor:
                height, width = round((height * factor) / width), factor
        return height, width

    @property
    def max_result(self) -> int:
        """Upper bound on the number of pixels of a result."""
        frames = self.frames or self.temporal  # a clip with more frames is resized to smaller frames
        min_pixels, max_pixels = self.min_pixels / frames, self.max_pixels / frames
        narrow = self.factor * max(sqrt(max_pixels * self.max_ratio), self.factor)
        longer, shorter = sqrt(min_pixels * self.max_ratio), sqrt(min_pixels / self.max_ratio)
        enlarged = max((longer + self.factor) * (shorter + self.factor), (sqrt(min_pixels) + self.factor) ** 2)
        return ceil(max(max_pixels, narrow, enlarged))

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        return _multiples(self.factor, self.max_result)

    def max_clip_pixels(self, frames: int) -> int:
        """Return the maximum number of pixels in all frames of a clip of up to ``frames`` frames.

        It includes the frames that complete the last patch along the time axis.
        """
        return ceil(frames * replace(self, frames=frames).max_result * (2 - 1 / self.temporal))

    def __str__(self) -> str:
        frames = f" of {self.frames or 'all'} frames" if self.frames != 1 else ""
        return f"to multiples of {self.factor}, {self.min_pixels:,} to {self.max_pixels:,} pixels{frames} in total"


@dataclass(frozen=True)
class PatchBudget(Sizer):
    """Size rule that returns the largest size with the image's aspect ratio and at most ``max_patches`` patches.

    Attributes:
        patch: Edge length of a patch in pixels.
        max_patches: Maximum number of patches of the result.
        rule: Image processor of transformers whose formula is used, see the op ``resize_to_patches``.
        merge: Edge length of a merge window in patches.
        max_side: Maximum number of patches per row and per column, for ``kimi``.
        min_patches: Minimum number of patches of the result, for ``nemotron`` and ``glm5``.
    """

    patch: int
    max_patches: int
    rule: PatchRule = "naflex"
    merge: int = 1
    max_side: int | None = None
    min_patches: int = 1

    def size(self, height: int, width: int) -> Size:
        """Return the size of the result for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: The image is too small, or its aspect ratio is too extreme.
        """
        match self.rule:
            case "naflex":
                size = self._by_naflex(height, width)
            case "gemma":
                size = self._by_gemma(height, width)
            case "muse":
                size = self._by_muse(height, width)
            case "kimi":
                size = self._by_kimi(height, width)
            case "nemotron":
                size = self._by_nemotron(height, width)
            case "glm5":
                size = self._by_glm5(height, width)
            case "pix2struct":
                size = self._by_pix2struct(height, width)
        return checked(self, *size)

    @property
    def pads(self) -> bool:
        """See ``Sizer``."""
        return self.rule == "glm5"

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """See ``Sizer``."""
        return 0, 0, *(self._glm5_canvas(height, width) if self.pads else self.size(height, width))

    def _by_naflex(self, height: int, width: int) -> Size:
        """Return the size that the NaFlex processor of SigLIP 2 computes.

        Both sides are scaled by one factor and rounded up to multiples of the patch size. The factor, at most 100, is
        found by bisection with a precision of 1e-5.
        """
        patch, precision = self.patch, 1e-5

        def scaled(side: int, scale: float) -> int:
            return max(patch, ceil(side * scale / patch) * patch)

        low, high = precision / 10, 100.0
        while high - low >= precision:
            factor = (low + high) / 2
            if (scaled(height, factor) / patch) * (scaled(width, factor) / patch) <= self.max_patches:
                low = factor
            else:
                high = factor
        return scaled(height, low), scaled(width, low)

    def _by_gemma(self, height: int, width: int) -> Size:
        """Return the size that the processor of Gemma 4 computes."""
        window = self.merge * self.patch
        longest = self.max_patches // self.merge**2 * window
        factor = sqrt(self.max_patches * self.patch**2 / (height * width))
        rows, columns = floor(factor * height / window) * window, floor(factor * width / window) * window
        if rows == 0 and columns == 0:
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too small for a merge window")
        if rows == 0:
            return window, min(width // height * window, longest)
        if columns == 0:
            return min(height // width * window, longest), window
        return rows, columns

    def _by_muse(self, height: int, width: int) -> Size:
        """Return the size that the processor of Muse Glimmer computes. Its grid consists of merge windows."""
        window, max_windows = self.merge * self.patch, self.max_patches // self.merge**2
        rows, columns = height / window, width / window
        ratio = columns / rows
        if rows * columns > max_windows:
            rows = (max_windows / ratio) ** 0.5
            columns = rows * ratio
        grids = {*product((floor(rows), ceil(rows)), (floor(columns), ceil(columns)))}
        fitting = [grid for grid in grids if min(grid) >= 1 and grid[0] * grid[1] <= max_windows]
        if not fitting:
            fitting = [(max(1, round(rows)), max(1, round(columns)))]
        best = min(fitting, key=lambda grid: abs(grid[0] / grid[1] - height / width))
        if best[0] * best[1] > max_windows:
            raise ImageError(
                "DOES_NOT_FIT",
                f"the aspect ratio of {height} x {width} pixels is too extreme for {max_windows} windows",
            )
        return best[0] * window, best[1] * window

    def _by_kimi(self, height: int, width: int) -> Size:
        """Return the size that the processor of Kimi K2.5 computes, before it pads the image."""
        assert self.max_side is not None
        longest = self.max_side * self.patch
        count = max(1.0, height // self.patch) * max(1.0, width // self.patch)
        scale = min(1.0, sqrt(self.max_patches / count), longest / height, longest / width)
        return min(max(1, int(height * scale)), longest), min(max(1, int(width * scale)), longest)

    def _by_nemotron(self, height: int, width: int) -> Size:
        """Return the size that the processor of Nemotron 3 Omni computes."""
        merge, most = self.merge, self.max_patches
        rows, columns = round(height / self.patch + 0.5), round(width / self.patch + 0.5)
        factor = min(sqrt(most / (rows * columns)), 1.0)
        rows, columns = floor(factor * rows), floor(factor * columns)
        if rows * columns == 0:
            raise ImageError("DOES_NOT_FIT", f"the aspect ratio of {height} x {width} pixels is too extreme")
        if rows * columns < self.min_patches < most:
            factor = sqrt(self.min_patches / (rows * columns))
            rows, columns = ceil(factor * rows), ceil(factor * columns)
        for is_down in (True, False):
            side, other = (rows, columns) if is_down else (columns, rows)
            if side % merge:
                more = upward(side, merge)
                side = more if more * other <= most else max(merge, more - merge)
            rows, columns = (side, other) if is_down else (other, side)
        return rows * self.patch, columns * self.patch

    def _by_pix2struct(self, height: int, width: int) -> Size:
        """Return the size that the processors of Pix2Struct and Kosmos-2.5 compute."""
        scale = sqrt(self.max_patches * (self.patch / height) * (self.patch / width))
        rows, columns = (max(min(floor(scale * side / self.patch), self.max_patches), 1) for side in (height, width))
        return rows * self.patch, columns * self.patch

    def _by_glm5(self, height: int, width: int) -> Size:
        """Return the size that the processor of GLM-5 computes, before it pads the image."""
        rows, columns = self._glm5_canvas(height, width)
        scale = min(rows / height, columns / width)
        if height * width >= self.min_patches * self.patch**2:
            scale = min(1.0, scale)
        return max(1, min(rows, floor(height * scale))), max(1, min(columns, floor(width * scale)))

    def _glm5_canvas(self, height: int, width: int) -> Size:
        """Return the size of the image after the processor of GLM-5 has padded it at the bottom and on the right.

        Both sides are rounded up to merge windows. If this exceeds the budget, the result is the size of the tallest
        image with this aspect ratio that does not exceed it, found by bisection.
        """
        window, pixels = self.merge * self.patch, self.patch**2
        rows, columns = upward(height, window), upward(width, window)
        if rows * columns < self.min_patches * pixels:
            scale = sqrt(self.min_patches * pixels / (height * width))
            rows, columns = (upward(max(1, ceil(side * scale)), window) for side in (height, width))
        if rows * columns > self.max_patches * pixels:
            low, high, (rows, columns) = 1, height, (window, window)
            while low <= high:
                middle = (low + high) // 2
                size = upward(middle, window), upward(max(1, floor(width * middle / height)), window)
                if size[0] * size[1] <= self.max_patches * pixels:
                    low, (rows, columns) = middle + 1, size
                else:
                    high = middle - 1
        return rows, columns

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        if self.rule == "nemotron":  # a narrow image may exceed the limit, because no side is shorter than a window
            narrow = self.merge * (max(self.max_patches, self.min_patches) + self.merge)
            side = MAX_SIDE // self.patch
            most = max(self.max_patches + 2 * side, self.merge * min(narrow, side))
            return _multiples(self.patch * self.merge, most * self.patch**2)
        if self.rule == "kimi":
            assert self.max_side is not None
            return Bounds((1, 1), (self.max_side * self.patch,) * 2, None)
        return _multiples(self.patch * self.merge, self.max_patches * self.patch**2)

    def __str__(self) -> str:
        windows = f", merge windows of {self.merge} x {self.merge}" if self.merge > 1 else ""
        return f"to at most {self.max_patches:,} patches of {self.patch} x {self.patch} pixels{windows} ({self.rule})"
