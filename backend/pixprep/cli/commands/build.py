"""The command ``pixprep build``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pixprep.cli.arguments import Photo
from pixprep.errors import PixprepError
from pixprep.options import Folder
from pixprep.serving.options import BuildOptions

EXAMPLE = "build --pipeline pipeline.json --onnx classifier.onnx --classifier tensorrt --output models"
GROUPS = {
    "pipeline": ("pipeline", "preset", "preprocess"),
    "classifier": (
        "onnx",
        "plan",
        "classifier",
        "classifier_io",
        "labels",
        "free_dims",
        "constants",
        "quantizations",
        "explain",
    ),
    "models": (
        *("one_image", "boxes_from", "boxes_by", "name", "input_", "on_error", "max_batch_size", "parameters"),
        *("odd_range", "pictures", "encoding"),
    ),
}
EITHER = ("pipeline", "preset", "preprocess")


def run(
    options: BuildOptions,
    *,
    output: Folder = Path("model_repository"),
    preset: Literal["imagenet", "clip", "efficientnet_lite0", "letterbox"] | None = None,
    explain: Path | None = None,
    image: Photo = None,
) -> int:
    """Write a model repository: preprocess, classifier and ensemble. Without arguments, write the demo.

    Args:
        output: The repository to write.
        preset: A built-in pipeline.
        explain: Print the inputs and outputs of an ONNX file and describe its first nodes, without building anything.
    """
    from pixprep.cli.files import numbers_of, preview, read_photo
    from pixprep.cli.output import pixprep_command, print_text, say
    from pixprep.pipeline import presets
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.serving.repository import build, explain_onnx, try_out
    from pixprep.serving.triton.config import operator_names

    if explain:
        if not explain.is_file():
            problem = "is a folder, not an ONNX file" if explain.is_dir() else "no such file"
            raise PixprepError(f"{explain}: {problem}")
        for line in explain_onnx(explain):
            say(line)
        return 0
    given: dict[str, Any] = {**vars(options)}
    encoded = read_photo(image)
    if given["parameters"] is not None:
        given["parameters"] = dict(given["parameters"])
    for name in ("constants", "quantizations"):
        given[name] = numbers_of(given[name])
    allowed = operator_names((given["parameters"] or {}).get("allow_operators", ""))
    given["pictures"] = dict(given["pictures"] or ())
    if given["labels"]:
        given["labels"] = _by_name(given["labels"], "labels", "OUTPUT=FILE, where OUTPUT is an output of the model")
    if preset:
        given["pipeline"] = getattr(presets, preset)()
    elif given["pipeline"]:
        files = _by_name(given["pipeline"], "pipeline", "INPUT=FILE, where INPUT is an input of the model")
        paths = files if isinstance(files, dict) else {"": files}
        loaded = {name: Pipeline.load(path, operators=allowed) for name, path in paths.items()}
        given["pipeline"] = loaded.get("", loaded)
    built = build(output, **given)
    for path in built.paths:
        say(path)
    for note in built.notes:
        print_text(note, file=sys.stderr)
    preview(encoded, lambda content: try_out(output, content, name=options.name))
    if options.plan or options.classifier != "tensorrt":
        # if the plan is missing, a note of the build explains how to create it, and this line is omitted
        say(f"next  {pixprep_command()} serve --model-repository {shlex.quote(str(output))}", file=sys.stderr)
    return 0


def _by_name(pairs: Sequence[tuple[str, Path]], option_name: str, form: str) -> Path | dict[str, Path]:
    """Return the files of an option by their names, or one file without a name.

    Raises:
        PixprepError: There are several files, and one has no name, or two have the same name.
    """
    files = dict(pairs)
    if len(pairs) > 1 and len(files.keys() - {""}) < len(pairs):
        raise PixprepError(f"with several --{option_name} files, pass each as {form}")
    return files.get("", files)
