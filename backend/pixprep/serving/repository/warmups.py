"""Warm-ups of a model: the files that ``model_warmup`` names, and whether the model accepts their contents.

Triton 2.51 crashes with signal 11, and with it every model, if a Python model rejects a request of its warm-up.
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
"""Default of ``max_request_bytes``; larger requests are rejected."""
_NUMPY = {"TYPE_FP16": "float16", "TYPE_FP32": "float32", "TYPE_FP64": "float64", "TYPE_STRING": "object"}


def warmup_files(
    folder: Path, samples: Sequence[Config], *, most: int = MAX_BYTES, allows_links: bool = False
) -> dict[str, bytes]:
    """Contents of the files that the entries of ``model_warmup`` name, which Triton reads in a model's ``warmup``.

    Args:
        folder: Directory of the model.
        samples: Entries of ``model_warmup``.
        most: Maximum number of bytes of all files together.
        allows_links: Permission to follow symbolic links.

    Raises:
        PipelineError: A file is missing, is not regular, is a link, is in another folder, or is too large.
    """
    inputs = [each for entry in samples for each in entry.get("inputs", {}).values()]
    names = dict.fromkeys(each["input_data_file"] for each in inputs if "input_data_file" in each)
    contents: dict[str, bytes] = {}
    for name in names:
        path, left = folder / FOLDER / name, most - sum(map(len, contents.values()))
        try:
            content = read_bytes(path, most=left) if _is_name(name) else b""
            why = f"all files of {FOLDER} have more than {most:,} bytes" if len(content) > left else ""
        except OSError as error:
            content, why = b"", f"cannot be read in {FOLDER}: {error.strerror}: put the file there"
        if not _is_name(name):
            why = f"is not the name of a file in {FOLDER}: name a file that is directly in it"
        elif not allows_links and (path.is_symlink() or path.parent.is_symlink()):
            why = f"is a symbolic link: put a copy of the file into {FOLDER}"
        if why:
            raise PipelineError(f"{CONFIG_FILE}: model_warmup: input_data_file: {quoted(name)} {why}")
        contents[name] = content
    return contents


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and not {"/", "\0"} & {*name}


def check_warmups(folder: Path, config: Mapping[str, Any], pipeline: Pipeline, *, allows_links: bool = True) -> None:
    """Reject warm-up requests that pixprep's model or Triton would reject: the engine decodes their images.

    If this machine lacks a decoder (a note of ``check`` names it), the warm-ups are not tried.

    Args:
        folder: Directory of the model, or of the model that it was imported from.
        config: Complete configuration.
        pipeline: Serving side of the pipeline.
        allows_links: Permission to follow symbolic links among the files.

    Raises:
        PipelineError: A warm-up is rejected; the message names the first one and the reason.
    """
    options = model_config.options(config)
    samples = [entry for entry in config.get("model_warmup", []) if entry.get("batch_size", 0)]  # Triton skips a 0
    if len(samples) > MAX_SAMPLES:
        raise PipelineError(f"{CONFIG_FILE}: model_warmup: {len(samples):,} samples; at most {MAX_SAMPLES}")
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
                    f"{CONFIG_FILE}: model_warmup {quoted(sample.get('name', ''))}: {error}: Triton would not start: "
                    "mend the warm-up, or leave it out: a model of pixprep warms itself"
                ) from None


@dataclass(frozen=True)
class _Trial:
    """A model whose warm-ups are tried; ``contents`` holds the contents of the files."""

    config: Mapping[str, Any]
    contents: Mapping[str, bytes]
    engine: Engine
    options: Options

    def run(self, sample: Config) -> None:
        """Run the request of a warm-up in the engine.

        Raises:
            PipelineError: Triton rejects the request.
            ImageError: The model rejects the request.
        """
        size, most = sample["batch_size"], self.config["max_batch_size"]
        if size > max(1, most):
            raise PipelineError(f"batch_size: {size} images, and max_batch_size is {most}")
        given: Mapping[str, Config] = sample.get("inputs", {})
        for entry in self.config["input"]:
            if entry["name"] not in given and not entry.get("optional"):
                raise PipelineError(f"inputs: the model's input {quoted(entry['name'])} is missing")
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
        """The tensor that Triton creates for an input of a warm-up.

        Raises:
            PipelineError: Triton rejects it, or its values differ from start to start.
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
            raise PipelineError(f"{where}: is {kind} {dims}, and the model accepts {entry['data_type']} {want}")
        dtype = np.dtype(_NUMPY.get(kind) or kind.removeprefix("TYPE_").lower())
        count, is_text = prod(dims), kind == "TYPE_STRING"
        if (n_bytes := count * (4 if is_text else dtype.itemsize)) > most:
            raise PipelineError(f"{where}: dims of {n_bytes:,} bytes; the limit max_request_bytes is {most:,}")
        shape = (*[1] * (self.config["max_batch_size"] > 0), *dims)
        if "input_data_file" in given:
            name = given["input_data_file"]
            content, file = self.contents[name], f"{where}: {quoted(name)}"
            if is_text:
                elements = np.empty(count, np.object_)
                elements[:] = _elements(content, count, file)
                return elements.reshape(shape)
            if len(content) < n_bytes:
                what = f"has {len(content):,} bytes, and {kind} with dims {dims} has {n_bytes:,}"
                raise PipelineError(f"{file} {what}")
            return np.frombuffer(content, dtype, count).reshape(shape)
        if "random_data" in given and dtype == np.uint8:
            return np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        if "random_data" in given and not is_text:
            raise PipelineError(f"{where}: random_data makes any numbers, also NaN: write zero_data or input_data_file")
        if "zero_data" in given or "random_data" in given:
            return np.full(shape, b"", np.object_) if is_text else np.zeros(shape, dtype)
        raise PipelineError(f"{where}: has no data: write input_data_file")


def _elements(content: bytes, count: int, where: str) -> list[bytes]:
    """The elements in a file for an input of TYPE_STRING.

    Raises:
        PipelineError: The lengths of the elements do not add up to the length of the file.
    """
    found: list[bytes] = []
    at = 0
    while at < len(content) and len(found) < count:
        stop = at + 4 + int.from_bytes(content[at : at + 4], "little")
        found.append(content[at + 4 : stop])
        at = stop
    if at != len(content) or len(found) != count:
        raise PipelineError(
            f"{where} has to hold elements of TYPE_STRING, {count} in number, each after its length in 4 bytes, "
            "little-endian"
        )
    return found
