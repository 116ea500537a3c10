"""Reads samples ahead of the engine, with as many threads as are needed to keep the engine busy."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from pixprep.engine.decoders import Encoded, Kept, Limits, Pixels
from pixprep.engine.decoders.pixels import checked
from pixprep.errors import DataError, ImageError, printable
from pixprep.training.cache import PixelCache
from pixprep.training.daemons import Daemons
from pixprep.training.order import Part
from pixprep.training.recycling import Blocks
from pixprep.training.sources import DRAW, LIMITS, AnySource, Draw, read_image
from pixprep.training.timeline import Timeline

MAX_THREADS = 32
_AHEAD = 2
"""Number of batches that are read ahead of the one that the engine processes."""
_SLOW = 0.1
"""If the engine waits for samples for more than this fraction of the time, the number of threads is doubled."""

_HINTS: Mapping[type, str] = {
    str: ": use pathlib.Path(text), or pixprep.read.rows, which accepts str",
    dict: ': pixprep.read.rows accepts {"bytes": ..., "path": ...}',
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample that was read from the source.

    Attributes:
        index: Index of the sample in the source.
        name: Name of the sample, for messages.
        image: Encoded bytes or pixels, or the error that was raised when the sample was read.
        fields: All other fields of the sample.
        identity: Path of the image, or size and checksum of its bytes, to detect whether cached pixels are outdated.
            None if pixels are not cached.
    """

    index: int
    name: str
    image: Encoded | Kept | Pixels | ImageError
    fields: Mapping[str, Any]
    identity: object = None

    def error(self, error: ImageError) -> ImageError:
        """Return the error of a broken sample, with its name.

        Args:
            error: Error of the engine. It is ignored if the image could not even be read.
        """
        if isinstance(self.image, ImageError):
            return self.image
        return ImageError(error.reason, f"{self.name}: {error.detail}")


def _encoded(image: Any) -> Encoded | None:
    """Return contiguous bytes, as ``bytes`` or a memoryview. None for anything else, such as an array of pixels."""
    if isinstance(image, bytes):
        return image
    try:
        view = memoryview(image)
    except TypeError:
        return None
    return view.cast("B") if view.ndim == 1 and view.c_contiguous else None


def _identity(image: Any) -> object:
    """Return the path of an image, or the size and checksum of its bytes. None for any other object."""
    if isinstance(image, Path):
        return str(image)
    encoded = _encoded(image)
    return None if encoded is None else (len(encoded), crc32(encoded))


class Reader:
    """Reads the samples of batches, two batches ahead.

    It starts with two threads, and doubles their number, up to 32, when the engine has to wait for samples. Two threads
    are enough for a local disk. Files on a network, which take about 20 ms each, require all 32 threads.

    Args:
        source: Source of the samples.
        limits: Limits on the size of the files that are read.
        timeline: Timeline that records each thread's part of a batch, and each time that the engine waits.
        seed: Seed of the Loader, for sources that use random numbers.
        cache: Cache of decoded images. Cached images are not read.
        dtypes: Accepted dtypes of pixel arrays. If it is empty, images must be encoded.
        files: Names of the fields that can contain paths, besides the image. These files are also read.
        blocks: Memory pool for files. Default: a new one.
        is_patient: Whether errors of the source that may affect only one sample, such as OSError, mark the sample as
            broken instead of ending the epoch.

    Attributes:
        width: Current number of threads.
    """

    def __init__(
        self,
        source: AnySource,
        limits: Limits,
        timeline: Timeline,
        *,
        seed: int = 0,
        cache: PixelCache | None = None,
        blocks: Blocks | None = None,
        dtypes: Sequence[str] = (),
        files: Sequence[str] = (),
        is_patient: bool = False,
    ) -> None:
        self._source = source
        self._is_patient = is_patient
        self._dtypes = dtypes
        self._files = files
        self._limits = limits
        self._seed = seed
        self._timeline = timeline
        self._cache = cache
        self._blocks = blocks or Blocks()
        self._max_width = 1 if getattr(source, "is_in_order", False) else MAX_THREADS
        self._pool = Daemons(self._max_width, "pixprep-read")
        self._is_stopped = False
        self._awaited: Sequence[Future[list[Sample]]] = ()
        self.width = min(2, self._max_width)

    def samples(self, indices: Sequence[int], epoch: int, attempts: Sequence[int]) -> list[Sample]:
        """Read samples and wait for them. Only the thread that iterates over ``ahead`` may call this.

        Args:
            indices: Index of each sample.
            epoch: Number of the epoch.
            attempts: Attempt number of each sample; for a partner in a chain, ``Request.key``.

        Raises:
            CancelledError: The reader was stopped, possibly while a read was hanging.
        """
        self._awaited = self._started(indices, epoch, attempts)
        try:
            return self._result(len(indices))
        finally:
            self._awaited = ()

    def _result(self, count: int) -> list[Sample]:
        """Wait for the requested samples, and return all ``count`` samples in order.

        Raises:
            CancelledError: The reader was stopped.
        """
        if self._is_stopped:  # ``stop`` may have run before ``_awaited`` was set
            raise CancelledError
        samples: list[Any] = [None] * count
        for thread, future in enumerate(self._awaited):
            samples[thread :: len(self._awaited)] = future.result()
        return samples

    def _samples(self, indices: Sequence[int], epoch: int, attempts: Sequence[int]) -> list[Sample]:
        token, drawing = LIMITS.set(self._limits), DRAW.set(None)
        try:
            made = []
            for index, attempt in zip(indices, attempts, strict=True):
                if self._is_stopped:
                    raise CancelledError
                DRAW.set(Draw(self._seed, epoch, index, attempt))
                made.append(self._read(index))
            return made
        finally:
            LIMITS.reset(token)
            DRAW.reset(drawing)

    def ahead(self, parts: Iterator[Part], epoch: int) -> Generator[tuple[Part, list[Sample]], None, None]:
        """Yield each part of an epoch with its samples, in order."""
        pending: deque[tuple[Part, list[Future[list[Sample]]]]] = deque()
        since = self._timeline.now()
        try:
            for part in parts:
                pending.append((part, self._started(part.indices.tolist(), epoch, part.attempts)))
                if len(pending) > _AHEAD:
                    since = yield from self._first(pending, since)
            while pending:
                since = yield from self._first(pending, since)
        finally:
            for _, futures_of_part in pending:
                for future in futures_of_part:
                    future.cancel()

    def stop(self) -> None:
        """Stop reading, and end the wait for samples that are being read. Any thread may call this."""
        self._is_stopped = True
        for future in self._awaited:
            with suppress(InvalidStateError):  # the read has just finished
                if not future.cancel():  # the read has started
                    future.set_exception(CancelledError())

    def close(self) -> None:
        """End the threads."""
        self._is_stopped = True
        self._pool.close()

    def _read(self, index: int) -> Sample:
        """Read a sample. If it is broken, its ``image`` is the error.

        Raises:
            DataError: The source raises an error, or returns an object that is not a sample.
        """
        try:
            sample = self._source[index]
            fields = dict(sample) if isinstance(sample, Mapping) else None
        except ImageError as error:
            return Sample(index, f"sample {index:,}", error.as_value(), {})
        except DataError:
            raise
        except Exception as error:
            message = f"sample {index:,} of the source: {type(error).__name__}: {error}"
            if self._is_patient and isinstance(error, OSError | KeyError | futures.TimeoutError):
                return Sample(index, f"sample {index:,}", ImageError("UNREADABLE", message), {})
            raise DataError(message) from error
        if fields is None:
            raise DataError(
                f'sample {index:,} must be a dict with an "image", not {type(sample).__name__}: pixprep.read.rows '
                "accepts other types of rows"
            )
        if "image" not in fields:
            found = ", ".join(map(printable, fields)) or "none"
            raise DataError(f'sample {index:,} has no field "image"; its fields are: {found}')
        image = fields.pop("image")
        name = str(fields.get("name") or (image if isinstance(image, Path) else f"sample {index:,}"))
        try:
            for field in self._files:
                if isinstance(path := fields.get(field), Path):
                    fields[field] = read_image({"image": path, "name": f'{name}, "{field}"'}, self._limits)
            identity = None if self._cache is None else _identity(image)
            kept = None if self._cache is None else self._cache.get(index, identity)
            return Sample(index, name, kept or self._image(name, image), fields, identity)
        except ImageError as error:
            return Sample(index, name, error.as_value(), fields)

    def _image(self, name: str, image: Any) -> Encoded | Kept | Pixels:
        if self._dtypes:
            try:
                return checked(image, dtypes=self._dtypes)
            except TypeError as error:
                raise DataError(f'{printable(name)}: "image": {error}') from None
        if isinstance(image, Path):
            return read_image({"image": image, "name": name}, self._limits, self._blocks.take)
        if (encoded := _encoded(image)) is not None:
            return encoded
        hint = _HINTS.get(type(image), "")
        if hasattr(image, "__array_interface__"):
            hint = ": to pass an array of pixels, begin the pipeline with the op pixels"
        what = f"must be the bytes of a file or its pathlib.Path, not {type(image).__name__}{hint}"
        raise DataError(f'{printable(name)}: "image" {what}')

    def _started(self, indices: Sequence[int], epoch: int, attempts: Sequence[int]) -> list[Future[list[Sample]]]:
        """Begin to read samples. Each thread reads every n-th one."""
        width = min(self.width, len(indices))
        each = (slice(thread, None, width) for thread in range(width))
        return [self._pool.submit(self._part, indices[those], epoch, attempts[those]) for those in each]

    def _part(self, indices: Sequence[int], epoch: int, attempts: Sequence[int]) -> list[Sample]:
        with self._timeline.span("read", samples=len(indices)):
            return self._samples(indices, epoch, attempts)

    def _first(
        self, pending: deque[tuple[Part, list[Future[list[Sample]]]]], since: float
    ) -> Generator[tuple[Part, list[Sample]], None, float]:
        """Yield the first part with its samples, and return the time at which the engine requested them.

        Args:
            pending: Parts that are being read, each with one future per thread.
            since: Time at which the engine requested the previous part.
        """
        part, self._awaited = pending.popleft()
        wait = self._timeline.span("wait for files")
        with wait:
            samples = self._result(len(part.indices))
        end = self._timeline.now()
        if end - wait.begin > _SLOW * (end - since):
            self.width = min(2 * self.width, self._max_width)
        self._awaited = ()
        yield part, samples
        return end
