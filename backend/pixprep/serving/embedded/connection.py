"""Connects to a running Triton over HTTP or gRPC, sends requests, and reads model configurations and statistics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PixprepError, SetupError, install
from pixprep.serving.embedded import request
from pixprep.serving.embedded.request import Encodeds, ModelInput
from pixprep.serving.options import Protocol, ServerOptions
from pixprep.serving.triton.config import PIXELS, face, steps, texts

DEFAULT_URLS: dict[Protocol, str] = {
    "http": f"localhost:{ServerOptions.http_port}",
    "grpc": f"localhost:{ServerOptions.grpc_port}",
}
_MAX_ROWS = 1 << 12
"""Upper bound on the number of rows of an output for which classes are requested. Triton sorts all rows of an output as
one list, so ``class_count`` must be at least the number of entries in all rows. Triton returns only existing
entries."""
_REFUSALS = ("400", "StatusCode.INVALID_ARGUMENT")


@dataclass(frozen=True)
class Spent:
    """Inference statistics of a model from Triton's statistics API.

    Attributes:
        count: Number of requests that succeeded.
        queue_ms: Total time in milliseconds that these requests waited in the queue.
        compute_ms: Total computation time of these requests in milliseconds, including copies of inputs and outputs.
        images: Number of images that the model processed.
        executions: Number of batches in which the model processed these images.
    """

    count: int = 0
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    images: int = 0
    executions: int = 0

    def since(self, before: Spent) -> Spent:
        """Subtract earlier statistics. The times in the result are averages per request."""
        count = self.count - before.count
        queue_ms, compute_ms = self.queue_ms - before.queue_ms, self.compute_ms - before.compute_ms
        each = max(1, count)
        images, executions = self.images - before.images, self.executions - before.executions
        return Spent(count, queue_ms / each, compute_ms / each, images, executions)


class RequestError(PixprepError):
    """Raised if a running server responds with an error, or does not respond in time.

    Attributes:
        is_refusal: Whether the server rejected the request as invalid (INVALID_ARG).
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        self.is_refusal = is_refusal
        super().__init__(message)


class Triton:
    """Connection to one server through tritonclient. Errors of tritonclient are raised as pixprep's errors.

    Args:
        url: HOST:PORT of the server. Default: the URL of the protocol in ``DEFAULT_URLS``.
        protocol: ``http`` or ``grpc``.
        timeout_s: Time limit of each call in seconds.

    Raises:
        SetupError: The server does not respond, or tritonclient is not installed.
    """

    def __init__(self, url: str | None, *, protocol: Protocol, timeout_s: float = 30.0) -> None:
        self.url = (url or DEFAULT_URLS[protocol]).removeprefix("http://").removeprefix("grpc://").rstrip("/")
        host, _, port = self.url.rpartition(":")
        if not host or "/" in host or not port.isdigit():
            found = re.match(r"(?:\w+://)?([^/:]+:\d{1,5})(/|$)", url or "")
            meant = found[1] if found else DEFAULT_URLS[protocol]
            raise SetupError(f"invalid URL {url}: pass HOST:PORT such as {meant} (TLS is not supported)")
        if not 0 < int(port[:6]) < 1 << 16:
            raise SetupError(f"invalid URL {url}: the port must be 1 to 65535")
        self.protocol = protocol
        self._too_late = f"no response within {timeout_s:g} s"
        try:
            self._module = import_module(f"tritonclient.{protocol}")
            self._failure: type[Exception] = import_module("tritonclient.utils").InferenceServerException
        except (ImportError, RuntimeError):  # RuntimeError: tritonclient without the extra of this protocol
            raise SetupError(f"tritonclient for {protocol} is not installed: {install('client')}") from None
        options = {"connection_timeout": timeout_s, "network_timeout": timeout_s} if protocol == "http" else {}
        self._client = self._module.InferenceServerClient(self.url, **options)
        # Arguments that set the time limit of each gRPC call. The HTTP client receives its limit as an option above.
        self._deadline: dict[str, Any] = {} if protocol == "http" else {"client_timeout": timeout_s}
        self._json = self._deadline | ({} if protocol == "http" else {"as_json": True})
        self._configs: dict[str, dict[str, Any]] = {}
        try:
            self._check_live()
        except SetupError:
            self._client.close()
            raise

    def __enter__(self) -> Triton:  # noqa: PYI034  (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def config(self, model: str) -> dict[str, Any]:
        """Return the complete configuration of a model, which is requested from the server once and then cached.

        Raises:
            SetupError: The model does not exist, or is not ready. The message lists the available models if the server
                reports them.
        """
        if model not in self._configs:
            try:
                config = self._client.get_model_config(model, **self._json)
            except self._failure as error:
                reason = self._ready_models() or _message(error)
                raise SetupError(f'no model "{model}" is ready on {self.url}: {reason}') from None
            except ValueError:  # not JSON: Triton's metrics port responds with status 200 to every request
                raise SetupError(
                    f"{self.url} responds, but is not an inference port: it may be the metrics port; pass the HTTP port"
                ) from None
            self._configs[model] = config.get("config", config)
        return self._configs[model]

    def _ready_models(self) -> str:
        """Return the names of the ready models as one string, which is empty if the server does not report them.

        The names are read from the statistics API, because ``pixprep serve`` restricts the model repository API.
        """
        try:
            entries = self._client.get_inference_statistics(**self._json).get("model_stats", [])
        except self._failure:  # for example, a proxy that closes the statistics API
            return ""
        names = ", ".join(sorted({entry["name"] for entry in entries}))
        return f"the models there are {names}" if names else "there are no models"

    def model_input(self, model: str) -> ModelInput:
        """Return the description of a model's image input, which accepts encoded images or pixels, and numeric inputs.

        Raises:
            SetupError: The model does not exist.
            PixprepError: The model does not have an image input.
        """
        config = self.config(model)
        found = request.model_input(config)
        if found is None:
            entry = config["input"][0]
            data_type, dims = face(entry)
            raise PixprepError(
                f'the input of model "{model}" is not an image but {entry["name"]} {data_type} {dims}: '
                "pass the name of an ensemble or of a model of the pixprep backend"
            )
        if found.pixels and found.pixels.order == "rgb":  # inferred from the dims, which do not distinguish RGB and BGR
            is_bgr = texts(self.config(self.first(model, found.name))).get(PIXELS) == "bgr"
            return replace(found, pixels=found.pixels._replace(order="bgr" if is_bgr else "rgb"))
        return found

    def first(self, model: str, name: str) -> str:
        """Return the name of the model that receives an input. In an ensemble, it is the first step with this input."""
        for step in steps(self.config(model)):
            for port, tensor in step["input_map"].items():
                if tensor == name:
                    return self.first(step["model_name"], port)
        return model

    def scores(self, model: str) -> list[str]:
        """Return the names of the outputs that contain one score per class.

        These are the outputs with labels. If no output has labels, the only floating-point vector with more than one
        element is returned. If there are several such vectors, none is returned, because one of them could be a box.
        A vector without a fixed length is a list, such as the scores of boxes.
        Outputs of models that preprocess images, such as ``transform``, are ignored.

        Raises:
            SetupError: The model does not exist.
        """
        sources = {output["name"]: self.source(model, output["name"]) for output in self.config(model)["output"]}
        labelled = [name for name, (_, output) in sources.items() if output.get("label_filename")]
        lists = [
            (name, (found := request.model_input(config)) is not None and (not found.pixels or _is_ours(config)))
            for name, (config, output) in sources.items()
            if len(output["dims"]) == 1
            and int(output["dims"][0]) > 1
            and output["data_type"] in ("TYPE_FP32", "TYPE_FP16")
        ]
        return labelled or [name for name, is_preprocessing in lists if len(lists) == 1 and not is_preprocessing]

    def source(self, model: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Find the model that computes an output.

        If the model is an ensemble, the output is computed by the model of one of its steps.

        Returns:
            The configuration of that model, and the entry of the output in this configuration.
        """
        config = self.config(model)
        for step in steps(config):
            for port, tensor in step["output_map"].items():
                if tensor == name:
                    return self.source(step["model_name"], port)
        return config, next(output for output in config["output"] if output["name"] == name)

    def spent(self) -> dict[str, Spent]:
        """Return the statistics of each model since the server started, by model name.

        Raises:
            SetupError: The server is not running any more, or does not report statistics.
        """
        try:
            entries = self._client.get_inference_statistics(**self._json)["model_stats"]
        except self._failure as error:
            self._check_live()
            raise SetupError(f"{self.url} does not report statistics: {_message(error)}") from None
        spent: dict[str, Spent] = {}
        for entry in entries:
            parts = entry.get("inference_stats", {})
            before = spent.get(entry["name"], Spent())
            spent[entry["name"]] = Spent(  # sum over all versions; the JSON of gRPC omits fields that are 0
                before.count + int(parts.get("success", {}).get("count", 0)),
                before.queue_ms + _ms(parts, "queue"),
                before.compute_ms + _ms(parts, "compute_input", "compute_infer", "compute_output"),
                before.images + int(entry.get("inference_count", 0)),
                before.executions + int(entry.get("execution_count", 0)),
            )
        return spent

    def infer(
        self,
        model: str,
        model_input: ModelInput,
        encoded: Sequence[Encodeds],
        numbers: Sequence[Mapping[str, Any]] | None = None,
        *,
        classes: int = 0,
    ) -> dict[str, npt.NDArray[Any]]:
        """Send one request with one or more images.

        Args:
            model: Name of the model.
            model_input: Description of the model's inputs, as returned by ``model_input``.
            encoded: Encoded images. For a model that compares images, each item is a sequence with one image per image
                input, or a single image that all image inputs receive.
            numbers: Values of the numeric inputs for each image.
            classes: Number of best classes to return instead of the scores. With 0, the scores are returned.

        Returns:
            Output arrays by name. Their first dimension is the batch dimension.

        Raises:
            PixprepError: The numeric values are invalid, or do not match the model's inputs.
            RequestError: The server rejected the request, or did not respond within the time limit.
            SetupError: The server is not running any more.
        """
        rows = [model_input.rows(each) for each in numbers or [{}] * len(encoded)]
        tensors = []
        try:
            arrays = model_input.tensors(encoded, rows)
        except ImageError as error:
            raise RequestError(str(error), is_refusal=True) from None
        for name, datatype, array in arrays:
            tensors.append(self._module.InferInput(name, array.shape, datatype))
            tensors[-1].set_data_from_numpy(array)
        scores = dict.fromkeys(self.scores(model), classes) if classes else {}
        lengths = {}
        if model_input.has_rows:  # Triton sorts the scores of all boxes as one list, so all entries must be requested
            outputs = [output for output in self.config(model)["output"] if output["name"] in scores]
            lengths = {each["name"]: int(each["dims"][-1]) for each in outputs if int(each["dims"][-1]) > 0}
            scores = {name: length * _MAX_ROWS for name, length in lengths.items()}
            if lengths and self.protocol == "http":  # Triton 2.51 crashes if classes of an empty output are requested
                plain = self.infer(model, model_input, encoded, numbers)
                if not all(len(plain[name]) for name in lengths):
                    return plain
        wanted = [
            self._module.InferRequestedOutput(output["name"], class_count=scores.get(output["name"], 0))
            for output in self.config(model)["output"]
        ]
        try:
            result = self._client.infer(model, tensors, outputs=wanted, **self._deadline)
            answers = {output.name(): result.as_numpy(output.name()) for output in wanted}
            return answers | {name: _best(answers[name], length, classes) for name, length in lengths.items()}
        except self._failure as error:
            status = error.status()  # type: ignore[attr-defined]
            self._check_live()
            reason = self._too_late if status == "StatusCode.DEADLINE_EXCEEDED" else _message(error)
            raise RequestError(reason, is_refusal=status in _REFUSALS) from None
        except (OSError, HTTPException) as error:
            self._check_live()
            raise RequestError(self._too_late if isinstance(error, TimeoutError) else str(error)) from None

    def _check_live(self) -> None:
        try:
            is_live = self._client.is_server_live(**self._deadline)
        except HTTPException:  # base class of the exceptions of geventhttpclient, which tritonclient uses
            raise SetupError(
                f"{self.url} responds, but does not speak HTTP: it may be the gRPC port; pass the HTTP port"
            ) from None
        except (OSError, self._failure) as error:
            # gRPC's message has three lines about connection attempts before the cause, which is at the end
            reason = getattr(error, "strerror", None) or _message(error).rpartition(": ")[2].rstrip("])")
            if reason == "Socket closed":
                raise SetupError(
                    f"{self.url} responds, but does not speak gRPC: it may be the HTTP port; pass the gRPC port"
                ) from None
            raise SetupError(
                f"no {self.protocol} server responds at {self.url} ({reason}): check that `pixprep serve` is running, "
                "and its port"
            ) from None
        if not is_live:
            raise SetupError(f"the server at {self.url} is not a running Triton server")


def _is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether a model with a pixel input is a pixprep model. A classifier may also have such an input."""
    return bool(config.get("backend") == "pixprep" or PIXELS in config.get("parameters", {}))


def _best(entries: npt.NDArray[Any], length: int, count: int) -> npt.NDArray[Any]:
    """Return the best classes of each row, an array of shape (rows, count).

    Triton flattens the rows of a model without batching to one list of scores, and labels only its first ``length``
    entries.

    Args:
        entries: All entries ``score:index:label``, in descending order of the score.
        length: Number of classes per row.
        count: Number of best classes to return per row.
    """
    found = [entry.decode().split(":", 2) for entry in entries.reshape(-1)]
    names = {int(index): label for _, index, *labels in found for label in labels}
    rows: list[list[bytes]] = [[] for _ in range(len(found) // length)]
    for score, text, *_ in found:
        row, index = divmod(int(text), length)
        name = f":{names[index]}" if index in names else ""
        rows[row].append(f"{score}:{index}{name}".encode())
    return np.array([row[:count] for row in rows], dtype=np.object_)


def _ms(parts: dict[str, Any], *names: str) -> float:
    return sum(int(parts.get(name, {}).get("ns", 0)) for name in names) / 1e6


def _message(error: Exception) -> str:
    """Return the server's error message as one line, without the status that tritonclient adds."""
    words = getattr(error, "message", None)
    return " ".join(str(words() if callable(words) else error).split())
