"""Finds the libraries whose pixel values pixprep reproduces. A library is imported only when it is needed."""

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
    "scipy": ("SciPy", "scipy", "scipy"),
    "keras": ("Keras", "keras", "keras tensorflow-cpu"),
    "albumentations": ("Albumentations", "albumentations", "albumentations"),
}
"""Title, module and PyPI packages of each library, by the key of the library."""


@dataclass(frozen=True)
class Library:
    """Library that may or may not be installed.

    Attributes:
        title: Name of the library in messages.
        version: Version of the library, or None if it cannot be used.
        problem: Reason why the library cannot be used.
        remedy: Command that installs the library, or an empty string if this does not solve the problem.
    """

    title: str
    version: str | None = None
    problem: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.title} {self.version}" if self.version else self.title


@cache
def find(key: str) -> Library:
    """Import the library with this key in ``TABLE``, and return its version or the reason why it cannot be used."""
    title, module, packages = TABLE[key]
    remedy = f"pip install {packages}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors only
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # do not check PyPI for a newer version
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings at import do not affect the comparison
            version = _version(module)
            if key == "torchvision":  # torchvision's pixels are computed by PyTorch
                version += f" (PyTorch {_version('torch')})"
    except ModuleNotFoundError as error:
        is_missing = module.startswith(error.name or "?")
        return Library(title, None, "not installed" if is_missing else f"needs {error.name}", remedy)
    except Exception as error:  # noqa: BLE001  (broken installations raise various exceptions, such as RuntimeError)
        return Library(title, None, f"installed, but not usable: {str(error).partition(chr(10))[0]}", remedy)
    return Library(title, version)


def _version(module: str) -> str:
    """Return the version of a module, without a suffix such as ``+cpu``."""
    return str(import_module(module).__version__).partition("+")[0]


def absent(key: str) -> Library:
    """Return a ``Library`` that is marked as unusable, so that stored results are used instead."""
    return Library(TABLE[key][0], None, "not used, because frozen vectors were requested")
