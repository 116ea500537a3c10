"""Profiles: for each library one row of facts, and its windows. NumPy only: the ops and both kernels read them."""

from __future__ import annotations

from collections.abc import Mapping

from pixprep.profiles import dali, opencv, pillow, tensorflow, torch, torchvision
from pixprep.profiles.profile import Method, Profile
from pixprep.spec import Like

PROFILES: Mapping[Like, Profile] = {
    "pillow": pillow.PROFILE,
    "pillow12": pillow.PROFILE_12,
    "torchvision": torchvision.PROFILE,
    "torch": torch.PROFILE,
    "opencv": opencv.PROFILE,
    "tensorflow": tensorflow.PROFILE,
    "dali": dali.PROFILE,
}

__all__ = ["PROFILES", "Method", "Profile"]
