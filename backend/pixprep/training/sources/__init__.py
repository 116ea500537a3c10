"""Sources from which training reads samples by index.

A source supports ``len()``, ``source[index]``, and the attributes of ``Source``. A sample is a dict with these keys:

``image``   the encoded image: bytes, a memoryview, or a ``pathlib.Path`` (see ``read_image``); or an array of its
            pixels, for a pipeline that begins with ``pixels``
``name``    text for messages
``label``   an integer, from 0 where the source knows its classes; or of its declared type: see ``types``
``boxes``   float32 (n, 4): x1, y1, x2, y2 in pixels of the upright image, 0-based; x2, y2 are where the box ends
``labels``  int64 (n): the class of each box
``points``  float32 (n, k, 2): x, y in the same pixels
``mask``    integers (height, width): the class of each pixel; an array, or a PNG as ``image`` is one
``masks``   (n, height, width): where each object of ``boxes`` is
``size``    (height, width) of the image, as annotated

All other keys are metadata and are returned with the batch. Several threads may read a source at once. A sample that
cannot be read raises ``ImageError``, whose message begins with the name of the sample; other samples are not affected.
"""

from __future__ import annotations

import operator
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from pixprep.engine.decoders import Encoded, Limits
from pixprep.errors import ImageError, printable
from pixprep.plan.boxes import to_xyxy
from pixprep.spec import BoxSource

Sample = dict[str, Any]
LIMITS: ContextVar[Limits] = ContextVar("LIMITS", default=Limits())  # noqa: B039  (they are frozen)
"""Limits of the Loader that reads: a remote object is downloaded when its sample is requested."""
_NAMED = 3


class AnySource(Protocol):
    """Source of a Loader: ``pp.read`` makes some, and a list of dicts is one. Several threads read it at once."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: int, /) -> Mapping[str, Any]:
        """Return a sample: ``image`` is encoded bytes, the ``Path`` of a file, or pixels; other keys are metadata.

        Raises:
            ImageError: The sample is broken.
        """


class Source(ABC):
    """A source of samples, as the functions of ``pixprep.read`` return it.

    Attributes:
        classes: Names of the labels, in order; empty if the source does not know them.
        is_in_order: Whether samples can only be read in sequence; any other order restarts it. See ``iterable``.
        notes: Problems found when the source was created, one line each; they are also logged as warnings.
        fingerprint: A hash of 32 hexadecimal digits over names, sizes and annotations, which identifies the samples.
            The contents of image files are not part of it. It is computed on first use.
    """

    classes: tuple[str, ...] = ()
    is_in_order = False
    notes: tuple[str, ...] = ()
    types: Any = None  # declared types of the fields, of which ``types.typed`` makes an object
    box_format: BoxSource = "xyxy"  # format of the field ``boxes`` of ``_sample``
    _broken: Mapping[int, ImageError] = {}  # of samples that were found broken when the source was made

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...  # noqa: D102

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _sample(self, index: int) -> Sample:
        """The sample of a number from 0."""

    def __getitem__(self, index: int) -> Sample:
        """Return the sample at an index. As in a list, negative indices count from the end.

        Raises:
            IndexError: The index is out of range.
            ImageError: The sample is broken.
        """
        number, count = operator.index(index), len(self)
        if not -count <= number < count:
            raise IndexError(f"no sample {number}: there are {count:,}")
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
        """Declared types as a part of the fingerprint. Empty if no types are declared."""
        return (self.types,) if self.types is not None and self.types.fields else ()

    @property
    def _tags(self) -> tuple[object, ...]:
        """Parts of a fingerprint: the format of boxes and the declared types, unless they are the default."""
        return (*([self.box_format] if self.box_format != "xyxy" else []), *self._type_tag)

    def __repr__(self) -> str:
        some = printable(", ".join(self.classes[:_NAMED])) + ", …" * (len(self.classes) > _NAMED)
        classes = f", {len(self.classes):,} classes: {some}" if self.classes else ""
        return f"<{type(self).__name__}: {len(self):,} samples{classes}>"


def read_image(sample: Sample, limits: Limits, room: Callable[[int], memoryview] | None = None) -> Encoded:
    """Return the encoded bytes of a sample, read from its file if ``image`` is a path.

    Args:
        sample: Sample as described above.
        limits: Limits, which include the maximum size of a file.
        room: Allocator that returns memory of a size in bytes for a file. Default: newly allocated memory.

    Raises:
        ImageError: The file cannot be read, is not a regular file, or is larger than the limit. The message contains
            the name of the sample.
    """
    image = sample["image"]
    if not isinstance(image, Path):
        return image  # type: ignore[no-any-return]
    with naming(sample.get("name", "a sample")):
        try:
            descriptor = os.open(image, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for its writer
        except ValueError:  # of a NUL
            raise ImageError("UNREADABLE", "is not a file name") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ImageError("UNREADABLE", "is not a regular file")
            limits.check_bytes(status.st_size)
            if room is None:
                return os.read(descriptor, status.st_size)
            into = room(status.st_size)
            return into[: os.readv(descriptor, [into])]
        finally:
            os.close(descriptor)


class naming:  # noqa: N801  (a context manager; of a generator it would take 2 us, and this 0.4)
    """Says the name of a sample before the words of its error; a file that cannot be read is such an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            error = ImageError("UNREADABLE", f"cannot be read: {error.strerror}")
        if isinstance(error, ImageError):
            raise ImageError(error.reason, f"{self._name}: {error.detail}") from None
