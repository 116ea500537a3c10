"""Checks request bodies to protect Triton 2.51: limits the nesting depth of JSON, and compares shapes with their data.

Triton parses JSON recursively, and 40,000 nested levels crash it. Triton also multiplies the dimensions of a shape
modulo 2^64 before it compares the product with the number of bytes. A huge shape can therefore pass Triton's check, but
NumPy in the process of the model fails on such a shape, and the process crashes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any


class Refusal(Exception):  # noqa: N818  (a response, not an error of the front)
    """Exception that makes the front reject a request and send an error response.

    Args:
        status: HTTP status code.
        message: Error message for the client.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = HTTPStatus(status)

    def response(self) -> bytes:
        """Return the complete HTTP response, with a body in the format of Triton's errors and ``Connection: close``."""
        body = json.dumps({"error": f"front: {self}"}).encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


MAX_DEPTH = 32
MAX_REGION_BYTES = 1 << 48
"""Maximum size of one tensor in shared memory, in bytes. A tensor cannot have more elements than bytes, so that the
product of its number of elements with 8 bytes per element cannot overflow."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""Regular expression that matches a JSON string. It also matches an unterminated string, because the search would start
again at each quote in such a string, which would take quadratic time."""
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_INFLATE = 32 + zlib.MAX_WBITS  # detect gzip or zlib from the header


def check_json(text: bytes, n_bytes: int) -> Any:
    """Parse the JSON of a request, and check that Triton can parse it safely.

    Args:
        text: JSON part of the request body, which precedes the binary tensors.
        n_bytes: Size of the whole request body.

    Returns:
        The parsed JSON object.

    Raises:
        Refusal: The text is not valid JSON, is nested too deeply, contains an object with a duplicate name, or declares
            a shape that is larger than its data.
    """
    if not text.lstrip(b" \t\r\n").startswith(b"{"):
        hint = "to send an image as the body, add the header Inference-Header-Content-Length: 0"
        raise Refusal(400, f"the request body must be a JSON object; {hint}")
    brackets = _STRING.sub(b"", text).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # remove the innermost level
    if brackets:
        raise Refusal(400, f"the JSON of the request has over {MAX_DEPTH} nested levels, or an unclosed bracket")
    try:
        request = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        where = f": {error.msg} at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise Refusal(400, f"the request contains invalid JSON{where}") from None
    for tensor in _entries(request, "inputs"):
        _check_shape(tensor, n_bytes)
    return request


def classified(request: dict[str, Any]) -> list[str]:
    """Return the names of the outputs for which a request uses the classification extension."""
    outputs = [(entry.get("name"), entry.get("parameters")) for entry in _entries(request, "outputs")]
    return [str(name) for name, asked in outputs if isinstance(asked, dict) and "classification" in asked]


def may_be_empty(config: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Return the given outputs that may be empty, because classification of an empty output crashes Triton 2.51.

    Args:
        config: Complete configuration of the model, as Triton returns it.
        names: Names of the outputs for which the request uses classification.

    Raises:
        Refusal: One of these outputs contains strings. Classification of strings also crashes Triton 2.51.
    """
    asked = [output for output in config["output"] if output["name"] in names]
    for output in asked:
        if output["data_type"] == "TYPE_STRING":
            raise Refusal(400, f"classification is not supported for output {output['name']}, because it is text")
    return [output["name"] for output in asked if any(int(dim) < 1 for dim in output["dims"])]


def check_not_empty(answer: dict[str, Any]) -> None:
    """Check that no output of a request with classification is empty.

    Args:
        answer: JSON object of Triton's response to the same request without classification.

    Raises:
        Refusal: An output is empty.
    """
    for output in answer["outputs"]:
        if 0 in output["shape"]:
            raise Refusal(400, f"classification is not supported for output {output['name']}, because it is empty")


def inflated(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Decompress a request body.

    Args:
        body: Compressed body.
        encoding: Value of the ``Content-Encoding`` header.
        limit_bytes: Maximum size of the decompressed body.

    Raises:
        Refusal: The encoding is not gzip or deflate, the data is invalid, or the decompressed body is too large.
    """
    if encoding not in ("gzip", "deflate"):
        raise Refusal(415, "the Content-Encoding must be gzip, deflate or identity")
    inflater = zlib.decompressobj(_INFLATE)
    try:
        data = inflater.decompress(body, limit_bytes + 1)
    except zlib.error:
        raise Refusal(400, f"the request body is not valid {encoding} data") from None
    if len(data) > limit_bytes:
        raise Refusal(413, f"the decompressed request body exceeds {limit_bytes:,} bytes (--http-max-input-size)")
    if not inflater.eof or inflater.unused_data:
        raise Refusal(400, f"the request body must be exactly one complete {encoding} stream")
    return data


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Convert the pairs of a JSON object to a dict.

    Duplicate names are rejected, because Triton could use a different one of the duplicate values than the front.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refusal(400, "the JSON of the request has an object with a duplicate name")
    return found


def _entries(request: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = request.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _check_shape(tensor: dict[str, Any], n_bytes: int) -> None:
    parameters = tensor.get("parameters")
    limit = "the request has bytes"
    if isinstance(parameters, dict) and "shared_memory_region" in parameters:
        size = parameters.get("shared_memory_byte_size")
        n_bytes, limit = (size if type(size) is int else 0), "its shared_memory_byte_size"
        if not 0 <= n_bytes <= MAX_REGION_BYTES:
            raise Refusal(400, "shared_memory_byte_size must be an integer from 0 to 2^48")
    sides, elements = tensor.get("shape"), 1
    for side in sides if isinstance(sides, list) else (None,):
        if type(side) is not int or side < 0:
            raise Refusal(400, "a shape must be a list of non-negative integers")
        elements *= max(side, 1)  # count 0 as 1, because NumPy fails on huge dimensions even if the product is 0
        if elements > n_bytes:
            raise Refusal(400, f"a shape has more elements than {limit}")
