"""bfloat16, the upper 16 bits of a float32. NumPy does not have this dtype.

Arrays of bfloat16 are NumPy or CuPy arrays of uint16 that contain the bits of the values. ``Exported`` passes such an
array to a library that has the dtype.
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
"""Code of bfloat16 in DLPack (``kDLBfloat``), and the position of the code in the struct ``DLTensor``, in bytes."""
_NAME, _USED_NAME = b"dltensor", b"used_dltensor"
"""Names of a DLPack capsule before and after its tensor has been imported. The capsules refer to these objects."""


def to_bfloat16(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Round values to the nearest bfloat16, ties to even. The result contains these numbers as float32.

    A value is rounded once, even if it is a float64. Values beyond ``MAX_BFLOAT16`` may become infinite.
    """
    wide = np.asarray(values, np.float64)
    _, exponents = np.frexp(wide)
    unit = np.ldexp(1.0, np.maximum(exponents, -125) - 8)  # distance of adjacent bfloat16 numbers
    with np.errstate(over="ignore"):
        found: npt.NDArray[np.float32] = (np.rint(wide / unit) * unit).astype(np.float32)
    return found


def bfloat16_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Round values to bfloat16, see ``to_bfloat16``, and return their bits."""
    return (to_bfloat16(values).view(np.uint32) >> 16).astype(np.uint16)


def bfloat16_floats(array: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the bfloat16 values with these bits as float32."""
    return (array.astype(np.uint32) << 16).view(np.float32)


class Exported:
    """Array of bits that libraries import as a tensor of bfloat16 through DLPack, without a copy.

    >>> torch.from_dlpack(Exported(bits)).dtype                    # doctest: +SKIP
    torch.bfloat16

    Args:
        array: NumPy or CuPy array of uint16.
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dtype = array.dtype

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """Return the array as a DLPack capsule with the dtype bfloat16, which must be imported.

        The tensor moves to a capsule without a destructor, because Triton 2.51 renames a capsule to a name that the
        destructor of NumPy's capsules does not expect, and the process would end. The importer frees the tensor.
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
