"""Exceptions. Each class corresponds to the person who must fix the problem.

``PipelineError``  the author of a pipeline or model configuration
``ImageError``     the client who sent an image, or the owner of one sample of a data set
``DataError``      the owner of a data set that cannot be used at all
``SetupError``     the operator of the machine
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, get_args

from pixprep.registry import OPTIONAL, load

Reason = Literal[
    "EMPTY",  # the image has 0 bytes
    "UNKNOWN_FORMAT",  # the bytes are not an image in a supported format
    "TRUNCATED",  # the data ends before the image is complete
    "CORRUPT",  # the data violates its format
    "UNSUPPORTED",  # a valid image of a kind that pixprep does not decode
    "BAD_DIMENSIONS",  # a side of the image is outside the limits
    "TOO_MANY_PIXELS",  # height x width exceeds the limit, or is too large for the number of bytes
    "TOO_LARGE_BYTES",  # the encoded image exceeds the size limit
    "TOO_LARGE_RESPONSE",  # the tensors of the request exceed the size limit
    "TOO_MANY_SCANS",  # a progressive JPEG has more scans than the limit
    "DOES_NOT_FIT",  # the pipeline's fixed crop exceeds the image, or a box is entirely outside
    "ABANDONED",  # the client no longer waits for the result
    "NO_MEMORY",  # the device does not have enough free memory for the image
    "OPERATOR",  # a custom operator failed on the image
    "BAD_INPUT",  # the numeric inputs of the image are invalid
    "UNREADABLE",  # a file of a data set cannot be opened or read
    "BAD_RECORD",  # a record or an annotation of a data set is invalid
]
REASONS: tuple[str, ...] = get_args(Reason)


def printable(text: object) -> str:
    """Return untrusted text, such as a file name, in one line with control characters escaped, safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


_MAX_CHARS, _HEAD, _TAIL = 1600, 1000, 500
"""Maximum number of characters of a message, and the numbers of characters that are kept from the start and from the
end of a longer message."""


def shown(text: object) -> str:
    """Return a message that contains untrusted text as one printable line; the middle of a long message is removed."""
    for _ in range(2):  # escaping may make the text longer than the limit again
        text = str(text)
        text = printable(text if len(text) <= _MAX_CHARS else f"{text[:_HEAD]} ... {text[-_TAIL:]}")
    return str(text)


def unreachable(case: NoReturn) -> NoReturn:
    """Mark the default case of a ``match`` as unreachable, so that the type checker reports missing cases.

    Raises:
        AssertionError: Always.
    """
    raise AssertionError(f"no case for {case!r}")


class PixprepError(Exception):
    """Base class of the errors that pixprep raises on purpose. Its arguments are the lines of its message."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class PipelineError(PixprepError):
    """A pipeline, or the configuration of the model that serves it, is invalid. Its author must fix it.

    Messages may contain file names from untrusted sources. Therefore ``shown`` is applied to each line.

    Attributes:
        limit: Limit that the size of an output violates, for callers that know a remedy. ``no bound``: the size differs
            between images and has no upper bound. ``response``: the outputs exceed the size of a response. None for all
            other errors.
    """

    def __init__(self, *lines: object, limit: Literal["no bound", "response"] | None = None) -> None:
        super().__init__(*map(shown, lines))
        self.limit = limit


class SetupError(PixprepError):
    """Software or a setting of the machine is missing or wrong. The operator of the machine must fix it."""


def install(extra: str) -> str:
    """Return the command that installs an extra, for messages about missing libraries."""
    return f'pip install ".[{extra}]" in a checkout of pixprep'


@contextmanager
def needing(words: str) -> Iterator[None]:
    """Raise SetupError if an import in the block fails.

    An ImportError for a module of pixprep itself is not converted, because it is a bug and not a missing library.

    Args:
        words: Message of the SetupError, in which ``{error}`` is replaced by the ImportError.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "pixprep":
            raise
        raise SetupError(words.format(error=error)) from None


def needed(key: str) -> Any:
    """Import and return an object of ``registry.OPTIONAL``.

    Raises:
        SetupError: The library of the object is not installed.
    """
    place, words = OPTIONAL[key]
    with needing(words):
        return load(place)


class DataError(PixprepError):
    """A data set cannot be used. The owner must fix it, or correct its path."""


class ImageError(PixprepError):
    """An image cannot be preprocessed. The client must send a different image.

    The engine returns it in place of the image; the other images of the batch are not affected.

    Attributes:
        reason: One of ``REASONS``. It is part of the message and a label of the metric, and stays the same across
            versions.
        detail: Description of the problem, with the actual value and the limit. It never contains bytes of the image or
            a path. For a sample of a data set, it begins with the name of the sample and a colon.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason: Reason = reason
        self.detail = detail
        super().__init__(f"[{reason}] {detail}")

    def at(self, index: int, count: int) -> str:
        """Return the message for a client that sent ``count`` images, where ``index`` (from 0) is that of this image.

        >>> ImageError("TRUNCATED", "the JPEG ends early").at(2, 8)
        '[TRUNCATED] image 3 of 8: the JPEG ends early'
        """
        return f"[{self.reason}] image {index + 1} of {count}: {self.detail}"

    def as_value(self) -> ImageError:
        """Return this error without its traceback and cause, so that it can be stored.

        A traceback refers to frames, the frames refer to the batch, and the batch or a frame refers to the error. In
        this reference cycle every rejected image would keep a whole batch of tensors in memory until the garbage
        collector runs, by which time gigabytes may have accumulated.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    def __reduce__(self) -> tuple[type[ImageError], tuple[Reason, str]]:
        return (ImageError, (self.reason, self.detail))


_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
"""Names of msgspec's types in the terms of JSON."""


def in_words(text: str) -> str:
    """Rewrite msgspec's message about a value in plain words, such as ``expected an integer, got a string``."""
    words = re.sub(r"`[\w |]+`", _in_words, text)
    return words[0].lower() + words[1:]


def _in_words(types: re.Match[str]) -> str:
    """Rewrite ``int | null`` as ``an integer``; null is omitted because a field that may be null is optional."""
    names = types[0].strip("`").split(" | ")
    if not {*names} <= {*_TYPES, "null"}:
        return types[0]
    return " or ".join(_TYPES[name] for name in names if name != "null") or "null"
