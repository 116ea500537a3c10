"""The kinds of failure, named after who must act.

``PipelineError``  the author of a pipeline or model configuration
``ImageError``     the client who sent an image, or the owner of one sample of a data set
``DataError``      the owner of a data set, as a whole
``SetupError``     the operator of the machine
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, get_args

from pixprep.registry import OPTIONAL, load

Reason = Literal[
    "EMPTY",  # no bytes at all
    "UNKNOWN_FORMAT",  # not an image of any format pixprep reads
    "TRUNCATED",  # the file ends before the image does
    "CORRUPT",  # the bytes contradict their own format
    "UNSUPPORTED",  # a valid image of a kind pixprep does not decode
    "BAD_DIMENSIONS",  # a side of the image is outside the limits
    "TOO_MANY_PIXELS",  # height x width is over the limit, alone or for so few bytes
    "TOO_LARGE_BYTES",  # the encoded file is over the limit
    "TOO_LARGE_RESPONSE",  # the tensors of its request are over the limit
    "TOO_MANY_SCANS",  # a progressive JPEG has more passes over its pixels than the limit
    "DOES_NOT_FIT",  # the pipeline's fixed window is not inside the image, or nothing of a box is
    "ABANDONED",  # whoever asked for it waits no more
    "OPERATOR",  # an operator of the user's failed on it
    "BAD_INPUT",  # the numbers that came with the image make no sense
    "UNREADABLE",  # of a data set: a file cannot be opened or read
    "BAD_RECORD",  # of a data set: a record or an annotation makes no sense
]
REASONS: tuple[str, ...] = get_args(Reason)


def printable(text: object) -> str:
    """Words of others, such as a file's name, as a terminal and a log may show them: in one line, controls escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


_MAX_LETTERS, _HEAD, _TAIL = 1400, 900, 400
"""The longest message, in characters, and what stays of a longer one: its place and its remedy."""


def shown(text: object) -> str:
    """A message with words of others in it, in one printable line; a long one loses its middle."""
    for _ in range(2):  # escapes are longer than what they stand for
        text = str(text)
        text = printable(text if len(text) <= _MAX_LETTERS else f"{text[:_HEAD]} ... {text[-_TAIL:]}")
    return str(text)


def unreachable(case: NoReturn) -> NoReturn:
    """End a ``match`` that must name every case: type checking fails where one is missing, and so does the program."""
    raise AssertionError(f"no case for {case!r}")


class PixprepError(Exception):
    """Error that pixprep raises on purpose. Its arguments are the lines of its message."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class PipelineError(PixprepError):
    """The pipeline, or the configuration of the model that serves it, is wrong; its author must change it.

    A message quotes names of files that strangers wrote, so that each of its lines is as ``shown`` returns it.
    """

    def __init__(self, *lines: object) -> None:
        super().__init__(*map(shown, lines))


class SetupError(PixprepError):
    """The machine lacks something; its operator must install or change it. The message says what."""


def install(extra: str) -> str:
    """Return the remedy for libraries that are not installed: the extra that has them."""
    return f'pip install ".[{extra}]" in a checkout of pixprep'


@contextmanager
def needing(words: str) -> Iterator[None]:
    """Raise SetupError where an import inside fails: ``words`` with the remedy, and perhaps ``{error}``."""
    try:
        yield
    except ImportError as error:
        raise SetupError(words.format(error=error)) from None


def needed(key: str) -> Any:
    """Return an object of ``registry.OPTIONAL``.

    Raises:
        SetupError: Its library is not installed.
    """
    place, words = OPTIONAL[key]
    with needing(words):
        return load(place)


class DataError(PixprepError):
    """A data set cannot be used at all; its owner must change it, or say where it is."""


class ImageError(PixprepError):
    """One image cannot become a tensor; whoever sent it must send another.

    The engine returns it in the image's place: the other images of the batch are not touched.

    Attributes:
        reason: one of ``REASONS``: stable, part of the message, the label of the metric.
        detail: what is wrong in words, with the observed value and the limit. Never bytes, never a path; of a sample
            of a data set, its name and then a colon come first.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason: Reason = reason
        self.detail = detail
        super().__init__(f"[{reason}] {detail}")

    def at(self, index: int, count: int) -> str:
        """The message for a client who sent ``count`` images, of which this is number ``index`` (from 0).

        >>> ImageError("TRUNCATED", "the JPEG ends early").at(2, 8)
        '[TRUNCATED] image 3 of 8: the JPEG ends early'
        """
        return f"[{self.reason}] image {index + 1} of {count}: {self.detail}"

    def as_value(self) -> ImageError:
        """This error without its traceback, and without the error that it followed, to be kept.

        A traceback holds the frames that the error passed, those hold the batch, and the batch or a frame holds the
        error: in this circle every refused image kept a whole batch of tensors until the garbage collector came by,
        which it did after gigabytes.
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
"""Types as msgspec calls them, in the words of who writes JSON."""


def in_words(text: str) -> str:
    """Words of msgspec for a value, its types in words: ``expected an integer, got a string``."""
    words = re.sub(r"`[\w |]+`", _in_words, text)
    return words[0].lower() + words[1:]


def _in_words(types: re.Match[str]) -> str:
    """``int | null`` as ``an integer``: a field that may be null may as well be left out."""
    names = types[0].strip("`").split(" | ")
    if not {*names} <= {*_TYPES, "null"}:
        return types[0]
    return " or ".join(_TYPES[name] for name in names if name != "null") or "null"
