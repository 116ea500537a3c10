"""Convert values to and from bfloat16, a dtype that NumPy does not have.

A bfloat16 consists of the upper 16 bits of a float32. Arrays of bfloat16 are NumPy or CuPy arrays of uint16 that
contain the bits of the values. ``Exported`` passes such an array to a library that supports the dtype.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_BFLOAT16 = float.fromhex("0x1.fep127")
"""Largest finite value."""
MIN_BFLOAT16 = 2.0**-126
"""Smallest positive normal value."""
_CODE, _CODE_AT = 4, 20
"""Type code of bfloat16 in DLPack (``kDLBfloat``), and its offset in bytes in the struct ``DLTensor``."""
_NAME, _USED_NAME = b"dltensor", b"used_dltensor"
"""Names of a DLPack capsule before and after its tensor has been imported. A capsule stores a pointer to its name, so
these objects must never be freed."""


def to_bfloat16(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Round values to the nearest bfloat16, with ties to even, and return them as float32.

    A float64 is rounded directly to bfloat16, and not first to float32. Values whose absolute value exceeds
    ``MAX_BFLOAT16`` may become infinite.
    """
    wide = np.asarray(values, np.float64)
    _, exponents = np.frexp(wide)
    unit = np.ldexp(1.0, np.maximum(exponents, -125) - 8)  # spacing of adjacent bfloat16 values
    with np.errstate(over="ignore"):
        found: npt.NDArray[np.float32] = (np.rint(wide / unit) * unit).astype(np.float32)
    return found


def bfloat16_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Round values to bfloat16, and return their bits; see ``to_bfloat16``."""
    return (to_bfloat16(values).view(np.uint32) >> 16).astype(np.uint16)


def bfloat16_floats(array: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Convert the bits of bfloat16 values to float32."""
    return (array.astype(np.uint32) << 16).view(np.float32)


class Exported:
    """Array of bits that DLPack exports as a tensor of bfloat16, without a copy.

    >>> torch.from_dlpack(Exported(bits)).dtype                    # doctest: +SKIP
    torch.bfloat16

    Args:
        array: NumPy or CuPy array of uint16.
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dtype = array.dtype

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """Return a DLPack capsule with the dtype bfloat16. The caller must import the capsule.

        The tensor is moved to a new capsule without a destructor. When Triton 2.51 imports a capsule, it gives the
        capsule a name that the destructor of NumPy's capsules does not expect, and that destructor would end the
        process. The importer frees the tensor.
        """
        python = ctypes.pythonapi
        python.PyCapsule_GetPointer.restype, python.PyCapsule_New.restype = ctypes.c_void_p, ctypes.py_object
        given = self.array.__dlpack__(stream=stream)
        tensor = ctypes.c_void_p(python.PyCapsule_GetPointer(ctypes.py_object(given), _NAME))
        python.PyCapsule_SetName(ctypes.py_object(given), _USED_NAME)
        assert tensor.value is not None
        ctypes.c_uint8.from_address(tensor.value + _CODE_AT).value = _CODE
        return python.PyCapsule_New(tensor, _NAME, None)

    def __dlpack_device__(self) -> Any:
        """Return the device of the array, as DLPack defines it."""
        return self.array.__dlpack_device__()
