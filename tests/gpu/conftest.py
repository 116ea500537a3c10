"""Provides a GPU that is mocked on the CPU, and the folder of the kernels' shims, which are built once per set of
options.
"""

import importlib
import sys
from functools import partial
from types import SimpleNamespace

import pytest

import pixprep as pp
from gpu import cuda_shim
from gpu.played import PIPELINE
from pixprep import gpu as room
from pixprep.gpu import samples

OURS = (
    *("gpu.lanes", "gpu.kernel", "gpu.nvimagecodec", "gpu.decoder", "gpu.nvdec", "gpu.staged", "gpu.hosts"),
    *("gpu.comparison", "gpu.device"),
    "training.frameworks.cupy",
)


@pytest.fixture(scope="session")
def folder(request, tmp_path_factory):
    """Return the folder of the shims, which pytest keeps for the next run.

    The name of a shim identifies everything that it is built from.
    """
    cache = getattr(request.config, "cache", None)
    return cache.mkdir("shim") if cache else tmp_path_factory.mktemp("shim")


def shrink_samples(change):
    """Shrink the large samples to 0.01 megapixels. ``change(name, value)`` sets a constant of the module samples."""
    change("_MEGAPIXEL", 10_000)
    change("_LARGE", (104, 100))


@pytest.fixture(scope="module")
def small_samples():
    """Use samples of 0.01 megapixels, because each engine decodes eight samples when it is created.

    ``test_gpu_hour.py`` uses full-size samples.
    """
    with pytest.MonkeyPatch.context() as patch:
        shrink_samples(partial(patch.setattr, samples))
        for each in (samples.samples, samples.sample_traits):
            each.cache_clear()
        yield
    for each in (samples.samples, samples.sample_traits):
        each.cache_clear()


@pytest.fixture
def gpu(monkeypatch, folder, small_samples):  # noqa: ARG001  (this fixture makes the samples small)
    """Mock CuPy and nvImageCodec, and load pixprep's modules on top of them."""
    pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
    if cuda_shim.COMPILER is None:
        pytest.skip("NO C++ COMPILER: the CUDA kernels do not run here")
    import nvidia  # noqa: PLC0415

    from gpu import fake_cupy  # noqa: PLC0415  (needs nvImageCodec)

    cupy, nvrtc, codec = fake_cupy.modules(folder), fake_cupy.compiler(), fake_cupy.codecs()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "pixprep.gpu.nvrtc", nvrtc)
    monkeypatch.setattr(room, "nvrtc", nvrtc, raising=False)
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", codec)
    monkeypatch.setattr(nvidia, "nvimgcodec", codec)
    for name in OURS:
        monkeypatch.delitem(sys.modules, f"pixprep.{name}", raising=False)
    devices, decoders = (importlib.import_module(f"pixprep.{name}") for name in ("gpu.device", "gpu.decoder"))
    yield SimpleNamespace(cupy=cupy, nvrtc=nvrtc, codec=codec, Gpu=devices.Gpu, GpuDecoder=decoders.GpuDecoder)
    for name in OURS:
        sys.modules.pop(f"pixprep.{name}", None)


@pytest.fixture
def engine(gpu):  # noqa: ARG001  (this fixture makes device "gpu" the mocked GPU)
    with pp.Engine(PIPELINE, device="gpu") as engine:
        yield engine
