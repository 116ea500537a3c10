"""Draws the worst image of a certificate: both results, their difference, and the surroundings of the worst pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.importers.verify.report import Certificate, Row
from pixprep.show.drawing import SIDE, Box, Panel, Picture, Sheet, fitted_size, shown_as

Array = npt.NDArray[Any]
NEAR = 8
"""Number of pixels that are shown on each side of the worst pixel."""


def worst_row(certificate: Certificate) -> Row | None:
    """Return the row to draw: the first row that exceeds its tolerance, or else the first row that differs.

    If no row differs, return None.
    """
    differing = [row for row in certificate.rows if row.pair is not None]
    return next((row for row in differing if not row.holds), differing[0] if differing else None)


def worst(certificate: Certificate) -> Picture | None:
    """Draw the worst image of the row that ``worst_row`` selects. Return None if no row differs."""
    row = worst_row(certificate)
    if row is None or row.pair is None:
        return None
    ours, theirs = row.pair
    sheet = Sheet()
    where = f'{row.stage} of "{row.output}"' if row.output else row.stage
    sheet.heading(f"{where}: {row.worst}", f"pixprep compared with {row.original}")
    if ours.shape != theirs.shape:
        sheet.warning(f"the shapes differ: pixprep {list(ours.shape)}, {row.original} {list(theirs.shape)}")
        return sheet.image()
    difference = _difference(ours, theirs)
    y, x, channel = (int(place) for place in np.unravel_index(int(difference.argmax()), difference.shape))
    finite = theirs[np.isfinite(theirs)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    most = float(difference[y, x, channel])
    amplified = difference.max(axis=2, keepdims=True)
    pooled, step = _pooled(amplified)
    marked = _around(ours.shape, y, x)
    share = float(np.mean(difference.max(axis=2) > 0))
    sheet.panels(
        [
            Panel("pixprep", _size(ours), shown_as(ours, low, high), [], marked),
            Panel(row.original, _size(theirs), shown_as(theirs, low, high), [], marked),
            Panel(
                "difference",
                f"white: {most:.4g}, black: equal",
                shown_as(pooled, 0, most),
                [f"{share:.2%} of the pixels differ."],
                _around(pooled.shape, y // step, x // step),
            ),
        ]
    )
    sheet.gap(24)
    size = f"from row {max(0, y - NEAR)}, column {max(0, x - NEAR)}"
    rows, columns = slice(max(0, y - NEAR), y + NEAR + 1), slice(max(0, x - NEAR), x + NEAR + 1)
    near = _around(ours[rows, columns].shape, y - rows.start, x - columns.start)
    sheet.panels(
        [
            Panel("around the worst pixel: pixprep", size, shown_as(ours[rows, columns], low, high), [], near),
            Panel(
                f"around the worst pixel: {row.original}", size, shown_as(theirs[rows, columns], low, high), [], near
            ),
            Panel("difference", "same scale as above", shown_as(amplified[rows, columns], 0, most), [], near),
        ]
    )
    sheet.gap(16)
    values = f"pixprep {ours[y, x, channel]:.8g}, the original {theirs[y, x, channel]:.8g}"
    words = f"row {y}, column {x}, channel {channel}: {values}, difference {most:.4g} (allowed: {row.tolerance})"
    if row.holds:
        sheet.text(f"The worst pixel is at {words}.", 20)
    else:
        sheet.warning(f"The worst pixel is at {words}.")
    return sheet.image()


def _difference(ours: Array, theirs: Array) -> Array:
    """Return absolute differences as float64. Differences that are NaN or infinite count as the largest difference."""
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    finite = difference[np.isfinite(difference)]
    most = 2 * float(finite.max(initial=0.5))
    return np.asarray(np.nan_to_num(difference, nan=most, posinf=most))


def _pooled(difference: Array) -> tuple[Array, int]:
    """Reduce a difference to the maximum of each square of pixels. Return the result and the squares' edge length.

    The maximum is used because an average would hide a single pixel.
    """
    step = -(-max(difference.shape[:2]) // SIDE)
    height, width = (-(-length // step) for length in difference.shape[:2])
    whole = np.zeros((height * step, width * step, 1))
    whole[: difference.shape[0], : difference.shape[1]] = difference
    return whole.reshape(height, step, width, step, 1).max(axis=(1, 3)), step


def _size(values: Array) -> str:
    colours = ", channel 0 shown as red" if values.shape[2] == 3 else ""
    return f"{values.shape[0]} x {values.shape[1]}, {values.dtype}{colours}"


def _around(shape: tuple[int, ...], y: int, x: int) -> Box:
    """Return the frame around one pixel of ``fitted`` values, with a gap if the pixel is small."""
    scale = fitted_size(shape)[0] / shape[0], fitted_size(shape)[1] / shape[1]
    room = 0 if min(scale) > 8 else 6
    top, left, bottom, right = y * scale[0], x * scale[1], (y + 1) * scale[0], (x + 1) * scale[1]
    return round(top) - room, round(left) - room, round(bottom) + room, round(right) + room
