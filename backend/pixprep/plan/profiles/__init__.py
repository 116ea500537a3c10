"""Defines the profiles, which describe the arithmetic of each library as data for ops and kernels.

Each library has a module with one object for each kind of arithmetic: resizes, warps, color changes and blurs. The
modules do not import the libraries themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import get_args

from pixprep.plan.profiles.profile import Blur, Colours, Method, Original, Profile, Warps
from pixprep.spec import BlendLike, BlurLike, Like, WarpLike

_MODULES = {like: import_module(f"pixprep.plan.profiles.{like}") for like in get_args(Like)}
PROFILES: Mapping[Like, Profile] = {like: module.PROFILE for like, module in _MODULES.items()}
"""Profile of each library's resize, by the name of the library in ``like``. The next three tables contain the profiles
of warps, color changes and blurs."""
WARPS: Mapping[WarpLike, Warps] = {like: _MODULES[like].WARPS for like in get_args(WarpLike)}
COLOURS: Mapping[BlendLike, Colours] = {like: _MODULES[like].COLOURS for like in get_args(BlendLike)}
BLURS: Mapping[BlurLike, Blur] = {like: _MODULES[like].BLUR for like in get_args(BlurLike)}

__all__ = ["BLURS", "COLOURS", "PROFILES", "WARPS", "Blur", "Colours", "Method", "Original", "Profile", "Warps"]
