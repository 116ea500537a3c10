"""Tests that the decoders are compared with the CPU before an engine starts, and which JPEGs the hardware engine
decodes.
"""

import re
import sys

import numpy as np
import pytest
import simplejpeg

import pixprep as pp
from gpu.played import PIPELINE, baseline, jpeg, on_gpu, refusal, same
from pixprep.gpu import samples
from support.images import jpeg as encode
from support.images import scene, with_exif

YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])  # ITU-R BT.601
RGB_709 = np.array([[1, 0, 1.5748], [1, -0.1873, -0.4681], [1, 1.8556, 0]])  # converts YCbCr of ITU-R BT.709


def recoded(pixels, change, to_rgb=None):
    """Return the pixels after a change of their YCbCr values."""
    ycc = change(pixels @ YCC.T)
    return np.clip(np.rint(ycc @ (np.linalg.inv(YCC) if to_rgb is None else to_rgb).T), 0, 255).astype(np.uint8)


def with_chroma(ycc, chroma):
    return np.concatenate([ycc[:, :, :1], chroma], axis=2)


def in_colour(change):
    return lambda pixels: change(pixels) if pixels.shape[2] == 3 else pixels


WRONG_DECODERS = {
    "BT.709": in_colour(lambda pixels: recoded(pixels, lambda ycc: ycc, RGB_709)),
    "a luma of 16 to 235": lambda pixels: np.rint(16 + pixels * (219 / 255)).astype(np.uint8),
    "a luma of 16 to 235, stretched": lambda pixels: np.clip((pixels - 16.0) * 255 / 219, 0, 255).astype(np.uint8),
    "chroma a pixel to the right": in_colour(
        lambda pixels: recoded(pixels, lambda ycc: with_chroma(ycc, np.roll(ycc[:, :, 1:], 1, axis=1)))
    ),
    "chroma a pixel down": in_colour(
        lambda pixels: recoded(pixels, lambda ycc: with_chroma(ycc, np.roll(ycc[:, :, 1:], 1, axis=0)))
    ),
    "Cb for Cr": in_colour(lambda pixels: recoded(pixels, lambda ycc: ycc[:, :, [0, 2, 1]])),
    "blue for red": in_colour(lambda pixels: pixels[:, :, ::-1]),
    "a pixel to the right": lambda pixels: np.roll(pixels, 1, axis=1),
}


@pytest.mark.parametrize("lie", WRONG_DECODERS)
@pytest.mark.parametrize("decoder", ["consistent", "cuda"])
def test_a_gpu_decoder_with_wrong_pixels_is_an_engine_error(gpu, lie, decoder):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = {"cuda": WRONG_DECODERS[lie]}
    said = r"on this GPU, nvImageCodec's pixels of a sample JPEG \(.*\) differ from .* by \d+\.\d on average: run pip"
    assert re.match(said, refusal(decoder=decoder))


def test_a_gpu_decoder_with_different_rounding_is_accepted(gpu):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = dict.fromkeys(("cuda", "hardware"), lambda pixels: pixels ^ 1)
    on_gpu().close()


def calls(gpu, engine, images):
    """Return how many images of a batch the hardware engine decodes, and how many CUDA decodes."""
    gpu.codec.Decoder.shares = ()
    batch = engine.run_batch(images)
    assert batch.fallbacks == 0
    return [sum(each) for each in zip(*gpu.codec.Decoder.shares, strict=True)]


@pytest.mark.parametrize("at_once", [1, 7, 9])
def test_the_hardware_engine_decodes_as_many_as_it_can_in_any_batch(gpu, at_once):
    """nvImageCodec keeps the number of images of its first call, so pixprep makes the first call with a full batch."""
    gpu.codec.Decoder.hardware = at_once
    progressive = [jpeg(44, 44, index, progressive=True) for index in range(30)]
    with on_gpu() as engine:
        assert calls(gpu, engine, baseline(1)) == [1, 0]
        assert calls(gpu, engine, baseline(400)) == [400, 0]
        assert calls(gpu, engine, [*baseline(50), *progressive]) == [50, 30]
        engine.trim()
        assert calls(gpu, engine, baseline(200)) == [200, 0]


@pytest.mark.parametrize("decoder", ["consistent", "cuda"])
def test_the_hardware_engine_decodes_baseline_jpegs_unless_cuda_is_chosen(gpu, decoder):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = {"hardware": lambda pixels: pixels ^ 1}
    progressive = [jpeg(44, 44, index, progressive=True) for index in range(30)]
    with on_gpu(decoder=decoder) as engine:
        assert calls(gpu, engine, [*baseline(50), *progressive]) == ([50, 30] if decoder == "consistent" else [0, 80])


METHODS = {
    way: lambda pixels, level=level: pixels ^ level
    for level, way in enumerate(("hardware", "single", "batch-single"), 1)
}


def test_an_image_has_the_same_pixels_alone_and_in_any_batch(gpu, monkeypatch):
    """With several hardware engines, nvImageCodec 0.9 chooses between three methods by the images of a call."""
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "cores", lambda: 8)
    gpu.codec.Decoder.hardware = gpu.codec.Decoder.engines = 7
    gpu.codec.Decoder.changes = METHODS
    one, uniform = jpeg(50, 70), [jpeg(50, 70, seed) for seed in range(20)]
    others = [jpeg(50, 70, seed, subsampling=seed % 3) for seed in range(20)]
    with on_gpu(threads=4) as engine:
        assert calls(gpu, engine, [one]) == [1, 0]
        alone, *more = [engine.run_batch([one, *rest])["tensor"][0] for rest in ([], uniform[:7], uniform, others)]
        assert all(np.array_equal(each, alone) for each in more)


@pytest.mark.parametrize("way", ["single", "hardware"])
def test_a_hardware_engine_whose_pixels_depend_on_the_call_is_not_used(gpu, monkeypatch, caplog, way):
    """The pixels would depend on the call if nvImageCodec stopped supporting the option that selects a single
    method.
    """
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "_ONE_WAY", "")
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "cores", lambda: 8)
    gpu.codec.Decoder.hardware = gpu.codec.Decoder.engines = 7
    gpu.codec.Decoder.changes = {way: lambda pixels: pixels ^ 1}
    with on_gpu(threads=4) as engine:
        assert calls(gpu, engine, baseline(50)) == [0, 50]
    count = 1 if way == "single" else 64
    assert [record.getMessage() for record in caplog.records] == [
        "the hardware JPEG engine is not used: nvImageCodec decodes a JPEG (4:2:0) differently in calls of "
        f"{count} and of 128 images"
    ]


def test_a_hardware_engine_with_wrong_pixels_is_not_used(gpu, caplog):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = {"hardware": WRONG_DECODERS["BT.709"]}
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        assert calls(gpu, engine, baseline(50)) == [0, 50]
        same(engine.run_batch(baseline(50)), cpu.run_batch(baseline(50)))
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "the hardware JPEG engine is not used: on this GPU, nvImageCodec's pixels of a sample JPEG "
    )


def test_kinds_of_jpegs_without_a_sample_are_decoded_on_the_cpu(gpu):  # noqa: ARG001  (it makes "gpu" the mock)
    """nvImageCodec decodes all of these kinds, but pixprep does not know to which pixels."""
    pixels, large = scene(61, 83), scene(1000, 1001)
    ours = [encode(large, subsampling=css, quality=60) for css in (0, 1, 2)]
    ours += [with_exif(orientation) for orientation in range(1, 9)]
    rare = [simplejpeg.encode_jpeg(pixels, 90, colorsubsampling=css) for css in ("440", "411")]
    rare += [encode(pixels).replace(b"\xff\xc0", b"\xff\xc1")]
    rare += [encode(pixels, progressive=True, restart_marker_rows=1)]
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        for images, fallbacks in ((ours, 0), (rare, len(rare))):
            batch = engine.run_batch(images)
            same(batch, cpu.run_batch(images))
            assert batch.fallbacks == fallbacks


def test_a_kind_of_sample_that_nvimagecodec_rejects_is_decoded_on_the_cpu(gpu):
    gpu.codec.Decoder.refused = [[*samples.samples()].index("4:2:2") - 1]  # there is no RGB sample
    with on_gpu() as engine:
        gpu.codec.Decoder.refused = ()
        assert engine.run_batch([jpeg(50, 70, subsampling=css) for css in range(3)]).fallbacks == 1


@pytest.mark.parametrize(
    ("decoder", "hardware", "words"),
    [
        ("consistent", 7, "the hardware JPEG engine, and CUDA for images that it does not support"),
        (
            "consistent",
            None,
            "CUDA, without a hardware JPEG engine (a container needs NVIDIA_DRIVER_CAPABILITIES with video, and a MIG "
            "instance needs a profile with media engines)",
        ),
        ("cuda", 7, "CUDA"),
        ("cpu", 7, "libjpeg-turbo (nvImageCodec's)"),
    ],
)
def test_an_engine_reports_its_decoders(gpu, decoder, hardware, words):
    gpu.codec.Decoder.hardware = hardware
    with on_gpu(decoder=decoder) as engine:
        assert engine.decoders == words
