"""The devices on which an engine decodes images and computes tensors. Each device is a module, imported on demand."""

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


class Device(Protocol):
    """Interface between an engine and a device.

    Attributes:
        lanes: Number of engine threads that may process chunks in parallel. It may depend on the plan.
    """

    lanes: int

    def decoder(self, plan: Plan, options: EngineOptions) -> Decoder:
        """Return the decoder for a plan. An engine calls this method once, before any other method.

        ``damage`` defaults to ``strict`` on the CPU and ``structural`` on a GPU.
        """

    def kernel(self, plan: TensorPlan) -> Kernel:
        """Return the compiled kernel for a plan."""

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Return an uninitialized array on the device."""

    def array(self, value: Any) -> Array:
        """Return a view of an array that is on this device or in host memory, without copying it.

        Raises:
            TypeError: The value is not an array that this device can read.
        """

    def on_host(self, array: Array) -> npt.NDArray[Any]:
        """Copy an array of this device to the host, after all queued work on the array has finished."""

    def follow(self) -> None:
        """Make the lanes wait for all work that is queued on the caller's current stream.

        This work may use the memory of the batch: the caller may have computed the input, or freed memory that the
        device reuses.
        """

    def lane(self, queued: list[Any] | None = None) -> AbstractContextManager[None]:
        """Return a context in which one thread processes a chunk. On a GPU, the context has its own stream.

        Args:
            queued: List that receives the queued work when the context exits. Its attribute ``held`` stores the objects
                that own the memory used by the work, and its method ``wait`` waits for the work. If the device does not
                queue work, the list stays empty. None means that the context waits for the work when it exits.
        """

    def trim(self) -> None:
        """Free the memory that is cached for the next batch."""

    def is_working(self) -> bool:
        """Return whether the device still works. If not, only a new process can use it again."""

    def close(self) -> None:
        """Stop the threads of the decoder and free all memory. The device cannot be used afterwards."""


def device_for(name: str, *, threads: int | None = None) -> Device:
    """Return a device by its name.

    Args:
        name: ``cpu``, ``gpu`` (the first GPU), or ``gpu:1``, ``gpu:2``, …
        threads: Number of threads on the CPU. Default: the number of cores available to this process.

    Raises:
        SetupError: The device is not available.
    """
    place, _, index = str(name).partition(":")  # the caller may have passed a number
    if name == "cpu":
        cpu: Device = load(DEVICES[name])(threads)
        return cpu
    if place == "gpu" and (index or "0").isdigit():
        _set_cupy_cache()
        try:
            make = load(DEVICES[place])
        except ImportError as error:
            raise SetupError(
                f'device "{name}" requires {error.name}: pip install ".[gpu-cuda12]" (or gpu-cuda13) '
                'in a checkout of pixprep, or use the device "cpu"'
            ) from None
        except OSError as error:
            raise SetupError(
                f'device "{name}": {error.filename}: {error.strerror}: set CUPY_CACHE_DIR to a writable folder'
            ) from None
        gpu: Device = make(int(index or 0), threads)
        return gpu
    raise SetupError(f'unknown device "{name}": use "cpu", "gpu", or "gpu:1", "gpu:2", …')


def _set_cupy_cache() -> None:
    """Use a temporary folder as CuPy's kernel cache if the home directory is not writable.

    CuPy 14 creates the folder when it is imported, and fails if it cannot. pixprep's own kernels are not stored there.
    """
    if "CUPY_CACHE_DIR" not in os.environ and not os.access(Path("~").expanduser(), os.W_OK):
        folder = os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="pixprep-cupy-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
