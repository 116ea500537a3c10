"""Lists the code in a model repository that Triton runs, except for code that pixprep wrote.

A repository that only contains pipelines, ONNX files and TensorRT plans is pure data. However, Triton also runs
programs that a repository contains or that its configurations specify. Such programs are listed, but not rejected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, shown
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.ops.faults import quoted
from pixprep.serving.repository.backend import entry_point, onnx_classifier
from pixprep.serving.repository.repository import Model, Repository

MAX_NOTES = 100
_STUB = "triton_python_backend_stub"
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_PYTHON = (".py", ".pyc", ".pyo", ".pth")
_PICKLES = (".pkl", ".pickle", ".joblib")
_PROGRAMS = {"pytorch": (".pt", ".pt2", ".pth"), "tensorflow": (".pb", ".graphdef")}
"""Names of backends whose model files contain programs, and the suffixes of these model files."""
_PARAMETERS = {
    "EXECUTION_ENV_PATH": "runs its bin/activate in a shell",
    "TRITON_BATCH_STRATEGY_PATH": "a shared library",
    "CPU_EXTENSION_PATH": "a shared library",
    "plugin_libs": "shared libraries",
    "allow_operators": "functions of installed packages",
}
"""Names of parameters that refer to code, and the kind of code that each parameter refers to."""


def code_in(repository: Repository) -> list[str]:
    """Return a note for each file or configuration field of a repository with code that pixprep did not write.

    Links are not followed, and nothing is executed.
    """
    found = [note for model in repository.models.values() for note in _of_model(model)]
    more = [f"runs code: {len(found) - MAX_NOTES:,} more"] if len(found) > MAX_NOTES else []
    return [f"runs code: {shown(note)}" for note in found[:MAX_NOTES]] + more


def _of_model(model: Model) -> Iterator[str]:
    folder = model.folder
    try:
        config = model.config
    except PipelineError:  # ``check`` reports this as a problem
        config = {}
    yield from _in_config(model.where, config)
    backend = str(config.get("platform", "")).partition("_")[0] or str(config.get("backend", ""))
    for top, folders, files in islice(os.walk(folder), 10_000):
        folders.sort()
        for name in sorted(files):
            path = Path(top, name)
            named = backend == "python" and name == config.get("default_model_filename")
            kind = "Python backend" if named else _kind(path, backend, folder)
            if kind and not _is_own(path):
                yield f"{path.relative_to(folder.parent)} ({kind})"


def _kind(path: Path, backend: str, folder: Path) -> str:
    """Return the kind of code in a file, according to its name. The string is empty if the file contains data."""
    name, suffix = path.name, path.suffix.lower()
    if _LIBRARY.search(name):
        return "shared library"
    if name == _STUB and path.parent == folder:
        return "program that replaces the stub of the Python backend"
    if suffix in _PROGRAMS.get(backend, ()):
        return f"{backend} model, which is a program"
    if suffix in _PICKLES:
        return "pickle, which can run code when it is loaded"
    if suffix not in _PYTHON:
        return ""
    if name == "rows.py":
        return "function rows, which computes an input of a pipeline"
    if backend == "dali":
        return "Python code of the DALI backend"
    return "Python backend" if name == "model.py" else "Python code that a model may import"


def _in_config(where: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of a configuration that refer to code."""
    for key, entry in config.get("parameters", {}).items():
        if key in _PARAMETERS:
            yield f"{where} (parameter {key} {quoted(entry.get('string_value', ''))}: {_PARAMETERS[key]})"
    if runtime := config.get("runtime"):
        yield f"{where} (runtime {quoted(runtime)}: a library or program that replaces that of the backend)"
    for library in config.get("model_operations", {}).get("op_library_filename", []):
        yield f"{where} (op_library_filename {quoted(library)}: a shared library)"
    for agent in config.get("model_repository_agents", {}).get("agents", []):
        yield f"{where} (model_repository_agents {quoted(agent.get('name', ''))}: a shared library of the server)"
    backend = config.get("backend", "")
    if "/" in backend or ".." in backend:
        yield f"{where} (backend {quoted(backend)}: a library outside the backend directory)"


@cache
def _own() -> frozenset[bytes]:
    """Return the contents of all programs that pixprep writes to a repository, including the backend's entry point."""
    models = (Path(__file__).with_name(name) for name in ("rows_model.py", "picture_model.py"))
    return frozenset((onnx_classifier().encode(), entry_point().read_bytes(), *map(Path.read_bytes, models)))


def _is_own(path: Path) -> bool:
    """Return whether a file is a program that pixprep wrote."""
    most = max(map(len, _own()))
    try:
        return path.suffix == ".py" and not path.is_symlink() and read_bytes(path, max_bytes=most) in _own()
    except OSError:
        return False
