"""Draws pictures, panels, boxes, arrows and histograms with Pillow, and places them on a page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from colorsys import hsv_to_rgb
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw, ImageFont

from pixprep.errors import printable
from pixprep.plan.output_plans import TensorPlan

Array = npt.NDArray[Any]
U8 = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]
Picture = Image.Image

SIDE = 512
"""Edge length in pixels of the square in which a picture is shown.

Tensors of 224 x 224 or 256 x 256 are enlarged to twice their size.
"""
MARGIN = 40
WIDTH = 3 * SIDE + 4 * MARGIN
_BREAK = re.compile(r" (?![\[-]*[\d.])|(?<![A-Za-z]) ")
_NARROWEST = 300
"""Minimum width of a column in pixels, so that text fits."""

_PAPER, INK, FAINT, _LINE = "#ffffff", "#1f2328", "#656d76", "#d0d7de"
CROP, _WRONG, _WRONG_PAPER = "#ff7a00", "#b42318", "#fef0ee"
_NARROWEST_CELL = 5
_BAR = 4  # approximate width of a histogram's bar in pixels
_PLOT = 170  # height of a histogram in pixels


def to_png(image: Picture | U8, *, compress_level: int = 6) -> bytes:
    """Encode a picture, or uint8 pixels (height, width) or (height, width, 3 or 4), as PNG.

    Encoding with a ``compress_level`` of 1 takes a quarter of the time that level 6 takes, but the file of a photo is
    15 % larger.
    """
    if isinstance(image, np.ndarray):
        image = Image.fromarray(np.ascontiguousarray(image))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=compress_level)
    return file.getvalue()


def levels_of(values: Array, low: float, high: float) -> U8:
    """Convert values to pixel values: ``low`` becomes black, and ``high`` becomes white.

    If ``low`` and ``high`` are equal, all values become mid-gray. NaN becomes black.
    """
    if high <= low:
        return np.full(values.shape, 128, np.uint8)
    scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(255 / (high - low))
    levels: U8 = np.rint(np.clip(np.nan_to_num(scaled), 0, 255)).astype(np.uint8)
    return levels


def true_colours(plan: TensorPlan, tensor: Array, side: int | None = None) -> U8:
    """Undo the arithmetic of a tensor, such as normalization, and return uint8 RGB or gray (height, width, 3 or 1).

    An alpha channel is ignored.

    Args:
        plan: Plan of the tensor.
        tensor: Tensor of one image, in the layout of the plan.
        side: Edge length of the square for which the result will be ``fitted``, so that the result may have fewer
            pixels than the tensor. None: the result has all pixels of the tensor.
    """
    pixels = plan.spec.floats(_thinned(plan.spec.view(tensor, "hwc"), side))
    ends = plan.spec.floats(plan.table).astype(np.float64)[: plan.spec.channels, [0, -1]]
    channels = [levels_of(pixels[:, :, index], low, high) for index, (low, high) in enumerate(ends)]
    return np.stack(channels, axis=2)[:, :, np.argsort(plan.channels[: len(channels)])[:3]]


def shown_as(values: Array, low: float, high: float) -> U8:
    """Convert values (height, width, channels) with ``levels_of``, and fit them to a square of ``SIDE``.

    An alpha channel is ignored.
    """
    return fitted(levels_of(_thinned(values[:, :, :3], SIDE), low, high))


def _thinned(values: Array, side: int | None) -> Array:
    """Subsample values whose height or width exceeds four times ``side``, because a tensor may have gigabytes."""
    step = 1 if side is None else max(1, max(values.shape[:2]) // (4 * side))
    return values[::step, ::step]


def fitted(pixels: U8, side: int = SIDE) -> U8:
    """Fit a picture to a square: enlarge it by an integer factor, or reduce it by averaging.

    Args:
        pixels: Picture as an array uint8 (height, width, 1 or 3).
        side: Edge length of the square in pixels.

    Returns:
        Array uint8 (height, width, 3).
    """
    pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    height, width = fitted_size(pixels.shape, side)
    if height >= pixels.shape[0] and width >= pixels.shape[1]:
        return pixels.repeat(height // pixels.shape[0], axis=0).repeat(width // pixels.shape[1], axis=1)
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))


def fitted_size(shape: tuple[int, ...], side: int = SIDE) -> tuple[int, int]:
    """Return the (height, width) of the result of ``fitted``."""
    longer = max(shape[:2])
    scale = side // longer if longer <= side else side / longer
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def with_grid(pixels: U8, rows: int, columns: int) -> U8:
    """Draw the lines between the cells of a grid on a picture uint8 (height, width, 3), and return the picture.

    If the cells are narrower than ``_NARROWEST_CELL`` pixels, no lines are drawn, because they would hide the picture.
    """
    drawn = pixels.copy()
    for axis, count in enumerate((rows, columns)):
        side = pixels.shape[axis]
        if side >= count * _NARROWEST_CELL:
            lines = np.arange(1, count) * side // count
            at = (lines,) if axis == 0 else (slice(None), lines)
            drawn[at] = drawn[at] // 4 + np.uint8(3) * (np.array(ImageColor.getrgb(CROP), np.uint8) // 4)
    return drawn


def class_colour(number: int) -> tuple[int, int, int]:
    """Return a light RGB color for a class. Consecutive class numbers have clearly different hues."""
    red, green, blue = hsv_to_rgb((0.08 + 0.618034 * number) % 1, 0.85, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def with_labels(pixels: U8, labels: Array) -> U8:
    """Blend pixels (height, width, 1 or 3) with the ``class_colour`` of their labels (height, width).

    Pixels with the label -1 are not changed.
    """
    numbers, places = np.unique(labels, return_inverse=True)
    colours = np.array([class_colour(int(number)) for number in numbers])[places.reshape(labels.shape)]
    return np.where(labels[:, :, None] == -1, pixels, (pixels.astype(np.int64) + colours) // 2).astype(np.uint8)


def with_boxes(
    pixels: U8, boxes: npt.NDArray[np.float64], words: Sequence[str], numbers: Sequence[int | None] = ()
) -> U8:
    """Draw boxes and their labels on pixels (height, width, 3). Labels do not cover each other.

    Args:
        pixels: Picture on which the boxes are drawn.
        boxes: Array (n, 4) of boxes, xyxy.
        words: Label of each box, possibly empty.
        numbers: Class number of each box, which determines the color of the box.
    """
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    draw, font = ImageDraw.Draw(picture), _font(15)
    colours = [CROP if number is None else class_colour(number) for number in numbers] or [CROP] * len(boxes)
    for (left, top, right, bottom), colour in zip(boxes.tolist(), colours, strict=True):
        draw.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), outline=colour, width=2)
    taken: list[tuple[float, float, float, float]] = []
    for (left, top, _, bottom), colour, word in zip(boxes.tolist(), colours, words, strict=False):
        if not word:
            continue
        text = _shortened(word, 15, picture.width // 2)
        width, height = font.getlength(text) + 6, 19.0
        x = min(max(left, 0), max(picture.width - width, 0))
        places = [(x, y, x + width, y + height) for y in (top - height, top, bottom, bottom - height)]
        places = [place for place in places if place[1] >= 0 and place[3] <= picture.height] or [
            (x, 0, x + width, height)
        ]
        place = next((one for one in places if not any(_meets(one, other) for other in taken)), places[0])
        taken.append(place)
        draw.rectangle(place, fill=colour)
        draw.text((place[0] + 3, place[1] + height / 2), text, _ink_on(colour), font, anchor="lm")
    return np.asarray(picture)


def _meets(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _ink_on(colour: str | tuple[int, int, int]) -> str:
    red, green, blue = ImageColor.getrgb(colour)[:3] if isinstance(colour, str) else colour
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 110 else "#ffffff"


def with_arrows(pixels: U8, flow: Array, every: int) -> U8:
    """Draw an arrow every ``every`` pixels on pixels (height, width, 3).

    ``flow`` (2, height, width) contains the displacements to the right and down, in pixels.
    """
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    draw = ImageDraw.Draw(picture)
    for y in range(every // 2, picture.height, every):
        for x in range(every // 2, picture.width, every):
            right, down = (float(step) for step in flow[:, y, x])
            draw.line((x, y, x + right, y + down), fill=CROP)
            draw.ellipse((x + right - 1, y + down - 1, x + right + 1, y + down + 1), fill=CROP)
    return np.asarray(picture)


@dataclass(frozen=True)
class Panel:
    """Picture with a title and a line of text above it, and a description below it.

    Attributes:
        frame: Region (top, left, bottom, right) of the picture. A frame is drawn around this region.
        thickness: Thickness of the frame in pixels.
    """

    title: str
    line: str
    pixels: U8
    words: Sequence[str]
    frame: Box | None = None
    thickness: int = 3


# A histogram

PLOT_HEIGHT = 30 + _PLOT + 28 + 3 * 22 + 10


def histogram(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    caption: str,
    values: npt.NDArray[np.float64],
    *,
    axis: tuple[float, float],
    ends: Sequence[float],
    colour: str,
    usual: Sequence[tuple[float, float, str]],
) -> None:
    """Draw one histogram, which is ``SIDE`` pixels wide and, with all of its text, ``PLOT_HEIGHT`` pixels high.

    The highest bar has the height of the plot. A bar covers an integer number of pixel values; if it did not, some bars
    would count one pixel value more than others, and the plot would look like a comb.

    Args:
        draw: Drawing context of the page.
        place: Upper left corner (x, y) of the plot.
        caption: Caption above the plot.
        values: Values to count, in any order.
        axis: Minimum and maximum of the axis.
        ends: Minimum and maximum value that the pipeline can return.
        colour: Color of the bars.
        usual: Common value ranges of models. Each range is drawn as a labeled bar below the axis.
    """
    (x, y), (low, high) = place, axis
    top, bottom = y + 30, y + 30 + _PLOT

    def at(value: float) -> int:
        return x + round((value - low) / (high - low) * (SIDE - 1))

    draw.text((x, y), caption, INK, _font(16))
    draw.rectangle((at(ends[0]), top, at(ends[1]), bottom), fill="#f3f5f7")
    level = (ends[1] - ends[0]) / 255 or (high - low) / SIDE
    width = level * max(1, round(_BAR * (high - low) / SIDE / level))
    edges = np.arange(ends[0] - level / 2, ends[1] + width, width)
    counts, _ = np.histogram(values, edges)
    for count, first, last in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            left, height = at(first), max(2, round(float(count / counts.max()) * _PLOT))
            draw.rectangle((left, bottom - height, max(at(last) - 1, left), bottom), colour)
    draw.line((x, bottom, x + SIDE - 1, bottom), FAINT)
    for tick in _ticks(*axis):
        draw.line((at(tick), bottom, at(tick), bottom + 4), FAINT)
        draw.text((at(tick), bottom + 6), f"{tick:g}", FAINT, _font(14), anchor="ma")
    for row, (first, last, name) in enumerate(usual):
        left, right, y = at(first), at(last), bottom + 32 + 22 * row
        draw.rectangle((left, y, right, y + 18), fill="#e3e7eb")
        is_inside = _font(13).getlength(name) < right - left - 4
        middle, anchor = ((left + right) // 2, "mm") if is_inside else (right + 6, "lm")
        draw.text((middle, y + 10), name, FAINT, _font(13), anchor=anchor)


def _ticks(low: float, high: float) -> list[float]:
    """Return about six round numbers between ``low`` and ``high``."""
    raw = (high - low) / 6
    unit = 10.0 ** np.floor(np.log10(raw))
    step = next(float(unit * factor) for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [float(step * count) + 0.0 for count in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


# Layout of the sheet on which the pictures are placed.


def columns(widest: int) -> tuple[int, int]:
    """Return the number of columns and their width for pictures that are at most ``widest`` pixels wide."""
    count = (WIDTH - MARGIN) // (max(widest, _NARROWEST) + MARGIN)
    return count, (WIDTH - MARGIN) // count - MARGIN


class Sheet:
    """Page on which texts and pictures are placed from top to bottom. It grows as needed."""

    def __init__(self) -> None:
        self._image = Image.new("RGB", (WIDTH, 64), _PAPER)
        self.draw = ImageDraw.Draw(self._image)
        self.y = MARGIN

    def image(self) -> Picture:
        """Return the page as an image."""
        self._grow(self.y + MARGIN // 2)
        return self._image.crop((0, 0, WIDTH, self.y + MARGIN // 2))

    def gap(self, height: int) -> None:
        """Leave ``height`` pixels of vertical space."""
        self.y += height
        self._grow(self.y)

    def _grow(self, height: int) -> None:
        if height > self._image.height:
            page = Image.new("RGB", (WIDTH, height + 1024), _PAPER)
            page.paste(self._image)
            self._image, self.draw = page, ImageDraw.Draw(page)

    def heading(self, title: str, line: str) -> None:
        """Write the title of the page and the line below it."""
        self.text(_shortened(title, 34, WIDTH - 2 * MARGIN), 34, INK)
        self.text(_shortened(line, 18, WIDTH - 2 * MARGIN), 18, FAINT)
        self.gap(4)
        self.draw.line((MARGIN, self.y, WIDTH - MARGIN, self.y), _LINE, 2)
        self.gap(20)

    def text(self, text: str, size: int, colour: str = INK) -> None:
        """Write a paragraph over the whole width."""
        for line in _wrapped(text, size, WIDTH - 2 * MARGIN):
            self._grow(self.y + 2 * size)
            self.draw.text((MARGIN, self.y), line, colour, _font(size))
            self.gap(round(1.45 * size))

    def warning(self, text: str) -> None:
        """Write a highlighted paragraph."""
        lines = _wrapped(text, 20, WIDTH - 4 * MARGIN)
        height = 30 * len(lines) + 24
        self._grow(self.y + height + MARGIN)
        self.draw.rectangle((MARGIN, self.y, WIDTH - MARGIN, self.y + height), _WRONG_PAPER)
        self.draw.rectangle((MARGIN, self.y, MARGIN + 6, self.y + height), _WRONG)
        for index, line in enumerate(lines):
            self.draw.text((2 * MARGIN, self.y + 14 + 30 * index), line, _WRONG, _font(20))
        self.gap(height + 16)

    def panels(self, panels: Sequence[Panel], width: int = SIDE) -> None:
        """Draw pictures in columns of one width, with equal heights for the texts above and below them."""
        self._grow(self.y + SIDE + 400)
        top = self.y + 62
        ends = []
        for index, panel in enumerate(panels):
            x = MARGIN + index * (width + MARGIN)
            self.draw.text((x, self.y), _shortened(panel.title, 22, width), INK, _font(22))
            self.draw.text((x, self.y + 31), _shortened(panel.line, 15, width), FAINT, _font(15))
            self._image.paste(Image.fromarray(np.ascontiguousarray(panel.pixels)), (x, top))
            if panel.frame is not None:
                edges = [edge + start for edge, start in zip(panel.frame, (top, x) * 2, strict=True)]
                thick = panel.thickness
                corners = (edges[1] - thick, edges[0] - thick, edges[3] + thick - 1, edges[2] + thick - 1)
                self.draw.rectangle(corners, outline=CROP, width=thick)
            y = top + panel.pixels.shape[0] + 14
            for words in panel.words:
                for line in _wrapped(words, 16, width):
                    self.draw.text((x, y), line, INK, _font(16))
                    y += 23
            ends.append(y)
        self.gap(max(ends) - self.y)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _wrapped(text: str, size: int, width: int) -> list[str]:
    """Wrap text to lines of the given width in pixels.

    Lines are not broken between a word and a number that follows it. A word that is too long is shortened.
    """
    font = _font(size)
    lines, line = [], ""
    for word in _BREAK.split(printable(text)):
        if line and font.getlength(f"{line} {word}") > width:
            lines.append(line)
            line = ""
        line = _shortened(f"{line} {word}" if line else word, size, width)
    return [*lines, line]


def _shortened(text: str, size: int, width: int) -> str:
    """Shorten a line to the given width in pixels by omitting its middle."""
    text, font = printable(text), _font(size)
    if font.getlength(text[: 4 * width]) <= width:
        return text
    kept = len(text)
    while font.getlength(short := f"{text[: kept // 2]}...{text[len(text) - kept // 2 :]}") > width and kept:
        kept = min(kept - 1, round(kept * 0.9))
    return short
