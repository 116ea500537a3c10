"""Devices: where an engine decodes and computes. One module a device, imported on demand."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from pixprep.engine.decoders import Decoder
from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.options import EngineOptions
from pixprep.errors import SetupError
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.plan import Plan
from pixprep.registry import DEVICES, load
from pixprep.spec import DType


class Device(Protocol):
    """Interface between an engine and a device.

    Attributes:
        lanes: Number of engine threads that may work at once, each on its own chunk.
    """

    lanes: int

    def decoder(self, plan: Plan, options: EngineOptions) -> Decoder:
        """Return the decoder for a plan. ``damage`` defaults to ``strict`` on the CPU and ``structural`` on a GPU."""

    def kernel(self, plan: TensorPlan) -> Kernel:
        """Return the compiled kernel for a plan."""

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return an uninitialized array on the device."""

    def array(self, value: Any) -> Array:
        """Return a value as an array on this device or in host memory, without a copy.

        Raises:
            TypeError: The value is not an array that this device can read.
        """

    def on_host(self, array: Array) -> npt.NDArray[Any]:
        """Copy an array of this device to the host after the queued work on it has ended."""

    def lane(self) -> AbstractContextManager[None]:
        """Enter a lane, in which one thread works. All work queued inside has ended when the context exits."""

    def trim(self) -> None:
        """Free the memory that is kept for the next batch."""

    def is_working(self) -> bool:
        """Return whether a further batch can succeed. If not, only a new process can use the device."""

    def close(self) -> None:
        """End the decoder's threads and free memory. Nothing can be run afterwards."""


def device_for(name: str, *, threads: int | None = None) -> Device:
    """Return the device of a name: ``cpu``, ``gpu`` (the first GPU) or ``gpu:1``.

    Args:
        name: Name of the device.
        threads: Number of threads on the CPU. Default: number of cores that this process may use.

    Raises:
        SetupError: The device is not available.
    """
    place, _, index = str(name).partition(":")  # Python callers may pass a number
    if name == "cpu":
        cpu: Device = load(DEVICES[name])(threads)
        return cpu
    if place == "gpu" and (index or "0").isdigit():
        _give_cupy_a_folder()
        try:
            make = load(DEVICES[place])
        except ImportError as error:
            raise SetupError(
                f'device "{name}" needs {error.name}: pip install ".[gpu-cuda12]" (or gpu-cuda13) '
                'in a checkout of pixprep, or take the device "cpu"'
            ) from None
        except OSError as error:
            raise SetupError(
                f'device "{name}": {error.filename}: {error.strerror}: '
                "set CUPY_CACHE_DIR to a folder that can be written"
            ) from None
        gpu: Device = make(int(index or 0), threads)
        return gpu
    raise SetupError(f'device "{name}": there are "cpu", "gpu" and "gpu:1", "gpu:2", …')


def _give_cupy_a_folder() -> None:
    """Name one where there is no home to write to: CuPy 14 makes its folder for kernels as soon as it is imported.

    Ours are never in there.
    """
    if "CUPY_CACHE_DIR" not in os.environ and not os.access(Path("~").expanduser(), os.W_OK):
        folder = os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="pixprep-cupy-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
