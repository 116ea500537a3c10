"""Tests that NVDEC's frames equal the CPU's bit for bit, and that the engine counts the clips that NVDEC does not
decode.

If this GPU decodes a codec to other pixels than the CPU, the engine rejects the codec with a warning. H.264 must pass;
for other codecs, the result is recorded.
"""

import importlib
import os
import struct
import time
from functools import cache

import numpy as np
import pytest

import pixprep as pp
from support.clips import clip

pytest.importorskip("av")
pytestmark = pytest.mark.gpu
NAMES = ("h264.mp4", "h264-open.mkv", "h265.mp4", "vp9.webm", "av1.mp4")
SECONDS, CLIP = 2, {"count": 120, "height": 720, "width": 1280}  # the measured clip
SIZE = (160, 192)  # NVDEC requires at least 144 pixels for H.265, and 128 for VP9 and AV1
PIPELINE = pp.Pipeline(
    [pp.decode_video(frames=16), pp.resize(height=112, width=112), pp.tensor(layout="tchw", dtype="uint8")]
)


@pytest.fixture(scope="module", autouse=True)
def nvc(cupy):  # noqa: ARG001  (first a GPU must be there)
    """Return PyNvVideoCodec."""
    try:
        return importlib.import_module("PyNvVideoCodec")
    except (ImportError, RuntimeError) as error:
        reason = f'NO PYNVVIDEOCODEC: pip install "PyNvVideoCodec>=2.2": {str(error).partition(chr(10))[0]}'
        if os.environ.get("PIXPREP_REQUIRE_GPU") == "1":
            pytest.fail(f"{reason} (PIXPREP_REQUIRE_GPU=1 makes this a failure)", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def engine(nvc):  # noqa: ARG001  (see there)
    with pp.Engine(PIPELINE, device="gpu") as engine:
        yield engine


@cache
def made(name, count=70):
    return clip(name, count, height=SIZE[0], width=SIZE[1])


def fallbacks(engine, encoded, pipeline=PIPELINE):
    """Assert that all clips have the CPU's tensors. Return how many clips the CPU decoded."""
    with pp.Engine(pipeline) as cpu:
        expected = cpu.run_batch(encoded)
    batch = engine.run_batch(encoded)
    assert batch.errors == [None] * len(encoded)
    np.testing.assert_array_equal(batch["tensor"].get(), expected["tensor"])
    return batch.fallbacks


def test_clips_have_the_tensors_of_the_cpu(engine, record):
    refused = {name: fallbacks(engine, [made(name)]) for name in NAMES}
    record("clips", **refused)
    assert refused["h264.mp4"] == refused["h264-open.mkv"] == 0


def test_many_concurrent_clips_do_not_disturb_each_other(engine):
    batch = [made(name, count) for count in (17, 40, 70) for name in NAMES] * 2
    assert fallbacks(engine, batch) <= len(batch) // 2


def test_the_cpu_decodes_clips_that_nvdec_does_not_support(engine):
    assert fallbacks(engine, [made("mpeg4.mp4"), made("h264.mp4"), made("vp8.webm")]) == 2


def test_a_rotated_clip_is_rotated(engine):
    turned = bytearray(made("h264.mp4"))
    at = turned.index(b"tkhd") + 44
    turned[at : at + 36] = struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30)
    assert fallbacks(engine, [bytes(turned)]) == 0


def test_an_invalid_clip_fails_alone(engine):
    batch = engine.run_batch([made("h264.mp4"), made("h264.mp4")[:2000], made("h264.mp4")])
    assert [each is not None for each in batch.errors] == [False, True, False]


@pytest.mark.parametrize("name", ["h264.mp4", "h265.mp4", "vp9.webm", "av1.mp4"])
def test_rates_compared_with_the_cpu(nvc, record, name):
    """The rates are only recorded. Each clip gets a new decoder."""
    encoded, rates = [clip(name, **CLIP)] * 8, {}
    start = time.perf_counter()
    nvc.CreateDecoder(gpuid=0, codec=nvc.cudaVideoCodec.H264, cudastream=0, usedevicememory=True)
    made_s = time.perf_counter() - start
    for device in ("cpu", "gpu"):
        with pp.Engine(PIPELINE, device=device) as engine:
            fallbacks, count, start = engine.run_batch(encoded).fallbacks, 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < SECONDS:
                count += len(engine.run_batch(encoded).errors)
        rates[f"{device}_clips_per_s"] = round(count / taken, 2)
    record("clips/s", clip=name, fallbacks=fallbacks, ms_to_make_a_decoder=round(1e3 * made_s, 1), **rates)


def test_decoders_free_their_memory(engine, free_bytes):
    engine.run_batch([made("h264.mp4")] * 4)
    before = free_bytes()
    for _ in range(20):
        engine.run_batch([made("h264.mp4")] * 4)
    assert before - free_bytes() < 100 << 20
