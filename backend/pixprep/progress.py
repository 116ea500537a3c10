"""Progress bar for long operations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class Progress:
    """Progress bar on stderr, shown if stderr is a terminal or belongs to a notebook."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None

    def to(self, done: int, total: int | None) -> None:
        """Update the bar to ``done`` of ``total`` items; ``total`` is None if it is unknown.

        The rate and the remaining time do not count the items of the first call, because an earlier run may have
        completed them.
        """
        if self._bar is None:
            if find_spec("tqdm") is None:  # the features that need tqdm report that it is missing
                return
            tqdm = import_module("tqdm")
            hidden = False if "ipykernel" in sys.modules else None  # None: hide the bar unless stderr is a terminal
            unit = f" {self._unit}"
            self._bar = tqdm.tqdm(total=total, unit=unit, leave=False, disable=hidden, initial=done)
        self._bar.update(done - self._bar.n)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Context manager in which output is printed without the bar in between."""
        if self._bar is None:
            yield
        else:
            with self._bar.external_write_mode():
                yield

    def __enter__(self) -> Progress:  # noqa: PYI034  (typing.Self requires Python 3.11)
        return self

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __exit__(self, *_: object) -> None:
        self.close()
