"""Source from which a pipeline was imported, and a repeated import of it to compare the pipeline with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.importers import LIBRARIES, import_pipeline, importer_of
from pixprep.importers.assembly import UNRECORDED, read_option, written_option
from pixprep.importers.fields import brief
from pixprep.pipeline.differences import differences, in_short
from pixprep.pipeline.file import Origin
from pixprep.pipeline.pipeline import Pipeline

_CODE = re.compile(r"\.py(:|$)")
_NAMED = {"torchvision": True, "timm": True, "keras": False, "ultralytics": False}
"""Libraries from which models can be imported by name and not only from files.

True: the library must be installed for this.
"""
CONFIG_FILES = ("preprocessor_config.json", "processor_config.json")
_FILE = (".json", ".keras", ".onnx", ".engine", ".dali")


class NoSourceError(PipelineError):
    """The source of a pipeline cannot be imported again. The message explains the reason and the fix."""


def imported_again(
    pipeline: Pipeline,
    *,
    source: Any = None,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    may_load: bool = True,
) -> tuple[Pipeline, str]:
    """Import the source of a pipeline again, and return the result with a description of the source.

    The description contains the name of the source and the options of the import.

    Python code runs only if ``source`` is passed, because a pipeline file may come from an untrusted user.

    Args:
        pipeline: Pipeline whose source is wanted.
        source: Source as ``import_pipeline`` accepts it, an object that the importer accepts, or a pipeline. Default:
            the file that the origin names, in the folder of the pipeline or in the folder above, or else its name.
        options: Options of the importer that replace those of the origin.
        folder: Folder of the pipeline's file. Default: the working directory.
        may_load: Whether a library may be imported to look up a name.

    Raises:
        NoSourceError: The source is not known, not found or not supported.
    """
    if isinstance(source, Pipeline):
        return source, f"the given pipeline{_with(options or {})}"
    origin, folder = pipeline.origin, (folder or Path()).resolve()
    given = dict(map(read_option, origin.options if origin else ()))
    given = {name: value for name, value in given.items() if name not in UNRECORDED}
    if isinstance(training := given.get("training"), str) and "training" not in (options or {}):
        if (found := _beside(folder, training)) is None:
            raise NoSourceError(
                f"the file {training} of the training side was not found next to the pipeline: "
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
    """Describe the options of an import. They affect the result, and they may come from the pipeline file itself."""
    made = [brief(written_option(*each)) for each in options.items() if each[0] not in UNRECORDED]
    return f", as imported with {', '.join(made)}" if made else ""


def _recorded(origin: Origin, options: Mapping[str, Any], folder: Path, *, may_load: bool) -> tuple[str, str]:
    """Return the argument of ``import_pipeline`` for the source of an origin, and the source's name for messages."""
    library, name = origin.library, origin.source or origin.name
    for each in (name, *map(str, options.values())):
        if _CODE.search(each):
            raise NoSourceError(f"{each} is Python code, which runs only if you pass it with --source")
    found = _beside(folder, name)
    if found is None and library == "transformers" and any((folder / each).is_file() for each in CONFIG_FILES):
        found = folder
    is_name = library in _NAMED and (may_load or not _NAMED[library]) and not name.endswith(_FILE)
    if found is None and not is_name:
        raise NoSourceError(
            f"the {library} source {name} was not found next to the pipeline: pass its path with --source"
        )
    return f"{library}:{found or name}", name


def _beside(folder: Path, name: str) -> Path | None:
    """Return the file or folder of that name in the folder of a pipeline file or in its parent folder."""
    for place in (folder / name, folder.parent / name):
        with suppress(OSError):  # the name may be too long
            if Path(name).name == name and place.exists():
                return place
    return None


def note(file: Path, load: Callable[[], Pipeline] | None = None) -> str:
    """Compare a pipeline file with a source in its folder and return a sentence for ``check`` and the page.

    Args:
        file: Path of the pipeline file.
        load: Function that returns its pipeline, if the pipeline has already been read.

    Returns:
        The sentence, or an empty string if no source was found.
    """
    try:
        pipeline = load() if load else Pipeline.load(file)
        source, name = imported_again(pipeline, folder=file.parent, may_load=False)
    except (PipelineError, SetupError):
        return ""
    found = differences(pipeline, source)
    return f"differs from its source {name}: {in_short(found)}" if found else is_equal(name)


def is_equal(name: str) -> str:
    """Return the sentence for a pipeline that does not differ from the source of that name."""
    return f"is equal to its source {name}, op by op"
