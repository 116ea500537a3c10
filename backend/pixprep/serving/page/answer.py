"""Builds the content of the page for one photo: the model's outputs, the duration of each step, and the stages."""

from __future__ import annotations

import json
import shlex
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from pixprep.engine.engine import Engine
from pixprep.engine.options import EngineOptions
from pixprep.errors import PixprepError, SetupError
from pixprep.importers.source import note
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.embedded.connection import Spent, Triton
from pixprep.serving.embedded.request import ModelInput, curl_line
from pixprep.serving.page.outputs import Array, JsonObject, describe_objects, describe_output
from pixprep.serving.page.program import python_program
from pixprep.serving.repository.door import door_notes, onnx_inputs_in, raw_pixel_tensors
from pixprep.serving.repository.exports import Export, read_export
from pixprep.serving.repository.labels import read_labels
from pixprep.serving.repository.pbtxt import Step
from pixprep.serving.repository.repository import ONNX_FILE, Repository, Version
from pixprep.serving.triton.config import PIPELINE_FILE, Options, options, steps
from pixprep.show.drawing import Panel, to_png
from pixprep.show.pictures import MOST, panels, photo_of
from pixprep.show.preview import Shown, notes, preview

Config = Mapping[str, Any]

MAX_BYTES = 64 << 20
"""Maximum size of one photo in bytes. A model may have a lower limit."""
_BINS = 64
_SAMPLES = 1 << 20
_REQUEST_S = 30.0
_BUSY_S = 30.0
_STATISTICS_S = 1.0
"""Maximum time in seconds to wait for the statistics of a request. Triton updates them only after it has sent the
response."""
_MIN_RUNS, _MAX_RUNS, _MEASURED_S = 2, 8, 0.2
"""Minimum and maximum number of timed runs of the engine, and their maximum total duration in seconds. The page shows
the times of the fastest run."""


class Photos:
    """Sends photos to the models of a server, and draws the stages of their pipelines.

    Args:
        models: Names of models to offer. Models without an image input are omitted.
        folder: Folder of the served model repository.
        http_url, grpc_url: URLs of Triton, in the same form as ``Server.http_url`` and ``Server.grpc_url``.
    """

    def __init__(self, models: Sequence[str], *, folder: Path, http_url: str, grpc_url: str) -> None:
        self._models = models
        self._folder = folder
        self._http_url = http_url
        self._grpc_url = grpc_url
        self._drawing = Lock()  # draw one photo at a time, because a large one needs a gigabyte of memory

    def models(self) -> list[JsonObject]:
        """Return the models that accept photos.

        Returns:
            A list with one JSON object per model: the ``name`` of the model, the names of its image ``inputs``, and
            ``limit_bytes``, the maximum size of a photo.

        Raises:
            SetupError: Triton does not respond.
        """
        found = []
        with self._triton() as triton:
            for model in self._models:
                with suppress(PixprepError):  # the model does not have an image input, or is not ready at the moment
                    taken = triton.model_input(model)
                    if taken.frames is None:  # models for clips are not supported
                        found.append((model, taken.names))
            return [
                {"name": model, "inputs": names, "limit_bytes": self._limit(triton, model)} for model, names in found
            ]

    def limit_bytes(self, model: str) -> int:
        """Return the maximum total size in bytes of all photos in one request to a model.

        Raises:
            PixprepError: The model is not one of ``models``.
            SetupError: Triton does not respond, or the model is not ready.
        """
        with self._triton() as triton:
            return self._limit(triton, self._known(model)) * len(triton.model_input(model).names)

    def answer(self, model: str, encoded: Sequence[bytes], *, names: Sequence[str]) -> JsonObject:
        """Send a photo to a model.

        Args:
            model: Name of one of ``models``.
            encoded: List with the encoded photo, or with one photo per image input for a model that compares images.
            names: File names of the photos, for the example commands.

        Returns:
            A JSON object with the outputs, the time of each step, and commands that send the same request.

        Raises:
            PixprepError: The model is not one of ``models``, or needs a different number of photos.
            RequestError: The model rejects the photo, or fails.
            SetupError: Triton does not respond, or the model is not ready.
        """
        with self._triton() as triton:
            model_input = triton.model_input(self._known(model))
            if len(encoded) != len(model_input.names):
                raise PixprepError(
                    f"model {model} needs {len(model_input.names)} photos: {', '.join(model_input.names)}"
                )
            before = triton.spent()
            start = time.perf_counter()
            found = triton.infer(model, model_input, [encoded], [model_input.example])
            request_ms = 1e3 * (time.perf_counter() - start)
            spent = within(_steps_since(triton, before, _steps(triton, model) or [model]), request_ms)
            scored = {name: self._labels(*triton.source(model, name)) for name in triton.scores(model)}
            export = self._export(triton, model, [*found])
            version = self._with_pipeline(triton, model)
        # An output of a model of patches or tiles has one row per patch of the photo, or a single row for the photo.
        arrays = {
            output: array if model_input.is_packed and len(array) > 1 else array[0] for output, array in found.items()
        }
        objects = describe_objects(arrays, export)
        outputs = [
            describe_output(output, array, scored.get(output), is_image=objects is None and not model_input.is_packed)
            for output, array in arrays.items()
        ]
        return {
            "request_ms": request_ms,
            "steps": [
                {"model": step, "queue_ms": part.queue_ms, "compute_ms": part.compute_ms, "count": part.count}
                for step, part in spent.items()
            ],
            "outputs": outputs,
            "found": objects,
            "is_upright": bool(model_input.pixels)
            or version is None
            or version.pipeline.for_serving().plan.apply_exif_orientation,
            "lines": self._lines(model, model_input, outputs, names=names),
        }

    def stages(self, model: str, encoded: bytes, *, port: str = "") -> JsonObject | None:
        """Draw a photo at each stage of the pipeline that decodes it, and measure the engine.

        The engine runs on one thread of this process. The measured times are therefore not a part of Triton's times.

        Args:
            model: Name of one of ``models``.
            encoded: The encoded photo.
            port: Name of the image input that receives the photo; only needed for a model that compares images.

        Returns:
            A JSON object with pictures and times, or None if no pipeline decodes the photo.

        Raises:
            PixprepError: The model is not one of ``models``.
            ImageError: The engine rejects the photo.
            SetupError: Triton does not respond, the model is not ready, or the page is busy with other photos.
        """
        with self._triton() as triton:
            version = self._with_pipeline(triton, self._known(model), port)
            settings = options(triton.config(version.model.name)) if version else None
        if not version or not settings:
            return None
        pipeline = version.pipeline
        if not self._drawing.acquire(timeout=_BUSY_S):
            raise SetupError("the page is busy drawing other photos: try again")
        try:
            times = _measure(pipeline, encoded, settings.engine)
            found = preview(pipeline, encoded, settings.engine)
            photo = photo_of(pipeline, encoded, found, settings.engine)
            tensors = [_tensor(shown, panels(pipeline, found, photo, shown)) for shown in found.tensors[:MOST]]
        finally:
            self._drawing.release()
        return {
            "pipeline": version.model.name,
            "height": found.height,
            "width": found.width,
            **times,
            "tensors": tensors,
            "left_out": len(found.tensors) - len(tensors),
            "notes": [*self._levels(version, settings), *_source(version)],
        }

    def _triton(self) -> Triton:
        return Triton(self._grpc_url, protocol="grpc", timeout_s=_REQUEST_S)

    def _known(self, model: str) -> str:
        if model not in self._models:
            raise PixprepError("the page does not offer this model any more: reload the page")
        return model

    def _limit(self, triton: Triton, model: str) -> int:
        version = self._with_pipeline(triton, model)
        if not version:
            return MAX_BYTES
        settings = options(triton.config(version.model.name))
        return min(settings.engine.limits.max_image_bytes, settings.max_request_bytes, MAX_BYTES)

    def _with_pipeline(self, triton: Triton, model: str, port: str = "") -> Version | None:
        """Return the model version whose pipeline decodes the images, or None if no pipeline does.

        For an ensemble, this is a version of the model in one of its steps.
        """
        found = Repository(self._folder).pipelines
        first = [triton.first(model, port)] if port else []
        return next((found[name] for name in (*first, model, *_steps(triton, model)) if name in found), None)

    def _export(self, triton: Triton, model: str, outputs: Sequence[str]) -> Export:
        """Read the metadata of the ONNX file that computes the outputs.

        The metadata is empty if the outputs are not computed by exactly one ONNX file.
        """
        repository = Repository(self._folder)
        producers = {triton.source(model, output)[0]["name"] for output in outputs}
        versions = [repository.version_of(Step(producer, {}, {})) for producer in producers]
        files = [version.folder / ONNX_FILE for version in versions if version and version.has(ONNX_FILE)]
        return read_export(files[0]) if len(files) == 1 else Export()

    def _levels(self, version: Version, settings: Options) -> list[str]:
        """Return notes about pixel values that neither the pipeline nor the model normalizes.

        The ONNX file is read only if the pipeline does not normalize the pixel values.
        """
        pipeline = version.pipeline.for_serving()
        if settings.engine.odd_range or not raw_pixel_tensors(pipeline):
            return []
        takers = onnx_inputs_in(Repository(self._folder)).get(version.model.name, ())
        found = door_notes(pipeline, takers, own=f"{version.folder / PIPELINE_FILE}: ")
        return [note.removeprefix(f"{self._folder}/") for note in found]

    def _labels(self, config: Config, output: Config) -> list[str]:
        """Return the labels of an output, or an empty list if it does not have labels.

        ``config`` is the configuration of the model that computes the output.
        """
        file = output.get("label_filename")
        try:
            return read_labels(self._folder / config["name"] / file) if file else []
        except PixprepError:  # Triton accepts an invalid file, and then sends classes without labels
            return []

    def _lines(
        self, model: str, model_input: ModelInput, outputs: Sequence[JsonObject], *, names: Sequence[str]
    ) -> dict[str, str]:
        """Return a shell command and a Python program that send the same photo as the page."""
        usual = [*names, *[""] * len(model_input.names)][: len(model_input.names)]
        photo, *others = [
            name if name.isprintable() and name[:1] not in ("", "-") and "/" not in name else "photo.jpg"
            for name in usual
        ]
        scores = [output["name"] for output in outputs if output["kind"] == "scores"]
        send = ["pixprep", "send", photo, *others, "--url", self._http_url, "--model", model]
        for name, rows in model_input.example.items():
            send += ["--input", f"{name}={json.dumps(rows)}"]
        is_simple = model_input.is_alone and not model_input.pixels  # any other request consists of more than the photo
        return {
            "shell": curl_line(self._http_url, model, photo=photo) if is_simple else shlex.join(send),
            "python": python_program(
                urlsplit(self._http_url).netloc, model, model_input, scores, photos=[photo, *others]
            ),
        }


def _steps(triton: Triton, model: str) -> list[str]:
    """Return the names of the models in an ensemble in the order of its steps, or an empty list for other models."""
    return [step["model_name"] for step in steps(triton.config(model))]


def _steps_since(triton: Triton, before: Mapping[str, Spent], steps: Sequence[str]) -> dict[str, Spent]:
    """Return the statistics of each step since ``before``, averaged over its requests.

    The function waits until Triton has counted a request for every step, but no longer than ``_STATISTICS_S``. Steps
    without requests are omitted from the result.
    """
    deadline = time.monotonic() + _STATISTICS_S
    while True:
        after = triton.spent()
        spent = {
            step: after[step].since(before.get(step, Spent()))
            for step in steps
            if step in after and after[step].count > before.get(step, Spent()).count
        }
        if len(spent) == len(set(steps)) or time.monotonic() > deadline:
            return spent
        time.sleep(0.02)


def within(spent: Mapping[str, Spent], request_ms: float) -> dict[str, Spent]:
    """Scale the times of consecutive steps down if their sum exceeds the time of the request.

    The sum can exceed it because the times are averages, which may include other requests.
    """
    longest = max(request_ms, sum(each.queue_ms + each.compute_ms for each in spent.values()))
    scale = request_ms / longest
    return {
        step: replace(each, queue_ms=scale * each.queue_ms, compute_ms=scale * each.compute_ms)
        for step, each in spent.items()
    }


# Stages


def _source(version: Version) -> list[str]:
    """Return a list with a note about the comparison of a pipeline with the source file from which it was imported.

    The list is empty if the folder of the version does not contain a source file.
    """
    found = note(version.folder / PIPELINE_FILE)
    return [f"{version.model.name} {found}"] if found else []


def _measure(pipeline: Pipeline, encoded: bytes, options: EngineOptions) -> dict[str, float]:
    """Measure the engine on one photo.

    Returns:
        Times of the fastest run: ``engine_ms``, the total time; ``decode_ms``, the time to decode the photo; and
        ``transform_ms``, the time to convert its pixels to tensors. The first runs are slower, partly because they
        allocate memory.

    Raises:
        ImageError: The photo cannot be decoded, or exceeds a limit of the model.
    """
    runs: list[tuple[float, float, float]] = []
    with Engine(pipeline.for_photos(), **vars(replace(options, threads=1, odd_range=True))) as engine:
        while len(runs) < _MIN_RUNS or (len(runs) < _MAX_RUNS and sum(run[0] for run in runs[1:]) < _MEASURED_S):
            start = time.perf_counter()
            batch = engine.run_batch([encoded], inputs=pipeline.example_inputs())
            total_s = time.perf_counter() - start
            decode = min(total_s, batch.decode_s[0])  # measured with different clocks
            runs.append((total_s, decode, min(total_s - decode, batch.transform_s[0])))
            if batch.errors[0] is not None:
                raise batch.errors[0]
    return dict(zip(("engine_ms", "decode_ms", "transform_ms"), (1e3 * part for part in min(runs)), strict=True))


def _tensor(shown: Shown, pictures: Sequence[Panel]) -> JsonObject:
    spec, pixels = shown.plan.spec, shown.of_photo(shown.tensor)
    ends = float(pixels.min()), float(pixels.max())
    return {
        "name": shown.name,
        "dtype": spec.dtype,
        "shape": shown.shape,
        "panels": [_panel(panel) for panel in pictures],
        "low": ends[0],
        "high": ends[1],
        "channels": [_channel(name, pixels[:, :, index], ends) for index, name in enumerate(shown.channels)],
        "notes": list(notes(shown)),
    }


def _panel(panel: Panel) -> JsonObject:
    """Convert a panel to JSON. Its frame becomes [top, left, height, width], as fractions of the picture's size."""
    height, width = panel.pixels.shape[:2]
    frame = None
    if panel.frame:
        top, left, bottom, right = panel.frame
        frame = [top / height, left / width, (bottom - top) / height, (right - left) / width]
    png = b64encode(to_png(panel.pixels)).decode()
    return {"title": panel.title, "line": panel.line, "words": list(panel.words), "png": png, "frame": frame}


def _channel(name: str, values: Array, ends: tuple[float, float]) -> JsonObject:
    """Return statistics of one channel, and its histogram, which has 64 bins of equal width over the tensor's range."""
    step = max(1, int(np.sqrt(values.size / _SAMPLES)))
    some = values[::step, ::step].astype(np.float64)
    counts, _ = np.histogram(some, _BINS, ends)
    numbers = {"min": values.min(), "max": values.max(), "mean": some.mean(), "std": some.std()}
    return {"name": name, "counts": counts.tolist()} | {key: float(value) for key, value in numbers.items()}
