"""Descriptions of how processes ended, and Triton's log of a failed start as one line per model."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from pixprep.errors import PixprepError, SetupError

DIED = "its Python process ended while it loaded (a crash, an exit, or no memory left)"
ENOUGH_FILES = 1024
"""Number of files that must be allowed, because every connection, model and thread opens some."""
NO_DEATHS: Mapping[str, str] = MappingProxyType({})
_LAST_LINES, _MOST_LETTERS = 3, 300
_TRITONS = re.compile(r"[IWEF]\d{4} |error: |Error: Failed to initialize NVML|[+|\s]|At:$|$")
"""Begin of the lines that Triton writes while it is well: messages and what they go on with, tables, empty lines."""


def ended(code: int) -> str:
    """Description of a process's exit code in Python's form, in which signals are negative."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = next((number.name for number in signal.Signals if number == -code), "of real time")
    return f"was ended by signal {-code} ({name}{': a kill, or no memory left' if name == 'SIGKILL' else ''})"


def died(how: str) -> str:
    """Words for a model's process that died while the model loaded; ``how`` is of ``ended``, or empty."""
    return f"its Python process {how} while it loaded" if how else DIED


def failure(log: str, code: int, *, files: int = ENOUGH_FILES, deaths: Mapping[str, str] = NO_DEATHS) -> PixprepError:
    """Reasons why Triton ended: one line for each model that did not load, or else its last error or the signal.

    Args:
        log: Text of Triton's log.
        code: Exit code of Triton's process.
        files: Maximum number of files that the process may open.
        deaths: How the process of each model ended, by the name of the model, as far as known.
    """
    if reasons := dict(_failed_models(log)):
        words = last_words(log) if DIED in reasons.values() else []
        reasons = {name: died(deaths.get(name, "")) if why == DIED else why for name, why in reasons.items()}
        return PixprepError(*(f'model "{name}" does not load: {why}' for name, why in reasons.items()), *words)
    errors = [text for level, text in _log_lines(log) if level == "E" and not text.startswith("CudaDriverHelper")]
    errors += re.findall(r"^error: (.+)", log, re.MULTILINE)
    if code < 0:
        names = ", ".join(f'"{name}"' for name in still_loading(log))
        last = [f"its last error: {error}" for error in errors[-1:]]
        what = f"loaded {names}" if names else "started"
        return SetupError(f"Triton {ended(code)} while it {what}", *last, *last_words(log))
    lines = [line for line in log.strip().splitlines() if not re.match(r"[IW]\d{4} ", line)]
    first = (lines or ["its log says no more"])[0].rpartition("tritonserver: ")[2]
    how = ended(code)
    if files < ENOUGH_FILES:  # Triton's last error is then arbitrary: a port in use, an old CUDA driver
        how += f", where {files} files may be open at once: say ulimit -n {ENOUGH_FILES} first; its last words"
    return SetupError(f"Triton {how}: {errors[-1] if errors else first}")


def last_words(log: str) -> list[str]:
    """Return the last lines of a log that Triton did not write; a process that crashes often prints the reason."""
    lines = [line for line in log.splitlines() if not _TRITONS.match(line)]
    return [f"last in the log: {line[:_MOST_LETTERS]}" for line in lines[-_LAST_LINES:]]


def _failed_models(log: str) -> Iterator[tuple[str, str]]:
    """The models that did not load, with the innermost reason: no traceback, no type's name of ours, one line.

    An ensemble that lacks only such a model is not among them.
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
        elif "which has no loaded version" in text:  # the reason is that of the model that the ensemble lacks
            continue
        elif found := re.match(r"Invalid argument: (?:in )?ensemble '?([^\s',]+)'?,? (.*)", text):
            yield found[1], found[2]


def loaded(log: str) -> set[str]:
    """The models that are loaded."""
    return set(re.findall(r"successfully loaded '([^']+)'", log))


def still_loading(log: str) -> list[str]:
    """The models that are still loading."""
    ended = set(re.findall(r"(?:successfully loaded|failed to load) '([^']+)'", log))
    return [name for name in re.findall(r'"loading: (.+):\d+"', log) if name not in ended]


def _log_lines(log: str) -> Iterator[tuple[str, str]]:
    """Errors in Triton's log, as (E or protobuf, text)."""
    for line in log.splitlines():
        if found := re.match(r'E\d{4} .*?\] (".*")$', line):
            yield "E", str(json.loads(found[1], strict=False))
        elif found := re.match(r"\[libprotobuf ERROR .*?\] Error parsing .*?ModelConfig: (.*)", line):
            yield "protobuf", found[1]


def load_failure(message: str) -> str:
    """Message of Triton about a model that it was asked to load, as one line."""
    return innermost(re.sub(r"^load failed .*? is at UNAVAILABLE state: ", "", message).rstrip().removesuffix(";"))


def innermost(reason: str) -> str:
    """The reason alone, in one line: no traceback, no type's name of ours."""
    reason = reason.partition("\n\nAt:\n")[0].strip()
    reason = re.sub(r"^(Internal|Invalid argument|Unavailable|Not found): ", "", reason)
    if found := re.match(r"unable to find backend library for backend '(.*?)'", reason):
        if near := get_close_matches(found[1], ("pixprep", "python"), n=1):
            return f'there is no backend "{found[1]}"; did you mean "{near[0]}"?'
        return f'the embedded Triton has no backend "{found[1]}": serve it in NVIDIA\'s Triton container'
    if re.fullmatch(r"Stub process '.*' is not healthy\.", reason):
        return DIED
    return " ".join(re.sub(r"^([A-Za-z_]+\.)*(Pipeline|Setup|Image|Pixprep)Error: ", "", reason).split())
