"""Imports the source of a pipeline again, so that the pipeline can be compared with the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.importers import LIBRARIES, import_pipeline, importer_of
from pixprep.importers.assembly import UNRECORDED, read_option, written_option
from pixprep.importers.fields import shortened
from pixprep.pipeline.differences import differences, in_short
from pixprep.pipeline.file import Origin
from pixprep.pipeline.pipeline import Pipeline

_PYTHON_CODE = re.compile(r"\.py(:|$)")
_NAMED = {"torchvision": True, "timm": True, "keras": False, "ultralytics": False}
"""Libraries whose models can be imported by name, and whether the library must be installed for such an import."""
CONFIG_FILES = ("preprocessor_config.json", "processor_config.json")
_FILE_SUFFIXES = (".json", ".keras", ".onnx", ".engine", ".dali")


class NoSourceError(PipelineError):
    """Raised if the source of a pipeline cannot be imported again. The message explains why, and how to fix it."""


def imported_again(
    pipeline: Pipeline,
    *,
    source: Any = None,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    may_load: bool = True,
) -> tuple[Pipeline, str]:
    """Import the source of a pipeline again.

    Python code runs only if it is passed as ``source``, because a pipeline file may come from an untrusted user.

    Args:
        pipeline: Pipeline that was imported. Its origin records the source and the options of the import.
        source: Source to use in place of the recorded one: an argument of ``import_pipeline``, an object that the
            importer accepts, or a pipeline. Default: the recorded file, which is searched for in ``folder`` and in its
            parent folder, or the recorded name of a model.
        options: Options of the importer, which take precedence over the recorded options.
        folder: Folder of the pipeline file. Default: the working directory.
        may_load: Whether a library may be imported in order to look up the name of a model.

    Returns:
        The imported pipeline, and a text for messages with the name of the source and the options of the import.

    Raises:
        NoSourceError: The source is not recorded, cannot be found or cannot be imported.
    """
    if isinstance(source, Pipeline):
        return source, f"the given pipeline{_with(options or {})}"
    origin, folder = pipeline.origin, (folder or Path()).resolve()
    given = dict(map(read_option, origin.options if origin else ()))
    given = {name: value for name, value in given.items() if name not in UNRECORDED}
    if isinstance(training := given.get("training"), str) and "training" not in (options or {}):
        if (found := _next_to(folder, training)) is None:
            raise NoSourceError(
                f"the file {training} with the training transforms was not found next to the pipeline: "
                "pass its path with --option training=PATH"
            )
        given["training"] = str(found)
    given |= options or {}
    if origin is None and not isinstance(source, str | Path):
        raise NoSourceError("the pipeline does not record a source: pass the source with --source")
    if isinstance(source, str | Path):
        text = name = str(source)
        text = text if origin is None or text.partition(":")[0] in LIBRARIES else f"{origin.library}:{text}"
    elif source is None:
        assert origin is not None
        text, name = _recorded(origin, given, folder, may_load=may_load)
    else:
        text, name = "", f"the given {type(source).__name__}"
    try:
        if not text:
            assert origin is not None
            return importer_of(origin.library, given)(source, **given), name + _with(given)
        return import_pipeline(text, **given), name + _with(given)
    except (PipelineError, SetupError) as error:
        raise NoSourceError(f"the source cannot be imported again: {error}") from None


def _with(options: Mapping[str, Any]) -> str:
    """Describe the options of an import for messages. They affect the result, and may come from a pipeline file."""
    texts = [shortened(written_option(*each)) for each in options.items() if each[0] not in UNRECORDED]
    return f", as imported with {', '.join(texts)}" if texts else ""


def _recorded(origin: Origin, options: Mapping[str, Any], folder: Path, *, may_load: bool) -> tuple[str, str]:
    """Return the recorded source as an argument of ``import_pipeline``, and the source's name for messages."""
    library, name = origin.library, origin.source or origin.name
    for each in (name, *map(str, options.values())):
        if _PYTHON_CODE.search(each):
            raise NoSourceError(f"{each} is Python code, which runs only if you pass it with --source")
    found = _next_to(folder, name)
    if found is None and library == "transformers" and any((folder / each).is_file() for each in CONFIG_FILES):
        found = folder
    is_name = library in _NAMED and (may_load or not _NAMED[library]) and not name.endswith(_FILE_SUFFIXES)
    if found is None and not is_name:
        raise NoSourceError(
            f"the {library} source {name} was not found next to the pipeline: pass its path with --source"
        )
    return f"{library}:{found or name}", name


def _next_to(folder: Path, name: str) -> Path | None:
    """Return the file or folder with the given name in the folder of a pipeline file or in its parent folder."""
    for path in (folder / name, folder.parent / name):
        with suppress(OSError):  # the name may be too long for a path
            if Path(name).name == name and path.exists():
                return path
    return None


def note(file: Path, load: Callable[[], Pipeline] | None = None) -> str:
    """Compare a pipeline file with its source, for ``pixprep check`` and the web page.

    Args:
        file: Path of the pipeline file.
        load: Function that returns the pipeline of the file. Default: read the file.

    Returns:
        A sentence with the result, or an empty string if the source cannot be imported again.
    """
    try:
        pipeline = load() if load else Pipeline.load(file)
        source, name = imported_again(pipeline, folder=file.parent, may_load=False)
    except (PipelineError, SetupError):
        return ""
    found = differences(pipeline, source)
    return f"differs from its source {name}: {in_short(found)}" if found else is_equal(name)


def is_equal(name: str) -> str:
    """Return the message for a pipeline that is equal to its source."""
    return f"is equal to its source {name}, op by op"
