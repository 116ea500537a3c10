"""Serializes a DALI pipeline that a Python file defines, such as ``1/dali.py`` of dali_backend, in a subprocess.

The file is executed only if the user permits the execution, and by a Python interpreter in which DALI is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.dali import serializer
from pixprep.importers.fields import read_file
from pixprep.pipeline.ops.faults import quoted

MAX_BYTES = 1 << 20
TIMEOUT_S = 300
"""Maximum time in seconds for importing DALI and executing the file."""
_SERIALIZED = "import the file that the pipeline's method serialize(filename='model.dali') writes"


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
    read_file(file, max_bytes=MAX_BYTES)  # report a missing file, or a file that is not regular
    program = python or sys.executable
    with tempfile.TemporaryDirectory(prefix="pixprep-dali-") as folder:
        output = Path(folder, "model.dali")
        command = [program, serializer.__file__, str(file.resolve()), pipeline or "", str(output)]
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
            raise PipelineError(
                f"{file.name}: {program} did not serialize the pipeline within {TIMEOUT_S} s: {_SERIALIZED}"
            ) from None
        if done.returncode == serializer.NO_DALI:
            raise SetupError(
                f"{file.name}: DALI is required to serialize the pipeline, but is not installed for {program}: pass a "
                f"Python interpreter with DALI as --option python=PATH, or {_SERIALIZED}"
            )
        if done.returncode == serializer.NOT_ONE and output.is_file():
            raise PipelineError(f"{file.name}: {_without_choice(json.loads(output.read_text()), pipeline)}")
        if done.returncode or not output.is_file():
            output_lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = output_lines[-1].strip() if output_lines else f"exit code {done.returncode}"
            lines = re.findall(f'"{re.escape(str(file.resolve()))}", line ([0-9]+)', done.stderr)
            where = f", line {lines[-1]}" if lines else ""
            raise PipelineError(f"{file.name}{where}: {program} cannot serialize the pipeline: {reason}")
        return read_file(output, max_bytes=MAX_BYTES)


def _without_choice(names: list[str], pipeline: str | None) -> str:
    """Return the error message for a file in which the pipeline is missing or ambiguous.

    Args:
        names: Names of the pipelines in the file.
        pipeline: Name of the requested pipeline. None requires that the file defines exactly one pipeline.
    """
    listed = ", ".join(map(quoted, names)) or "none"
    if pipeline:
        return f"unknown pipeline {quoted(pipeline)}; available pipelines: {listed}"
    if names:
        return f"the file defines several pipelines: set --option pipeline=NAME to one of {listed}"
    return (
        "no DALI pipeline found, because the file defines neither a function with @pipeline_def nor a Pipeline: pass "
        "--option pipeline=NAME with the name of a function that returns a Pipeline"
    )
