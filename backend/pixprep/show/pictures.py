"""Draws a photo in the stages of a pipeline, with the crop, the padding, and histograms of the values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders import Encoded
from pixprep.engine.engine import Engine
from pixprep.engine.options import DEFAULT, EngineOptions
from pixprep.patch_layout import PatchLayout, ViewLayout
from pixprep.pipeline.ops import Decode, Letterbox, Tensor
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import black_margins, odd_ranges
from pixprep.show.drawing import (
    FAINT,
    INK,
    MARGIN,
    PLOT_HEIGHT,
    SIDE,
    U8,
    Box,
    Panel,
    Picture,
    Sheet,
    fitted,
    histogram,
    shown_as,
    with_grid,
)
from pixprep.show.preview import Preview, Shown, notes, preview

Array = npt.NDArray[Any]

MOST = 4
"""Maximum number of tensors of one pipeline that are drawn."""

_CHANNELS = {"red": "#e5484d", "green": "#30a46c", "blue": "#3e63dd", "gray": "#6e7781"}
_DIMMED = 0.3
_SAMPLES = 1 << 20
_SMALL = ((0.0, 1.0, "0 to 1"), (-1.0, 1.0, "-1 to 1"), (-2.12, 2.64, "ImageNet's mean and std"))
_LARGE = ((0.0, 255.0, "0 to 255"), (-124.0, 152.0, "0 to 255 less a mean"))
_FAR = 20.0


def stages(pipeline: Pipeline, encoded: Encoded, *, title: str = "", name: str = "") -> Picture:
    """Draw one photo in the stages of a pipeline: the decoded photo, the resized photo, and the tensor.

    Args:
        pipeline: Pipeline to show. At most its first four tensors are drawn.
        encoded: Encoded bytes of the photo.
        title: Title of the picture, such as the name of the pipeline file.
        name: Name of the photo.

    Returns:
        RGB picture, about 1,700 pixels wide, which a notebook can display.

    Raises:
        ImageError: The photo cannot be decoded, or a crop of the pipeline exceeds it.
    """
    found = preview(pipeline, encoded)
    photo = photo_of(pipeline, encoded, found)
    sheet = Sheet()
    sheet.heading(title or "pipeline", f"{name or 'photo'}, {found.width} pixels wide, {found.height} high")
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
    """Yield the values of numeric outputs for this photo as text."""
    for name, output in pipeline.for_photos().plan.numbers.items():
        if pipeline.plan.numbers[name].kind == "seconds_per_patch":  # the picture is a single frame without a duration
            continue
        placement = output.geometry.place(found.height, found.width) if output.geometry else None
        numbers = np.asarray(output.numbers(found.height, found.width, placement))
        if numbers.shape == (len(output.words),):
            text = ", ".join(f"{word} {number:.6g}" for word, number in zip(output.words, numbers, strict=True))
        else:
            text = f"{' x '.join(map(str, numbers.shape))} numbers ({', '.join(output.words)})"
        yield f'output "{name}": {text}'


# The stages of one tensor


def _tensor(sheet: Sheet, pipeline: Pipeline, found: Preview, photo: U8, shown: Shown) -> None:
    spec = shown.plan.spec
    if len(found.tensors) > 1:
        sheet.text(f'tensor "{shown.name}"', 26, INK)
    sheet.panels(panels(pipeline, found, photo, shown))
    sheet.gap(8)
    sheet.text("4  the values of the tensor", 22, INK)
    range_ = f"{spec.low:.4g} to {spec.high:.4g}"
    without = ", without the padding" if 0 < shown.margin < 1 else ""
    sheet.text(
        f"values of the photo{without}; range of the pipeline: {range_}; below the axis: common value ranges",
        15,
        FAINT,
    )
    sheet.gap(8)
    _histograms(sheet, shown)
    for note in notes(shown):
        sheet.text(f"note: {note}", 16, INK)
    sheet.gap(16)


def panels(pipeline: Pipeline, found: Preview, photo: U8, shown: Shown) -> list[Panel]:
    """Return three panels: the photo, the pixels of a tensor before normalization, and the tensor itself.

    ``photo`` is the result of ``photo_of``.
    """
    return [_decoded(pipeline, found, photo, shown), _placed(found, shown), _as_model_sees(shown)]


def photo_of(pipeline: Pipeline, encoded: Encoded, found: Preview, options: EngineOptions = DEFAULT) -> U8:
    """Decode the photo and fit it to the square with the engine. Return uint8 (height, width, 1 or 3), RGB or gray."""
    decode = pipeline.for_photos().side_ops[0]
    assert isinstance(decode, Decode)
    whole = Decode(
        color="gray" if pipeline.plan.is_gray else "rgb",
        apply_exif_orientation=decode.apply_exif_orientation,
        chroma=decode.chroma,
        idct=decode.idct,
        alpha="drop" if decode.alpha == "keep" else decode.alpha,
        window=decode.window,
        gray_like=decode.gray_like,
    )
    box = Letterbox(height=SIDE, width=SIDE, anchor="top_left", enlarge=False)
    shrink = Pipeline([whole, box, Tensor(dtype="uint8", layout="hwc")])
    with Engine(shrink, **vars(replace(options, threads=1))) as engine:
        (pixels,) = engine.run([encoded])
        if isinstance(pixels, Exception):
            raise pixels
        height, width = engine.plan.place(found.height, found.width).placements["tensor"].resized
    shown: U8 = pixels[:height, :width]
    return shown


def _decoded(pipeline: Pipeline, found: Preview, photo: U8, shown: Shown) -> Panel:
    """Return a panel of the photo with a frame around the region that the model sees. All other pixels are darker."""
    pixels = fitted(photo)
    box = source_box(found, shown, pixels.shape[:2])
    top, left, bottom, right = box
    dimmed = (pixels * _DIMMED).astype(np.uint8)
    dimmed[top:bottom, left:right] = pixels[top:bottom, left:right]
    color = "gray" if pipeline.plan.is_gray else "RGB"
    turned = "applied" if pipeline.for_photos().plan.apply_exif_orientation else "ignored"
    if shown.is_empty:
        words = ["The model does not see any part of the photo."]
    elif _is_whole(found, shown):
        words = ["The model sees the whole photo."]
    else:
        edges = source_box(found, shown, (found.height, found.width))
        words = [f"The model sees rows {edges[0]} to {edges[2] - 1}, columns {edges[1]} to {edges[3] - 1} (the frame)."]
    return Panel(
        "1  the photo, decoded",
        f"{found.width} wide, {found.height} high, {color}, EXIF orientation {turned}",
        dimmed,
        words,
        None if shown.is_empty else box,
    )


def source_box(found: Preview, shown: Shown, size: tuple[int, ...]) -> Box:
    """Return (top, left, bottom, right) of the region that the model sees, for a picture of the photo with ``size``."""
    if shown.is_empty:
        return (0, 0, 0, 0)
    scales = (size[0] / found.height, size[1] / found.width) * 2
    limits = (size[0], size[1]) * 2
    edges = (min(max(round(edge * s), 0), limit) for edge, s, limit in zip(shown.source, scales, limits, strict=True))
    top, left, bottom, right = edges
    return top, left, max(bottom, top + 1), max(right, left + 1)


def _placed(found: Preview, shown: Shown) -> Panel:
    """Return a panel of the tensor's pixels in their true colors, with a line around the photo if there is padding."""
    height, width = shown.placement.size
    pixels = shown_as(shown.levels[:, :, np.argsort(shown.plan.channels[: len(shown.channels)])], 0, 255)
    words = [f"{text[0].upper()}{text[1:]}." for text in shown.plan.geometry.words()] or ["The geometry is unchanged."]

    frame = None
    if shown.margin and not shown.is_empty and not shown.is_moved:
        scales = (pixels.shape[0] / height, pixels.shape[1] / width) * 2
        top, left, bottom, right = (round(edge * scale) for edge, scale in zip(shown.window, scales, strict=True))
        frame = (top, left, bottom, right)
    if shown.margin and not shown.is_moved:
        fill = shown.plan.fill[:1] if len(set(shown.plan.fill)) == 1 else shown.plan.fill
        words.append(f"The padding has the pixel value {', '.join(map(str, fill))}.")
    patches = shown.plan.spec.patches
    if isinstance(patches, ViewLayout):
        rows, columns = shown.placement.cuts
        pixels = with_grid(pixels, rows, columns)
        whole = f" The {patches.thumbnail} view is the whole image in a size of its own." if rows * columns > 1 else ""
        words.append(f"The image is cut into {rows} x {columns} slices.{whole}")
    elif patches is not None:
        rows, columns = (side // multiple for side, multiple in zip((height, width), patches.multiples, strict=True))
        pixels = with_grid(pixels, rows, columns)
        words += _grid_words(patches, height, width)
    return Panel(
        f"2  {_done(found, shown)}", f"{width} wide, {height} high, pixel values 0 to 255", pixels, words, frame, 1
    )


def _grid_words(patches: PatchLayout, height: int, width: int) -> Iterator[str]:
    """Yield sentences about the grid that ``_placed`` draws."""
    rows, columns = patches.grid(height, width)
    high, wide = patches.size
    yield f"The grid has {rows} rows and {columns} columns of {high} x {wide} pixels."
    count, total = patches.count(height, width), patches.total(height, width)
    if patches.merge > 1:
        yield f"The lines separate merge windows of {patches.merge} x {patches.merge} patches."
        yield f"The {count // patches.merge**2} windows become the image tokens of the language model."
    if total > count:
        yield f"The {patches.thumbnail} of the {total} tiles is a thumbnail, which shows the whole image."


def _done(found: Preview, shown: Shown) -> str:
    """Return a description of the geometric operations on the photo, in a fixed order."""
    place = shown.placement
    steps = {
        "cropped": not _is_whole(found, shown),
        "resized": not place.is_kept,
        "mirrored": place.mirrors != place.flips,
        "padded": shown.margin > 0,
        "changed": bool(place.photo or place.levels),
    }
    return ", ".join(word for word, is_done in steps.items() if is_done) or "unchanged"


def _is_whole(found: Preview, shown: Shown) -> bool:
    """Return whether the whole photo is visible in the tensor, rounded to the nearest pixel."""
    top, left, bottom, right = (round(edge) for edge in shown.source)
    return max(top, left) <= 0 and bottom >= found.height and right >= found.width


def _as_model_sees(shown: Shown) -> Panel:
    """Return a panel of the tensor, scaled from its minimum to its maximum, with channel 0 shown as red."""
    spec = shown.plan.spec
    low, high = float(shown.tensor.min()), float(shown.tensor.max())
    words = [f"Black is {low:.4g}, white is {high:.4g} (minimum and maximum of the tensor)."]
    if shown.channels == ["blue", "green", "red"]:
        words.insert(0, "Blue is channel 0 (BGR), shown as red. This is correct only if the model was trained on BGR.")
    line = f"{spec.dtype} {shown.shape} {spec.layout or spec.patches}"
    first = "" if len(shown.channels) == 1 else ", channel 0 shown as red"
    return Panel("3  the tensor, as the model sees it", line + first, shown_as(shown.tensor, low, high), words)


# The values


def _histograms(sheet: Sheet, shown: Shown) -> None:
    """Draw the histograms of all color channels with the same axis, above common value ranges of models."""
    spec = shown.plan.spec
    is_small = max(-spec.low, spec.high) <= _FAR
    usual = _SMALL if is_small else _LARGE
    low, high = min(spec.low, usual[-1][0]), max(spec.high, *(end for _, end, _ in usual))
    pad = 0.03 * (high - low)
    tensor = shown.of_photo(shown.tensor)
    ends = shown.plan.values(np.tile(np.array([0, 255], np.float32), (len(shown.channels), 1))).astype(np.float64)
    top = sheet.y
    sheet.gap(PLOT_HEIGHT)
    for index, name in enumerate(shown.channels[:3]):  # without alpha: a row of the sheet has three columns
        channel = tensor[:, :, index]
        values = _sampled(channel)
        label = name if len(shown.channels) == 1 else f"channel {index}: {name}"
        mean, std = channel.mean(dtype=np.float64), channel.std(dtype=np.float64)
        histogram(
            sheet.draw,
            (MARGIN + index * (SIDE + MARGIN), top),
            f"{label}, {values.min():.4g} to {values.max():.4g}, mean {mean:.3g}, std {std:.3g}",
            values,
            axis=(low - pad, high + pad),
            ends=sorted(ends[index]),
            colour=_CHANNELS[name],
            usual=usual,
        )


def _sampled(values: Array) -> npt.NDArray[np.float64]:
    """Return at most about a million evenly spaced values, together with the minimum and the maximum."""
    step = max(1, int(np.sqrt(values.size / _SAMPLES)))
    some = values[::step, ::step].ravel()
    return np.append(some, [values.min(), values.max()]).astype(np.float64)
