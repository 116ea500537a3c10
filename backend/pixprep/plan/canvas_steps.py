"""Defines the base class of the geometric steps: windows and flips of the canvas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pixprep.errors import ImageError
from pixprep.plan.draws.philox import Words
from pixprep.plan.placement import Span

if TYPE_CHECKING:
    from typing_extensions import Self

Beyond = Literal["fill", "pad", "refuse_smaller", "refuse_larger", "keep_larger"]


class Draws(Protocol):
    """Parameters of all steps for one image; see ``inputs.Drawing``."""

    def words(self, step: Any, rows: Span, columns: Span) -> Words:
        """Return the parameters of a step."""


class GeometryStep:
    """Base class of the geometric steps. By default, the parameters for an image specify a window or a flip.

    Attributes:
        sees: Fields of the sample on which the parameters depend; see ``Drawing.sees``.
        late: Reason why the step must come before ops that change pixel values. Empty if it may follow them.
        early: Reason why such ops must be applied to the whole image before the step. Empty if this is not necessary.
    """

    __slots__ = ()

    sees: ClassVar[tuple[str, ...]] = ()
    late: ClassVar[str] = ""
    early: ClassVar[str] = ""

    @property
    def is_inside(self) -> bool:
        """Whether the window is always entirely inside the canvas."""
        return True

    @property
    def axis(self) -> Literal["horizontal", "vertical"] | None:
        """Direction of the flip. None means that the step is a window."""
        return None

    @property
    def is_flip(self) -> bool:
        """Whether the step is a flip that may be exchanged with steps on pixel values."""
        return False

    @property
    def may_pad(self) -> bool:
        """Whether the step may add padding that a later resize resamples."""
        return not self.is_inside

    @property
    def is_random(self) -> bool:
        """Whether the parameters of the step are random."""
        return False

    def before_resize(self) -> Self:
        """Return the step for a position before a resize."""
        return self

    def apply(self, rows: Span, columns: Span, drawing: Draws) -> None:
        """Change the axes of a canvas.

        Args:
            rows: Vertical axis of the canvas.
            columns: Horizontal axis of the canvas.
            drawing: Parameters of the steps for the image.

        Raises:
            ImageError: DOES_NOT_FIT, BAD_INPUT: The parameters or the size of the canvas are not supported.
        """
        words = drawing.words(self, rows, columns)
        if self.axis is None:
            window = words["top"], words["left"], words["height"], words["width"]
            crop(rows, columns, window, beyond="refuse_smaller" if self.is_inside else "fill", is_fixed=True)
        elif words["flip"]:
            (rows if self.axis == "vertical" else columns).flip()


def crop(rows: Span, columns: Span, window: tuple[int, int, int, int], *, beyond: Beyond, is_fixed: bool) -> None:
    """Replace the canvas by the window (top, left, height, width), or raise ImageError as ``beyond`` specifies."""
    top, left, height, width = window
    if not (height and width):  # only possible with fractions
        raise ImageError("DOES_NOT_FIT", f"the window contains no pixel of {rows.canvas} x {columns.canvas}")
    larger = rows.canvas > height or columns.canvas > width
    is_inside = top >= 0 and left >= 0 and top + height <= rows.canvas and left + width <= columns.canvas
    if (beyond == "refuse_larger" and larger) or (beyond == "refuse_smaller" and not is_inside):
        what = "larger than the canvas of" if beyond == "refuse_larger" else "too small for the window of"
        where = f" at {top}, {left}" if is_fixed else ""
        raise ImageError(
            "DOES_NOT_FIT", f"{rows.canvas} x {columns.canvas} pixels are {what} {height} x {width}{where}"
        )
    rows.window(top, height)
    columns.window(left, width)
