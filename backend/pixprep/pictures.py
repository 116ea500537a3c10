"""Pictures, drawn by Pillow alone: each stage of a photo, with the crop, the padding, and the values as histograms."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from pixprep.decoders import Damage, Encoded, Limits
from pixprep.doubts import black_margins, odd_ranges
from pixprep.engine import Engine
from pixprep.errors import printable
from pixprep.explain import geometry_words
from pixprep.ops import Decode, Letterbox, Tensor
from pixprep.pipeline import Pipeline
from pixprep.plan.plan import SizePlan, TransformPlan
from pixprep.preview import Preview, Shown, notes, preview

Array = npt.NDArray[Any]
U8 = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]
Picture = Image.Image

SIDE = 512
"""Of the square that a picture is fitted into: 224 and 256 are shown with 2 x 2 pixels for each, larger ones as they
are, or reduced."""
MARGIN = 40
WIDTH = 3 * SIDE + 4 * MARGIN
MOST = 4
"""Of the tensors of one pipeline that are drawn."""

_PAPER, INK, FAINT, _LINE = "#ffffff", "#1f2328", "#656d76", "#d0d7de"
CROP, _WRONG, _WRONG_PAPER = "#ff7a00", "#b42318", "#fef0ee"
_CHANNELS = {"red": "#e5484d", "green": "#30a46c", "blue": "#3e63dd", "gray": "#6e7781"}
_DIMMED = 0.3
_BAR = 4  # about the width of a bar
_SAMPLES = 1 << 20
_PLOT = 170  # height of a histogram
_SMALL = ((0.0, 1.0, "0 to 1"), (-1.0, 1.0, "-1 to 1"), (-2.12, 2.64, "ImageNet's mean and std"))
_LARGE = ((0.0, 255.0, "0 to 255"), (-124.0, 152.0, "0 to 255 less a mean"))
_FAR = 20.0


def stages(pipeline: Pipeline, encoded: Encoded, *, title: str = "", name: str = "") -> Picture:
    """One photo through a pipeline: decoded, with what the model sees of it; cropped and resized; its values.

    Args:
        pipeline: what to show; of its tensors at most the first four.
        encoded: the photo.
        title: of the picture, such as the name of the pipeline's file.
        name: of the photo.

    Returns:
        A picture about 1,700 pixels wide, RGB; a notebook shows it as it is.

    Raises:
        ImageError: the photo cannot be decoded, or does not fit.
    """
    found = preview(pipeline, encoded)
    photo = photo_of(pipeline, encoded, found)
    sheet = Sheet()
    sheet.heading(title or "pipeline", f"{name or 'photo'}, {found.height} x {found.width} pixels")
    for shown in found.tensors[:MOST]:
        _tensor(sheet, pipeline, found, photo, shown)
    if len(found.tensors) > MOST:
        sheet.text(f"{len(found.tensors) - MOST} more tensors are not shown", 18, FAINT)
    for text in _other_outputs(pipeline, found):
        sheet.text(text, 16, INK)
    for text in (*odd_ranges(pipeline), *black_margins(pipeline)):
        sheet.warning(text)
    return sheet.image()


def _other_outputs(pipeline: Pipeline, found: Preview) -> Iterator[str]:
    """What the outputs that are no pictures are for this photo."""
    for name, output in pipeline.plan.outputs.items():
        if isinstance(output, SizePlan):
            yield f'output "{name}": height {found.height}, width {found.width}'
        elif isinstance(output, TransformPlan):
            names = ("scale_y", "scale_x", "offset_y", "offset_x")
            transform = output.geometry.place(found.height, found.width).transform
            numbers = zip(names, transform, strict=True)
            yield f'output "{name}": {", ".join(f"{word} {number:.4g}" for word, number in numbers)}'


def to_png(image: Picture | U8) -> bytes:
    """The bytes of a PNG file, of a picture or of uint8 (height, width, 3)."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(np.ascontiguousarray(image))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def levels_of(values: Array, low: float, high: float) -> U8:
    """Values as levels that can be shown: ``low`` is black, ``high`` white; all mid-gray where these are equal.

    What is no number is black.
    """
    if high <= low:
        return np.full(values.shape, 128, np.uint8)
    scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(255 / (high - low))
    levels: U8 = np.rint(np.clip(np.nan_to_num(scaled), 0, 255)).astype(np.uint8)
    return levels


def shown_as(values: Array, low: float, high: float, side: int = SIDE) -> U8:
    """Values (height, width, 1 or 3) as a picture in a square of ``side``: ``levels_of`` them, ``fitted``.

    Of what is over four times as large only every second, third ... pixel is looked at: a tensor may have gigabytes.
    """
    step = max(1, max(values.shape[:2]) // (4 * side))
    return fitted(levels_of(values[::step, ::step], low, high), side)


def fitted(pixels: U8, side: int = SIDE) -> U8:
    """Pixels in a square of ``side``: enlarged by a whole factor, as they are, or reduced by averaging.

    Args:
        pixels: uint8 (height, width, 1 or 3).
        side: in pixels.

    Returns:
        uint8 (height, width, 3).
    """
    pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    height, width = fitted_size(pixels.shape, side)
    if height >= pixels.shape[0] and width >= pixels.shape[1]:
        return pixels.repeat(height // pixels.shape[0], axis=0).repeat(width // pixels.shape[1], axis=1)
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))


def fitted_size(shape: tuple[int, ...], side: int = SIDE) -> tuple[int, int]:
    """The (height, width) that ``fitted`` gives."""
    longer = max(shape[:2])
    scale = side // longer if longer <= side else side / longer
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


# The stages of one tensor


@dataclass(frozen=True)
class Panel:
    """A picture with its words: a title, a line below it, and what the picture shows, below the picture.

    Attributes:
        frame: (top, left, bottom, right) of what is framed in the picture; the frame lies around it.
        thickness: of the frame.
    """

    title: str
    line: str
    pixels: U8
    words: Sequence[str]
    frame: Box | None = None
    thickness: int = 3


def _tensor(sheet: Sheet, pipeline: Pipeline, found: Preview, photo: U8, shown: Shown) -> None:
    spec = shown.plan.spec
    if len(found.tensors) > 1:
        sheet.text(f'tensor "{shown.name}"', 26, INK)
    sheet.panels(panels(pipeline, found, photo, shown))
    sheet.gap(8)
    sheet.text("4  the values of the tensor", 22, INK)
    range_ = f"{spec.low:.4g} to {spec.high:.4g}"
    without = ", without the margin" if 0 < shown.margin < 1 else ""
    sheet.text(
        f"of the photo{without}; the pipeline can give {range_}; the bars below the axis are usual ranges",
        15,
        FAINT,
    )
    sheet.gap(8)
    _histograms(sheet, shown)
    for note in notes(shown):
        sheet.text(f"note: {note}", 16, INK)
    sheet.gap(16)


def panels(pipeline: Pipeline, found: Preview, photo: U8, shown: Shown) -> list[Panel]:
    """The photo, the levels of one tensor, and the tensor; ``photo`` is what ``photo_of`` gives."""
    return [_decoded(pipeline, found, photo, shown), _placed(found, shown), _as_model_sees(shown)]


def photo_of(
    pipeline: Pipeline,
    encoded: Encoded,
    found: Preview,
    *,
    limits: Limits | None = None,
    damage: Damage | None = None,
) -> U8:
    """The decoded photo, fitted into the square by the engine: (height, width, 1 or 3), RGB."""
    decode = pipeline.for_photos().ops[0]
    assert isinstance(decode, Decode)
    whole = Decode(
        color="gray" if pipeline.plan.is_gray else "rgb",
        apply_exif_orientation=decode.apply_exif_orientation,
        chroma=decode.chroma,
        idct=decode.idct,
        alpha=decode.alpha,
    )
    box = Letterbox(height=SIDE, width=SIDE, anchor="top_left", enlarge=False)
    shrink = Pipeline([whole, box, Tensor(dtype="uint8", layout="hwc")])
    with Engine(shrink, threads=1, limits=limits, damage=damage) as engine:
        (pixels,) = engine.run([encoded])
        if isinstance(pixels, Exception):
            raise pixels
        height, width = engine.plan.place(found.height, found.width).placements["tensor"].resized
    shown: U8 = pixels[:height, :width]
    return shown


def _decoded(pipeline: Pipeline, found: Preview, photo: U8, shown: Shown) -> Panel:
    """The photo, dark where the model does not look, with a frame around where it does."""
    pixels = fitted(photo)
    box = source_box(found, shown, pixels.shape[:2])
    top, left, bottom, right = box
    dimmed = (pixels * _DIMMED).astype(np.uint8)
    dimmed[top:bottom, left:right] = pixels[top:bottom, left:right]
    color = "gray" if pipeline.plan.is_gray else "RGB"
    turned = "applied" if pipeline.for_photos().plan.apply_exif_orientation else "ignored"
    if shown.is_empty:
        words = ["The model sees nothing of it."]
    elif _is_whole(found, shown):
        words = ["The model sees all of it."]
    else:
        edges = source_box(found, shown, (found.height, found.width))
        words = [f"The model sees rows {edges[0]} to {edges[2]}, columns {edges[1]} to {edges[3]}: the frame."]
    return Panel(
        "1  the photo, decoded",
        f"{found.height} x {found.width}, {color}, EXIF orientation {turned}",
        dimmed,
        words,
        None if shown.is_empty else box,
    )


def source_box(found: Preview, shown: Shown, size: tuple[int, ...]) -> Box:
    """(top, left, bottom, right) of what the model sees, in a picture of the whole photo that has ``size``."""
    if shown.is_empty:
        return (0, 0, 0, 0)
    scales = (size[0] / found.height, size[1] / found.width) * 2
    limits = (size[0], size[1]) * 2
    edges = (min(max(round(edge * s), 0), limit) for edge, s, limit in zip(shown.source, scales, limits, strict=True))
    top, left, bottom, right = edges
    return top, left, max(bottom, top + 1), max(right, left + 1)


def _placed(found: Preview, shown: Shown) -> Panel:
    """The levels of the tensor in their true colours, with a line around the photo where there is a margin."""
    height, width = shown.placement.size
    pixels = shown_as(shown.levels[:, :, np.argsort(shown.plan.channels)], 0, 255)
    words = [f"{text[0].upper()}{text[1:]}." for text in geometry_words(shown.plan.geometry)] or ["As it is."]

    frame = None
    if shown.margin and not shown.is_empty and not shown.is_moved:
        scales = (pixels.shape[0] / height, pixels.shape[1] / width) * 2
        top, left, bottom, right = (round(edge * scale) for edge, scale in zip(shown.window, scales, strict=True))
        frame = (top, left, bottom, right)
    if shown.margin and not shown.is_moved:
        fill = shown.plan.fill[:1] if len(set(shown.plan.fill)) == 1 else shown.plan.fill
        words.append(f"The margin has level {', '.join(map(str, fill))}.")
    return Panel(f"2  {_done(found, shown)}", f"{height} x {width}, levels 0 to 255", pixels, words, frame, 1)


def _done(found: Preview, shown: Shown) -> str:
    """What the geometry does to the photo, whatever the order."""
    place = shown.placement
    steps = {
        "cropped": not _is_whole(found, shown),
        "resized": place.resized != place.laid,
        "mirrored": place.mirrors != place.flips,
        "padded": shown.margin > 0,
        "changed": bool(place.levels),
    }
    return ", ".join(word for word, is_done in steps.items() if is_done) or "as it is"


def _is_whole(found: Preview, shown: Shown) -> bool:
    """Whether all of the photo is seen, to the nearest pixel."""
    top, left, bottom, right = (round(edge) for edge in shown.source)
    return max(top, left) <= 0 and bottom >= found.height and right >= found.width


def _as_model_sees(shown: Shown) -> Panel:
    """The tensor, its first channel shown as red, from its smallest value to its largest."""
    spec = shown.plan.spec
    low, high = float(shown.tensor.min()), float(shown.tensor.max())
    words = [f"Black is {low:.4g}, white is {high:.4g}: its own smallest and largest value."]
    if shown.channels == ["blue", "green", "red"]:
        words.insert(0, "Blue comes first (BGR), and is shown as red: right only if the model was trained on BGR.")
    line = f"{spec.dtype} {list(spec.shape)} {spec.layout}"
    first = "" if len(shown.channels) == 1 else ", channel 0 shown as red"
    return Panel("3  the tensor, as the model sees it", line + first, shown_as(shown.tensor, low, high), words)


# The values


def _histograms(sheet: Sheet, shown: Shown) -> None:
    """For each channel where its values lie, on one axis, above the ranges that are usual."""
    spec = shown.plan.spec
    is_small = max(-spec.low, spec.high) <= _FAR
    usual = _SMALL if is_small else _LARGE
    low, high = min(spec.low, usual[-1][0]), max(spec.high, *(end for _, end, _ in usual))
    pad = 0.03 * (high - low)
    axis = (low - pad, high + pad)
    tensor = shown.of_photo(shown.tensor)
    ends = shown.plan.values(np.tile(np.array([0, 255], np.float32), (len(shown.channels), 1))).astype(np.float64)
    top = sheet.y
    sheet.gap(_Plot.height)
    for index, name in enumerate(shown.channels):
        values = _sampled(tensor[:, :, index])
        plot = _Plot(sheet.draw, top, MARGIN + index * (SIDE + MARGIN), axis)
        label = name if len(shown.channels) == 1 else f"channel {index}: {name}"
        mean, std = tensor[:, :, index].mean(dtype=np.float64), tensor[:, :, index].std(dtype=np.float64)
        plot.caption(f"{label}, {values.min():.4g} to {values.max():.4g}, mean {mean:.3g}, std {std:.3g}")
        plot.span(*sorted(ends[index]))
        plot.bars(values, sorted(ends[index]), _CHANNELS[name])
        plot.ticks()
        plot.usual(usual)


def _sampled(values: Array) -> npt.NDArray[np.float64]:
    """At most about a million of the values, evenly taken, with the smallest and the largest."""
    step = max(1, int(np.sqrt(values.size / _SAMPLES)))
    some = values[::step, ::step].ravel()
    return np.append(some, [values.min(), values.max()]).astype(np.float64)


class _Plot:
    """One histogram: an axis of ``SIDE`` pixels."""

    height = 30 + _PLOT + 28 + 3 * 22 + 10

    def __init__(self, draw: ImageDraw.ImageDraw, y: int, x: int, axis: tuple[float, float]) -> None:
        self._draw, self._x, self._axis = draw, x, axis
        self._y, self._top, self._bottom = y, y + 30, y + 30 + _PLOT

    def _at(self, value: float) -> int:
        low, high = self._axis
        return self._x + round((value - low) / (high - low) * (SIDE - 1))

    def caption(self, text: str) -> None:
        """What stands above."""
        self._draw.text((self._x, self._y), text, INK, _font(16))

    def span(self, low: float, high: float) -> None:
        """What the pipeline can give: from black to white, or the other way round."""
        self._draw.rectangle((self._at(low), self._top, self._at(high), self._bottom), fill="#f3f5f7")

    def bars(self, values: npt.NDArray[np.float64], ends: Sequence[float], colour: str) -> None:
        """How often each value comes; the highest bar fills the plot.

        A bar is as many whole levels wide as come near to its width: with other widths some bars hold one level more
        than others, and the plot looks like a comb.
        """
        low, high = self._axis
        level = (ends[1] - ends[0]) / 255 or (high - low) / SIDE
        width = level * max(1, round(_BAR * (high - low) / SIDE / level))
        edges = np.arange(ends[0] - level / 2, ends[1] + width, width)
        counts, _ = np.histogram(values, edges)
        for count, first, last in zip(counts, edges[:-1], edges[1:], strict=True):
            if count:
                top = self._bottom - max(2, round(float(count / counts.max()) * _PLOT))
                left, right = self._at(first), self._at(last)
                self._draw.rectangle((left, top, max(right - 1, left), self._bottom), colour)

    def ticks(self) -> None:
        """The axis and its numbers."""
        self._draw.line((self._x, self._bottom, self._x + SIDE - 1, self._bottom), FAINT)
        for tick in _ticks(*self._axis):
            x = self._at(tick)
            self._draw.line((x, self._bottom, x, self._bottom + 4), FAINT)
            self._draw.text((x, self._bottom + 6), f"{tick:g}", FAINT, _font(14), anchor="ma")

    def usual(self, ranges: Sequence[tuple[float, float, str]]) -> None:
        """The ranges that models are trained on, each a bar with its name in it, or beside it."""
        y = self._bottom + 32
        for low, high, name in ranges:
            left, right = self._at(low), self._at(high)
            self._draw.rectangle((left, y, right, y + 18), fill="#e3e7eb")
            is_inside = _font(13).getlength(name) < right - left - 4
            place, anchor = ((left + right) // 2, "mm") if is_inside else (right + 6, "lm")
            self._draw.text((place, y + 10), name, FAINT, _font(13), anchor=anchor)
            y += 22


def _ticks(low: float, high: float) -> list[float]:
    """About six round numbers from ``low`` to ``high``."""
    raw = (high - low) / 6
    unit = 10.0 ** np.floor(np.log10(raw))
    step = next(float(unit * factor) for factor in (1, 2, 5, 10) if unit * factor >= raw)
    return [float(step * count) + 0.0 for count in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


# The sheet


class Sheet:
    """A page that grows downwards."""

    def __init__(self) -> None:
        self._image = Image.new("RGB", (WIDTH, 64), _PAPER)
        self.draw = ImageDraw.Draw(self._image)
        self.y = MARGIN

    def image(self) -> Picture:
        """What was drawn."""
        self._grow(self.y + MARGIN // 2)
        return self._image.crop((0, 0, WIDTH, self.y + MARGIN // 2))

    def gap(self, height: int) -> None:
        """Leave room."""
        self.y += height
        self._grow(self.y)

    def _grow(self, height: int) -> None:
        if height > self._image.height:
            page = Image.new("RGB", (WIDTH, height + 1024), _PAPER)
            page.paste(self._image)
            self._image, self.draw = page, ImageDraw.Draw(page)

    def heading(self, title: str, line: str) -> None:
        """The first words of the page."""
        self.text(_shortened(title, 34, WIDTH - 2 * MARGIN), 34, INK)
        self.text(_shortened(line, 18, WIDTH - 2 * MARGIN), 18, FAINT)
        self.gap(4)
        self.draw.line((MARGIN, self.y, WIDTH - MARGIN, self.y), _LINE, 2)
        self.gap(20)

    def text(self, text: str, size: int, colour: str = INK) -> None:
        """A paragraph of the whole width."""
        for line in _wrapped(text, size, WIDTH - 2 * MARGIN):
            self._grow(self.y + 2 * size)
            self.draw.text((MARGIN, self.y), line, colour, _font(size))
            self.gap(round(1.45 * size))

    def warning(self, text: str) -> None:
        """A paragraph that nobody overlooks."""
        lines = _wrapped(text, 20, WIDTH - 4 * MARGIN)
        height = 30 * len(lines) + 24
        self._grow(self.y + height + MARGIN)
        self.draw.rectangle((MARGIN, self.y, WIDTH - MARGIN, self.y + height), _WRONG_PAPER)
        self.draw.rectangle((MARGIN, self.y, MARGIN + 6, self.y + height), _WRONG)
        for index, line in enumerate(lines):
            self.draw.text((2 * MARGIN, self.y + 14 + 30 * index), line, _WRONG, _font(20))
        self.gap(height + 16)

    def panels(self, panels: Sequence[Panel]) -> None:
        """Pictures side by side, with equal heights for what stands above and below them."""
        self._grow(self.y + SIDE + 400)
        top = self.y + 62
        ends = []
        for index, panel in enumerate(panels):
            x = MARGIN + index * (SIDE + MARGIN)
            self.draw.text((x, self.y), _shortened(panel.title, 22, SIDE), INK, _font(22))
            self.draw.text((x, self.y + 31), _shortened(panel.line, 15, SIDE), FAINT, _font(15))
            self._image.paste(Image.fromarray(np.ascontiguousarray(panel.pixels)), (x, top))
            if panel.frame is not None:
                edges = [edge + start for edge, start in zip(panel.frame, (top, x) * 2, strict=True)]
                thick = panel.thickness
                corners = (edges[1] - thick, edges[0] - thick, edges[3] + thick - 1, edges[2] + thick - 1)
                self.draw.rectangle(corners, outline=CROP, width=thick)
            y = top + panel.pixels.shape[0] + 14
            for words in panel.words:
                for line in _wrapped(words, 16, SIDE):
                    self.draw.text((x, y), line, INK, _font(16))
                    y += 23
            ends.append(y)
        self.gap(max(ends) - self.y)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _wrapped(text: str, size: int, width: int) -> list[str]:
    """Lines that fit; a word that does not is cut."""
    font = _font(size)
    lines, line = [], ""
    for word in printable(text).split(" "):
        if line and font.getlength(f"{line} {word}") > width:
            lines.append(line)
            line = ""
        line = _shortened(f"{line} {word}" if line else word, size, width)
    return [*lines, line]


def _shortened(text: str, size: int, width: int) -> str:
    """A line that fits: where it is too long, its middle is left out."""
    text, font = printable(text), _font(size)
    if font.getlength(text[: 4 * width]) <= width:
        return text
    kept = len(text)
    while font.getlength(short := f"{text[: kept // 2]}...{text[len(text) - kept // 2 :]}") > width and kept:
        kept = min(kept - 1, round(kept * 0.9))
    return short
