"""Generate noise with the C kernels. The noise is the same on every device."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import STRUCTS, library
from pixprep.plan.draws.philox import quantiles

F32 = npt.NDArray[np.float32]


def noise(words: tuple[int, int, int], shape: tuple[int, ...]) -> F32:
    """Return normally distributed noise for a rectangle, float32 of ``shape`` (channels, height, width).

    Philox4x32-10, with the first two words as its key and the counter ``(i, third word, 0, 0)``, yields eight integers
    of 16 bits, the lower half of each word first. They are indices into a table of quantiles, and determine the values
    8 i to 8 i + 7 in the order of the tensor's channels. The noise is thus identical on all devices. If it were
    computed with a logarithm or a sine, its last bits would depend on the math library of the device.
    """
    values = np.empty(shape, np.float32)
    arguments = STRUCTS["noise"](values.ctypes.data, values.size, quantiles().ctypes.data, words[:2], words[2])
    library().make_noise(byref(arguments))
    return values
