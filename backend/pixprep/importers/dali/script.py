"""Python files that define DALI pipelines, such as dali_backend's ``1/dali.py``, which DALI serializes in a subprocess.

The file is parsed for the pipelines' names. It is executed by a Python that has DALI only if the user has permitted it.
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
LIMIT_S = 300
"""Time limit in seconds for importing DALI and running the file."""
_MARKED = "autoserialize"


def serialized(file: Path, *, pipeline: str | None = None, python: str | None = None) -> bytes:
    """Return the serialized graph of a pipeline in a Python file.

    Args:
        file: Python file, which is executed.
        pipeline: Name of the pipeline in the file. Default: the one with ``@autoserialize``, or the only one.
        python: Python executable that has DALI. Default: this one.

    Raises:
        PipelineError: The file does not contain the pipeline, contains several, or fails.
        SetupError: DALI is not installed, or the Python executable does not exist.
    """
    name = _chosen(file, pipeline)
    program = python or sys.executable
    with tempfile.TemporaryDirectory(prefix="pixprep-dali-") as folder:
        output = Path(folder, "model.dali")
        command = [program, serializer.__file__, str(file.resolve()), name, str(output)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False
            )
        except OSError as error:
            raise SetupError(
                f"{program} cannot be executed ({error.strerror}): pass a Python that has DALI with --option "
                "python=PATH"
            ) from None
        except subprocess.TimeoutExpired:
            raise PipelineError(f"{file.name}: {name} was not serialized within {LIMIT_S} s") from None
        if done.returncode == serializer.NO_DALI:
            raise SetupError(_remedy(file, name, program))
        if done.returncode or not output.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
            lines = re.findall(f'"{re.escape(str(file.resolve()))}", line ([0-9]+)', done.stderr)
            where = f", line {lines[-1]}" if lines else ""
            raise PipelineError(f"{file.name}{where}: {name} cannot be serialized by {program}: {said[-1].strip()}")
        return read_file(output, max_bytes=MAX_BYTES)


def _remedy(file: Path, name: str, python: str) -> str:
    """Return instructions for a user whose Python does not have DALI."""
    call = f"{name}(device_id=None)" if name in _functions(file) else name
    line = f"from {file.stem} import {name}; {call}.serialize(filename='model.dali')"
    return (
        f"{file.name}: DALI is required to serialize it, but {python} does not have DALI: pass a Python that has it "
        "with --option python=PATH, or, on a machine with DALI, run in the folder of the file "
        f'python -c "{line}", and import model.dali'
    )


def _chosen(file: Path, pipeline: str | None) -> str:
    found = dict(_pipelines(file))
    if pipeline is not None:
        if pipeline not in {*found, *_bound(file)}:
            raise PipelineError(
                f"{file.name}: unknown pipeline {quoted(pipeline)}; available pipelines: {_listed(found)}"
            )
        return pipeline
    marked = [name for name, is_marked in found.items() if is_marked] or [*found]
    if len(marked) != 1:
        if not marked:
            raise PipelineError(
                f"{file.name}: no DALI pipeline found, because the module defines neither a function with "
                "@pipeline_def nor a Pipeline: for a pipeline that is imported or created by a class, pass --option "
                "pipeline=NAME"
            )
        raise PipelineError(
            f"{file.name}: the file defines several pipelines: set --option pipeline=NAME to one of {_listed(marked)}"
        )
    return marked[0]


def _listed(names: object) -> str:
    return ", ".join(map(quoted, names)) or "none"  # type: ignore[call-overload]


def _bound(file: Path) -> set[str]:
    """Return the names that a file imports or assigns."""
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
    """Yield the names of the pipelines that a file defines, and whether each has ``@autoserialize``."""
    for node in _tree(file).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [_called(each) for each in node.decorator_list]
            if "pipeline_def" in decorators or _MARKED in decorators:
                yield node.name, _MARKED in decorators
        elif isinstance(node, ast.Assign) and _called(node.value) == "Pipeline":
            yield from ((target.id, False) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.With):
            for item in node.items:
                if _called(item.context_expr) == "Pipeline" and isinstance(item.optional_vars, ast.Name):
                    yield item.optional_vars.id, False


def _called(node: ast.expr) -> str:
    """Return the last name of ``a.b.name`` or ``a.b.name(...)``."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
