"""Progress of what takes long, as a bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class Progress:
    """A bar on stderr, if that is a terminal or a notebook's."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None

    def to(self, done: int, total: int | None) -> None:
        """Show how far it is; ``total``: None where nobody knows."""
        if self._bar is None:
            if find_spec("tqdm") is None:  # what needs its extra says so
                return
            tqdm = import_module("tqdm")
            hidden = False if "ipykernel" in sys.modules else None  # None: where stderr is no terminal
            self._bar = tqdm.tqdm(total=total, unit=f" {self._unit}", leave=False, disable=hidden)
        self._bar.update(done - self._bar.n)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Print inside, so that the bar does not stand in the middle of a line."""
        if self._bar is None:
            yield
        else:
            with self._bar.external_write_mode():
                yield

    def __enter__(self) -> Progress:  # noqa: PYI034  (Self is newer than Python 3.10)
        return self

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __exit__(self, *_: object) -> None:
        self.close()
