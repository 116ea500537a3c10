"""Reads the labels of a classifier from files in common formats, and assigns labels to outputs."""

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
_MAX_CHARS = 1000
_FORMS = (
    "write one name per line, or JSON: a list of names, an object from numbers to names (alone or as `id2label` of "
    "Hugging Face's config.json), or an object from names to numbers (Keras' class_indices)"
)


def read_labels(path: Path) -> list[str]:
    """Read the labels from a file, in the order of the classes.

    Args:
        path: Text file or JSON file. A text file contains one name per line, and empty lines at its end are ignored. A
            JSON file contains a list of names, an object that maps numbers to names (also in the field ``id2label``),
            or an object that maps names to numbers (Keras' ``class_indices``).

    Raises:
        PipelineError: The file does not have one of these formats.
        SetupError: The file cannot be read.
    """
    try:
        data = read_bytes(path, max_bytes=_MAX_BYTES + 1)
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = data[:_MAX_BYTES].decode("utf-8-sig")
        found = json.loads(text) if text.lstrip()[:1] in ("{", "[") else text.rstrip().splitlines()
    except (ValueError, RecursionError):
        raise PipelineError(f"{path.name} does not contain labels: {_FORMS}") from None
    if isinstance(found, dict):
        found = found.get("id2label", found)
    elif isinstance(found, list) and "" in found[:-1] and text.lstrip()[:1] != "[":
        line = found.index("") + 1
        raise PipelineError(f"{path.name}: line {line} is empty, but each line must be a class name: remove the line")
    labels = _in_order(found)
    if labels is None or len(data) > _MAX_BYTES:
        raise PipelineError(f"{path.name} does not contain labels: {_FORMS}")
    return labels


def from_metadata(entries: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels in the metadata of an ONNX file, or an empty tuple if the metadata does not contain labels.

    Supported fields are ``names`` (Ultralytics, such as ``{0: 'cat', 1: 'dog'}``), ``character`` (PaddleOCR, with one
    name per line), and ``labels`` (a list, JSON, or one name per line).
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
    """Convert a list, or a dict of numbers and names, to a list of labels. Return None if the value is not valid."""
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
    if not all(isinstance(label, str) and label.strip() and len(label) <= _MAX_CHARS for label in found):
        return None
    return [printable(label.strip()) for label in found]


def check_heads(outputs: Sequence[Tensor], heads: Mapping[str, Sequence[str]]) -> None:
    """Check that the labels for several outputs match these outputs.

    Args:
        outputs: Outputs of the model.
        heads: Labels by the name of the output.

    Raises:
        PipelineError: An output does not exist, or its number of scores differs from the number of its labels.
    """
    dims = {output.name: (output.shape or ())[1:] for output in outputs}
    for name, names in heads.items():
        if name not in dims:
            raise PipelineError(f'--labels {name}=FILE: the model has no output "{name}"; {suggest(name, dims)}')
        if dims[name] not in ((len(names),), (-1,)):
            raise PipelineError(
                f'--labels {name}=FILE: {len(names):,} labels, but output "{name}" has the shape {list(dims[name])}'
            )


def labelled(outputs: Sequence[Tensor], chosen: Sequence[str], own: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Find the output that the labels describe, which is a vector with one score per label.

    Args:
        outputs: Outputs of the model.
        chosen: Labels from the user. The sequence may be empty.
        own: Labels from the model's file, which are used if ``chosen`` is empty. It is not an error if they do not
            match an output, as is the case for the classes of a detector.

    Returns:
        The name of the output and the labels. Both are empty if ``chosen`` is empty and ``own`` does not match.

    Raises:
        PipelineError: ``chosen`` does not match an output.
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
    raise PipelineError(f"{count}, but the model has no output with one score per label; its outputs are {found}")


def unlabelled(outputs: Sequence[Tensor], name: str, labels: Sequence[str]) -> list[str]:
    """Return a note about other outputs that have one score per class but do not have labels.

    Args:
        outputs: Outputs of the model.
        name: Name of the output that has the labels, or an empty string.
        labels: Labels of that output.
    """
    dims = {each.name: (each.shape or ())[1:] for each in outputs if each.name != name}
    others = {other: lengths[0] for other, lengths in dims.items() if len(lengths) == 1 and lengths != (1,)}
    if not name or not others:
        return []
    fitting = [f'"{other}"' for other, length in others.items() if length in (len(labels), -1)]
    also = f"; they would also fit {' and '.join(fitting)}" * bool(fitting)
    have = "have" if len(others) > 1 else "has"
    listed = ", ".join(f'"{other}" [{length}]' for other, length in others.items())
    return [
        f'the labels are used for output "{name}" [{len(labels)}], and {listed} {have} no labels{also}: '
        "to assign labels to each output, pass --labels OUTPUT=FILE"
    ]
