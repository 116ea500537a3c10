"""The libraries that pixprep claims to equal: which of them is installed, found only when it is asked for."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

TABLE = {
    "pillow": ("Pillow", "PIL", "pillow"),
    "torchvision": ("torchvision", "torchvision", "torchvision"),
    "opencv": ("OpenCV", "cv2", "opencv-python-headless"),
    "tensorflow": ("TensorFlow", "tensorflow", "tensorflow-cpu"),
    "dali": ("DALI", "nvidia.dali", "nvidia-dali-cuda120"),
    "timm": ("timm", "timm", "timm"),
    "transformers": ("transformers", "transformers", "transformers torchvision"),
    "keras": ("Keras", "keras", "keras tensorflow-cpu"),
    "numpy": ("NumPy", "numpy", "numpy"),
}
"""By key: what it is called, what is imported, what pip installs."""


@dataclass(frozen=True)
class Library:
    """A library, here or not.

    Attributes:
        title: as people call it.
        packages: what to ``pip install``; empty if that would not help.
        version: None if it cannot be used.
        problem: why it cannot be used.
    """

    title: str
    packages: str
    version: str | None
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether it can be compared with."""
        return self.version is not None

    @property
    def remedy(self) -> str:
        """The command that installs it; empty if that would not help."""
        return f"pip install {self.packages}" if self.packages else ""

    def without(self, problem: str) -> Library:
        """The same library, not usable for a reason."""
        return replace(self, packages="", version=None, problem=problem)

    def __str__(self) -> str:
        return f"{self.title} {self.version}" if self.version else self.title


@cache
def find(key: str) -> Library:
    """A library of the table, imported."""
    title, module, packages = TABLE[key]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow greets at length
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library has to say at its import is not about pixels
            version = _version(module)
            if key == "torchvision":  # whose pixels PyTorch computes
                version += f" (PyTorch {_version('torch')})"
    except ModuleNotFoundError as error:
        is_itself = module.startswith(error.name or "?")
        return Library(title, packages, None, "not installed" if is_itself else f"needs {error.name}")
    except Exception as error:  # noqa: BLE001  (a broken installation may raise anything: torchvision's RuntimeError)
        return Library(title, packages, None, f"installed, but not usable: {str(error).partition(chr(10))[0]}")
    return Library(title, packages, version)


def _version(module: str) -> str:
    """Of a module, imported; without what says how it was built."""
    return str(import_module(module).__version__).partition("+")[0]


def absent(key: str) -> Library:
    """A library of the table as if it were not there; NumPy always is."""
    return find(key) if key == "numpy" else Library(TABLE[key][0], "", None, "left out for frozen vectors")
