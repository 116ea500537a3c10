"""Loads a model in a running Triton: over gRPC, where a call that never ends holds up nobody else.

Over HTTP it would hold one of Triton's eight HTTP threads, and with it every connection that this thread serves.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from pixprep.serve.failure import load_failure

_LOOK_S = 0.05
_LIVE_S = 2.0
# A call reaches the server itself, and does not wait because one before it found nobody there.
_CHANNEL = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


def load(address: str, model: str, *, headers: dict[str, str], timeout_s: float, is_stuck: Callable[[], bool]) -> str:
    """Load a model whose files have changed: the one that serves goes on until the new one is ready.

    Args:
        address: HOST:PORT of gRPC.
        model: its name.
        headers: that open the API.
        timeout_s: how long to wait.
        is_stuck: asked meanwhile, whether to wait no longer.

    Returns:
        Why Triton did not load it; empty if it did.

    Raises:
        TimeoutError: no answer. This Triton will not load this model any more.
        ConnectionError: nobody answers gRPC there.
    """
    answers: SimpleQueue[str | OSError] = SimpleQueue()
    stuck = TimeoutError(f"Triton never ends to load model {model}")

    def call() -> None:
        with InferenceServerClient(address, channel_args=_CHANNEL) as client:
            try:
                client.load_model(model, headers=headers, client_timeout=timeout_s)
                answers.put("")
            except InferenceServerException as error:
                if error.status() == "StatusCode.DEADLINE_EXCEEDED":
                    answers.put(stuck)
                elif not _is_live(client):
                    answers.put(ConnectionError("Triton answers no more over gRPC"))
                else:
                    answers.put(load_failure(error.message()))

    Thread(target=call, daemon=True, name=f"pixprep-load-{model}").start()
    while True:
        try:
            answer = answers.get(timeout=_LOOK_S)
        except Empty:
            if not is_stuck():
                continue
            answer = stuck
        if isinstance(answer, OSError):
            raise answer
        return answer


def _is_live(client: InferenceServerClient) -> bool:
    try:
        return bool(client.is_server_live(client_timeout=_LIVE_S))
    except InferenceServerException:
        return False
