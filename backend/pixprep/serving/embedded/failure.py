"""Creates error messages that describe how a process ended, and why Triton or its models did not start."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from pixprep.errors import PixprepError, SetupError

DIED = "its Python process ended during the load (crashed, exited, or ran out of memory)"
ENOUGH_FILES = 1024
"""Minimum limit of open files that Triton needs for a reliable start, because every connection, model and thread opens
files."""
NO_DEATHS: Mapping[str, str] = MappingProxyType({})
_LAST_LINES, _MAX_CHARS = 3, 300
_TRITONS = re.compile(r"[IWEF]\d{4} |error: |Error: Failed to initialize NVML|[+|\s]|At:$|$")
"""Regular expression for the beginning of a line that Triton itself writes: a log message, its continuation, or a row
of a table."""


def ended(code: int) -> str:
    """Describe how a process ended. ``code`` is a Python exit code, in which a negative number represents a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = next((number.name for number in signal.Signals if number == -code), "a real-time signal")
    return f"was ended by signal {-code} ({name}{': killed, or out of memory' if name == 'SIGKILL' else ''})"


def died(how: str) -> str:
    """Describe how a model's process died while the model was loaded.

    ``how``, if not empty, is the result of ``ended``.

    """
    return f"its Python process {how} during the load" if how else DIED


def failure(log: str, code: int, *, files: int = ENOUGH_FILES, deaths: Mapping[str, str] = NO_DEATHS) -> PixprepError:
    """Create the error for a Triton process that exited during its start.

    Args:
        log: Text of Triton's log.
        code: Exit code of Triton's process.
        files: Maximum number of files that the process may open.
        deaths: Description of how a model's process ended, by the name of the model, as far as known.

    Returns:
        A PixprepError with one line per model that did not load; or, if no such model is known, a SetupError with
        Triton's last error.
    """
    if reasons := dict(_failed_models(log)):
        words = last_words(log) if DIED in reasons.values() else []
        reasons = {name: died(deaths.get(name, "")) if why == DIED else why for name, why in reasons.items()}
        return PixprepError(*(f'model "{name}" does not load: {why}' for name, why in reasons.items()), *words)
    errors = [text for level, text in _log_lines(log) if level == "E" and not text.startswith("CudaDriverHelper")]
    errors += re.findall(r"^error: (.+)", log, re.MULTILINE)
    if code < 0:
        names = ", ".join(f'"{name}"' for name in still_loading(log))
        last = [f"last error of Triton: {error}" for error in errors[-1:]]
        step = f"loading {names}" if names else "starting"
        return SetupError(f"Triton {ended(code)} while {step}", *last, *last_words(log))
    lines = [line for line in log.strip().splitlines() if not re.match(r"[IW]\d{4} ", line)]
    first = (lines or ["its log contains no error"])[0].rpartition("tritonserver: ")[2]
    how = ended(code)
    if files < ENOUGH_FILES:  # the last error is then misleading, such as a port in use or an old CUDA driver
        how += f"; the limit of {files} open files may be too low: run `ulimit -n {ENOUGH_FILES}` first; last error"
    return SetupError(f"Triton {how}: {errors[-1] if errors else first}")


def last_words(log: str) -> list[str]:
    """Return the last lines of a log that Triton itself did not write. They often contain the reason for a crash."""
    lines = [line for line in log.splitlines() if not _TRITONS.match(line)]
    return [f"last in the log: {line[:_MAX_CHARS]}" for line in lines[-_LAST_LINES:]]


def _failed_models(log: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each model that did not load, and the reason as one line without a traceback.

    If an ensemble did not load only because one of its models is missing, the ensemble is omitted.
    """
    config_error = ""
    for level, text in _log_lines(log):
        if level == "protobuf":
            config_error = text
        elif found := re.match(r"failed to load (?:model )?'([^']+)'(?: version \d+)?: (.*)", text, re.DOTALL):
            yield found[1], innermost(found[2])
        elif found := re.match(r"Poll failed for model directory '([^']+)': (.*)", text, re.DOTALL):
            is_syntax = found[2].startswith("failed to read text proto")
            yield found[1], f"config.pbtxt: {config_error}" if is_syntax else innermost(found[2])
        elif "which has no loaded version" in text:  # an ensemble; the reason is reported for its missing model
            continue
        elif found := re.match(r"Invalid argument: (?:in )?ensemble '?([^\s',]+)'?,? (.*)", text):
            yield found[1], found[2]


def loaded(log: str) -> set[str]:
    """Return the names of the models that Triton has loaded, according to its log."""
    return set(re.findall(r"successfully loaded '([^']+)'", log))


def still_loading(log: str) -> list[str]:
    """Return the names of the models that Triton is still loading, according to its log."""
    ended = set(re.findall(r"(?:successfully loaded|failed to load) '([^']+)'", log))
    return [name for name in re.findall(r'"loading: (.+):\d+"', log) if name not in ended]


def _log_lines(log: str) -> Iterator[tuple[str, str]]:
    """Yield the errors in Triton's log as pairs of their source (``E`` or ``protobuf``) and their message."""
    for line in log.splitlines():
        if found := re.match(r'E\d{4} .*?\] (".*")$', line):
            yield "E", str(json.loads(found[1], strict=False))
        elif found := re.match(r"\[libprotobuf ERROR .*?\] Error parsing .*?ModelConfig: (.*)", line):
            yield "protobuf", found[1]


def load_failure(message: str) -> str:
    """Extract the reason from Triton's response to a failed load request, and return it as one line."""
    return innermost(re.sub(r"^load failed .*? is at UNAVAILABLE state: ", "", message).rstrip().removesuffix(";"))


def innermost(reason: str) -> str:
    """Return the cause in an error message of Triton, as one line without traceback, status or exception class."""
    reason = reason.partition("\n\nAt:\n")[0].strip()
    reason = re.sub(r"^(Internal|Invalid argument|Unavailable|Not found): ", "", reason)
    if found := re.match(r"unable to find backend library for backend '(.*?)'", reason):
        if near := get_close_matches(found[1], ("pixprep", "python"), n=1):
            return f'backend "{found[1]}" does not exist; did you mean "{near[0]}"?'
        return f'the embedded Triton does not have the backend "{found[1]}": use NVIDIA\'s Triton container'
    if re.fullmatch(r"Stub process '.*' is not healthy\.", reason):
        return DIED
    return " ".join(re.sub(r"^([A-Za-z_]+\.)*(Pipeline|Setup|Image|Pixprep)Error: ", "", reason).split())
