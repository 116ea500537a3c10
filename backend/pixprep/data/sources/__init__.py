"""Sources: what training reads its samples from, each by its number.

A source has ``len()``, ``source[index]``, and what ``Source`` names. A sample is a dict; these keys have a meaning:

``image``   the encoded image: bytes, a memoryview, or a ``pathlib.Path`` (see ``read_image``); or an array of its
            pixels, for a pipeline that begins with ``pixels``
``name``    text for messages
``label``   a whole number, from 0 where the source knows its classes
``boxes``   float32 (n, 4): x1, y1, x2, y2 in pixels of the upright image, 0-based; x2, y2 are where the box ends
``labels``  int64 (n): the class of each box
``points``  float32 (n, k, 2): x, y in the same pixels
``mask``    whole numbers (height, width): the class of each pixel; an array, or a PNG as ``image`` is one
``masks``   (n, height, width): where each object of ``boxes`` is
``size``    (height, width) of the image, as annotated

All else is metadata and comes back with the batch. Several threads may ask a source at once. A sample that cannot be
had raises ``ImageError``, whose words begin with the sample's name; the others are not touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pixprep.decoders import Encoded, Limits
from pixprep.errors import ImageError, printable

Sample = dict[str, Any]
_NAMED = 3


class Source(Protocol):
    """Source of samples, as ``pixprep.read`` makes it.

    Attributes:
        classes: the names of the labels, in their order; empty where the source knows none.
        notes: what was left out or looked odd when the source was made, a line each; also logged as warnings.
        fingerprint: 32 hexadecimal digits that differ where the samples do, as far as names, sizes and annotations
            tell. The contents of image files are not read for it. It is computed when it is first asked for.
    """

    classes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...

    def __repr__(self) -> str:
        some = printable(", ".join(self.classes[:_NAMED])) + ", …" * (len(self.classes) > _NAMED)
        classes = f", {len(self.classes):,} classes: {some}" if self.classes else ""
        return f"<{type(self).__name__}: {len(self):,} samples{classes}>"


def read_image(sample: Sample, limits: Limits, room: Callable[[int], memoryview] | None = None) -> Encoded:
    """The encoded bytes of a sample: as they are, or of the file that its path names.

    Args:
        sample: see above.
        limits: no larger file is read.
        room: gives memory of so many bytes for a file; default: memory of its own.

    Raises:
        ImageError: the file cannot be read, is no regular file, or has more bytes than the limit; named.
    """
    image = sample["image"]
    if not isinstance(image, Path):
        return image  # type: ignore[no-any-return]
    try:
        descriptor = os.open(image, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for its writer
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ImageError("UNREADABLE", "is no regular file")
            limits.check_bytes(status.st_size)
            if room is None:
                return os.read(descriptor, status.st_size)
            into = room(status.st_size)
            return into[: os.readv(descriptor, [into])]
        finally:
            os.close(descriptor)
    except ImageError as error:
        raise named(error, sample) from None
    except OSError as error:
        raise named(ImageError("UNREADABLE", f"cannot be read: {error.strerror}"), sample) from None
    except ValueError:  # of a NUL
        raise named(ImageError("UNREADABLE", "is no name of a file"), sample) from None


def named(error: ImageError, sample: Sample) -> ImageError:
    """The error with the sample's name before its words."""
    return ImageError(error.reason, f"{sample.get('name', 'a sample')}: {error.detail}")
