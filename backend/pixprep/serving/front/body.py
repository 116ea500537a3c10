"""Checks of a request body before Triton 2.51 reads it: nesting depth of its JSON, and shapes that fit their data.

Triton parses JSON recursively, and 40,000 levels crash it. It multiplies the sides of a shape modulo 2^64 before it
compares them with the bytes. NumPy does not, and then the process of the model crashes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

from pixprep.serving.front.refusal import Refusal

MAX_DEPTH = 32
MAX_REGION_BYTES = 1 << 48
"""Maximum number of bytes of one tensor in shared memory: 2^48, so that no product with 8 bytes per element wraps."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""A string, or an unterminated one. The latter also matches, because a search that starts from each of its quotes would
take a time quadratic in its length."""
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_INFLATE = 32 + zlib.MAX_WBITS  # detect gzip or zlib by the header


def check_json(text: bytes, n_bytes: int) -> Any:
    """Reject JSON that Triton must not read; return its value.

    Args:
        text: JSON of a request, which precedes its tensors.
        n_bytes: Number of bytes of the request's body.

    Raises:
        Refusal: It is not JSON, is too deep, has a name twice, or has a shape that is larger than its data.
    """
    if not text.lstrip(b" \t\r\n").startswith(b"{"):
        hint = "for an image, send the header Inference-Header-Content-Length: 0"
        raise Refusal(400, f"the body must be a JSON object; {hint}")
    brackets = _STRING.sub(b"", text).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    if brackets:
        raise Refusal(400, f"the JSON is nested more than {MAX_DEPTH} levels deep, or a bracket is not closed")
    try:
        request = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        where = f": {error.msg} at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise Refusal(400, f"the JSON of the request cannot be read{where}") from None
    for tensor in _entries(request, "inputs"):
        _check_shape(tensor, n_bytes)
    return request


def classified(request: dict[str, Any]) -> list[str]:
    """Names of the outputs whose best classes a request asks for."""
    outputs = [(entry.get("name"), entry.get("parameters")) for entry in _entries(request, "outputs")]
    return [str(name) for name, asked in outputs if isinstance(asked, dict) and "classification" in asked]


def may_be_empty(config: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Outputs with requested classes that may have no elements: Triton divides by 0 for an empty one and crashes.

    Args:
        config: Configuration of the model, as Triton has it.
        names: Outputs whose classes are asked for.

    Raises:
        Refusal: One of these outputs is text. Triton 2.51 cannot classify text and also crashes.
    """
    asked = [output for output in config["output"] if output["name"] in names]
    for output in asked:
        if output["data_type"] == "TYPE_STRING":
            raise Refusal(400, f"classification of {output['name']}: it is text, and has no classes")
    return [output["name"] for output in asked if any(int(dim) < 1 for dim in output["dims"])]


def check_not_empty(answer: dict[str, Any]) -> None:
    """Reject classification of an output without elements.

    Args:
        answer: Response to the same request without classes.

    Raises:
        Refusal: An output is empty.
    """
    for output in answer["outputs"]:
        if 0 in output["shape"]:
            raise Refusal(400, f"classification of {output['name']}: it has no elements, and so no classes")


def inflated(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """A body without its ``Content-Encoding``.

    Raises:
        Refusal: The encoding is not gzip or deflate, the data is damaged, or it is larger than the limit.
    """
    if encoding not in ("gzip", "deflate"):
        raise Refusal(415, "the Content-Encoding must be gzip, deflate or identity")
    inflater = zlib.decompressobj(_INFLATE)
    try:
        data = inflater.decompress(body, limit_bytes + 1)
    except zlib.error:
        raise Refusal(400, f"the body is not {encoding} data") from None
    if len(data) > limit_bytes:
        raise Refusal(413, f"the inflated body has more than {limit_bytes:,} bytes (--http-max-input-size)")
    if not inflater.eof or inflater.unused_data:
        raise Refusal(400, f"the body is not one whole piece of {encoding} data")
    return data


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object with unique names. If a name occurs twice, Triton may read the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refusal(400, "the JSON of the request has an object with the same name twice")
    return found


def _entries(request: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = request.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _check_shape(tensor: dict[str, Any], n_bytes: int) -> None:
    parameters = tensor.get("parameters")
    what = "the request has bytes"
    if isinstance(parameters, dict) and "shared_memory_region" in parameters:
        size = parameters.get("shared_memory_byte_size")
        n_bytes, what = (size if type(size) is int else 0), "its shared_memory_byte_size"
        if not 0 <= n_bytes <= MAX_REGION_BYTES:
            raise Refusal(400, "a shared_memory_byte_size is out of range")
    sides, elements = tensor.get("shape"), 1
    for side in sides if isinstance(sides, list) else (None,):
        if type(side) is not int or side < 0:
            raise Refusal(400, "a shape must be a list of integers from 0 up")
        elements *= max(side, 1)  # a side of 0 must not hide the others from NumPy
        if elements > n_bytes:
            raise Refusal(400, f"a shape has more elements than {what}")
