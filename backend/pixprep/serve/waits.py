"""Waits between the attempts at something that fails again and again."""

from __future__ import annotations

CALM_S = 10.0  # what ran for so long begins at the first wait again
OF_MODEL = (0.0, 1.0, 2.0, 2.0, 2.0, 5.0)  # for ever: the other models serve meanwhile
OF_TRITON = (0.0, 1.0, 2.0, *[3.0] * 7, None)  # ten failures in a row take a minute or so: who started us should know


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


def after(wait_s: float) -> str:
    """Words for a wait."""
    return f" in {wait_s:g} s" if wait_s else ""
