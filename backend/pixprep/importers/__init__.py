"""Importers: the preprocessing that a model was trained with, as a pipeline. One module a library.

Files are read without the library that wrote them, wherever their format says everything. What an importer does not
understand it refuses, naming the field: a wrong tensor is worse than an error.

>>> from pixprep.importers import import_pipeline
>>> import_pipeline("keras:mobilenet_v2").source.name
'mobilenet_v2'
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.pipeline import Pipeline

LIBRARIES = ("torchvision", "timm", "transformers", "keras", "ultralytics", "dali")
SUFFIXES = {".keras": "keras", ".onnx": "ultralytics", ".engine": "ultralytics", ".dali": "dali"}
MAX_JSON_BYTES = 16 << 20


def import_pipeline(source: str, **options: Any) -> Pipeline:
    """A pipeline from the place where a model's preprocessing is defined.

    Args:
        source: ``LIBRARY:NAME``, such as ``timm:resnet50.a1_in1k``, ``torchvision:ResNet50_Weights.IMAGENET1K_V2``,
            ``keras:resnet50``; or a file or folder: ``preprocessor_config.json``, ``processor_config.json`` or the
            folder of either, a ``config.json`` of timm, a ``.keras`` file, an ``.onnx`` or ``.engine`` of Ultralytics,
            a ``model.dali``. ``LIBRARY:PATH`` says whose a file is.
        options: of the library's importer, by the names of its arguments.

    Raises:
        PipelineError: nothing of that name; a field is not understood; no such option.
        SetupError: the library is needed, and is not installed.
    """
    library, colon, name = source.partition(":")
    if not colon or library not in LIBRARIES:
        library, name = _library_of(source), source
    load = _importer(library)
    known = [p.name for p in inspect.signature(load).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise PipelineError(
                f'the importer of {library} has no option "{option}"; it has {", ".join(known) or "none"}'
            )
    return load(name, **options)


def _importer(library: str) -> Callable[..., Pipeline]:
    load: Callable[..., Pipeline] = import_module(f"pixprep.importers.{library}").load
    return load


def _library_of(source: str) -> str:
    """Whose a file is, by its name and its contents."""
    path = Path(source)
    if not path.exists():
        raise PipelineError(
            f"{source}: no such file, nor LIBRARY:NAME, such as timm:resnet50.a1_in1k; "
            f"libraries are {', '.join(LIBRARIES)}"
        )
    if path.is_dir():
        return "transformers"
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    if path.suffix == ".json":
        return _library_of_json(path)
    raise PipelineError(f"{path.name}: say whose it is: LIBRARY:{source}, with a library of {', '.join(LIBRARIES)}")


def _library_of_json(path: Path) -> str:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MAX_JSON_BYTES + 1)[:MAX_JSON_BYTES])
    except (OSError, ValueError, RecursionError):
        document = None
    if isinstance(document, Mapping):
        if "pretrained_cfg" in document:
            return "timm"
        if {"image_processor", "image_processor_type", "feature_extractor_type"} & set(document):
            return "transformers"
        if document.get("class_name") in ("Sequential", "Functional"):
            return "keras"
    raise PipelineError(
        f"{path.name}: not a preprocessor_config.json, a config.json of timm or a Keras model's; "
        f"if it is one, say whose: LIBRARY:{path}"
    )
