"""Reads the metadata that Ultralytics' exporter writes to an ONNX file."""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, get_args

from pixprep import wire
from pixprep.postprocessing.forms import Task
from pixprep.serving.repository.labels import from_metadata


class Export(NamedTuple):
    """Metadata that Ultralytics' exporter writes to an ONNX file.

    Attributes:
        task: Task of the model. None means that the file does not declare a task, or the task is not supported.
        keypoints: Number of keypoints per object, and number of values per keypoint. None means that the file does not
            declare them.
        names: Names of the classes.
    """

    task: Task | None = None
    keypoints: tuple[int, int] | None = None
    names: Sequence[str] = ()


def read_export(path: Path) -> Export:
    """Read the metadata of an ONNX file without loading its weights. If the file cannot be read, return no metadata."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            entries = wire.onnx_metadata(view)
        form = json.loads(entries.get("kpt_shape", "null"))
        is_form = isinstance(form, list) and len(form) == 2 and form[0] in range(1, 1000) and form[1] in (2, 3)
        task = next((each for each in get_args(Task) if each == entries.get("task")), None)
        return Export(task, (form[0], form[1]) if is_form else None, from_metadata(entries))
    return Export()
