"""Reads the first layers of a saved Keras model in order. Keras need not be installed."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.fields import MAX_BYTES, parse_json
from pixprep.pipeline.file import open_regular
from pixprep.pipeline.ops.faults import quoted

_COMPRESSION_TYPES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Supported compression methods, which can be decompressed incrementally. Keras stores files without compression."""


class _LimitedReader(io.BufferedReader):
    """File object that rejects reads of more than ``MAX_BYTES`` bytes, because a ZIP directory can declare any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_BYTES:
            raise zipfile.BadZipFile
        return super().read(size)


def read_archive(path: Path) -> dict[str, Any]:
    """Return the config of the model in a ``.keras`` file, and the version of Keras with which it was saved.

    The version is the entry ``keras_version`` of the result. Files in the archive are not extracted to disk.
    """
    texts = []
    try:
        with _LimitedReader(open_regular(path).detach()) as file, zipfile.ZipFile(file) as archive:
            for name in ("config.json", "metadata.json"):
                if archive.getinfo(name).compress_type not in _COMPRESSION_TYPES:
                    raise zipfile.BadZipFile  # noqa: TRY301  (the handler below adds a message)
                with archive.open(name) as member:
                    texts.append(member.read(MAX_BYTES + 1))
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError):
        raise PipelineError(
            f"{path.name}: not a .keras file: for an .h5 file, save model.to_json() as a .json file and pass it"
        ) from None
    config, metadata = (parse_json(text, path.name) for text in texts)
    return {"keras_version": metadata.get("keras_version")} | config


@dataclass(frozen=True)
class Layer:
    """Layer of a Keras model.

    Attributes:
        cls: Name of the class, without ``keras.layers.``.
        name: Name of the layer.
        config: Constructor arguments of the layer.
    """

    cls: str
    name: str
    config: Mapping[str, Any]

    def __str__(self) -> str:
        return f"layer {quoted(self.name)} ({self.cls})"


def layers_of(config: Mapping[str, Any], where: str) -> Iterator[Layer]:
    """Yield the layers of a model, beginning with its input. Nested Sequential models are replaced by their layers.

    If a Functional model branches or merges, the layers end at this point, and a layer with the class ``fork`` follows.

    Raises:
        PipelineError: The config is not that of a Sequential or Functional model.
    """
    entries = config_of(config).get("layers")
    if config.get("class_name") not in ("Sequential", "Functional") or not isinstance(entries, list):
        raise PipelineError(
            f'{where}: "class_name": {quoted(config.get("class_name"))} must be "Sequential" or "Functional"'
        )
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("config"), Mapping) for entry in entries):
        raise PipelineError(f'{where}: "layers" must be a list of layers, each with a "config"')
    for entry in entries if config["class_name"] == "Sequential" else _linear_chain(entries, where):
        if entry.get("class_name") == "Sequential":
            yield from layers_of(entry, where)
        else:
            values = {name: _array_values(value) for name, value in entry["config"].items()}
            yield Layer(_class_of(entry), str(values.get("name", "")), values)


def config_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the constructor arguments of a serialized Keras object."""
    config = entry.get("config")
    return config if isinstance(config, Mapping) else {}


def _array_values(value: Any) -> Any:
    """Return the values of a serialized NumPy array or tensor. Other values are returned unchanged."""
    is_array = isinstance(value, Mapping) and value.get("class_name") in ("__numpy__", "__tensor__")
    return config_of(value).get("value") if is_array else value


def _class_of(entry: Mapping[str, Any]) -> str:
    """Return the name of a layer's class, with its module if the class is not defined in Keras."""
    name, module = str(entry.get("class_name")), str(entry.get("module") or "keras")
    is_own = module.split(".", 1)[0] == "keras" and entry.get("registered_name") in (None, name)
    return name if is_own else f"{module}.{name}"


def _linear_chain(entries: list[Any], where: str) -> Iterator[Mapping[str, Any]]:
    """Yield the layers of a Functional model, up to the first layer that has several inputs or several consumers."""
    inputs = {str(entry.get("name")): _inputs(entry.get("inbound_nodes")) for entry in entries}
    if len(inputs) < len(entries):
        raise PipelineError(f'{where}: "layers" contains two layers with the same name')
    consumers: dict[str, list[Mapping[str, Any]]] = {name: [] for name in inputs}
    for entry in entries:
        for name in inputs[str(entry.get("name"))]:
            consumers.setdefault(name, []).append(entry)
    following = [entry for entry in entries if not inputs[str(entry.get("name"))]]
    while len(following) == 1 and len(inputs[str(following[0].get("name"))]) < 2:
        yield following[0]
        following = consumers[str(following[0].get("name"))]
    if following:
        yield {"class_name": "fork", "config": {"name": str(following[0].get("name"))}}


def _inputs(node: Any) -> set[str]:
    """Return the names of the layers whose outputs are the inputs of a node.

    The node is in the format of Keras 3 or Keras 2.
    """
    if isinstance(node, Mapping):
        if node.get("class_name") == "__keras_tensor__":
            history = config_of(node).get("keras_history")
            return {str(history[0])} if isinstance(history, list) and history else set()
        return set().union(*map(_inputs, node.values()))
    if isinstance(node, list):
        if len(node) in (3, 4) and isinstance(node[0], str) and isinstance(node[1], int):
            return {node[0]}
        return set().union(*map(_inputs, node))
    return set()
