"""Sends image files to a running Triton over HTTP or gRPC."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.files import expand, of_file, read
from pixprep.serving.embedded.connection import RequestError, Triton
from pixprep.serving.embedded.request import ModelInput, sample_jpeg
from pixprep.serving.options import HealthOptions, SendOptions


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Response to a request with one file, or with several files if the model has several image inputs.

    Attributes:
        path: Path of the file.
        others: Paths of the other files in the same request, for a model that compares images.
        outputs: Output arrays by name, without the batch dimension, such as ``logits`` (1000,) or ``tensor`` (3, 224,
            224). If the model returns one tensor per box, the first dimension is the number of boxes. The dict is empty
            if the request failed.
        error: Error message of the server, or None if the request succeeded.
        latency_ms: Time in milliseconds from sending the request to having parsed the response.
        saved: Paths of the files that contain outputs, by the name of the output. ``outputs`` omits these outputs.
    """

    path: Path
    others: tuple[Path, ...] = ()
    outputs: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    error: str | None = None
    latency_ms: float = 0.0
    saved: Mapping[str, Path] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files of the request."""
        return tuple(map(str, (self.path, *self.others)))


_END_S = 1.0
"""Maximum time in seconds to wait for requests in flight when the caller stops. A server may never respond to them."""


def send(
    images: Sequence[Path],
    *,
    is_listed: bool = False,
    answered: Container[tuple[str, ...]] = (),
    finish: Callable[[Answer], Answer] = lambda answer: answer,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Iterator[Answer]:
    """Send files in several requests at once, and yield the responses in the order of the files.

    A request that contains an invalid image fails as a whole. Its images are then sent again, one per request, so that
    only the invalid images fail. The memory that is used does not depend on the number of files: at most twice as many
    requests as ``concurrency`` are read, in flight, or waiting to be yielded.

    Args:
        images: Files and folders, see ``files.expand``. For a model that compares images, pass one file per image
            input, or one folder per image input. The n-th files of all folders then form one request.
        is_listed: Whether ``images`` are the files of a list. The response for a file that does not exist is then an
            error, and a folder is not expanded.
        answered: Files to skip, because an earlier run received their responses, as in ``Answer.files``.
        finish: Function that receives each response, in the thread of its request. The return value is yielded in place
            of the response.
        on_progress: Function that is called at the start and after each response, with the number of responses so far,
            including ``answered``, and the total number.
        options: Fields of ``SendOptions``.

    Raises:
        SetupError: No server responds at ``url``, the model does not exist, or tritonclient is not installed.
        PixprepError: A path does not exist, or the model does not accept the batch size or the inputs.
    """
    find: Callable[[Sequence[Path]], list[Path]] = list if is_listed else expand
    find(images)  # report missing paths before connecting
    given = SendOptions(**options)
    model, batch = given.model, given.batch

    def connect() -> Triton:
        return Triton(given.url, protocol=given.protocol, timeout_s=given.timeout_s)

    with connect() as triton:
        model_input = triton.model_input(model)
        check_batch(batch, model, model_input)
        groups = _groups(images, model, model_input, find)
    rows = {group: model_input.rows(of_file(given.inputs or {}, group[0])) for group in groups}
    left = [group for group in groups if tuple(map(str, group)) not in answered]
    done = len(groups) - len(left)

    def ask(triton: Triton, start: int) -> list[Answer]:
        some = left[start : start + batch]
        return [finish(answer) for answer in _send(triton, model, model_input, some, rows=rows, classes=given.classes)]

    if on_progress:
        on_progress(done, len(groups))
    for answers in _in_order(ask, range(0, len(left), batch), connect=connect, threads=given.concurrency):
        for answer in answers:
            yield answer
            done += 1
            if on_progress:
                on_progress(done, len(groups))


def _in_order(
    ask: Callable[[Triton, int], list[Answer]], starts: Sequence[int], *, connect: Callable[[], Triton], threads: int
) -> Iterator[list[Answer]]:
    """Call ``ask`` for each of ``starts`` in several threads, and yield the results in the same order.

    Each thread has its own connection, because the HTTP client of tritonclient must be used in one thread only. The
    threads are daemons, so that a server that does not respond cannot delay the end of the process.

    Raises:
        PixprepError: Any error that ``ask`` or ``connect`` raises.
    """
    tasks: SimpleQueue[tuple[int, Future[list[Answer]]] | None] = SimpleQueue()

    def work() -> None:
        with ExitStack() as stack:
            triton: Triton | None = None
            while (task := tasks.get()) is not None:
                start, result = task
                if not result.set_running_or_notify_cancel():
                    continue
                try:
                    triton = triton or stack.enter_context(connect())
                    result.set_result(ask(triton, start))
                except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
                    result.set_exception(error)

    workers = [Thread(target=work, name="send", daemon=True) for _ in range(min(threads, len(starts)))]
    pending: deque[Future[list[Answer]]] = deque()
    try:
        for worker in workers:
            worker.start()
        for start in starts:
            pending.append(Future())
            tasks.put((start, pending[-1]))
            if len(pending) == 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for _ in workers:
            tasks.put(None)
        end = time.monotonic() + _END_S
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))


def _groups(
    images: Sequence[Path], model: str, model_input: ModelInput, find: Callable[[Sequence[Path]], list[Path]]
) -> list[tuple[Path, ...]]:
    """Group the files into tuples with one file per image input of the model.

    Raises:
        PixprepError: The number of files does not match the number of image inputs.
    """
    names = model_input.names
    if len(names) == 1:
        return [(path,) for path in find(images)]
    if len(images) % len(names):
        raise PixprepError(
            f'model "{model}" compares {len(names)} images ({", ".join(names)}): pass one file or folder for each of '
            f"them, not {len(images)}"
        )
    groups: list[tuple[Path, ...]] = []
    for start in range(0, len(images), len(names)):
        columns = [find([path]) for path in images[start : start + len(names)]]
        if len({len(column) for column in columns}) > 1:
            counts = ", ".join(
                f"{path} has {len(column)}" for path, column in zip(images[start:], columns, strict=False)
            )
            raise PixprepError(
                f'model "{model}" compares {", ".join(names)}: pass equally many files for each; {counts}'
            )
        groups += zip(*columns, strict=True)
    return groups


def health(**options: Any) -> float:
    """Check that a model works by sending a small random image or clip to it.

    This is necessary because Triton reports a Python model as ready even if its process has died. A model that rejects
    the image, for example because the image is smaller than the crop, counts as healthy. Clips are encoded with PyAV.
    If PyAV is not installed, a model for clips receives an image. Such a model rejects the image, and therefore also
    counts as healthy.

    Args:
        options: Fields of ``HealthOptions``.

    Returns:
        Milliseconds from sending the request to receiving the response.

    Raises:
        SetupError: No server responds at ``url``, or the model does not exist.
        RequestError: The model fails, or does not respond in time.
    """
    given = HealthOptions(**options)
    with Triton(given.url, protocol=given.protocol, timeout_s=given.timeout_s) as triton:
        model_input = triton.model_input(given.model)
        start = time.perf_counter()
        try:
            triton.infer(given.model, model_input, [_sample(model_input.frames)], [model_input.example])
        except RequestError as error:
            if not error.is_refusal:
                raise
        return 1e3 * (time.perf_counter() - start)


def _sample(frames: int | None) -> bytes:
    """Return a small clip if ``frames`` is set and PyAV is installed. In all other cases, return a small JPEG."""
    with suppress(ImportError):
        if frames:
            from pixprep.engine.decoders.clips.decoder import sample_clip  # noqa: PLC0415  (FFmpeg, for clips only)

            return sample_clip(frames, 64, 64)
    return sample_jpeg()


def check_batch(batch: int, model: str, model_input: ModelInput) -> None:
    """Check the number of images per request.

    Raises:
        PixprepError: The number is less than 1 or more than the model's ``max_batch_size``, or more than 1 for a model
            that accepts encoded images as UINT8, or that concatenates the patches or tiles of all images.
    """
    if batch > 1 and model_input.is_packed:
        raise PixprepError(
            f'batch size {batch}: model "{model}" concatenates the patches or tiles of all images of a request, so its '
            "response cannot be divided by image: send one image per request"
        )
    if not 1 <= batch <= max(1, model_input.max_batch_size):
        accepted = f"1 to {model_input.max_batch_size} images" if model_input.max_batch_size else "1 image"
        raise PixprepError(f'batch size {batch}: model "{model}" accepts {accepted} per request')
    if batch > 1 and model_input.datatype == "UINT8" and not model_input.pixels:
        raise PixprepError(
            f'batch size {batch}: the input of model "{model}" is UINT8, which requires images of equal length: '
            "send one image per request, or declare the input as BYTES"
        )


def _send(
    triton: Triton,
    model: str,
    model_input: ModelInput,
    groups: Sequence[tuple[Path, ...]],
    *,
    rows: Mapping[tuple[Path, ...], Mapping[str, npt.NDArray[Any]]],
    classes: int,
) -> Iterator[Answer]:
    contents = [[read(path) for path in group] for group in groups]
    reasons = [next((content for content in each if isinstance(content, str)), None) for each in contents]
    encoded = [cast("list[bytes]", each) for each, reason in zip(contents, reasons, strict=True) if reason is None]
    numbers = [rows[group] for group, reason in zip(groups, reasons, strict=True) if reason is None]
    start = time.perf_counter()
    outputs: dict[str, npt.NDArray[Any]] = {}
    failure = None
    try:
        outputs = triton.infer(model, model_input, encoded, numbers, classes=classes) if encoded else {}
    except RequestError as error:
        failure = error
    latency_ms = 1e3 * (time.perf_counter() - start)
    if failure and failure.is_refusal and len(groups) > 1:
        for group in groups:
            yield from _send(triton, model, model_input, [group], rows=rows, classes=classes)
        return
    places = count()
    for (path, *others), reason in zip(groups, reasons, strict=True):
        answer = Answer(path=path, others=tuple(others), latency_ms=latency_ms)
        if reason is not None:
            yield replace(answer, error=reason, latency_ms=0.0)
        elif failure:
            yield replace(answer, error=str(failure))
        else:
            row = next(places) if model_input.max_batch_size else slice(None)
            yield replace(answer, outputs={name: array[row] for name, array in outputs.items()})
