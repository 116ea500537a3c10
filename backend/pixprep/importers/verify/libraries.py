"""The libraries whose pixel values pixprep reproduces. Each is imported only when it is requested."""

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
"""Libraries by key: the title, the module, and the name for pip."""


@dataclass(frozen=True)
class Library:
    """A library, which may not be installed.

    Attributes:
        title: Name of the library as people write it.
        version: Version of the library. None if it cannot be used.
        problem: Reason why it cannot be used.
        remedy: Command that installs it. Empty if that would not help.
    """

    title: str
    version: str | None = None
    problem: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.title} {self.version}" if self.version else self.title


@cache
def find(key: str) -> Library:
    """Import a library of the table and return it."""
    title, module, packages = TABLE[key]
    remedy = f"pip install {packages}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it checks PyPI for newer versions
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings at import do not concern pixels
            version = _version(module)
            if key == "torchvision":  # PyTorch computes torchvision's pixels
                version += f" (PyTorch {_version('torch')})"
    except ModuleNotFoundError as error:
        is_itself = module.startswith(error.name or "?")
        return Library(title, None, "not installed" if is_itself else f"needs {error.name}", remedy)
    except Exception as error:  # noqa: BLE001  (a broken installation may raise anything: torchvision's RuntimeError)
        return Library(title, None, f"installed, but not usable: {str(error).partition(chr(10))[0]}", remedy)
    return Library(title, version)


def _version(module: str) -> str:
    """Return the version of a module, without the suffix of its build."""
    return str(import_module(module).__version__).partition("+")[0]


def absent(key: str) -> Library:
    """Return a library of the table as if it were not installed."""
    return Library(TABLE[key][0], None, "not used, because frozen vectors were requested")
