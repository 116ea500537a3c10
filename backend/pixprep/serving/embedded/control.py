"""Controls the Triton that `serve` started: queries the state of its models, loads them and unloads them.

Load requests use gRPC. Over HTTP, a load that never ends would block one of Triton's eight HTTP threads, together with
all connections of this thread.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pixprep.serving.embedded.addresses import bracketed, unread, unsent
from pixprep.serving.embedded.failure import load_failure
from pixprep.serving.embedded.request import ModelInput, Post, model_input
from pixprep.serving.triton import probe

KEY_HEADER = "admin-key"
_LOOK_S = 0.05
_LIVE_S = 2.0
_SETTLE_S = 0.25
"""Seconds to wait until a request that Triton has read is in the queue of its model."""
# The channel must bypass proxies, and must not inherit the reconnect backoff of an earlier channel that failed.
_CHANNEL = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


class Control:
    """Administrative access to one Triton server. Each call opens its own connection.

    Args:
        http_socket: Path of Triton's Unix socket for HTTP.
        address: IP address on which the server listens.
        ports: Public port numbers under the keys ``http``, ``grpc`` and ``metrics``.

    Attributes:
        key: Key for Triton's restricted APIs.
        mark: Secret header value by which the backend recognizes health probes.
    """

    def __init__(self, http_socket: Path, address: str, ports: Mapping[str, int]) -> None:
        self._http_socket = http_socket
        self._address = address
        self._ports = ports
        self.key, self.mark = uuid.uuid4().hex, uuid.uuid4().hex

    def repository(self, path: str, *, timeout_s: float = 120) -> tuple[int, bytes]:
        """Send a request to the model repository API.

        Args:
            path: ``index``, ``models/NAME/load`` or ``models/NAME/unload``.
            timeout_s: Time limit in seconds.

        Returns:
            The HTTP status, or 0 if Triton did not respond; and the body of the response.
        """
        return self._ask("POST", f"/v2/repository/{quote(path)}", headers={KEY_HEADER: self.key}, timeout_s=timeout_s)

    def index(self, *, timeout_s: float = 10) -> list[dict[str, str]]:
        """Return ``name``, ``version`` and ``state`` of every model, or an empty list if Triton does not respond."""
        status, text = self.repository("index", timeout_s=timeout_s)
        return list(json.loads(text)) if status == 200 else []

    def config(self, model: str) -> dict[str, Any]:
        """Return the complete configuration of a model, or an empty dict if Triton does not respond."""
        status, text = self._ask("GET", f"/v2/models/{quote(model)}/config", timeout_s=10)
        return dict(json.loads(text)) if status == 200 else {}

    def model_input(self, model: str) -> ModelInput | None:
        """Return the image input of a model, or None if the model does not have one or Triton does not respond."""
        config = self.config(model)
        return model_input(config) if config else None

    def is_live(self) -> bool:
        """Return whether Triton responds over HTTP within 2 s."""
        return self._ask("GET", "/v2/health/live", timeout_s=_LIVE_S)[0] == 200

    def is_ready(self) -> bool:
        """Return whether Triton reports that every model is ready."""
        return self._ask("GET", "/v2/health/ready", timeout_s=_LIVE_S)[0] == 200

    def infer(self, model: str, sample: Post, *, timeout_s: float) -> int:
        """Send a probe image to a model and return the HTTP status, or 0 if the model does not respond in time."""
        headers, body = sample
        headers = {**headers, "Content-Type": "application/octet-stream", probe.HEADER: self.mark}
        return self._ask("POST", f"/v2/models/{quote(model)}/infer", body, headers, timeout_s=timeout_s)[0]

    def load(self, model: str, *, timeout_s: float, meanwhile: Callable[[], None]) -> str:
        """Load a model whose files have changed. The old model serves requests until the new one is ready.

        Args:
            model: Name of the model.
            timeout_s: Time limit in seconds.
            meanwhile: Function that is called repeatedly while the model loads. If it raises an exception, the wait
                ends with this exception.

        Returns:
            An empty string if the model was loaded, or the reason why it was not.

        Raises:
            TimeoutError: The load did not finish in time. This Triton cannot load the model any more.
            ConnectionError: The gRPC port does not respond.
        """
        import grpc  # noqa: PLC0415  (the import takes 0.15 s and 20 MB)
        from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: PLC0415

        headers = [(f"triton-grpc-protocol-{KEY_HEADER}", self.key)]
        asked = service_pb2.RepositoryModelLoadRequest(model_name=model)
        with grpc.insecure_channel(f"{bracketed(self._address)}:{self._ports['grpc']}", _CHANNEL) as channel:
            triton = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            meanwhile()
            call = triton.RepositoryModelLoad.future(asked, timeout=timeout_s, metadata=headers)
            try:
                while not call.done():
                    meanwhile()
                    time.sleep(_LOOK_S)
            finally:
                call.cancel()
            if (error := call.exception()) is None:
                return ""
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(f"Triton did not finish loading model {model} within {timeout_s:.0f} s")
            try:
                triton.ServerLive(service_pb2.ServerLiveRequest(), timeout=_LIVE_S)
            except grpc.RpcError:
                raise ConnectionError("Triton no longer responds over gRPC") from None
            return load_failure(error.details())

    def drain(self, until: float) -> None:
        """Unload every model, and wait until all requests in flight have a response or the time ``until`` has passed.

        After an unload request, Triton rejects new requests to the model, and keeps the model until its last request
        has a response. Without unload requests, an exiting Triton 2.51 would continue to accept requests on open
        connections, and would abort the last of these requests. A model whose process has died is never unloaded
        completely.

        Before it unloads the models, the function waits until Triton has read the requests that have already arrived.
        Without this wait, Triton would reject some of these requests.
        """
        ports = self._ports.values()
        settled_at, waiting = time.monotonic() + _SETTLE_S, unread(*ports)
        while time.monotonic() < min(until, settled_at) or (waiting and time.monotonic() < until):
            time.sleep(_LOOK_S)
            waiting &= unread(*ports)
        while (left_s := until - time.monotonic()) > 0:
            states = {model["name"]: model.get("state") for model in self.index(timeout_s=left_s)}
            for model, state in states.items():
                if state == "READY":
                    self.repository(f"models/{model}/unload", timeout_s=left_s)
            is_done = not any(state in ("LOADING", "READY", "UNLOADING") for state in states.values())
            if is_done and not unsent(*ports):
                return
            time.sleep(_LOOK_S)

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, timeout_s: float
    ) -> tuple[int, bytes]:
        connection = _UnixConnection(self._http_socket, timeout_s=timeout_s)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(
                f"/proc/self/fd/{folder}/{self._path.name}"
            )  # the path of a Unix socket has at most 107 bytes
        finally:
            os.close(folder)
