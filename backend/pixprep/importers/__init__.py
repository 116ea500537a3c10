"""Importers, which turn the preprocessing that a model was trained with into a pipeline.

Each library has one module or folder.

Importers read files without the library that wrote them wherever the file format is self-contained. An importer rejects
everything that it does not support and names the field, because a wrong tensor is worse than an error.

>>> from pixprep.importers import import_pipeline
>>> import_pipeline("keras:mobilenet_v2").origin.name
'mobilenet_v2'

To add the importer of a library ``toy``:

1. Write ``importers/toy.py`` with ``from_toy(source, *, ...) -> Pipeline``. ``source`` is the text after ``toy:`` on
   the command line: a name or a path. Each keyword argument becomes an ``--option``.
2. Read files with ``fields.opened`` or ``fields.read_file``. Both enforce a size limit and raise errors that name the
   file and the problem.
3. Open each configuration with ``with reading(values, where) as fields``. At the end of the block, fields that were not
   read raise an error.
4. Read each value with the reader of its type: ``flag``, ``text``, ``choice`` from a table, ``number``, ``numbers``,
   ``colour``, ``side``, ``pair``. Call ``refuse`` for values that no op supports, and ``ignore`` for fields that change
   no pixel.
5. Write one short function for each construct of the library; it reads the fields and returns ops. Leave the details to
   the ops: ``like`` selects filters, antialiasing and rounding.
6. End with ``assembled(ops, library="toy", name=name, where=where)``, which adds the origin. If the library has
   training transforms, accept them as ``training=`` and pass their ops as ``assembled(…, training=ops)``.
7. Add a row to ``LIBRARIES`` with the suffixes or JSON fields by which the library's files are recognized.
8. List the result of each construct, and each error, as lines of ``imports.txt`` and ``refusals.txt`` in
   ``tests/importers``. ``tests/support/sources.py`` defines the names that a line may use.
9. Compare photos with the library itself in ``tests/parity/test_import_toy.py``, which uses the same lines as sources.
   A wrong pipeline must fail. Add the library to ``make parity``.
10. Add its rows to both tables of ``docs/importing.md``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.assembly import recorded
from pixprep.importers.fields import read_json
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
"""Each library, with the marks by which its files are recognized: a suffix, or a field of a JSON file."""
_WEIGHTS = (".bin", ".ckpt", ".h5", ".pb", ".plan", ".pt", ".pth", ".safetensors", ".tflite")
"""Suffixes of model files that do not describe the preprocessing."""


def import_pipeline(source: str, /, **options: Any) -> Pipeline:
    """Create a pipeline from the definition of a model's preprocessing.

    Args:
        source: ``LIBRARY:NAME``, such as ``timm:resnet50.a1_in1k``, ``torchvision:ResNet50_Weights.IMAGENET1K_V2`` or
            ``keras:resnet50``; or a file or folder: ``preprocessor_config.json``, ``processor_config.json`` or the
            folder of either, a ``config.json`` of timm, a ``.keras`` file, an ``.onnx`` or ``.engine`` of Ultralytics,
            a ``model.dali`` or ``dali.py``. ``LIBRARY:PATH`` specifies the library of a file.
        options: Options of the library's importer, by the names of its arguments.

    Raises:
        PipelineError: The name is unknown, a field is not supported, or an option does not exist.
        SetupError: The library is needed and not installed.
    """
    library, colon, name = source.partition(":")
    if colon and library in LIBRARIES and not name:
        raise PipelineError(f"{source} is incomplete: write {library}:NAME or {library}:FILE")
    if not colon or library not in LIBRARIES:
        library, name = _library_of(source), source
    return recorded(importer_of(library, options)(name, **options), name, options)


def importer_of(library: str, options: Iterable[str]) -> Callable[..., Pipeline]:
    """Return the function that imports from a library.

    Raises:
        PipelineError: The function does not have one of the options.
    """
    importer: Callable[..., Pipeline] = load(f"pixprep.importers.{library}:from_{library}")
    parameters = inspect.signature(importer).parameters
    known = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())  # it rejects unsupported options itself
    for option in options:
        if option not in known and not (is_open and option not in parameters):
            raise PipelineError(
                f'unknown option "{option}" for the {library} importer; available options: {", ".join(known) or "none"}'
            )
    return importer


def _library_of(source: str) -> str:
    """Return the library that a file belongs to, recognized by the file's name or its fields."""
    path = Path(source)
    if not path.exists():
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
