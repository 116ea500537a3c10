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
    """Device, as an engine needs it.

    Attributes:
        lanes: how many threads of the engine may work at once, each on a chunk of its own.
    """

    lanes: int

    def decoder(self, plan: Plan, options: EngineOptions) -> Decoder:
        """The decoder for a plan; without ``damage`` it is ``strict`` on the CPU, ``structural`` on a GPU."""

    def kernel(self, plan: TensorPlan) -> Kernel:
        """The kernel for a plan, compiled."""

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array on the device, its values not set."""

    def array(self, value: Any) -> Array:
        """The array that a value is, without a copy: on this device or in host memory.

        Raises:
            TypeError: it is none that can be read here.
        """

    def on_host(self, array: Array) -> npt.NDArray[Any]:
        """The values of an array of this device, once what was queued for it has been done."""

    def lane(self) -> AbstractContextManager[None]:
        """Enter a lane; when it ends, everything that was queued inside has been done."""

    def trim(self) -> None:
        """Give memory back that is kept for the next batch."""

    def is_working(self) -> bool:
        """Tell whether another batch has a chance; if not, only a new process has."""

    def close(self) -> None:
        """End the decoder's threads and give memory back; nothing can be run any more."""


def device_for(name: str, *, threads: int | None = None) -> Device:
    """The device of a name: ``cpu``, ``gpu`` (the first one) or ``gpu:1``.

    Args:
        name: which.
        threads: of a CPU; default: as many as this process may use cores.

    Raises:
        SetupError: there is no such device here.
    """
    place, _, index = str(name).partition(":")  # from Python also a number
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
        gpu: Device = make(int(index or 0))
        return gpu
    raise SetupError(f'device "{name}": there are "cpu", "gpu" and "gpu:1", "gpu:2", …')


def _give_cupy_a_folder() -> None:
    """Name one where there is no home to write to: CuPy 14 makes its folder for kernels as soon as it is imported.

    Ours are never in there.
    """
    if "CUPY_CACHE_DIR" not in os.environ and not os.access(Path("~").expanduser(), os.W_OK):
        folder = os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="pixprep-cupy-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
