"""State of a training, as JSON holds it: what it may be, and whether it is of the Loader that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from pixprep.errors import DataError, PipelineError

STATE_VERSION = 1
MAX_EPOCHS = (1 << 32) - 1


def checked_state(state: Mapping[str, Any], now: Mapping[str, Any], length: int) -> tuple[int, int]:
    """Return the epoch and the position of a state.

    Args:
        state: Result of ``Loader.state_dict``, possibly of a different shard.
        now: Current state of the Loader that restores it.
        length: Number of samples per epoch.

    Raises:
        DataError: The state belongs to different samples.
        PipelineError: The state has a different ``seed``, ``shuffle`` or sampler, or is not a state.
    """
    if isinstance(state, Mapping):
        state = {"sampler": None, **state}  # states of older versions lack this field
    if not isinstance(state, Mapping) or set(state) != set(now) or state["version"] != STATE_VERSION:
        raise PipelineError(f"this is not a state of a Loader: {state!r}")
    for name in ("seed", "shuffle"):
        if state[name] != now[name]:
            raise PipelineError(
                f"the state is of {name}={state[name]!r}, and this Loader has {name}={now[name]!r}: the rest of "
                "the epoch would be other samples"
            )
    epoch = _number(state, "epoch", MAX_EPOCHS)
    _number(state, "samples", (1 << 63) - 1)
    if (state["samples"], state["source"]) != (now["samples"], now["source"]):
        raise DataError(
            f"the state belongs to a different source: {state['samples']:,} samples ({state['source']}), and here are "
            f"{now['samples']:,} ({now['source']})"
        )
    if state["sampler"] != now["sampler"]:
        raise PipelineError(
            "the state is of other weights, shares, repeats, epoch_samples or group_by, or with group_by of other "
            "global batches (batch_size times shards): the rest of the epoch would be different samples"
        )
    return epoch, _number(state, "position", length)


def checked_epoch(epoch: int) -> int:
    """A number of an epoch.

    Raises:
        PipelineError: The epoch is invalid.
    """
    if isinstance(epoch, bool) or not isinstance(epoch, Integral) or not 0 <= int(epoch) <= MAX_EPOCHS:
        raise PipelineError(f"epoch must be an integer from 0 to {MAX_EPOCHS:,}, not {epoch!r}")
    return int(epoch)


def _number(state: Mapping[str, Any], name: str, most: int) -> int:
    if not isinstance(state[name], Integral) or not 0 <= int(state[name]) <= most:
        what = f"is {state[name]!r}, and not an integer from 0 to {most:,}"
        raise PipelineError(f"the state's {name} {what}: it is damaged")
    return int(state[name])
