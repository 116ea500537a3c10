"""The names of a classifier's classes, read from files in common formats."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, SetupError, printable
from pixprep.pipeline.file import read_bytes
from pixprep.serving.repository.models import Tensor, suggest

_MAX_BYTES = 16 << 20
_MAX_LETTERS = 1000
_FORMS = (
    "a name a line; or JSON: a list, or numbers and names, alone or as `id2label` of Hugging Face's config.json, or "
    "names and numbers, as Keras' class_indices"
)


def read_labels(path: Path) -> list[str]:
    """The names in the order of the classes.

    Args:
        path: Path of a text file with one name per line, in which empty lines at the end are ignored, or of a JSON
            file. The JSON file contains a list of names, an object that maps numbers to names, an object that maps
            names to numbers (Keras' ``class_indices``), or an object with such an object as ``id2label``.

    Raises:
        PipelineError: The file does not have any of these formats.
        SetupError: The file cannot be read.
    """
    try:
        data = read_bytes(path, most=_MAX_BYTES + 1)
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = data[:_MAX_BYTES].decode("utf-8-sig")
        found = json.loads(text) if text.lstrip()[:1] in ("{", "[") else text.rstrip().splitlines()
    except (ValueError, RecursionError):
        raise PipelineError(f"{path.name}: no labels: {_FORMS}") from None
    if isinstance(found, dict):
        found = found.get("id2label", found)
    elif isinstance(found, list) and "" in found[:-1] and text.lstrip()[:1] != "[":
        line = found.index("") + 1
        raise PipelineError(f"{path.name}: line {line} is empty, and each line is the name of a class: remove the line")
    labels = _in_order(found)
    if labels is None or len(data) > _MAX_BYTES:
        raise PipelineError(f"{path.name}: no labels: {_FORMS}")
    return labels


def from_metadata(entries: Mapping[str, str]) -> tuple[str, ...]:
    """Return the class names in the metadata of an ONNX file, or an empty list.

    ``names`` is Ultralytics' key, ``{0: 'cat', 1: 'dog'}``; ``character`` is PaddleOCR's, a name a line; ``labels`` is
    written as a list, as JSON or a name a line.
    """
    for key in ("names", "labels", "character"):
        text = entries.get(key, "")[:_MAX_BYTES]
        try:
            lines = text.splitlines()
            found = ast.literal_eval(text) if text.lstrip()[:1] in ("{", "[") else lines if len(lines) > 1 else None
            if names := _in_order(found):
                return tuple(names)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return ()


def _in_order(found: Any) -> list[str] | None:
    """A list of names, from a list or from an object of numbers and names; None if the value is neither."""
    if isinstance(found, dict):
        try:
            if all(type(number) is int for number in found.values()):  # Keras' class_indices
                found = {number: label for label, number in found.items()}
            numbered = {int(number): label for number, label in found.items()}
        except (TypeError, ValueError):
            return None
        found = [numbered.get(number) for number in range(len(numbered))]
    if not isinstance(found, list) or not found:
        return None
    if not all(isinstance(label, str) and label.strip() and len(label) <= _MAX_LETTERS for label in found):
        return None
    return [printable(label.strip()) for label in found]


def of_heads(outputs: Sequence[Tensor], heads: Mapping[str, Sequence[str]]) -> None:
    """Reject labels for outputs that do not exist, or that have a different number of scores.

    Raises:
        PipelineError: Such labels exist.
    """
    dims = {output.name: (output.shape or ())[1:] for output in outputs}
    for name, words in heads.items():
        if name not in dims:
            raise PipelineError(f'--labels {name}=FILE: no such output "{name}"; {suggest(name, dims)}')
        if dims[name] not in ((len(words),), (-1,)):
            raise PipelineError(f'--labels {name}=FILE: {len(words):,} labels, and "{name}" is {list(dims[name])}')


def labelled(outputs: Sequence[Tensor], chosen: Sequence[str], own: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Output with only one score per class whose classes the labels name, and the labels.

    Args:
        outputs: Outputs of the model.
        chosen: Labels from the user.
        own: Labels from the model's file, used if the user does not pass any. They may name the classes of boxes
            instead.

    Raises:
        PipelineError: The user's labels fit none of the outputs.
    """
    labels = chosen or own
    for length in (len(labels), -1):
        for output in outputs:
            if labels and output.shape is not None and output.shape[1:] == (length,):
                return output.name, labels
    if not chosen:
        return "", ()
    found = ", ".join(f'"{output.name}" {list((output.shape or ())[1:])}' for output in outputs)
    count = f"{len(labels):,} label{'s' * (len(labels) != 1)}"
    raise PipelineError(f"{count}, but no output has one score for each: the model gives {found}")


def unlabelled(outputs: Sequence[Tensor], name: str, labels: Sequence[str]) -> list[str]:
    """A note on the other outputs with one score per class, if the output ``name`` has the labels."""
    dims = {each.name: (each.shape or ())[1:] for each in outputs if each.name != name}
    others = {other: lengths[0] for other, lengths in dims.items() if len(lengths) == 1 and lengths != (1,)}
    if not name or not others:
        return []
    fitting = [f'"{other}"' for other, length in others.items() if length in (len(labels), -1)]
    also = f", though {' and '.join(fitting)} would fit them, too" * bool(fitting)
    have = "have" if len(others) > 1 else "has"
    listed = ", ".join(f'"{other}" [{length}]' for other, length in others.items())
    return [
        f'the labels are those of "{name}" [{len(labels)}]; {listed} {have} none{also}: '
        "--labels OUTPUT=FILE names those of each output"
    ]
