"""pixprep with reduced decode: libjpeg-turbo gives a half, a quarter or an eighth where the source is larger."""

from __future__ import annotations

from contenders import Run, pixprep_full

PACKAGES = pixprep_full.PACKAGES
MEAN_LEVELS = 2.0


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    return pixprep_full.running(pixprep_full.pipeline(filter_name, reduced=True), threads)
