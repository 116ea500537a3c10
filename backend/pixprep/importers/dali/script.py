"""Serializes a DALI pipeline that a Python file defines, such as ``1/dali.py`` of dali_backend, in a subprocess.

This module parses the file in order to find the names of its pipelines. The file is executed only if the user permits
the execution, and by a Python interpreter in which DALI is installed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.dali import serializer
from pixprep.importers.fields import read_file
from pixprep.pipeline.ops.faults import quoted

MAX_BYTES = 1 << 20
TIMEOUT_S = 300
"""Maximum time in seconds for importing DALI and executing the file."""
_DECORATOR = "autoserialize"


def serialized(file: Path, *, pipeline: str | None = None, python: str | None = None) -> bytes:
    """Execute a Python file, and return the serialized graph of a pipeline that it defines.

    Args:
        file: Path of the Python file.
        pipeline: Name of the pipeline in the file. Default: the pipeline that is decorated with ``@autoserialize``, or
            the only pipeline.
        python: Path of a Python interpreter in which DALI is installed. Default: the current interpreter.

    Raises:
        PipelineError: The file does not define the pipeline, defines several pipelines, or raises an exception.
        SetupError: DALI is not installed, or the interpreter does not exist.
    """
    name = _pipeline_name(file, pipeline)
    program = python or sys.executable
    with tempfile.TemporaryDirectory(prefix="pixprep-dali-") as folder:
        output = Path(folder, "model.dali")
        command = [program, serializer.__file__, str(file.resolve()), name, str(output)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
            )
        except OSError as error:
            raise SetupError(
                f"{program} cannot be executed ({error.strerror}): pass a Python interpreter with DALI as --option "
                "python=PATH"
            ) from None
        except subprocess.TimeoutExpired:
            raise PipelineError(f"{file.name}: {name} was not serialized within {TIMEOUT_S} s") from None
        if done.returncode == serializer.NO_DALI:
            raise SetupError(_without_dali(file, name, program))
        if done.returncode or not output.is_file():
            output_lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = output_lines[-1].strip() if output_lines else f"exit code {done.returncode}"
            lines = re.findall(f'"{re.escape(str(file.resolve()))}", line ([0-9]+)', done.stderr)
            where = f", line {lines[-1]}" if lines else ""
            raise PipelineError(f"{file.name}{where}: {name} cannot be serialized by {program}: {reason}")
        return read_file(output, max_bytes=MAX_BYTES)


def _without_dali(file: Path, name: str, python: str) -> str:
    """Return the error message for a Python interpreter without DALI."""
    call = f"{name}(device_id=None)" if name in _functions(file) else name
    line = f"from {file.stem} import {name}; {call}.serialize(filename='model.dali')"
    return (
        f"{file.name}: DALI is required to serialize it, but is not installed for {python}: pass a Python interpreter "
        "with DALI as --option python=PATH, or, on a machine with DALI, run in the folder of the file "
        f'python -c "{line}", and import model.dali'
    )


def _pipeline_name(file: Path, pipeline: str | None) -> str:
    found = dict(_pipelines(file))
    if pipeline is not None:
        if pipeline not in {*found, *_assigned_names(file)}:
            raise PipelineError(
                f"{file.name}: unknown pipeline {quoted(pipeline)}; available pipelines: {_listed(found)}"
            )
        return pipeline
    names = [name for name, is_marked in found.items() if is_marked] or [*found]
    if len(names) != 1:
        if not names:
            raise PipelineError(
                f"{file.name}: no DALI pipeline found, because the file defines neither a function with @pipeline_def "
                "nor a Pipeline: if the pipeline is imported from a module or created by a class, pass --option "
                "pipeline=NAME"
            )
        raise PipelineError(
            f"{file.name}: the file defines several pipelines: set --option pipeline=NAME to one of {_listed(names)}"
        )
    return names[0]


def _listed(names: object) -> str:
    return ", ".join(map(quoted, names)) or "none"  # type: ignore[call-overload]


def _assigned_names(file: Path) -> set[str]:
    """Return the names that a Python file imports or assigns."""
    nodes = [*ast.walk(_tree(file))]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}


def _functions(file: Path) -> set[str]:
    return {node.name for node in _tree(file).body if isinstance(node, ast.FunctionDef)}


def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(read_file(file, max_bytes=MAX_BYTES), file.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PipelineError(f"{file.name}: not valid Python: {error}") from None


def _pipelines(file: Path) -> Iterator[tuple[str, bool]]:
    """Yield the name of each pipeline in a Python file, and whether it is decorated with ``@autoserialize``."""
    for node in _tree(file).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [_last_name(decorator) for decorator in node.decorator_list]
            if "pipeline_def" in decorators or _DECORATOR in decorators:
                yield node.name, _DECORATOR in decorators
        elif isinstance(node, ast.Assign) and _last_name(node.value) == "Pipeline":
            yield from ((target.id, False) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.With):
            for item in node.items:
                if _last_name(item.context_expr) == "Pipeline" and isinstance(item.optional_vars, ast.Name):
                    yield item.optional_vars.id, False


def _last_name(node: ast.expr) -> str:
    """Return ``name`` for an expression such as ``name``, ``a.b.name`` or ``a.b.name(...)``."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
