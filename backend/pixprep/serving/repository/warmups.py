"""Checks the warm-up requests of a model, which the field ``model_warmup`` of its configuration declares.

Triton 2.51 crashes with a segmentation fault if a Python model rejects one of its warm-up requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pixprep.engine.engine import Engine
from pixprep.errors import ImageError, PipelineError, SetupError
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.answers import Answers
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, Config, Options
from pixprep.serving.triton.images import images_of

FOLDER = "warmup"
MAX_SAMPLES = 64
MAX_BYTES = 64 << 20
"""Default limit for the total size of the files in bytes, which equals the default of ``max_request_bytes``."""
_NUMPY = {"TYPE_FP16": "float16", "TYPE_FP32": "float32", "TYPE_FP64": "float64", "TYPE_STRING": "object"}


def warmup_files(
    folder: Path, samples: Sequence[Config], *, most: int = MAX_BYTES, allows_links: bool = False
) -> dict[str, bytes]:
    """Read the files that ``model_warmup`` refers to, in the folder ``warmup`` of the model.

    Args:
        folder: Directory of the model.
        samples: Entries of ``model_warmup``.
        most: Maximum total size of all files in bytes.
        allows_links: Whether to follow symbolic links.

    Returns:
        The contents by file name.

    Raises:
        PipelineError: A file is missing, is not a regular file, is a link, is in a different folder, or is too large.
    """
    inputs = [each for entry in samples for each in entry.get("inputs", {}).values()]
    names = dict.fromkeys(each["input_data_file"] for each in inputs if "input_data_file" in each)
    contents: dict[str, bytes] = {}
    for name in names:
        path, left = folder / FOLDER / name, most - sum(map(len, contents.values()))
        try:
            content = read_bytes(path, max_bytes=left) if _is_name(name) else b""
            why = f"exceeds the limit: the files in {FOLDER} have over {most:,} bytes" if len(content) > left else ""
        except OSError as error:
            content, why = b"", f"cannot be read in {FOLDER}: {error.strerror}: copy the file there"
        if not _is_name(name):
            why = f"is not a plain file name: write the name of a file directly in {FOLDER}"
        elif not allows_links and (path.is_symlink() or path.parent.is_symlink()):
            why = f"is a symbolic link: replace it with a copy of the file in {FOLDER}"
        if why:
            raise PipelineError(f"{CONFIG_FILE}: model_warmup: input_data_file: {quoted(name)} {why}")
        contents[name] = content
    return contents


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and not {"/", "\0"} & {*name}


def check_warmups(folder: Path, config: Mapping[str, Any], pipeline: Pipeline, *, allows_links: bool = True) -> None:
    """Check that neither Triton nor the model rejects a warm-up request, by running all requests in an engine.

    If this machine lacks a decoder, the requests are not run. ``check`` reports the missing decoder in a note.

    Args:
        folder: Directory that contains the folder ``warmup``.
        config: Complete configuration of the model.
        pipeline: Serving side of the pipeline.
        allows_links: Whether to follow symbolic links.

    Raises:
        PipelineError: A warm-up request is rejected. The message contains the name of the request and the reason.
    """
    options = model_config.options(config)
    samples = [
        entry for entry in config.get("model_warmup", []) if entry.get("batch_size", 0)
    ]  # Triton ignores entries with batch size 0
    if len(samples) > MAX_SAMPLES:
        raise PipelineError(f"{CONFIG_FILE}: model_warmup: {len(samples):,} samples exceed the limit of {MAX_SAMPLES}")
    contents = warmup_files(folder, samples, most=options.max_request_bytes, allows_links=allows_links)
    if not samples:
        return
    with (
        suppress(SetupError),
        Engine(pipeline, **vars(replace(options.engine, device="cpu", threads=1, odd_range=True))) as engine,
    ):
        trial = _Trial(config, contents, engine, options)
        for sample in samples:
            try:
                trial.run(sample)
            except (PipelineError, ImageError) as error:
                raise PipelineError(
                    f"{CONFIG_FILE}: model_warmup {quoted(sample.get('name', ''))}: {error}; this would crash Triton: "
                    "correct the entry, or remove it, because a pixprep model warms up by itself"
                ) from None


@dataclass(frozen=True)
class _Trial:
    """Runs the warm-up requests of a model in an engine.

    Attributes:
        config: Complete configuration of the model.
        contents: Contents of the files by name.
        engine: Engine of the pipeline.
        options: Parameters of the model.
    """

    config: Mapping[str, Any]
    contents: Mapping[str, bytes]
    engine: Engine
    options: Options

    def run(self, sample: Config) -> None:
        """Run one warm-up request in the engine.

        Raises:
            PipelineError: Triton rejects the request.
            ImageError: The model rejects the request.
        """
        size, most = sample["batch_size"], self.config["max_batch_size"]
        if size > max(1, most):
            raise PipelineError(f"batch_size is {size}, but max_batch_size is {most}")
        given: Mapping[str, Config] = sample.get("inputs", {})
        for entry in self.config["input"]:
            if entry["name"] not in given and not entry.get("optional"):
                raise PipelineError(f"input {quoted(entry['name'])} of the model is missing")
        arrays = {
            entry["name"]: self._array(entry, given[entry["name"]])
            for entry in self.config["input"]
            if entry["name"] in given
        }
        image, *_ = self.config["input"]
        takes_boxes = self.engine.plan.takes_boxes
        images = images_of(arrays[image["name"]], self.engine, self.options)
        numbers = {name: [arrays[name]] if takes_boxes else list(arrays[name]) for name in self.engine.pipeline.inputs}
        if self.options.no_rows == "empty" and takes_boxes and not any(len(rows) for (rows,) in numbers.values()):
            return
        answers = Answers([slice(0, len(images))], self.options.max_response_bytes)
        for error in self.engine.run_batch(images, inputs=numbers, answers=answers).errors:
            if error is not None and (self.options.on_error == "fail" or error.reason == "TOO_LARGE_RESPONSE"):
                raise error

    def _array(self, entry: Config, given: Config) -> Any:
        """Return the tensor that Triton creates for an input of a warm-up request.

        Raises:
            PipelineError: Triton rejects the declaration of the input, or the values would differ at each start.
        """
        where, dims, want = (
            f"input {quoted(entry['name'])}",
            *([int(x) for x in e.get("dims", [])] for e in (given, entry)),
        )
        kind, most = given.get("data_type", "TYPE_INVALID"), self.options.max_request_bytes
        is_shape = len(dims) == len(want) and all(
            length >= 0 and free_or_same in (-1, length) for length, free_or_same in zip(dims, want, strict=True)
        )
        if kind != entry["data_type"] or not is_shape:
            raise PipelineError(f"{where} is {kind} {dims}, but the model requires {entry['data_type']} {want}")
        dtype = np.dtype(_NUMPY.get(kind) or kind.removeprefix("TYPE_").lower())
        count, is_text = prod(dims), kind == "TYPE_STRING"
        if (n_bytes := count * (4 if is_text else dtype.itemsize)) > most:
            raise PipelineError(f"{where} has {n_bytes:,} bytes, but the limit max_request_bytes is {most:,}")
        shape = (*[1] * (self.config["max_batch_size"] > 0), *dims)
        if "input_data_file" in given:
            name = given["input_data_file"]
            content, file = self.contents[name], f"{where}: {quoted(name)}"
            if is_text:
                elements = np.empty(count, np.object_)
                elements[:] = _elements(content, count, file)
                return elements.reshape(shape)
            if len(content) < n_bytes:
                problem = f"has {len(content):,} bytes, but {kind} with dims {dims} has {n_bytes:,}"
                raise PipelineError(f"{file} {problem}")
            return np.frombuffer(content, dtype, count).reshape(shape)
        if "random_data" in given and dtype == np.uint8:
            return np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        if "random_data" in given and not is_text:
            raise PipelineError(f"{where}: random_data may contain NaN: use zero_data or input_data_file")
        if "zero_data" in given or "random_data" in given:
            return np.full(shape, b"", np.object_) if is_text else np.zeros(shape, dtype)
        raise PipelineError(f"{where} has no data: add input_data_file")


def _elements(content: bytes, count: int, where: str) -> list[bytes]:
    """Split the content of a file for an input of TYPE_STRING into its elements.

    Raises:
        PipelineError: The file does not contain exactly ``count`` elements.
    """
    found: list[bytes] = []
    at = 0
    while at < len(content) and len(found) < count:
        stop = at + 4 + int.from_bytes(content[at : at + 4], "little")
        found.append(content[at + 4 : stop])
        at = stop
    if at != len(content) or len(found) != count:
        raise PipelineError(
            f"{where} must contain {count} elements of TYPE_STRING, each with its length before it, as 4 bytes in "
            "little-endian order"
        )
    return found
