"""The backend as files: Triton's entry point, and the folder that a Triton outside of this Python loads."""

from __future__ import annotations

import shutil
from pathlib import Path

from pixprep.errors import SetupError

PACKAGE = Path(__file__).parents[1]


def entry_point() -> Path:
    """The backend's ``model.py``: in a checkout beside the package, in an installed wheel inside it."""
    beside = PACKAGE.parent / "model.py"
    return beside if beside.is_file() else PACKAGE / "triton" / "backend_model.py"


def install_backend(directory: Path) -> Path:
    """Write the self-contained backend, ``pixprep/model.py`` with the package beside it, into a backend directory.

    Returns:
        The folder ``directory/pixprep``. What lay there is replaced.

    Raises:
        SetupError: the folder cannot be written, or holds something else of that name.
    """
    target = directory / "pixprep"
    if target.exists() and not (target / "pixprep" / "triton" / "model.py").is_file():
        raise SetupError(f"{target}: is there, and is no backend that pixprep installed: choose another folder")
    try:
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
        shutil.copyfile(entry_point(), target / "model.py")
        shutil.copytree(PACKAGE, target / "pixprep", ignore=shutil.ignore_patterns("__pycache__", "backend_model.py"))
        shutil.copyfile(entry_point(), target / "pixprep" / "triton" / "backend_model.py")
    except OSError as error:
        raise SetupError(
            f"{target}: {error.strerror}: choose a folder that you may write, or run as its owner"
        ) from None
    return target
