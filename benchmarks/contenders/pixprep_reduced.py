"""pixprep with reduced decoding: libjpeg-turbo decodes large photos at 1/2, 1/4 or 1/8 of their size."""

from __future__ import annotations

from contenders import Run, pixprep_full

PACKAGES = pixprep_full.PACKAGES
MEAN_LEVELS = 2.0


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    return pixprep_full.running(pixprep_full.pipeline(filter_name, reduced=True), threads)
