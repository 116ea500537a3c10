"""What comes with the samples beside their images, as a batch has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def collated(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of samples by name.

    A number in every sample makes an array (n,): int64, float64 or bool, as NumPy has it. All else makes a list, with
    None where a sample lacks the field. So the kind of a field does not depend on which samples meet in a batch.
    """
    names = dict.fromkeys(name for each in fields for name in each)
    return {name: _column([each.get(name) for each in fields]) for name in names}


def _column(values: list[Any]) -> Any:
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in values):
        return np.array(values)
    return values
