"""Validates the state of a Loader before it is loaded: its format, and whether it matches the Loader."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from pixprep.errors import DataError, PipelineError

STATE_VERSION = 1
MAX_EPOCHS = (1 << 32) - 1


def checked_state(state: Mapping[str, Any], now: Mapping[str, Any], length: int) -> tuple[int, int]:
    """Return the epoch and the position of a valid state.

    Args:
        state: Result of ``Loader.state_dict``, possibly from a different shard.
        now: Current state of the Loader that loads it.
        length: Number of samples per epoch.

    Raises:
        DataError: The state belongs to different samples.
        PipelineError: The state was saved with a different ``seed``, ``shuffle`` or sampler, or is invalid.
    """
    if isinstance(state, Mapping):
        state = {"sampler": None, **state}  # states of older versions lack this field
    if not isinstance(state, Mapping) or set(state) != set(now) or state["version"] != STATE_VERSION:
        raise PipelineError(f"state must be a result of Loader.state_dict, not {state!r}")
    for name in ("seed", "shuffle"):
        if state[name] != now[name]:
            raise PipelineError(
                f"the state was saved with {name}={state[name]!r}, but this Loader has {name}={now[name]!r}: the rest "
                f"of the epoch would contain different samples; use the same {name}"
            )
    epoch = _number(state, "epoch", MAX_EPOCHS)
    _number(state, "samples", (1 << 63) - 1)
    if (state["samples"], state["source"]) != (now["samples"], now["source"]):
        raise DataError(
            f"the state belongs to a different source: it has {state['samples']:,} samples (fingerprint "
            f"{state['source']}), but this Loader's source has {now['samples']:,} (fingerprint {now['source']})"
        )
    if state["sampler"] != now["sampler"]:
        raise PipelineError(
            "the state was saved with different weights, shares, repeats, epoch_samples or group_by, or with group_by "
            "and a different global batch size (batch_size times shards): the rest of the epoch would contain other "
            "samples; use the same arguments"
        )
    return epoch, _number(state, "position", length)


def checked_epoch(epoch: int) -> int:
    """Return the number of an epoch as an int.

    Raises:
        PipelineError: It is not an integer in the valid range.
    """
    if isinstance(epoch, bool) or not isinstance(epoch, Integral) or not 0 <= int(epoch) <= MAX_EPOCHS:
        raise PipelineError(f"epoch must be an integer from 0 to {MAX_EPOCHS:,}, not {epoch!r}")
    return int(epoch)


def _number(state: Mapping[str, Any], name: str, maximum: int) -> int:
    if not isinstance(state[name], Integral) or not 0 <= int(state[name]) <= maximum:
        raise PipelineError(
            f'the state is damaged: "{name}" must be an integer from 0 to {maximum:,}, not {state[name]!r}'
        )
    return int(state[name])
