"""The libraries that pixprep claims to equal: which of them is installed, found only when it is asked for."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from pixprep.plan.profiles import PROFILES

TABLE: dict[str, tuple[str, str, str]] = {
    **{
        like: (row.title, row.original.module, row.original.packages)
        for like, row in PROFILES.items()
        if row.original.key == like
    },
    "timm": ("timm", "timm", "timm"),
    "transformers": ("transformers", "transformers", "transformers torchvision"),
    "keras": ("Keras", "keras", "keras tensorflow-cpu"),
    "albumentations": ("Albumentations", "albumentations", "albumentations"),
}
"""Libraries by key: the title, the module, what pip installs."""


@dataclass(frozen=True)
class Library:
    """A library, installed or not.

    Attributes:
        title: as people write it.
        version: None if it cannot be used.
        problem: why it cannot be used.
        remedy: the command that installs it; empty if that would not help.
    """

    title: str
    version: str | None = None
    problem: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.title} {self.version}" if self.version else self.title


@cache
def find(key: str) -> Library:
    """A library of the table, imported."""
    title, module, packages = TABLE[key]
    remedy = f"pip install {packages}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it asks PyPI for a newer version of itself
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library warns of at its import is not about pixels
            version = _version(module)
            if key == "torchvision":  # PyTorch computes its pixels
                version += f" (PyTorch {_version('torch')})"
    except ModuleNotFoundError as error:
        is_itself = module.startswith(error.name or "?")
        return Library(title, None, "not installed" if is_itself else f"needs {error.name}", remedy)
    except Exception as error:  # noqa: BLE001  (a broken installation may raise anything: torchvision's RuntimeError)
        return Library(title, None, f"installed, but not usable: {str(error).partition(chr(10))[0]}", remedy)
    return Library(title, version)


def _version(module: str) -> str:
    """The version of a module, imported; without what says how it was built."""
    return str(import_module(module).__version__).partition("+")[0]


def absent(key: str) -> Library:
    """A library of the table as if it were not installed."""
    return Library(TABLE[key][0], None, "left out for frozen vectors")
