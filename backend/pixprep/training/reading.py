"""Samples read ahead of the engine, by as many threads as it takes to keep the engine busy."""

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
from pixprep.training.sources import LIMITS, AnySource, read_image
from pixprep.training.timeline import Timeline

MAX_THREADS = 32
_AHEAD = 2
"""Batches that are read before the engine takes the first of them."""
_SLOW = 0.1
"""Reading is too slow if the engine waits for it for more than this share of the time: then more threads read."""

_HINTS: Mapping[type, str] = {
    str: ": use pathlib.Path(text), or pixprep.read.rows, which accepts str",
    dict: ': pixprep.read.rows takes {"bytes": ..., "path": ...}',
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample, read.

    Attributes:
        index: in the source.
        name: for messages.
        image: Encoded bytes or pixels, or the error.
        fields: everything else.
        identity: Path of the image, or size and checksum of its bytes, where pixels are cached: they are of this image.
    """

    index: int
    name: str
    image: Encoded | Kept | Pixels | ImageError
    fields: Mapping[str, Any]
    identity: object = None

    def error(self, error: ImageError) -> ImageError:
        """The reason why a sample is missing, its name first; ``error`` is the engine's, if the image could be read."""
        if isinstance(self.image, ImageError):
            return self.image
        return ImageError(error.reason, f"{self.name}: {error.detail}")


def _encoded(image: Any) -> Encoded | None:
    """Return contiguous bytes as a memoryview; None for anything else, including an array of pixels."""
    if isinstance(image, bytes):
        return image
    try:
        view = memoryview(image)
    except TypeError:
        return None
    return view.cast("B") if view.ndim == 1 and view.c_contiguous else None


def _identity(image: Any) -> object:
    """Return the path of an image, or the size and checksum of its bytes; None if the value is not an image."""
    if isinstance(image, Path):
        return str(image)
    encoded = _encoded(image)
    return None if encoded is None else (len(encoded), crc32(encoded))


class Reader:
    """Reads the samples of batches, two batches ahead.

    It starts with two threads and doubles their number, up to 32, whenever the engine waits for it. Files on a local
    disk need two threads; files on a network, which take 20 ms each, need all of them.

    Args:
        source: Source of the samples.
        limits: Limits on the size of the files that are read.
        timeline: Timeline that records a span for each thread's part of a batch and for each wait of the engine.
        cache: Cache of images that need not be read.
        dtypes: Accepted dtypes of pixel arrays. Empty: images are encoded.
        files: Names of fields that may be paths of files, which are then read also.
        blocks: Memory for files. Default: memory of its own.
        is_patient: Whether an error of the source that may concern only one sample, such as OSError, makes the sample a
            broken one.

    Attributes:
        width: Number of threads that currently read.
    """

    def __init__(
        self,
        source: AnySource,
        limits: Limits,
        timeline: Timeline,
        *,
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
        self._timeline = timeline
        self._cache = cache
        self._blocks = blocks or Blocks()
        self._most = 1 if getattr(source, "is_in_order", False) else MAX_THREADS
        self._pool = Daemons(self._most, "pixprep-read")
        self._is_stopped = False
        self._awaited: Sequence[Future[list[Sample]]] = ()
        self.width = min(2, self._most)

    def samples(self, indices: Sequence[int]) -> list[Sample]:
        """Read samples at once; only the thread that takes those of ``ahead`` may call this.

        Raises:
            CancelledError: the reader was stopped, which ends the wait for a sample that hangs.
        """
        self._awaited = (self._pool.submit(self._samples, indices),)
        try:
            if self._is_stopped:  # before it could see this one
                raise CancelledError
            return self._awaited[0].result()
        finally:
            self._awaited = ()

    def _samples(self, indices: Sequence[int]) -> list[Sample]:
        token = LIMITS.set(self._limits)
        try:
            made = []
            for index in indices:
                if self._is_stopped:
                    raise CancelledError
                made.append(self._read(index))
            return made
        finally:
            LIMITS.reset(token)

    def ahead(self, parts: Iterator[Part]) -> Generator[tuple[Part, list[Sample]], None, None]:
        """The samples of each part, in order."""
        pending: deque[tuple[Part, list[Future[list[Sample]]]]] = deque()
        since = self._timeline.now()
        try:
            for part in parts:
                pending.append((part, self._started(part)))
                if len(pending) > _AHEAD:
                    since = yield from self._first(pending, since)
            while pending:
                since = yield from self._first(pending, since)
        finally:
            for _, shares in pending:
                for future in shares:
                    future.cancel()

    def stop(self) -> None:
        """Read no further sample, and let nobody wait for one that is being read; any thread may call this."""
        self._is_stopped = True
        for future in self._awaited:
            with suppress(InvalidStateError):  # it has just ended
                if not future.cancel():  # it has begun
                    future.set_exception(CancelledError())

    def close(self) -> None:
        """End the threads."""
        self._is_stopped = True
        self._pool.close()

    def _read(self, index: int) -> Sample:
        """One sample; of a broken one its error, and what is known of it.

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
            words = f"sample {index:,} of the source: {type(error).__name__}: {error}"
            if self._is_patient and isinstance(error, OSError | KeyError | futures.TimeoutError):
                return Sample(index, f"sample {index:,}", ImageError("UNREADABLE", words), {})
            raise DataError(words) from error
        if fields is None:
            what = f'is no dict with an "image", but {type(sample).__name__}: pixprep.read.rows takes other rows'
            raise DataError(f"sample {index:,} {what}")
        if "image" not in fields:
            raise DataError(f'sample {index:,} has no "image"; it has {", ".join(map(printable, fields)) or "nothing"}')
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
            hint = ": a pipeline whose first op is pixels takes arrays"
        what = f"must be the bytes of a file or its pathlib.Path, not {type(image).__name__}{hint}"
        raise DataError(f'{printable(name)}: "image" {what}')

    def _started(self, part: Part) -> list[Future[list[Sample]]]:
        indices = part.indices.tolist()
        width = min(self.width, len(indices))
        return [self._pool.submit(self._share, indices[thread::width]) for thread in range(width)]

    def _share(self, indices: Sequence[int]) -> list[Sample]:
        with self._timeline.span("read", samples=len(indices)):
            return self._samples(indices)

    def _first(
        self, pending: deque[tuple[Part, list[Future[list[Sample]]]]], since: float
    ) -> Generator[tuple[Part, list[Sample]], None, float]:
        """Give the samples of the first part; return the time at which they were asked for."""
        part, self._awaited = pending.popleft()
        wait = self._timeline.span("wait for files")
        with wait:
            if self._is_stopped:  # before it could see these
                raise CancelledError
            shares = [future.result() for future in self._awaited]
        end = self._timeline.now()
        if end - wait.begin > _SLOW * (end - since):
            self.width = min(2 * self.width, self._most)
        samples: list[Any] = [None] * len(part.indices)
        for thread, share in enumerate(shares):
            samples[thread :: len(shares)] = share
        self._awaited = ()
        del shares
        yield part, samples
        return end
