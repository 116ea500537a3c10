"""Defines the arithmetic steps, which convert pixel values to tensor values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pixprep.bfloat16 import to_bfloat16
from pixprep.spec import Own

Operation = Literal["affine", "subtract", "multiply", "divide", "by_own", "standardize", "clip", "bfloat16"]
_FLOAT32: dict[str, tuple[Any, str]] = {
    "subtract": (np.subtract, "-"),
    "multiply": (np.multiply, "*"),
    "divide": (np.divide, "/"),
}
"""NumPy function and sign of each operation of ``Float32``."""
_STATISTICS = {"max": "max of the image", "mean": "mean of the image"}
Statistic = tuple[float, ...]
"""Statistic of an image: its maximum, its mean, or its mean and its standard deviation."""
EXAMPLE: Statistic = (255.0, 255.0)
"""Statistic for which arithmetic is checked and described before any image is known."""


class ArithmeticStep:
    """Base class of the arithmetic steps. The numbers of a step are tuples with one number per channel."""

    @property
    def operation(self) -> Operation:
        """Name by which the kernels select the operation."""
        raise NotImplementedError

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """First and second operand of each channel. The second is empty if the operation has only one."""
        raise NotImplementedError

    @property
    def statistic(self) -> Own | None:
        """Statistic of the image that the step uses, or None if it does not use a statistic."""
        return None

    @property
    def is_sum(self) -> bool:
        """Whether ``text`` ends with a sum, which later operations except for a subtraction put in parentheses."""
        return self.operation in ("affine", "subtract")

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """Apply the step to values (channels, ...) of an image whose statistic is ``own``.

        The result of a ``Float32`` or ``Standardize`` step is float32. The results of all other steps are float64.
        """
        raise NotImplementedError

    def text(self, value: str, channel: int) -> str:
        """Return the formula that applies the step of one channel to the formula ``value``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Affine(ArithmeticStep):
    """Arithmetic step that computes ``value * scale + offset`` per channel in float64."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]

    operation: ClassVar[Operation] = "affine"

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """See ``ArithmeticStep``."""
        return self.scale, self.offset

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """See ``ArithmeticStep``."""
        del own
        found: npt.NDArray[np.float64] = values.astype(np.float64) * _column(self.scale, values)
        found += _column(self.offset, values)
        return found

    def text(self, value: str, channel: int) -> str:
        """See ``ArithmeticStep``."""
        scale, offset = self.scale[channel], self.offset[channel]
        value += f" * {scale:.6g}" if scale != 1 else ""
        return value + (f" {'+' if offset > 0 else '-'} {abs(offset):.6g}" if offset else "")


@dataclass(frozen=True)
class Float32(ArithmeticStep):
    """Arithmetic step that subtracts, multiplies by or divides by a number per channel in float32.

    Attributes:
        kind: Operation, ``value - by``, ``value * by`` or ``value / by``.
        by: Second operand of each channel, rounded to float32.
    """

    kind: Literal["subtract", "multiply", "divide"]
    by: tuple[float, ...]

    @property
    def operation(self) -> Operation:
        """See ``ArithmeticStep``."""
        return self.kind

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """See ``ArithmeticStep``."""
        return self.by, ()

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """See ``ArithmeticStep``."""
        del own
        found: npt.NDArray[Any] = _FLOAT32[self.kind][0](values, _column(self.by, values, np.float32))
        return found

    def text(self, value: str, channel: int) -> str:
        """See ``ArithmeticStep``."""
        return f"{value} {_FLOAT32[self.kind][1]} {self.by[channel]:.6g}"


@dataclass(frozen=True)
class Rounded(ArithmeticStep):
    """Arithmetic step that rounds values to bfloat16, with ties to even."""

    operation: ClassVar[Operation] = "bfloat16"

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """See ``ArithmeticStep``. This step does not have operands."""
        return (), ()

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """See ``ArithmeticStep``."""
        del own
        return to_bfloat16(values)

    def text(self, value: str, channel: int) -> str:
        """See ``ArithmeticStep``."""
        del channel
        return f"bfloat16({value})"


@dataclass(frozen=True)
class Clip(ArithmeticStep):
    """Arithmetic step that limits values to the range from ``low`` to ``high`` in float32."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    operation: ClassVar[Operation] = "clip"

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """See ``ArithmeticStep``."""
        return self.low, self.high

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """See ``ArithmeticStep``."""
        del own
        low, high = (_column(each, values, np.float32) for each in (self.low, self.high))
        found: npt.NDArray[Any] = values.clip(low, high)
        return found

    def text(self, value: str, channel: int) -> str:
        """See ``ArithmeticStep``."""
        return f"clip({value}, {self.low[channel]:.6g}, {self.high[channel]:.6g})"


@dataclass(frozen=True)
class ByOwn(ArithmeticStep):
    """Arithmetic step that computes ``(value / own - mean) / std`` per channel in float64.

    ``own`` is a statistic of the image itself.

    Attributes:
        number: Statistic: the maximum or the mean of the pixel values of all channels. If it is 0, 1 is used instead.
        mean, std: Mean and standard deviation that normalize the quotient, one number per channel.
    """

    number: Own
    mean: tuple[float, ...]
    std: tuple[float, ...]

    operation: ClassVar[Operation] = "by_own"

    @property
    def statistic(self) -> Own:
        """See ``ArithmeticStep``."""
        return self.number

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """See ``ArithmeticStep``."""
        return self.std, self.mean

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """See ``ArithmeticStep``."""
        found: npt.NDArray[np.float64] = values.astype(np.float64) / own[0] - _column(self.mean, values)
        found /= _column(self.std, values)
        return found

    def text(self, value: str, channel: int) -> str:
        """See ``ArithmeticStep``."""
        mean, std = self.mean[channel], self.std[channel]
        value += f" / {_STATISTICS[self.number]}" + (f" - {mean:.6g}" if mean else "")
        return (f"({value})" if mean else value) + f" / {std:.6g}" if std != 1 else value


@dataclass(frozen=True)
class Standardize(ArithmeticStep):
    """Arithmetic step that computes ``(value - mean) / std`` in float32, with the image's mean and standard deviation.

    Both are computed over the pixel values of all channels together.
    """

    operation: ClassVar[Operation] = "standardize"

    @property
    def statistic(self) -> Own:
        """See ``ArithmeticStep``."""
        return "standardize"

    @property
    def operands(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """See ``ArithmeticStep``. The kernels do not run this step."""
        return (), ()

    def of(self, values: npt.NDArray[np.float32], own: Statistic) -> npt.NDArray[Any]:
        """See ``ArithmeticStep``."""
        mean, std = np.array(own, np.float32)
        found: npt.NDArray[Any] = (values - mean) / std
        return found

    def text(self, value: str, channel: int) -> str:
        """See ``ArithmeticStep``."""
        del channel
        return f"({value} - mean of the image) / standard deviation of the image"


def _column(numbers: Sequence[float], values: npt.NDArray[Any], dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Return one number per channel as an array that is broadcast to values (channels, ...)."""
    return np.array(numbers, dtype).reshape(-1, *(1,) * (values.ndim - 1))


def statistic_of(arithmetic: Iterable[ArithmeticStep]) -> Own | None:
    """Return the statistic of the image that arithmetic steps use, or None if they do not use a statistic."""
    return next((step.statistic for step in arithmetic if step.statistic), None)


def formula(arithmetic: Sequence[ArithmeticStep], channel: int) -> str:
    """Format the arithmetic of one channel as a formula, such as ``(value / 255 - 0.485) / 0.229, in float32``."""
    text, is_sum = "value", False
    for step in arithmetic:
        text = step.text(f"({text})" if is_sum and step.operation != "subtract" else text, channel)
        is_sum = step.is_sum
    return text + (", in float32" if any(step.operation in (*_FLOAT32, "standardize") for step in arithmetic) else "")
