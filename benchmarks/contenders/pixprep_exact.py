"""pixprep with ``exact``: the pixels are Pillow's."""

from __future__ import annotations

from contenders import Run, pixprep_fast

PACKAGES = pixprep_fast.PACKAGES
MEAN_LEVELS = 0.0


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    return pixprep_fast.engine(filter_name, threads, exact=True)
