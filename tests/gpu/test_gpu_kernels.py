"""Tests that the kernels are compared with the CPU before an engine starts, and that unsuitable GPUs are rejected."""

import contextlib
import re

import pytest

import pixprep as pp
from gpu.played import (
    AFTER_DECODE,
    NO_KERNELS,
    PIPELINE,
    REMEDY,
    TENSOR,
    mixed,
    on_gpu,
    refusal,
    same,
)
from pixprep.gpu import launch
from pixprep.serving.embedded import doctor

WRONG_COLUMN = (("+ c * LEVELS + thread", "+ c * LEVELS"), ("+ (int)level]", "+ 0]"))


def test_a_missing_compiler_is_a_setup_error(gpu):
    def missing(*_, **__):
        raise RuntimeError("NVRTC of CUDA 13 cannot be loaded (libnvrtc.so.13: no such file)")

    gpu.nvrtc.compiled = missing
    said = "NVRTC of CUDA 13 cannot be loaded (libnvrtc.so.13: no such file)): "
    assert refusal() == NO_KERNELS + said + REMEDY + 'use the device "cpu"'


@pytest.mark.parametrize(
    ("compiles", "fault"),
    [
        (True, r"[\d,]+ of 7,776 values differ from the CPU's, by up to \d+"),
        (False, r"NVRTC cannot compile for sm_90: dp4a: sm_61 or later"),
    ],
)
def test_failing_fast_kernels_are_replaced_by_the_plain_ones(gpu, caplog, compiles, fault):
    make = gpu.nvrtc.compiled

    def compiled(code, options, **target):
        if "dp4a" in code and not compiles:
            raise RuntimeError("NVRTC cannot compile for sm_90: dp4a: sm_61 or later\nand more")
        return make(code, options, **target)

    gpu.nvrtc.compiled = compiled
    gpu.cupy.cuda.Module.changes = (("0x0630", "0x0631"),)  # one byte is read from the wrong channel
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(mixed()), cpu.run_batch(mixed()))
    (record,) = caplog.records
    said = "using slower CUDA kernels, because the fast ones failed on this GPU"
    assert re.fullmatch(f"{said}: {fault}", record.getMessage())


def test_an_engine_never_computes_something_different_from_the_cpu(gpu):
    gpu.cupy.cuda.Module.changes = (("level > 255 ? 255", "level > 255 ? 254"),)
    assert re.match(
        f"{re.escape(NO_KERNELS)}[\\d,]+ of 7,776 values differ from the CPU's, by up to 1\\): run pip", refusal()
    )


@pytest.mark.parametrize(
    ("op", "is_checked"),
    [
        (pp.center_crop(224), True),
        (pp.pad(120, 120), True),
        (pp.crop(top=900, left=1000, height=64, width=64), True),
        (pp.crop(top=9000, left=1000, height=64, width=64), False),
    ],
)
def test_kernels_are_checked_with_images_that_the_plan_accepts(gpu, op, is_checked):
    gpu.cupy.cuda.Module.changes = WRONG_COLUMN
    pipeline = pp.Pipeline([pp.decode(), op, pp.tensor(dtype="uint8")])
    with pytest.raises(pp.SetupError, match="differ from the CPU's") if is_checked else contextlib.nullcontext():
        on_gpu(pipeline).close()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_correct_kernels_are_used_without_a_message(color, caplog):
    on_gpu(pp.Pipeline([pp.decode(color=color), *AFTER_DECODE])).close()
    assert not caplog.records


def test_a_gpu_decoder_that_is_missing_or_decodes_nothing_is_an_engine_error(gpu):
    """Without nvJPEG, nvImageCodec rejects every image, and the CPU would do all the work unnoticed."""
    last = 'choose the decoder "cpu" (an argument of Engine, a parameter of the Triton model)'
    gpu.codec.Decoder.refused = range(128)
    assert refusal() == f"nvImageCodec cannot decode any sample JPEG on this GPU: {REMEDY}{last}"

    def missing(**_):
        raise RuntimeError("no backend")

    gpu.codec.Decoder = missing
    assert refusal() == f"nvImageCodec cannot create a decoder (no backend): {REMEDY}{last}"


def test_a_missing_gpu_is_a_setup_error(gpu, monkeypatch):
    with pytest.raises(pp.SetupError, match=r'device "gpu:3": this machine has 1 GPU\(s\), numbered from 0'):
        pp.Engine(PIPELINE, device="gpu:3")

    def fail():
        raise gpu.cupy.cuda.runtime.CUDARuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setattr(gpu.cupy.cuda.runtime, "getDeviceCount", fail)
    said = 'device "gpu:0": the NVIDIA driver cannot be used (cudaErrorInsufficientDriver): install it, '
    assert refusal() == said + 'or use the device "cpu"'


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("limits", [pp.Limits(formats=("png",)), pp.Limits(max_pixels=100)])
def test_limits_that_reject_all_samples_do_not_stop_an_engine(limits):
    on_gpu(limits=limits).close()


def test_doctor_reports_whether_the_engine_works_on_a_gpu(gpu):
    found = doctor.gpu_engine("gpu:0")
    assert (found.ok, found.found.partition(" by ")[0]) == (True, "the engine starts; JPEGs are decoded")
    gpu.cupy.cuda.Module.changes = WRONG_COLUMN
    found = doctor.gpu_engine("gpu:0")
    assert found.ok is None
    assert re.fullmatch(rf"{re.escape(NO_KERNELS)}[\d,]+ of 301,056 values differ from .*\)", found.found)
    assert found.remedy.startswith("instances of KIND_GPU cannot load: run pip install")


def test_an_engine_whose_steps_differ_from_the_cpu_is_rejected(gpu):
    """Every kind of step is compared, whichever steps the numbers of the example select."""
    wrong = ("__ldg(step.data + pixel[c])", "pixel[c]")
    assert wrong[0] in launch.levels_code()
    gpu.cupy.cuda.Module.changes = (wrong,)
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=40, width=44), pp.random_invert(p=0.1), TENSOR])
    assert re.match(f"{re.escape(NO_KERNELS)}[\\d,]+ of 15,840 values differ from the CPU's", refusal(pipeline))
