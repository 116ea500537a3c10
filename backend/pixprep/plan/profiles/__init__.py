"""Profiles: for each library one row of facts, its windows and its original. NumPy only: ops and kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import get_args

from pixprep.plan.profiles.profile import Method, Original, Profile
from pixprep.spec import Like

PROFILES: Mapping[Like, Profile] = {
    like: import_module(f"pixprep.plan.profiles.{like}").PROFILE for like in get_args(Like)
}
"""By the name that ``like`` has: each is the module of that name."""

__all__ = ["PROFILES", "Method", "Original", "Profile"]
