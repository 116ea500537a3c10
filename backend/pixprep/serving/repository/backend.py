"""Finds the entry point of the pixprep backend, and writes the backend for a Triton that does not use this Python."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pixprep import cores
from pixprep.errors import SetupError
from pixprep.serving.repository.writer import Content, write

PACKAGE = Path(__file__).parents[2]


def entry_point() -> Path:
    """Return the path of the backend's ``model.py``, which is next to the package in a checkout or an installation."""
    in_checkout = PACKAGE.parent / "model.py"
    return in_checkout if in_checkout.is_file() else PACKAGE / "serving" / "triton" / "backend_model.py"


@cache
def onnx_classifier() -> str:
    """Return the source code of the Python model that runs an ONNX file, with the only import from pixprep inlined."""
    text = Path(__file__).with_name("onnx_classifier.py").read_text(encoding="utf-8")
    return text.replace("from pixprep.cores import cores\n", Path(cores.__file__).read_text(encoding="utf-8"))


def install_backend(directory: Path) -> Path:
    """Write the backend, which consists of ``model.py`` and this package, to a backend directory of Triton.

    Returns:
        The folder ``directory/pixprep``. An existing folder is replaced after the new folder has been written
        completely.

    Raises:
        SetupError: The folder cannot be written, or exists and is not a backend of pixprep.
    """
    target = directory / "pixprep"
    ours = [target / "pixprep" / folder / "triton" / "model.py" for folder in ("serving", "")]
    if target.exists() and not any(map(Path.is_file, ours)):
        raise SetupError(f"{target} exists, but was not installed by pixprep: choose a different folder")
    package = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files: dict[str, Content] = {f"pixprep/{path.relative_to(PACKAGE)}": path.resolve() for path in package}
    files |= dict.fromkeys(("model.py", "pixprep/serving/triton/backend_model.py"), entry_point().resolve())
    write(directory, {target.name: files})
    return target
