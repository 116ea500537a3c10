"""Sources from which training reads samples by index.

A source supports ``len()``, ``source[index]``, and the attributes of ``Source``. A sample is a dict with these keys:

``image``   encoded image: bytes, a memoryview, or a ``pathlib.Path`` (see ``read_image``); for a pipeline that begins
            with ``pixels``, an array of pixels
``name``    name of the sample, for messages
``label``   class index from 0 if the source has class names; otherwise an integer, or a value of the declared type
            (see ``types``)
``boxes``   float32 (n, 4): x1, y1, x2, y2 in 0-based pixels of the image with its EXIF orientation applied; x2 and y2
            are exclusive
``labels``  int64 (n,): class of each box
``points``  float32 (n, k, 2): x and y in the same coordinates
``mask``    class of each pixel, integers (height, width): an array or an encoded PNG, in the same forms as ``image``
``masks``   (n, height, width): mask of each object in ``boxes``
``size``    (height, width) of the image according to the annotation

All other keys are metadata, which is returned with the batch. Several threads may read a source concurrently. If a
sample cannot be read, ``ImageError`` is raised with a message that begins with the name of the sample. Other samples
are not affected.
"""

from __future__ import annotations

import operator
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pixprep.engine.decoders import Encoded, Limits
from pixprep.errors import ImageError, SetupError, printable
from pixprep.plan.boxes import to_xyxy
from pixprep.spec import BoxSource
from pixprep.training.order import ATTEMPT_BITS, SOURCES, generator

Sample = dict[str, Any]
LIMITS: ContextVar[Limits] = ContextVar("LIMITS", default=Limits())  # noqa: B039  (``Limits`` is immutable)
"""Limits of the Loader that reads a sample. They also apply to remote objects, which are downloaded on request."""
_NAMED = 3


class Draw:
    """Epoch and random numbers of the sample that a Loader reads; ``pixprep.read.draw`` returns it.

    Attributes:
        epoch: Number of the epoch, from 0.
        index: Index of the sample in the source of the Loader.
        attempt: Attempt number of the sample, as in ``batch["attempt"]``. For a partner in a ``Chain``, it is the
            attempt number of the image that the partner is combined with.
        rng: Random generator. Its numbers depend only on the seed of the Loader, the epoch, the index, the attempt and,
            for a partner, its position in the chain.
    """

    def __init__(self, seed: int, epoch: int, index: int, number: int) -> None:
        self.seed, self.epoch, self.index, self.attempt = seed, epoch, index, number % (1 << ATTEMPT_BITS)
        self._key = seed, epoch, index, number

    @cached_property
    def rng(self) -> np.random.Generator:  # noqa: D102  (see ``Attributes``)
        return generator(self._key, SOURCES)


DRAW: ContextVar[Draw | None] = ContextVar("DRAW", default=None)


def draw() -> Draw:
    """Return the epoch and the random generator of the sample that a Loader is reading.

    A custom source calls this function in ``__getitem__``, and a generator function for ``pixprep.read.iterable`` calls
    it before each sample. The random numbers of a sample are then the same after resuming, in ``Loader.replay``, and
    with any number of threads and shards. All calls for one sample return the same generator.

    Raises:
        SetupError: No Loader is reading a sample in this thread.
    """
    found = DRAW.get()
    if found is None:
        raise SetupError(
            "read.draw() works only while a Loader reads a sample: call loader.replay(epoch, index), not source[index]"
        )
    return found


class AnySource(Protocol):
    """Source of a Loader: a ``Source`` from ``pp.read``, or any sequence of dicts. Several threads read it at once."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, index: int, /) -> Mapping[str, Any]:
        """Return a sample. ``image`` is encoded bytes, the ``Path`` of a file, or an array of pixels.

        Raises:
            ImageError: The sample is broken.
        """


class Source(ABC):
    """Base class of the sources that the functions of ``pixprep.read`` return.

    Attributes:
        classes: Names of the classes, in the order of their indices. Empty if the source does not have class names.
        is_in_order: Whether samples can be read efficiently only in sequence. Reading a previous sample restarts the
            iteration; see ``iterable``.
        notes: Problems that were found when the source was created, one line each. They are also logged as warnings.
        fingerprint: Hash that identifies the samples, 32 hexadecimal digits. It covers names, sizes and annotations,
            but not the contents of image files. It is computed on first use.
    """

    classes: tuple[str, ...] = ()
    is_in_order = False
    notes: tuple[str, ...] = ()
    types: Any = None  # a ``Types`` object with the declared types of the fields; ``typed`` sets it
    box_format: BoxSource = "xyxy"  # format of the field ``boxes`` that ``_sample`` returns
    _broken: Mapping[int, ImageError] = {}  # errors of samples that were already broken when the source was created

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...  # noqa: D102

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _sample(self, index: int) -> Sample:
        """Return the sample at a valid, nonnegative index."""

    def __getitem__(self, index: int) -> Sample:
        """Return the sample at an index. As in a list, negative indices count from the end.

        Raises:
            IndexError: The index is out of range.
            ImageError: The sample is broken.
        """
        number, count = operator.index(index), len(self)
        if not -count <= number < count:
            raise IndexError(f"index must be from {-count:,} to {count - 1:,}, not {number:,}")
        number %= count
        if (error := self._broken.get(number)) is not None:
            raise ImageError(error.reason, error.detail)
        sample = self._sample(number)
        if self.box_format != "xyxy" and "boxes" in sample:
            with naming(sample["name"]):
                sample["boxes"] = to_xyxy(sample["boxes"], self.box_format)
        return self.types.applied(sample) if self._type_tag else sample

    @property
    def _type_tag(self) -> tuple[object, ...]:
        """Declared types, as a part of the fingerprint. Empty if no types are declared."""
        return (self.types,) if self.types is not None and self.types.fields else ()

    @property
    def _tags(self) -> tuple[object, ...]:
        """Box format and declared types, as parts of the fingerprint. Defaults are omitted."""
        return (*([self.box_format] if self.box_format != "xyxy" else []), *self._type_tag)

    def __repr__(self) -> str:
        some = printable(", ".join(self.classes[:_NAMED])) + ", …" * (len(self.classes) > _NAMED)
        classes = f", {len(self.classes):,} classes: {some}" if self.classes else ""
        return f"<{type(self).__name__}: {len(self):,} samples{classes}>"


def read_image(sample: Sample, limits: Limits, allocate: Callable[[int], memoryview] | None = None) -> Encoded:
    """Return the encoded bytes of a sample's image. They are read from a file if ``image`` is a path.

    Args:
        sample: Sample as described in the module's docstring.
        limits: Limits, which include the maximum size of a file.
        allocate: Function that returns memory of a size in bytes for a file. Default: new memory for each file.

    Raises:
        ImageError: The file cannot be read, is not a regular file, or is larger than the limit. The message contains
            the name of the sample.
    """
    image = sample["image"]
    if not isinstance(image, Path):
        return image  # type: ignore[no-any-return]
    with naming(sample.get("name", "a sample")):
        try:
            descriptor = os.open(image, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK, opening a FIFO would block
        except ValueError:  # the path contains a NUL character
            raise ImageError("UNREADABLE", "is not a valid file name, because it contains a NUL character") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ImageError("UNREADABLE", "is not a regular file")
            limits.check_bytes(status.st_size)
            if allocate is None:
                return os.read(descriptor, status.st_size)
            into = allocate(status.st_size)
            return into[: os.readv(descriptor, [into])]
        finally:
            os.close(descriptor)


class naming:  # noqa: N801  (a context manager; a class takes 0.4 us, and ``contextlib.contextmanager`` takes 2 us)
    """Put the name of a sample in front of the message of an ImageError. An OSError becomes an ImageError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            error = ImageError("UNREADABLE", f"cannot be read: {error.strerror}")
        if isinstance(error, ImageError):
            raise ImageError(error.reason, f"{self._name}: {error.detail}") from None
