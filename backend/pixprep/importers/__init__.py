"""Imports pipelines: converts the preprocessing with which a model was trained into a pipeline.

Each supported library has one module or folder. If a file format is self-contained, the importer reads the file without
the library that wrote the file. An importer raises an error for every field that it does not support, because an error
is better than a wrong tensor.

>>> from pixprep.importers import import_pipeline
>>> import_pipeline("keras:mobilenet_v2").origin.name
'mobilenet_v2'

To add the importer of a library ``toy``:

1. Write ``importers/toy.py`` with ``from_toy(source, *, ...) -> Pipeline``. ``source`` is a name or a path: the text
   after ``toy:`` on the command line. Each keyword argument becomes an ``--option``.
2. Read files with ``fields.opened`` or ``fields.read_file``. Both enforce a maximum file size, and their errors name
   the file.
3. Open each configuration with ``with reading(values, where) as fields``. At the end of the block, an error is raised
   if a field was not read in the block.
4. Read each value with the method for its type: ``flag``, ``text``, ``choice`` from a table, ``number``, ``numbers``,
   ``colour``, ``side``, ``pair``. Call ``refuse`` for values that no op supports, and ``ignore`` for fields that do not
   affect the pixels.
5. Write one short function per transform of the library. The function reads the fields and returns ops. Do not
   reimplement details that the ops already implement: ``like`` selects filters, antialiasing and rounding.
6. At the end, call ``assembled(ops, library="toy", name=name, where=where)``, which records the origin of the pipeline.
   If the library has training transforms, accept them as ``training=`` and pass their ops as ``assembled(…,
   training=ops)``.
7. Add a row to ``LIBRARIES`` with the file suffixes or JSON fields by which the library's files are recognized.
8. For each transform, add a line with the expected pipeline to ``tests/importers/imports.txt``, and for each error, a
   line with its message to ``refusals.txt``. The names that can be used in these lines are defined in
   ``tests/support/sources.py``.
9. Write ``tests/parity/test_import_toy.py``, which applies the imported pipelines to photos, and compares the pixels
   with those of the library itself. Verify that the test fails for a wrong pipeline. Add the library to ``make
   parity``.
10. Add the library's rows to both tables of ``docs/importing.md``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.assembly import recorded
from pixprep.importers.fields import read_json
from pixprep.names import meant
from pixprep.pipeline.pipeline import Pipeline
from pixprep.registry import load

LIBRARIES: dict[str, tuple[str, ...]] = {
    "torchvision": (),
    "timm": ("pretrained_cfg",),
    "transformers": ("image_processor", "image_processor_type", "video_processor_type", "feature_extractor_type"),
    "keras": (".keras", "class_name"),
    "ultralytics": (".onnx", ".engine"),
    "dali": (".dali", ".py"),
    "albumentations": ("__version__", "transform"),
}
"""File suffixes and JSON fields by which the files of each supported library are recognized."""
_WEIGHTS = (".bin", ".ckpt", ".h5", ".pb", ".plan", ".pt", ".pth", ".safetensors", ".tflite")
"""Suffixes of files with weights or graphs, which do not describe the preprocessing."""


def import_pipeline(source: str, /, **options: Any) -> Pipeline:
    """Create a pipeline from the preprocessing of a model in another library.

    Args:
        source: Either ``LIBRARY:NAME``, such as ``timm:resnet50.a1_in1k``,
            ``torchvision:ResNet50_Weights.IMAGENET1K_V2`` or ``keras:resnet50``, or the path of a file or folder: a
            ``preprocessor_config.json`` or ``processor_config.json``, a folder that contains one of these, a
            ``config.json`` from timm, a ``.keras`` file, an ``.onnx`` or ``.engine`` file from Ultralytics, a
            ``model.dali`` or a ``dali.py``. Pass ``LIBRARY:PATH`` if the library of a file cannot be recognized.
        options: Keyword arguments of the library's importer, such as ``from_timm``.

    Raises:
        PipelineError: The name is unknown, a field is not supported, or an option does not exist.
        SetupError: The import requires the library, which is not installed.
    """
    library, colon, name = source.partition(":")
    if library in LIBRARIES and not name and not Path(source).exists():
        raise PipelineError(f"{source} is incomplete: write {library}:NAME or {library}:FILE")
    if not colon or library not in LIBRARIES:
        library, name = _library_of(source), source
    return recorded(importer_of(library, options)(name, **options), name, options)


def importer_of(library: str, options: Iterable[str]) -> Callable[..., Pipeline]:
    """Return the function that imports from a library, such as ``from_timm``.

    Raises:
        PipelineError: The function does not accept one of the options.
    """
    importer: Callable[..., Pipeline] = load(f"pixprep.importers.{library}:from_{library}")
    parameters = inspect.signature(importer).parameters
    known = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())  # an open importer checks its options itself
    for option in options:
        if option not in known and not (is_open and option not in parameters):
            raise PipelineError(
                f'unknown option "{option}" for the {library} importer; available options: {", ".join(known) or "none"}'
            )
    return importer


def _library_of(source: str) -> str:
    """Return the name of the library that a file belongs to, according to the file's suffix or its JSON fields."""
    path = Path(source)
    if source.startswith(("http://", "https://")):
        raise PipelineError(
            f"{source} is a URL: download its preprocessor_config.json or config.json, and pass that file"
        )
    if not path.exists():
        library, colon, name = source.partition(":")
        if colon and (near := meant(library, LIBRARIES)):
            raise PipelineError(f"{source}: unknown library {library!r}: did you mean {near}:{name}?")
        raise PipelineError(
            f"{source} is neither an existing file nor LIBRARY:NAME, such as timm:resnet50.a1_in1k; "
            f"supported libraries: {', '.join(LIBRARIES)}"
        )
    if path.is_dir():
        return "transformers"
    if path.suffix in _WEIGHTS:
        raise PipelineError(
            f"{path.name} contains weights, which do not describe the preprocessing: pass the name of the model, such "
            "as timm:resnet50.a1_in1k, or its preprocessor_config.json or config.json"
        )
    marks = {path.suffix, *(read_json(path) if path.suffix == ".json" else ())}
    if {"format", "ops"} <= marks:
        raise PipelineError(f"{path.name} is already a pixprep pipeline file")
    for library, known in LIBRARIES.items():
        if not marks.isdisjoint(known):
            return library
    raise PipelineError(
        f"the library of {path.name} cannot be recognized: write LIBRARY:{source}, "
        f"where LIBRARY is one of {', '.join(LIBRARIES)}"
    )
