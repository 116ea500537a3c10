"""The fields of a foreign configuration, each of which must be understood."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from pixprep.errors import PipelineError

MAX_BYTES = 16 << 20
"""Of a configuration file; one with the names of 21,843 classes has 2 MB."""


class Fields:
    """Hands the fields of a configuration out; what nobody asked for is refused at the end.

    >>> fields = Fields({"do_resize": True, "warp": 3}, "preprocessor_config.json")
    >>> fields.take("do_resize", bool, default=False)
    True
    >>> fields.finish()
    Traceback (most recent call last):
        ...
    pixprep.errors.PipelineError: preprocessor_config.json: "warp": 3 is not understood

    Args:
        values: the configuration.
        where: what errors begin with: the name of a file or a model.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._values = dict(values)
        self._left = set(self._values)

    def take(self, name: str, kinds: type | tuple[type, ...], *, default: Any = None) -> Any:
        """A field's value, of one of the kinds; the default if it is absent or null."""
        self._left.discard(name)
        value = self._values.get(name)
        if value is None:
            return default
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.refuse(name, f"must be {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    def ignore(self, *names: str) -> None:
        """Fields that change no pixel."""
        self._left.difference_update(names)

    def refuse(self, name: str, why: str = "is not understood") -> NoReturn:
        """Raise PipelineError, naming the field and its value."""
        raise PipelineError(f'{self.where}: "{name}": {_short(self._values.get(name))} {why}')

    def finish(self) -> None:
        """Raise PipelineError if a field is left."""
        for name in self._values:
            if name in self._left:
                self.refuse(name)


def installed_version(distribution: str) -> str:
    """The version of an installed library, found without importing it; ``unknown`` if there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        PipelineError: it cannot be read, or is something else; the message begins with its name.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    return parse_json(text, path.name)


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object that a configuration is; at most ``MAX_BYTES``, of which one more was read."""
    if len(text) > MAX_BYTES:
        raise PipelineError(f"{where}: a configuration has at most {MAX_BYTES:,} bytes")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{where}: is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise PipelineError(f"{where}: must be a JSON object")
    return config


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."
