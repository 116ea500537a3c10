"""Tests decoding for a GPU: which decoder decodes which image, chunks, buffers, and what happens if
nvImageCodec fails.
"""

import io
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from gpu.played import ONE, PIPELINE, baseline, decoder_of, jpeg, on_gpu, pixels, same
from support.images import cmyk, noise, photo, png, read, with_exif


@pytest.mark.usefixtures("gpu")
def test_images_that_nvimagecodec_does_not_support_use_the_cpu_and_are_counted():
    with on_gpu() as engine:
        assert engine.run_batch([jpeg(50, 70), png(noise(60, 61)), cmyk(), b"refused", photo()[:900]]).fallbacks == 2
        assert engine.run_batch([jpeg(50, 70)]).fallbacks == 0


def test_cpu_decoding_starts_first_on_all_threads(gpu, monkeypatch):
    """Two images on CPU threads and nvImageCodec's call wait for each other, so the test would hang if they ran in
    sequence.
    """
    decoder, meeting = decoder_of(gpu, damage="structural", threads=2), threading.Barrier(3, timeout=60)
    by_cpu, by_gpu = decoder._by_cpu, gpu.codec.Decoder.decode
    monkeypatch.setattr(decoder, "_by_cpu", lambda *given: (meeting.wait(), by_cpu(*given))[1])
    monkeypatch.setattr(gpu.codec.Decoder, "decode", lambda *given, **more: (meeting.wait(), by_gpu(*given, **more))[1])
    found, _ = pixels(decoder, [png(noise(60, 61)), jpeg(50, 70), png(noise(61, 60))])
    assert [each.shape for each in found] == [(60, 61, 3), (50, 70, 3), (61, 60, 3)]


SIDES = {
    "PNG": {},
    "GIF": {},
    "BMP": {},
    "WebP": {"quality": 80},
    "WebP without loss": {"lossless": True},
    "WebP with EXIF data": {"exif": b"Exif\0\0II*\0\0\0\0\0"},
}


@pytest.mark.parametrize("name", SIDES)
def test_an_image_of_another_format_is_counted_with_its_own_bytes(gpu, name):
    file = io.BytesIO()
    Image.fromarray(noise(50, 70)).save(file, name.split()[0], **SIDES[name])
    decoder = decoder_of(gpu, budget=4 * ONE, damage="structural")
    assert [len(chunk.images) for chunk in decoder.chunks([file.getvalue()] * 9, [PIPELINE.plan.place] * 9)] == [
        4,
        4,
        1,
    ]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [9]),
        ({"budget": 4 * ONE}, [4, 4, 1]),
        ({"budget": 1}, [1] * 9),
        ({"threads": 1}, [3, 3, 3]),
        ({"threads": 4}, [5, 4]),
    ],
    ids=str,
)
def test_a_batch_is_divided_by_the_memory_of_its_pixels_so_that_chunks_overlap(gpu, options, sizes):
    images = [jpeg(50, 70, seed) for seed in range(9)]
    whole, _ = pixels(decoder_of(gpu), images)
    found, cut = pixels(decoder_of(gpu, **options), images)
    assert cut == sizes
    assert all(map(np.array_equal, found, whole))


@pytest.mark.parametrize(
    ("damage", "count", "sizes"),
    [
        ("structural", 10, [10]), ("structural", 17, [9, 8]), ("structural", 40, [20, 20]),
        ("structural", 600, [128, 128, 128, 128, 88]), ("strict", 40, [20, 20]), ("strict", 100, [25] * 4),
    ],
)  # fmt: skip
def test_a_chunk_is_small_enough_for_overlap_and_at_most_as_large_as_the_first_call(gpu, damage, count, sizes):
    decoder = decoder_of(gpu, damage=damage)
    assert [len(chunk.images) for chunk in decoder.chunks([jpeg(9, 9)] * count, [PIPELINE.plan.place] * count)] == sizes


def test_an_nvimagecodec_failure_affects_no_other_image_in_this_batch_or_the_next(engine, gpu):
    """nvImageCodec returns None without a reason.

    Because buffers are reused, a client could otherwise get another client's picture.
    """
    images, decoder = [jpeg(50, 70, seed) for seed in range(3)], decoder_of(gpu)
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    for refused in ((1,), (), (0, 1), (), (2,), ()):
        gpu.codec.Decoder.refused = refused
        same(engine.run_batch(images), expected)
        for each, encoded in zip(pixels(decoder, images)[0], images, strict=True):
            assert np.array_equal(each, read(encoded))
        assert len({id(image) for image in gpu.codec.Decoder.reused}) == len(gpu.codec.Decoder.reused)


def test_buffers_are_reused_and_batches_of_any_size_are_right(engine, gpu):
    with pp.Engine(PIPELINE) as cpu:
        for count in (1, 1, 3, 7, 2, 7, 1):
            images = [jpeg(50 + index, 70 + count, index) for index in range(count)]
            same(engine.run_batch(images), cpu.run_batch(images))
        assert len(gpu.codec.Decoder.reused) == 1
        engine.trim()
        same(engine.run_batch(images), cpu.run_batch(images))
        assert not gpu.codec.Decoder.reused


def test_larger_calls_and_rejected_calls_do_not_lose_buffers(gpu):
    """nvImageCodec allocates the buffers that are missing."""
    decoder, codec = decoder_of(gpu), gpu.codec.Decoder
    pixels(decoder, baseline(3))
    pixels(decoder, baseline(5))
    first = codec.reused
    assert [image is None for image in first] == [False] * 3 + [True] * 2
    codec.refused = (1, 4)
    pixels(decoder, baseline(6))
    codec.refused = ()
    found, _ = pixels(decoder, baseline(7))
    assert sum(image is not None for image in codec.reused) == 6
    assert {*map(id, first[:3])} < {*map(id, codec.reused)}
    assert all(map(np.array_equal, found, map(read, baseline(7))))


def test_buffers_do_not_all_grow_to_the_largest_image(gpu, monkeypatch):
    small, large = jpeg(20, 20), jpeg(300, 400, 1)
    large_bytes = 3 * 300 * 400
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "KEPT_BYTES", 2 * large_bytes)
    decoder, most = decoder_of(gpu), 0
    for place in range(12):
        pixels(decoder, [small] * place + [large] + [small] * (11 - place))
        most = max(most, sum(image.capacity for image in gpu.codec.Decoder.reused))
    assert 2 * large_bytes < most < 4 * large_bytes  # at most the limit and one more image; without the limit, all 12


def test_a_header_is_parsed_once(gpu):  # noqa: ARG001  (it makes "gpu" the fake one)
    """A header is parsed before its chunk is decoded, even if the CPU decoder then decodes the image."""
    sizes = []

    class Counted(pp.Limits):
        def check_size(self, height, width, n_bytes=None):
            sizes.append((height, width))
            super().check_size(height, width, n_bytes)

    with on_gpu(limits=Counted()) as engine:
        sizes.clear()
        engine.run_batch([photo(), b"junk", photo(), jpeg(50, 70)])
        assert sizes == [(427, 640), (427, 640), (50, 70)]
        engine.run_batch([cmyk()])
        assert sizes[3:] == [(20, 30)] * 2  # Pillow's reader checks the size again


def test_an_image_is_placed_once_whichever_decoder_decodes_it(gpu):
    """The CPU decoder decodes all images except the first: one is CMYK, nvImageCodec rejects another, and one
    is a PNG.
    """
    images, placed = [photo(), cmyk(), jpeg(50, 70), png(noise(30, 20))], []

    def placing(number):
        return lambda height, width: placed.append(number) or PIPELINE.plan.place(height, width)

    with on_gpu() as ours, pp.Engine(PIPELINE) as cpu:
        gpu.codec.Decoder.refused = [1]
        for engine, fallbacks in ((ours, 3), (cpu, 0)):
            placed.clear()
            batch = engine.run_batch(images, places=[placing(number) for number in range(4)])
            assert (batch.errors, batch.fallbacks) == ([None] * 4, fallbacks)
            assert sorted(placed) == [0, 1, 2, 3]


def test_an_encoded_image_is_not_copied_for_nvimagecodec(engine, gpu, monkeypatch):
    """Triton passes views of its own buffer, and nvImageCodec keeps references to them."""
    seen = []

    class CodeStream(gpu.codec.CodeStream):
        def __init__(self, encoded):
            super().__init__(encoded)
            seen.append(encoded)

    monkeypatch.setattr(gpu.codec, "CodeStream", CodeStream)
    buffer = np.frombuffer(b"1234" + photo() + b"1234" + jpeg(50, 70), np.uint8)
    cut = 4 + len(photo())
    views = [buffer.data[4:cut], buffer.data[cut + 4 :], memoryview(photo()), bytearray(jpeg(40, 40))]
    assert engine.run_batch(views).errors == [None] * 4
    assert [np.shares_memory(each, np.frombuffer(view, np.uint8)) for each, view in zip(seen, views, strict=True)] == [
        True
    ] * 4


@pytest.mark.parametrize("name", ["turned", "padded"])
def test_an_image_whose_shape_contradicts_its_header_is_decoded_on_the_cpu(engine, gpu, name):
    """The shape is wrong as if nvImageCodec had not rotated the image, or had padded it.

    The CPU decoder then returns the right pixels, without padding.
    """
    images = [with_exif(orientation) for orientation in range(1, 9)]
    if name == "turned":
        gpu.codec.Decoder.is_turning = False
    else:
        gpu.codec.Decoder.padding = 101
    with pp.Engine(PIPELINE) as cpu:
        batch = engine.run_batch(images)
        same(batch, cpu.run_batch(images))
    assert batch.fallbacks == (4 if name == "turned" else 0)


def test_if_memory_is_insufficient_the_cpu_decodes_with_one_warning(engine, gpu, monkeypatch, caplog):
    images = [jpeg(50, 70), jpeg(90, 90), jpeg(40, 60)]
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    gpu.codec.Decoder.largest = 3 * 60 * 80
    for free, words in ((100 << 30, []), (9 << 20, ["only 9 MiB of GPU memory are free"]), (8 << 20, [])):
        monkeypatch.setattr(gpu.cupy.cuda.runtime, "memGetInfo", lambda free=free: (free, 100 << 30))
        caplog.clear()
        batch = engine.run_batch(images)
        same(batch, expected)
        assert batch.fallbacks == 1
        said = "nvImageCodec failed, so the CPU decodes these JPEGs: {} (logged only once)"
        assert [record.getMessage() for record in caplog.records] == [said.format(word) for word in words]


def test_if_a_call_fails_the_cpu_decodes_with_one_warning(engine, gpu, caplog):
    images = [jpeg(50, 70, seed) for seed in range(5)]
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    for fault, fallbacks in (("", 0), ("out of memory\nat", 5), ("out of memory", 5), ("", 0), ("", 0)):
        gpu.codec.Decoder.fault = fault
        batch = engine.run_batch(images)
        same(batch, expected)
        assert batch.fallbacks == fallbacks
    (record,) = caplog.records
    assert ": out of memory (logged only once)" in record.getMessage()


def test_a_profiler_sees_ranges_around_decoding_copies_and_kernels(engine, gpu):
    nvtx = gpu.cupy.cuda.nvtx
    images = [jpeg(50, 70, seed) for seed in range(5)]

    def ranges(fault=None):
        nvtx.ranges.clear()
        gpu.codec.Decoder.fault = fault
        engine.run_batch(images)
        return dict(nvtx.ranges)

    assert ranges() == {"pixprep:decode": 1, "pixprep:copy": 1, "pixprep:kernels": 1}
    # the CPU decodes all images, and each image is copied; a range also ends if its call fails
    assert ranges(fault="out of memory") == {"pixprep:decode": 1, "pixprep:copy": 6, "pixprep:kernels": 1}
    nvtx.available = False
    assert ranges() == {}


def test_missing_plugins_for_other_formats_are_not_reported_on_stderr():
    pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
    code = """
import os, sys, unittest.mock
sys.modules["cupy"] = sys.modules["pixprep.gpu.kernel"] = unittest.mock.MagicMock()
import pixprep.gpu.nvimagecodec
os.write(2, b"still there")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert said.endswith("still there")
    assert not re.search("nvjpeg2k|nvtiff", said, re.IGNORECASE)
    assert "nvjpeg library" in said or "ERROR" not in said  # nvImageCodec prints only important messages
