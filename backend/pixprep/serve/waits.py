"""Waits between the attempts at something that fails again and again."""

from __future__ import annotations

CALM_S = 10.0  # what ran for so long begins at the first wait again


class Waits:
    """Counts the failures in a row of something that is tried again and again.

    Args:
        waits_s: before the next attempt after each failure; the last one counts for all that follow. None: give up.
    """

    def __init__(self, *waits_s: float | None) -> None:
        self._waits_s = waits_s
        self.failures = 0

    def count(self, *, ran_s: float) -> float | None:
        """Count a failure of what ran for so many seconds; the wait in seconds, None: give up."""
        self.failures = 1 if ran_s > CALM_S else self.failures + 1
        return self._waits_s[min(self.failures, len(self._waits_s)) - 1]


def waits_of_model() -> Waits:
    """A model is tried for ever: the others serve meanwhile."""
    return Waits(0.0, 1.0, 2.0, 2.0, 2.0, 5.0)


def waits_of_triton() -> Waits:
    """After ten failures in a row, which take a minute or so, whoever started us should know."""
    return Waits(0.0, 1.0, 2.0, *[3.0] * 7, None)


def after(wait_s: float) -> str:
    """Words for a wait."""
    return f" in {wait_s:g} s" if wait_s else ""
