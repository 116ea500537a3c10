"""The backend as files: Triton's entry point, and the folder that a Triton outside of this Python loads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pixprep import cores
from pixprep.errors import SetupError
from pixprep.serving.repository.writer import Content, write

PACKAGE = Path(__file__).parents[2]


def entry_point() -> Path:
    """Path of the backend's ``model.py``: next to the package in a checkout, inside it in an installed wheel."""
    beside = PACKAGE.parent / "model.py"
    return beside if beside.is_file() else PACKAGE / "serving" / "triton" / "backend_model.py"


@cache
def onnx_classifier() -> str:
    """Text of the Python model that runs an ONNX file, with the module of pixprep that it imports written into it."""
    text = Path(__file__).with_name("onnx_classifier.py").read_text(encoding="utf-8")
    return text.replace("from pixprep.cores import cores\n", Path(cores.__file__).read_text(encoding="utf-8"))


def install_backend(directory: Path) -> Path:
    """Write the self-contained backend, ``pixprep/model.py`` and the package, into a backend directory.

    Returns:
        The folder ``directory/pixprep``. It replaces an existing one after the new one is completely written.

    Raises:
        SetupError: The folder cannot be written, or something else already has its name.
    """
    target = directory / "pixprep"
    ours = [target / "pixprep" / folder / "triton" / "model.py" for folder in ("serving", "")]
    if target.exists() and not any(map(Path.is_file, ours)):
        raise SetupError(f"{target}: exists, and is not a backend that pixprep installed: choose a different folder")
    package = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files: dict[str, Content] = {f"pixprep/{path.relative_to(PACKAGE)}": path.resolve() for path in package}
    files |= dict.fromkeys(("model.py", "pixprep/serving/triton/backend_model.py"), entry_point().resolve())
    write(directory, {target.name: files})
    return target
