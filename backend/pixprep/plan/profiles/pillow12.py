"""Pillow's ``Image.resize`` before Pillow 13, in which the horizontal pass always comes first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pixprep.plan.profiles import pillow
from pixprep.plan.profiles.profile import never_vertical_first

PROFILE = replace(
    pillow.PROFILE,
    title="Pillow 12",
    original=pillow.PROFILE.original._replace(resize=partial(pillow.original, order=12), order=12),
    is_vertical_first=never_vertical_first,
    alpha=None,  # not compared with Pillow 12
)
