"""The GPU engine's own logic with no GPU: nvImageCodec's CPU backend, the kernels through the shim, a fake CuPy."""

import contextlib
import gc
import io
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import simplejpeg
from PIL import Image

import cuda_shim
import pixprep as pp
from images import JUNK, bare, cmyk, jpegs, noise, others, photo, png, read, renamed, scene, stills, with_exif
from images import jpeg as encode
from pixprep.cli import parser as cli
from pixprep.engine.decoders import structure
from pixprep.engine.kernels.kernel import CpuKernel
from pixprep.engine.options import EngineOptions
from pixprep.gpu import launch, samples
from pixprep.serving.embedded import doctor
from pixprep.serving.triton.warm_up import warm_up

nvidia = pytest.importorskip("nvidia", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytestmark = pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here")

AFTER_DECODE = [
    pp.original_size(), pp.resize(40, filter="bicubic"), pp.center_crop(36), pp.transform(), pp.tensor(dtype="uint8"),
]  # fmt: skip
PIPELINE = pp.Pipeline([pp.decode(), *AFTER_DECODE])


@pytest.fixture
def engine(gpu):  # noqa: ARG001  (it makes device "gpu" the fake one)
    with on_gpu() as engine:
        yield engine


def on_gpu(pipeline=PIPELINE, **options):
    return pp.Engine(pipeline, device="gpu", **options)


def jpeg(height, width, seed=0, **options):
    return encode(noise(height, width, seed=seed), **{"quality": 75} | options)


def mixed():
    """Every kind of image, and what is none."""
    images = [*jpegs().values(), *others().values(), *stills().values(), *JUNK.values(), jpeg(80, 80, 2)[:900]]
    return [*images, *(with_exif(orientation) for orientation in range(1, 9)), jpeg(200, 90, 1, progressive=True)]


def damaged():
    """A hundred JPEGs with flipped bits or cut off, between good ones."""
    numbers = np.random.default_rng(2)
    images = [photo(), jpeg(60, 50, 1)]
    for index in range(100):
        encoded = bytearray(jpeg(40 + index % 7, 56, index % 5, progressive=index % 3 == 0, subsampling=index % 3))
        for _ in range(3):
            encoded[numbers.integers(20, len(encoded))] = numbers.integers(256)
        images.append(bytes(encoded[: -1 - index * 3] if index % 4 == 0 else encoded))
    return images


def same(ours, theirs):
    assert [str(error) for error in ours.errors] == [str(error) for error in theirs.errors]
    assert ours.recovered == theirs.recovered
    for name, array in theirs.outputs.items():
        assert np.array_equal(ours.outputs[name], array), name


STRICT = {"damage": "strict"}
CASES = {
    "plain": ({}, STRICT),
    "gray": ({"color": "gray"}, STRICT),
    "bgr": ({"color": "bgr"}, STRICT),
    "as stored": ({"apply_exif_orientation": False}, STRICT),
    "fast chroma, by libjpeg-turbo": ({"chroma": "fast"}, STRICT | {"decoder": "cpu"}),
    "on white": ({"alpha": "white"}, STRICT),
    "pillow": ({}, {"damage": "pillow"}),
    "lenient": ({}, {"damage": "lenient"}),
    "limits": ({}, STRICT | {"limits": pp.Limits(max_pixels=4000, formats=("jpeg", "png"))}),
    "by libjpeg-turbo": ({}, STRICT | {"decoder": "cpu"}),
    "fastest": ({}, STRICT | {"decoder": "fastest"}),
    "CUDA": ({}, STRICT | {"decoder": "cuda"}),
    "fast IDCT": ({"idct": "fast"}, STRICT),
    "fast IDCT, fastest": ({"idct": "fast"}, STRICT | {"decoder": "fastest"}),
    "fast IDCT, by libjpeg-turbo": ({"idct": "fast"}, STRICT | {"decoder": "cpu"}),
    "structure": ({}, {}),
    "structure, gray": ({"color": "gray"}, {"limits": pp.Limits(max_pixels=4000, formats=("png",))}),
    "structure, fastest": ({}, {"decoder": "fastest"}),
    "AVIF and HEIC": ({}, {"limits": pp.Limits(formats=("jpeg", *sorted({name.split()[0] for name in stills()})))}),
}


GIVEN = {
    "boxes": (
        [pp.crop(box="boxes"), pp.resize(height=30, width=40), pp.transform(), pp.tensor(dtype="uint8")],
        {"boxes": [[(0, 0, 60, 50), (9, 9, 5, 5), (3.6, 4.5, 30, 20), (900, 9, 950, 20)], [], [(1, 2, 50, 40)]]},
    ),
    "mirrors and colours": (
        [
            pp.pad(square=True, fill="paint"), pp.flip(when="turn"), pp.resize(height=30, width=40),
            pp.pad(44, 44, fill="paint"), pp.normalize(), pp.tensor(),
        ],
        {"turn": [True, False, True], "paint": [(9, 200, 7), (0, 0, 0), (255, 1, 2)]},
    ),
    "colours of a letterbox": (
        [pp.letterbox(44, 60, fill="paint"), pp.tensor(dtype="float16", layout="hwc")],
        {"paint": [(9, 200, 7), (0, 0, 0), (255, 1, 2)]},
    ),
}  # fmt: skip


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("case", GIVEN)
def test_numbers_that_come_with_an_image_give_the_cpu_engines_values_and_errors(case, color):
    ops, inputs = GIVEN[case]
    pipeline = pp.Pipeline([pp.decode(color=color), *ops])
    images = [jpeg(80, 60), jpeg(64, 64, 1), jpeg(50, 90, 2)]
    with on_gpu(pipeline, damage="strict") as ours, pp.Engine(pipeline) as theirs:
        batch, expected = ours.run_batch(images, inputs=inputs), theirs.run_batch(images, inputs=inputs)
    same(batch, expected)
    assert [*batch.rows] == [*expected.rows]
    assert any(error is None for error in expected.errors)
    assert len({array.tobytes() for array in expected["tensor"] if array.any()}) >= 3


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES)
def test_every_output_error_and_count_equals_the_cpu_engines_alone_and_in_a_batch(case):
    decode, options = CASES[case]
    pipeline, images = pp.Pipeline([pp.decode(**decode), *AFTER_DECODE]), mixed()
    if "damage" in options:
        images += damaged()
    on_cpu = {name: value for name, value in options.items() if name != "decoder"}
    with on_gpu(pipeline, **options) as ours, pp.Engine(pipeline, **on_cpu) as theirs:
        batch, expected = ours.run_batch(images), theirs.run_batch(images)
        same(batch, expected)
        assert (batch.recovered > 20) == (case in ("pillow", "lenient"))
        for index in range(0, len(images), 7):
            same(ours.run_batch([images[index]]), theirs.run_batch([images[index]]))


OPEN = {
    "as they are": [pp.resize(height=24, max_size=70), pp.tensor(dtype="uint8")],
    "plain kernels": [
        pp.resize(40, mode="scale", max_size=60, like="opencv"),
        pp.normalize(mean=0.5, std=0.5),
        pp.tensor(min_width=48, multiple=16, pad_level=(9, 0, 255)),
    ],
    "real values": [pp.resize(height=24, max_size=70, like="tensorflow"), pp.tensor(layout="hwc", multiple=8)],
    "levels": [
        pp.resize(40, side="longer"),
        pp.brightness(0.5),
        pp.rotate(20),
        pp.normalize(),
        pp.tensor(dtype="float16", layout="hwc", min_height=41, pad_value=(0.5, -2, 7)),
    ],
    "of one size": [pp.resize(height=24, max_size=70), pp.flip(), pp.tensor(min_width=70)],
    "resized behind a warp": [
        pp.resize(40, max_size=90),
        pp.rotate(20),
        pp.resize(24, max_size=70),
        pp.tensor(dtype="uint8"),
    ],
    "width first": [pp.resize(height=24, max_size=72), pp.tensor(layout="c1wh", multiple=4, pad_value=(1, 2, 3))],
    "a fourth channel": [
        pp.resize(height=24, max_size=70),
        pp.normalize(),
        pp.tensor(layout="hwc", multiple=8, pad_level=(9, 0, 255), channels=4),
    ],
    "one channel": [pp.resize(height=24, max_size=70), pp.grayscale(), pp.tensor(dtype="uint8", channels=1)],
    "one channel of the whole photo": [
        pp.grayscale(),
        pp.resize(height=24, max_size=70),
        pp.tensor(channels=1, pad_value=7),
    ],
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", OPEN)
def test_tensors_that_follow_the_image_and_their_padding_equal_the_cpu_engines(case):
    pipeline = pp.Pipeline([pp.decode(), *OPEN[case]])
    images = [jpeg(50, 60), jpeg(30, 200, 1), b"junk", jpeg(90, 31, 2), jpeg(50, 60, 3), jpeg(31, 31)]
    with on_gpu(pipeline, damage="strict") as ours, pp.Engine(pipeline) as theirs:
        batch, expected = ours.run_batch(images), theirs.run_batch(images)
        alone = [ours.run([image])[0] for image in images]
    assert isinstance(batch["tensor"], list) == (case != "of one size")
    assert len({type(tensor) for tensor in batch["tensor"]}) == 1  # the zeros of what failed are on the GPU, too
    for index, tensor in enumerate(expected["tensor"]):
        assert np.array_equal(batch["tensor"][index], tensor), index
        assert index == 2 or np.array_equal(alone[index], tensor), index
    for rows in (slice(None), slice(0, 1), slice(2, 3), slice(2, 5)):
        assert np.array_equal(batch.padded("tensor", rows), expected.padded("tensor", rows)), rows


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("like", ["pillow", "opencv"])
@pytest.mark.parametrize("channels", [1, 4])
def test_stacked_tensors_of_other_channels_equal_the_cpu_engines(channels, like):
    """Of a side of 37 no row ends where four values do; noise is erased of one channel as of the first of three."""
    gray, value = [pp.grayscale()] * (channels == 1), None if channels == 1 else 5
    for ops in (
        [],
        [pp.rotate(9)],
        [pp.normalize(scale="max")],
        [pp.normalize(), pp.random_erasing(1.0, value="random")],
    ):
        chain = [pp.resize(height=31, width=37, like=like), *gray, *ops]
        pipeline = pp.Pipeline([pp.pixels(), *chain, pp.tensor(channels=channels, pad_value=value)]).for_training()
        frames = [scene(50, 60), scene(70, 64, 1), scene(90, 51, 2)]
        places = [pipeline.plan.placing(each) for each in pipeline.plan.draw(seed=1, epoch=0, indices=range(3))]
        with on_gpu(pipeline) as ours, pp.Engine(pipeline, odd_range=True) as theirs:
            batch, expected = ours.run_batch(frames, places=places), theirs.run_batch(frames, places=places)
        assert batch.errors == [None] * 3
        assert np.array_equal(batch["tensor"], expected["tensor"])
        assert channels == 1 or (expected["tensor"][:, 3] == value).all()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("padding", [{}, {"multiple": 8}, {"min_width": 66}], ids=str)
@pytest.mark.parametrize("between", [[], [pp.elastic(40, 1)], [pp.aug_mix()]], ids=["", "elastic", "aug_mix"])
def test_what_is_erased_of_tensors_that_follow_the_image_is_the_cpus(padding, between):
    ops = [pp.resize(32, max_size=64), *between, pp.normalize(), pp.random_erasing(1.0, value="random")]
    pipeline = pp.Pipeline([pp.pixels(), *ops, pp.tensor(**padding)]).for_training()
    images = [scene(50, 60), scene(70, 64, 1), scene(90, 51, 2)]
    places = [pipeline.plan.placing(each) for each in pipeline.plan.draw(seed=1, epoch=0, indices=range(3))]
    with on_gpu(pipeline) as ours, pp.Engine(pipeline) as theirs:
        batch, expected = ours.run_batch(images, places=places), theirs.run_batch(images, places=places)
    assert batch.errors == [None] * 3
    for index, tensor in enumerate(expected["tensor"]):
        assert np.array_equal(batch["tensor"][index], tensor), index


@pytest.mark.usefixtures("gpu")
def test_what_nvimagecodec_does_not_read_goes_to_the_cpu_decoder_and_is_counted():
    with on_gpu() as engine:
        assert engine.run_batch([jpeg(50, 70), png(noise(60, 61)), cmyk(), b"refused", photo()[:900]]).fallbacks == 2
        assert engine.run_batch([jpeg(50, 70)]).fallbacks == 0


def test_what_the_cpu_decodes_is_begun_first_and_on_all_threads(gpu, monkeypatch):
    """Two of its images and the call of nvImageCodec meet: one after the other would wait for ever."""
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
def test_an_image_of_another_format_counts_with_its_own_bytes(gpu, name):
    file = io.BytesIO()
    Image.fromarray(noise(50, 70)).save(file, name.split()[0], **SIDES[name])
    decoder = decoder_of(gpu, budget=4 * ONE, damage="structural")
    assert [len(chunk.images) for chunk in decoder.chunks([file.getvalue()] * 9, [PIPELINE.plan.place] * 9)] == [
        4,
        4,
        1,
    ]


@pytest.mark.usefixtures("gpu")
def test_every_image_is_decoded_whole_also_where_a_fraction_would_do():
    """Images that fall back on the CPU are, too, so that an image gets the same pixels whoever decodes it."""
    images = [jpeg(200, 300, 5), jpeg(300, 200, progressive=True), cmyk(), photo(), png(noise(200, 300))]
    reduced = pp.Pipeline([pp.decode(reduced=True), *AFTER_DECODE])
    with on_gpu(reduced) as ours, pp.Engine(PIPELINE) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


@pytest.mark.usefixtures("gpu")
def test_without_strict_a_gpu_refuses_the_damage_that_the_structure_tells_and_no_other():
    """nvImageCodec does not say that a JPEG is damaged; what it does not decode at all, the CPU refuses."""
    images = damaged()
    with on_gpu() as ours, pp.Engine(PIPELINE) as theirs:
        found, all_of_it = ours.run_batch(images), theirs.run_batch(images)
    refused = [sum(error is not None for error in each.errors) for each in (found, all_of_it)]
    assert 20 < refused[0] < refused[1] - 20
    for encoded, error, expected in zip(images, found.errors, all_of_it.errors, strict=True):
        if error is not None:
            assert str(error) == str(expected)
        elif expected is not None:
            assert structure.structures([np.frombuffer(encoded, np.uint8)]) != [None]


@pytest.mark.usefixtures("gpu")
def test_a_jpeg_of_red_green_and_blue_gets_the_cpu_decoders_pixels():
    """nvImageCodec would take them for YCbCr. The CPU's rule is libjpeg's."""
    rgb = encode(scene(61, 83), keep_rgb=True)
    ycc = encode(scene(61, 83), subsampling=0)
    with on_gpu() as ours, pp.Engine(PIPELINE) as theirs:
        for encoded, fallbacks in (
            (rgb, 1),
            (renamed(ycc, b"RGB"), 0),
            (renamed(bare(ycc), b"RGB"), 1),
            (bare(ycc), 0),
        ):
            batch = ours.run_batch([encoded])
            same(batch, theirs.run_batch([encoded]))
            assert batch.fallbacks == fallbacks


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("like", ["pillow", "pillow12", "torchvision", "torch", "opencv"])
def test_the_passes_of_every_library_have_the_cpu_engines_order(like):
    images = [jpeg(200, 60), jpeg(60, 200), jpeg(200, 40), jpeg(60, 40)]
    resize = pp.resize(height=40, width=40, like=like)
    pipeline = pp.Pipeline([pp.decode(), resize, pp.tensor(dtype="uint8")])
    with on_gpu(pipeline) as ours, pp.Engine(pipeline) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


# chunks and buffers


def decoder_of(gpu, budget=1 << 30, **options):
    """A decoder without an engine."""
    options = EngineOptions(**{"threads": 16, "damage": "strict"} | options)
    return gpu.GpuDecoder(PIPELINE.plan, options, budget=budget)


def pixels(decoder, images):
    """A copy of what is decoded of each image, and how many images each chunk has."""
    found, sizes = [], []
    for chunk in decoder.chunks(images, [PIPELINE.plan.place] * len(images)):
        with decoder.decode(chunk) as results:
            found += [result if isinstance(result, pp.ImageError) else np.array(result.pixels) for result in results]
        sizes.append(len(chunk.images))
    return found, sizes


ONE = 3 * 50 * 70


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
def test_a_batch_is_cut_by_the_memory_of_its_pixels_and_so_that_chunks_overlap(gpu, options, sizes):
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
def test_a_chunk_is_as_large_as_lets_two_overlap_and_no_larger_than_the_first_call(gpu, damage, count, sizes):
    decoder = decoder_of(gpu, damage=damage)
    assert [len(chunk.images) for chunk in decoder.chunks([jpeg(9, 9)] * count, [PIPELINE.plan.place] * count)] == sizes


def test_an_image_that_nvimagecodec_fails_on_costs_no_other_one_in_this_batch_or_the_next(engine, gpu):
    """It says None and no reason, and buffers are used again: one client would get another's picture."""
    images, decoder = [jpeg(50, 70, seed) for seed in range(3)], decoder_of(gpu)
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    for refused in ((1,), (), (0, 1), (), (2,), ()):
        gpu.codec.Decoder.refused = refused
        same(engine.run_batch(images), expected)
        for each, encoded in zip(pixels(decoder, images)[0], images, strict=True):
            assert np.array_equal(each, read(encoded))
        assert len({id(image) for image in gpu.codec.Decoder.reused}) == len(gpu.codec.Decoder.reused)


def test_buffers_are_used_again_and_batches_of_any_size_stay_right(engine, gpu):
    with pp.Engine(PIPELINE) as cpu:
        for count in (1, 1, 3, 7, 2, 7, 1):
            images = [jpeg(50 + index, 70 + count, index) for index in range(count)]
            same(engine.run_batch(images), cpu.run_batch(images))
        assert len(gpu.codec.Decoder.reused) == 1
        engine.trim()
        same(engine.run_batch(images), cpu.run_batch(images))
        assert not gpu.codec.Decoder.reused


def test_a_call_of_more_images_than_the_last_and_a_refused_one_cost_no_buffer(gpu):
    """nvImageCodec makes those that are missing."""
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


def test_buffers_do_not_all_grow_to_the_largest_image_in_time(gpu, monkeypatch):
    small, large = jpeg(20, 20), jpeg(300, 400, 1)
    large_bytes = 3 * 300 * 400
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "KEPT_BYTES", 2 * large_bytes)
    decoder, most = decoder_of(gpu), 0
    for place in range(12):
        pixels(decoder, [small] * place + [large] + [small] * (11 - place))
        most = max(most, sum(image.capacity for image in gpu.codec.Decoder.reused))
    assert 2 * large_bytes < most < 4 * large_bytes  # the limit, and one more; without it: 12


def test_a_header_is_read_once(gpu):  # noqa: ARG001  (it makes "gpu" the fake one)
    """Before the chunk is decoded, also of an image that the CPU decoder then takes."""
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
        assert sizes[3:] == [(20, 30)] * 2  # Pillow's reader asks, too


def test_an_image_is_placed_once_whoever_decodes_it(gpu):
    """The CPU's decoder takes all but the first: it is CMYK, or refused by nvImageCodec, or a PNG."""
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


def test_an_encoded_image_is_not_copied_on_its_way_to_nvimagecodec(engine, gpu, monkeypatch):
    """Triton's views of its own buffer come so; nvImageCodec keeps them alive."""
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


@pytest.mark.parametrize("most", [1, 10_000, 30_000])
def test_a_batch_is_launched_in_parts_where_too_much_memory_would_lie_between_the_passes(gpu, monkeypatch, most):
    images = [jpeg(50 + index % 7, 900, index) for index in range(28)]
    taken, empty = [], gpu.cupy.empty
    gpu.cupy.empty = lambda shape, dtype: taken.append(shape) or empty(shape, dtype)

    def between(encoded):
        """The bytes between the passes of a batch, which the engine has no memory of yet."""
        engine.trim()
        taken.clear()
        same(engine.run_batch(encoded), cpu.run_batch(encoded))
        return max(shape for shape in taken if isinstance(shape, int))

    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        assert between(images) > 30_000
        largest_alone = max(between([image]) for image in images)
        monkeypatch.setattr(sys.modules["pixprep.gpu.kernel"], "MIDDLE_BYTES", most)
        for _ in range(2):
            assert 0 < between(images) <= max(most, largest_alone)


# streams, threads and memory


def test_a_stream_outlives_its_thread_and_its_device_and_serves_the_next_ones(gpu):
    """nvImageCodec frees memory on the stream that it was allocated on, whenever that is."""
    fake = gpu.cupy.cuda.Stream

    def streams():
        device = gpu.Gpu(0)

        def stream():
            with device.lane():
                return id(fake.current())

        with ThreadPoolExecutor(1) as pool:
            return {stream(), pool.submit(stream).result(), stream(), pool.submit(stream).result()}

    gc.collect()  # what earlier tests have left
    made, destroyed = fake.made, fake.destroyed
    first = streams()
    assert len(first) == 2
    for _ in range(3):
        gc.collect()
        assert streams() == first
    assert (fake.made, fake.destroyed) == (made + 2, destroyed)


class DeviceImage:
    """An image of nvImageCodec's in device memory, whose rows may lie apart."""

    def __init__(self, gpu, values, stream, *, gap):
        height, width, channels = values.shape
        pitch = width * channels + gap
        self.buffer_kind = gpu.codec.ImageBufferKind.STRIDED_DEVICE
        self.memory = np.full(height * pitch, 99, np.uint8)
        rows = np.lib.stride_tricks.as_strided(self.memory, values.shape, (pitch, channels, 1))
        rows[...] = values
        data = (self.memory.ctypes.data, False)
        strides = (pitch, channels, 1) if gap else None
        self.__cuda_array_interface__ = {
            "shape": values.shape, "strides": strides, "typestr": "|u1", "data": data, "version": 3, "stream": stream
        }  # fmt: skip


@pytest.mark.parametrize("gap", [0, 5])
def test_pixels_that_become_ready_on_the_lanes_stream_are_not_waited_for(gpu, gap):
    """Each would cost a synchronize; of another stream it must be."""
    to_array = sys.modules["pixprep.gpu.nvimagecodec"].to_array
    values, stream = noise(30, 41), gpu.cupy.cuda.Stream(non_blocking=True)
    stream.ptr = 4711
    for said, waited in ((4711, ()), (4712, (4712,))):
        gpu.cupy.cuda.Stream.synchronized = ()
        with stream:
            array = to_array(DeviceImage(gpu, values, said, gap=gap))
        assert gpu.cupy.cuda.Stream.synchronized == waited
        assert np.array_equal(array, values)
        assert array.strides[0] == 41 * 3 + gap
        gc.collect()  # the array keeps the image's memory
        assert np.array_equal(array, values)


def test_memory_may_be_given_back_while_a_batch_runs(engine):
    """The watchdog's thread calls it: the images that a lane works on live until it has done with them."""
    images = [jpeg(50, 70, seed) for seed in range(64)]
    whole = engine.run_batch(images)

    def trim():
        for _ in range(20):
            time.sleep(0.0005)
            engine.trim()

    with ThreadPoolExecutor(1) as pool:
        trimmed = pool.submit(trim)
        while not trimmed.done():
            same(engine.run_batch(images), whole)
        trimmed.result()


def test_the_kernels_wait_for_what_the_caller_has_queued(engine, gpu):
    """An output may lie where one did that the caller has dropped, and that a model of its own still reads."""
    fake = gpu.cupy.cuda.Stream
    for _ in range(2):
        fake.waited_for = ()
        with fake(non_blocking=True) as callers:
            engine.run_batch([jpeg(50, 70, seed) for seed in range(8)])
        assert {event.stream for event in fake.waited_for} == {callers}


def test_a_kernel_that_is_called_again_waits_for_its_last_upload(gpu):
    """The thread is the same, and has not waited for its stream: the fake refuses to write what is still being read."""
    plan = PIPELINE.plan.outputs["tensor"]
    pixels = [noise(50 + index, 70, seed=index) for index in range(3)]
    expected = np.empty((3, *plan.spec.shape), plan.spec.dtype)
    placements = [plan.geometry.place(*image.shape[:2]) for image in pixels]
    padded = [np.dstack([image, image[:, :, :1]]) for image in pixels]
    CpuKernel(plan).run(padded, placements, expected, range(3))
    kernel, outs = gpu.Gpu(0).kernel(plan), gpu.cupy.empty(expected.shape, plan.spec.dtype)
    for index, image in enumerate(pixels):
        kernel.run([gpu.cupy.asarray(image)], [placements[index]], outs, [index])
    assert np.array_equal(outs.get(), expected)


def test_a_closed_engine_has_no_threads_and_no_decoder_any_more(gpu):
    before = threading.active_count()
    with on_gpu() as engine:
        engine.run_batch(mixed())
        assert threading.active_count() > before
        assert len(gpu.codec.Decoder.alive) == 1
    assert threading.active_count() == before
    assert not gpu.codec.Decoder.alive  # nvImageCodec's own threads and device memory
    engine.close()  # as whoever closes an engine that a with statement has closed


def test_it_says_when_the_gpu_has_stopped_working(engine, gpu, monkeypatch):
    """After an illegal address, say, every call of CUDA's fails in this process."""
    runtime = gpu.cupy.cuda.runtime
    monkeypatch.setattr(runtime, "broken", "cudaErrorIllegalAddress: an illegal memory access was encountered")
    with pytest.raises(runtime.CUDARuntimeError):
        engine.run_batch([jpeg(50, 70)])
    assert not engine.is_working()
    monkeypatch.undo()
    assert engine.is_working()


# what an engine compares before it starts


def refusal(pipeline=PIPELINE, **options):
    with pytest.raises(pp.SetupError) as caught:
        on_gpu(pipeline, **options)
    return str(caught.value)


REMEDY = 'pip install ".[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver) in a checkout of pixprep, or '
NO_KERNELS = "no CUDA kernels that work on this GPU: "
WRONG_COLUMN = (("+ c * LEVELS + thread", "+ c * LEVELS"), ("+ (int)level]", "+ 0]"))


def test_a_compiler_that_is_not_there_is_a_setup_error(gpu):
    def missing(*_, **__):
        raise RuntimeError("no NVRTC of CUDA 13 (libnvrtc.so.13: no such file)")

    gpu.nvrtc.compiled = missing
    said = "no NVRTC of CUDA 13 (libnvrtc.so.13: no such file): "
    assert refusal() == NO_KERNELS + said + REMEDY + 'take the device "cpu"'


@pytest.mark.parametrize(
    ("compiles", "fault"),
    [
        (True, r"[\d,]+ of 7,776 values are not the CPU's, by up to \d+"),
        (False, r"NVRTC compiles nothing for sm_90: dp4a: sm_61 or later"),
    ],
)
def test_fast_kernels_that_fail_are_not_used_but_the_plain_ones(gpu, caplog, compiles, fault):
    make = gpu.nvrtc.compiled

    def compiled(code, options, **target):
        if "dp4a" in code and not compiles:
            raise RuntimeError("NVRTC compiles nothing for sm_90: dp4a: sm_61 or later\nand more")
        return make(code, options, **target)

    gpu.nvrtc.compiled = compiled
    gpu.cupy.cuda.Module.changes = (("0x0630", "0x0631"),)  # one byte from the wrong channel
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(mixed()), cpu.run_batch(mixed()))
    (record,) = caplog.records
    said = "the fast CUDA kernels are not used on this GPU, but slower ones"
    assert re.fullmatch(f"{said}: {fault}", record.getMessage())


def test_no_engine_computes_something_else_than_the_cpu(gpu):
    gpu.cupy.cuda.Module.changes = (("level > 255 ? 255", "level > 255 ? 254"),)
    assert re.match(f"{NO_KERNELS}[\\d,]+ of 7,776 values are not the CPU's, by up to 1: pip", refusal())


@pytest.mark.parametrize(
    ("op", "is_checked"),
    [
        (pp.center_crop(224), True),
        (pp.pad(120, 120), True),
        (pp.crop(top=900, left=1000, height=64, width=64), True),
        (pp.crop(top=9000, left=1000, height=64, width=64), False),
    ],
)
def test_kernels_are_checked_with_images_that_the_plan_takes(gpu, op, is_checked):
    gpu.cupy.cuda.Module.changes = WRONG_COLUMN
    pipeline = pp.Pipeline([pp.decode(), op, pp.tensor(dtype="uint8")])
    with pytest.raises(pp.SetupError, match="are not the CPU's") if is_checked else contextlib.nullcontext():
        on_gpu(pipeline).close()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_kernels_that_are_the_cpus_are_taken_without_a_word(color, caplog):
    on_gpu(pp.Pipeline([pp.decode(color=color), *AFTER_DECODE])).close()
    assert not caplog.records


YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])  # ITU-R BT.601
RGB_709 = np.array([[1, 0, 1.5748], [1, -0.1873, -0.4681], [1, 1.8556, 0]])  # from the YCbCr of ITU-R BT.709


def recoded(pixels, change, to_rgb=None):
    """Pixels after a change of their YCbCr."""
    ycc = change(pixels @ YCC.T)
    return np.clip(np.rint(ycc @ (np.linalg.inv(YCC) if to_rgb is None else to_rgb).T), 0, 255).astype(np.uint8)


def with_chroma(ycc, chroma):
    return np.concatenate([ycc[:, :, :1], chroma], axis=2)


def in_colour(change):
    return lambda pixels: change(pixels) if pixels.shape[2] == 3 else pixels


LIES = {
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


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    ("decoder", "way"), [("consistent", "cuda"), ("cuda", "cuda"), ("fastest", "cuda"), ("fastest", "hardware")]
)
def test_a_gpu_decoder_that_decodes_something_else_stops_the_engine(gpu, lie, decoder, way):
    """Whichever of the two it is: baseline samples go to the hardware engine, progressive ones to CUDA."""
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = {way: LIES[lie]}
    said = r"nvImageCodec's pixels are \d+\.\d levels from .*, on average over a JPEG \((.*)\): pip"
    found = re.match(said, refusal(decoder=decoder))
    assert "progressive" in found[1] or (decoder, way) != ("fastest", "cuda")


@pytest.mark.parametrize("decoder", ["consistent", "fastest"])
def test_a_gpu_decoder_that_rounds_another_way_is_taken(gpu, decoder):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = dict.fromkeys(("cuda", "hardware"), lambda pixels: pixels ^ 1)
    on_gpu(decoder=decoder).close()


def baseline(count):
    return [jpeg(40 + index % 9, 56, index % 5) for index in range(count)]


def calls(gpu, engine, images):
    """How many images of a batch the hardware engine decodes, and how many CUDA."""
    gpu.codec.Decoder.shares = ()
    batch = engine.run_batch(images)
    assert batch.fallbacks == 0
    return [sum(each) for each in zip(*gpu.codec.Decoder.shares, strict=True)]


@pytest.mark.parametrize("at_once", [1, 7, 9])
def test_the_hardware_engine_decodes_all_that_it_can_however_many_come(gpu, at_once):
    """nvImageCodec keeps to the number of the first call: so that is a full one."""
    gpu.codec.Decoder.hardware = at_once
    progressive = [jpeg(44, 44, index, progressive=True) for index in range(30)]
    with on_gpu() as engine:
        assert calls(gpu, engine, baseline(1)) == [1, 0]
        assert calls(gpu, engine, baseline(400)) == [400, 0]
        assert calls(gpu, engine, [*baseline(50), *progressive]) == [50, 30]
        engine.trim()
        assert calls(gpu, engine, baseline(200)) == [200, 0]


def test_a_first_call_of_one_image_would_leave_the_hardware_engine_with_few(gpu):
    """The negative control of the test before."""
    gpu.codec.Decoder.hardware = 7
    kinds = (gpu.codec.HW_GPU_ONLY, gpu.codec.GPU_ONLY)
    decoder = gpu.codec.Decoder(backends=[gpu.codec.Backend(kind) for kind in kinds])
    gpu.codec.Decoder.shares = ()
    for count in (1, 64):
        decoder.decode([gpu.codec.CodeStream(np.frombuffer(image, np.uint8)) for image in baseline(count)])
    assert gpu.codec.Decoder.shares == ((1, 0), (7, 57))


@pytest.mark.parametrize("decoder", ["consistent", "cuda"])
def test_the_hardware_engine_has_baseline_jpegs_and_cuda_the_others_unless_cuda_is_chosen(gpu, decoder):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = {"hardware": lambda pixels: pixels ^ 1}
    progressive = [jpeg(44, 44, index, progressive=True) for index in range(30)]
    with on_gpu(decoder=decoder) as engine:
        assert calls(gpu, engine, [*baseline(50), *progressive]) == ([50, 30] if decoder == "consistent" else [0, 80])


WAYS = {
    way: lambda pixels, level=level: pixels ^ level
    for level, way in enumerate(("hardware", "single", "batch-single"), 1)
}


def test_an_image_has_the_same_pixels_alone_and_among_any_others(gpu, monkeypatch):
    """nvImageCodec 0.9 has three ways for several hardware engines, and chooses by the images of a call."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    gpu.codec.Decoder.hardware = gpu.codec.Decoder.engines = 7
    gpu.codec.Decoder.changes = WAYS
    one, uniform = jpeg(50, 70), [jpeg(50, 70, seed) for seed in range(20)]
    others = [jpeg(50, 70, seed, subsampling=seed % 3) for seed in range(20)]
    with on_gpu(threads=4) as engine:
        assert calls(gpu, engine, [one]) == [1, 0]
        alone, *more = [engine.run_batch([one, *rest])["tensor"][0] for rest in ([], uniform[:7], uniform, others)]
        assert all(np.array_equal(each, alone) for each in more)


@pytest.mark.parametrize("way", ["single", "hardware"])
def test_a_hardware_engine_whose_pixels_change_with_the_call_decodes_nothing(gpu, monkeypatch, caplog, way):
    """Where nvImageCodec does not know the option any more that has it take one way."""
    monkeypatch.setattr(sys.modules["pixprep.gpu.nvimagecodec"], "_ONE_WAY", "")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    gpu.codec.Decoder.hardware = gpu.codec.Decoder.engines = 7
    gpu.codec.Decoder.changes = {way: lambda pixels: pixels ^ 1}
    with on_gpu(threads=4) as engine:
        assert calls(gpu, engine, baseline(50)) == [0, 50]
    count = 1 if way == "single" else 64
    assert [record.getMessage() for record in caplog.records] == [
        "the hardware JPEG engine decodes nothing here: nvImageCodec gives a JPEG (4:2:0) other pixels in a call of "
        f"{count} than in one of 128"
    ]


def test_a_hardware_engine_that_decodes_something_else_decodes_nothing(gpu, caplog):
    gpu.codec.Decoder.hardware = 7
    gpu.codec.Decoder.changes = {"hardware": LIES["BT.709"]}
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        assert calls(gpu, engine, baseline(50)) == [0, 50]
        same(engine.run_batch(baseline(50)), cpu.run_batch(baseline(50)))
    (record,) = caplog.records
    assert record.getMessage().startswith("the hardware JPEG engine decodes nothing here: nvImageCodec's pixels are ")


def test_kinds_of_jpegs_that_no_sample_has_go_to_the_cpu(gpu):  # noqa: ARG001  (it makes "gpu" the fake one)
    """nvImageCodec decodes them all, one knows not how."""
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


def test_a_kind_of_samples_that_nvimagecodec_refuses_goes_to_the_cpu(gpu):
    gpu.codec.Decoder.refused = [[*samples.samples()].index("4:2:2") - 1]  # without the sample of red, green and blue
    with on_gpu() as engine:
        gpu.codec.Decoder.refused = ()
        assert engine.run_batch([jpeg(50, 70, subsampling=css) for css in range(3)]).fallbacks == 1


@pytest.mark.parametrize(
    ("decoder", "hardware", "words"),
    [
        ("consistent", 7, "the hardware JPEG engine, and CUDA for what it does not take"),
        (
            "consistent",
            None,
            "CUDA, for no hardware JPEG engine is at hand (in a container: NVIDIA_DRIVER_CAPABILITIES with video)",
        ),
        ("cuda", 7, "CUDA"),
        ("cpu", 7, "libjpeg-turbo (nvImageCodec's)"),
    ],
)
def test_an_engine_says_what_decodes(gpu, decoder, hardware, words):
    gpu.codec.Decoder.hardware = hardware
    with on_gpu(decoder=decoder) as engine:
        assert engine.decoders == words


# nvImageCodec's habits


@pytest.mark.parametrize("name", ["turned", "padded"])
def test_an_image_of_another_shape_than_its_header_says_goes_to_the_cpu(engine, gpu, name):
    """As if nvImageCodec did not turn it; the CPU decoder's pixels are right, and padding is not in the picture."""
    images = [with_exif(orientation) for orientation in range(1, 9)]
    if name == "turned":
        gpu.codec.Decoder.is_turning = False
    else:
        gpu.codec.Decoder.padding = 101
    with pp.Engine(PIPELINE) as cpu:
        batch = engine.run_batch(images)
        same(batch, cpu.run_batch(images))
    assert batch.fallbacks == (4 if name == "turned" else 0)


def test_a_lack_of_memory_is_the_cpus_work_and_said_once(engine, gpu, monkeypatch, caplog):
    images = [jpeg(50, 70), jpeg(90, 90), jpeg(40, 60)]
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    gpu.codec.Decoder.largest = 3 * 60 * 80
    for free, words in ((100 << 30, []), (9 << 20, ["9 MiB of the GPU's memory are free"]), (8 << 20, [])):
        monkeypatch.setattr(gpu.cupy.cuda.runtime, "memGetInfo", lambda free=free: (free, 100 << 30))
        caplog.clear()
        batch = engine.run_batch(images)
        same(batch, expected)
        assert batch.fallbacks == 1
        said = "nvImageCodec does not decode JPEGs, so the CPU does: {}; this is said once"
        assert [record.getMessage() for record in caplog.records] == [said.format(word) for word in words]


def test_a_call_that_fails_is_the_cpus_work_and_said_once(engine, gpu, caplog):
    images = [jpeg(50, 70, seed) for seed in range(5)]
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    for fault, fallbacks in (("", 0), ("out of memory\nat", 5), ("out of memory", 5), ("", 0), ("", 0)):
        gpu.codec.Decoder.fault = fault
        batch = engine.run_batch(images)
        same(batch, expected)
        assert batch.fallbacks == fallbacks
    (record,) = caplog.records
    assert ": out of memory; this is said once" in record.getMessage()


def test_a_profiler_sees_ranges_around_decoding_copies_and_kernels(engine, gpu):
    nvtx = gpu.cupy.cuda.nvtx
    images = [jpeg(50, 70, seed) for seed in range(5)]

    def ranges(fault=None):
        nvtx.ranges.clear()
        gpu.codec.Decoder.fault = fault
        engine.run_batch(images)
        return dict(nvtx.ranges)

    assert ranges() == {"pixprep:decode": 1, "pixprep:copy": 1, "pixprep:kernels": 1}
    # the CPU decodes, and each image is copied; a range ends where a call fails, too
    assert ranges(fault="out of memory") == {"pixprep:decode": 1, "pixprep:copy": 6, "pixprep:kernels": 1}
    nvtx.available = False
    assert ranges() == {}


@pytest.mark.parametrize(("threads", "expected"), [(1, (1, 1)), (5, (5, 5)), (12, (12, 8)), (96, (12, 8))])
def test_nvimagecodec_has_no_more_threads_and_streams_than_its_memory_allows(gpu, monkeypatch, threads, expected):
    """Nor as many threads as there are cores: it would warn of each decoder, and take one less."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(13))
    with on_gpu(threads=threads):
        made = gpu.codec.Decoder.made[-1]
    assert (made.threads, made.options[0]) == (expected[0], f":num_cuda_streams={expected[1]}")


def test_a_decoder_is_made_anew_to_give_memory_back_if_it_has_been_used(engine, gpu):
    """Between batches; its first call is a full one, too."""
    decoder = gpu.codec.Decoder

    def made():
        """How many since the engine began; only the last one lives."""
        assert len(decoder.alive) == 1
        return len(decoder.made) - at_first

    at_first = len(decoder.made)
    engine.trim()
    assert made() == 0
    engine.run_batch(baseline(3))
    decoder.shares = ()
    engine.trim()
    assert made() == 1
    assert decoder.shares == ((0, 128),)
    engine.trim()
    assert made() == 1
    engine.run_batch(baseline(3))
    decoder.fault = "out of memory"  # for the new one: the old one stays
    engine.trim()
    assert made() == 2
    decoder.fault = None
    assert engine.run_batch(baseline(3)).fallbacks == 0


def test_cudas_own_pool_keeps_what_is_freed_until_a_trim(gpu):
    """nvImageCodec's buffers come from there."""
    import fake_cupy  # noqa: PLC0415  (needs nvImageCodec)

    fake_cupy.OWN_POOL.clear()
    with on_gpu() as engine:
        assert {gpu.cupy.cuda.runtime.cudaMemPoolAttrReleaseThreshold: 1 << 30} == fake_cupy.OWN_POOL
        engine.trim()
        assert fake_cupy.OWN_POOL["trimmed"] == 0


def test_a_gpu_without_a_pool_of_cudas_does_without(gpu, monkeypatch):
    monkeypatch.setattr(gpu.cupy.cuda.runtime, "poolless", True)
    with on_gpu() as engine:
        assert engine.run_batch(baseline(1)).errors == [None]
        engine.trim()


def test_plugins_for_other_formats_are_not_missed_on_stderr():
    code = """
import os, sys, unittest.mock
sys.modules["cupy"] = sys.modules["pixprep.gpu.kernel"] = unittest.mock.MagicMock()
import pixprep.gpu.nvimagecodec
os.write(2, b"still there")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert said.endswith("still there")
    assert not re.search("nvjpeg2k|nvtiff", said, re.IGNORECASE)
    assert "nvjpeg library" in said or "ERROR" not in said  # what matters is said


def test_no_decoder_goes_while_its_images_are_worked_on(gpu):
    decoder = decoder_of(gpu)
    at_first = len(gpu.codec.Decoder.made)
    (chunk,) = decoder.chunks(baseline(3), [PIPELINE.plan.place] * 3)
    with decoder.decode(chunk):
        decoder.trim()
        assert len(gpu.codec.Decoder.made) == at_first
    decoder.trim()
    assert len(gpu.codec.Decoder.made) == at_first + 1


def test_nvimagecodec_is_called_on_the_engines_gpu_alone(gpu):
    """When it is made, compared with the CPU, at work, and made anew; outside it would be the first GPU."""
    gpu.codec.Decoder.hardware = 7
    with on_gpu() as engine:
        engine.run_batch(baseline(40))
        engine.trim()
    assert gpu.codec.Decoder.outside == 0
    decoder_of(gpu)
    assert gpu.codec.Decoder.outside > 0  # the negative control


def test_warm_up_fills_both_lanes(gpu):
    with on_gpu() as engine:
        gpu.codec.Decoder.shares = ()
        warm_up(engine)
    assert gpu.codec.Decoder.shares == ((0, 8), (0, 8))


def test_a_gpu_decoder_that_is_not_there_or_decodes_nothing_stops_the_engine(gpu):
    """Without nvJPEG it says no to every image: the CPU would do all the work, and nobody would know."""
    last = 'choose the decoder "cpu" (an argument of Engine, a parameter of the Triton model)'
    gpu.codec.Decoder.refused = range(128)
    assert refusal() == f"nvImageCodec decodes no JPEG on this GPU: {REMEDY}{last}"

    def missing(**_):
        raise RuntimeError("no backend")

    gpu.codec.Decoder = missing
    assert refusal() == f"nvImageCodec makes no decoder here: no backend: {REMEDY}{last}"


def test_a_gpu_that_is_not_there_is_a_setup_error(gpu, monkeypatch):
    with pytest.raises(pp.SetupError, match=r'device "gpu:3": this machine has 1, numbered from 0'):
        pp.Engine(PIPELINE, device="gpu:3")

    def fail():
        raise gpu.cupy.cuda.runtime.CUDARuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setattr(gpu.cupy.cuda.runtime, "getDeviceCount", fail)
    assert refusal() == 'device "gpu:0": no NVIDIA driver here (cudaErrorInsufficientDriver); take the device "cpu"'


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("limits", [pp.Limits(formats=("png",)), pp.Limits(max_pixels=100)])
def test_limits_that_no_sample_keeps_stop_no_engine(limits):
    on_gpu(limits=limits).close()


# the commands


def test_doctor_says_whether_the_engine_works_on_a_gpu(gpu):
    found = doctor.gpu_engine("gpu:0")
    assert (found.ok, found.found.partition(" by ")[0]) == (True, "the engine starts; JPEGs are decoded")
    gpu.cupy.cuda.Module.changes = WRONG_COLUMN
    found = doctor.gpu_engine("gpu:0")
    assert (found.ok, found.found) == (None, "no CUDA kernels that work on this GPU")
    assert re.match(r"KIND_GPU instances will not load: [\d,]+ of 301,056 values are not .*: pip install", found.remedy)


@pytest.mark.usefixtures("gpu")
def test_the_command_run_takes_a_gpu(tmp_path, capsys):
    PIPELINE.save(tmp_path / "pipeline.json")
    (tmp_path / "photo.jpg").write_bytes(photo())
    (tmp_path / "broken.jpg").write_bytes(photo()[:999])
    files = [str(tmp_path / name) for name in ("pipeline.json", "photo.jpg", "broken.jpg")]
    lines = []
    for device in ("cpu", "gpu"):
        out = tmp_path / device
        assert cli.main(["run", *files, "--device", device, "--output", str(out), "--json"]) == 1
        lines.append(capsys.readouterr().out.replace(str(out), ""))
    assert lines[0] == lines[1]
    for name in PIPELINE.outputs:
        assert np.array_equal(*(np.load(tmp_path / device / f"photo.{name}.npy") for device in ("cpu", "gpu")))


@pp.operator("acme.host", version=1)
def host(pixels):
    """An operator of the user's, for the host."""
    return np.minimum(pixels, 99)


JITTER = pp.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.2)
TENSOR = pp.tensor(only="training")
ZOOMED = [
    pp.random_zoom_out(fill=(9, 120, 250)), pp.random_iou_crop(), pp.resize(height=40, width=36), pp.random_flip(),
]  # fmt: skip
ELASTIC = [pp.resize(56), JITTER, pp.elastic(90, 2, fill=(9, 80, 200), p=0.7), pp.random_crop(40, padding=3)]
MARGINS = {"boxes": np.array([[5, 5, 30, 40], [20, 10, 60, 50]], np.float32)}
DRAWN = {
    "jitter, mirrored and cropped": ({}, [pp.random_resized_crop(48, 40), pp.random_flip(), JITTER]),
    "the whole image, then a window": ({"color": "bgr"}, [pp.resize(60), JITTER, pp.random_crop(50)]),
    "rotated to other sizes": (
        {},
        [pp.random_zoom_out(fill=9), pp.resize(48), pp.random_rotate(40, expand=True, fill=(9, 3, 77)),
         pp.random_autocontrast(), pp.random_equalize(), pp.random_gray(), pp.center_crop(44, 50),
         pp.tensor(only="training", dtype="float16", layout="hwc")],
    ),
    "affine, by torchvision": (
        {},
        [pp.resize(height=40, width=44), pp.random_affine(30, translate=(0.1, 0.2), scale=(0.8, 1.3), shear=9,
         filter="bilinear", like="torchvision"), pp.random_gaussian_blur(5), pp.random_sharpness(2), JITTER],
    ),
    "gray": ({"color": "gray"}, [pp.resize(50), JITTER, pp.random_rotate(20), pp.center_crop(40)]),
    "erased, of levels and of values": (
        {},
        [pp.resize(height=40, width=44), pp.random_erasing(value=(1, 2, 3)), pp.normalize(mean=0.5, std=0.25),
         pp.random_erasing(p=0.9, value=-1.5), pp.random_erasing(value="random", count=(1, 3))],
    ),
    "erased, values without levels": (
        {}, [pp.resize(height=40, width=44, like="tensorflow"), pp.random_erasing(), pp.random_erasing(p=1)]
    ),
    "by the plain kernels": ({}, [pp.resize(height=40, width=36, like="opencv"), JITTER]),
    "summed, between other steps": (
        {"color": "bgr"},
        [JITTER, pp.resize(height=40, width=44), pp.aug_mix(fill=(9, 3, 77)), pp.random_rotate(20),
         pp.center_crop(36), pp.random_erasing(value=(1, 2, 3)), pp.normalize(mean=0.5, std=0.25),
         pp.random_erasing(value="random")],
    ),
    "summed twice, gray": (
        {"color": "gray"}, [pp.random_resized_crop(48, 40), pp.aug_mix(filter="nearest"), pp.aug_mix()]
    ),
    "displaced by the host": ({}, [*ELASTIC, pp.elastic(20, 1), pp.invert(), pp.random_erasing(1.0), pp.normalize()]),
    "displaced, beside an operator": ({}, [*ELASTIC, host(), pp.elastic(20, 1), pp.random_erasing(1.0)]),
    "zoom out": ({}, ZOOMED),
    "zoom out, turned and mirrored": ({"color": "bgr"}, [pp.random_flip(p=0.7), pp.random_flip("vertical"), *ZOOMED]),
    "zoom out, gray": ({"color": "gray"}, [pp.random_zoom_out(fill=7), *ZOOMED[1:]]),
    "zoom out, by the plain kernels": ({}, [*ZOOMED[:2], pp.resize(height=40, width=36, like="opencv")]),
    "a drawn size, cropped": ({}, [pp.random_shortest_size((40, 56, 71), 80), pp.random_crop(36), pp.random_flip()]),
    "a drawn scale, in a margin": ({}, [pp.scale_jitter(60), pp.random_crop(48, pad_if_needed=True, fill=5)]),
    "crop with a margin": ({}, [pp.random_crop(60, padding=8, pad_if_needed=True, fill=5)]),
    "reduced on the CPU alone": ({"reduced": True}, [pp.random_resized_crop(16, scale=(0.9, 1.0))]),
}  # fmt: skip
"""Fields of ``decode``, and the ops; ``TENSOR`` comes last, if there is no other."""


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("name", "most"), [*((name, None) for name in DRAWN), *((name, 60_000) for name in [*DRAWN][:3])]
)
def test_what_is_drawn_is_the_cpus(name, most, monkeypatch):
    decode, ops = DRAWN[name]
    tail = [] if isinstance(ops[-1], type(TENSOR)) else [TENSOR]
    pipeline, whole = (pp.Pipeline([pp.decode(**decode | more), *ops, *tail]) for more in ({}, {"reduced": False}))
    images = [jpeg(60 + index % 13, 64 + index % 5, index, subsampling=0) for index in range(24)] + [b"no image"]
    images += [with_exif(6), png(noise(70, 66)), jpeg(200, 64, 1), jpeg(70, 300, 2)]
    numbers = pipeline.plan.draw(seed=2, epoch=0, indices=range(len(images)))
    ours_at, theirs_at = ([each.plan.placing(one, MARGINS) for one in numbers] for each in (pipeline, whole))
    with on_gpu(pipeline) as engine, pp.Engine(whole) as cpu:
        if most:
            monkeypatch.setattr(sys.modules["pixprep.gpu.kernel"], "MIDDLE_BYTES", most)
        ours = engine.run_batch(images, places=ours_at)
        same(ours, cpu.run_batch(images, places=theirs_at))
        assert sum(error is None for error in ours.errors) >= 26  # a long one may not fit
        assert len(np.unique(ours["tensor"][:24].reshape(24, -1), axis=0)) == 24


SERVED = {
    "a tensor without levels beside them": [
        pp.resize(48, name="small"), pp.gamma(0.8), pp.rotate(90, expand=True), pp.contrast(1.3),
        pp.center_crop(40), pp.tensor(name="changed"), pp.center_crop(40, from_="small"),
        pp.tensor(name="unchanged"),
    ],
    "colours before margins": [
        pp.contrast(1.5), pp.hue(0.1), pp.pad(square=True, fill=(9, 120, 250)), pp.resize(height=20, width=30),
        pp.normalize(), pp.tensor(),
    ],
}  # fmt: skip


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", SERVED)
def test_levels_that_are_served_are_the_cpus(name):
    pipeline, images = pp.Pipeline([pp.decode(), *SERVED[name]]), mixed()
    with on_gpu(pipeline, damage="strict") as engine, pp.Engine(pipeline) as cpu:
        same(engine.run_batch(images), cpu.run_batch(images))


WRONG_STEPS = {
    "curve": ("__ldg(step.data + pixel[c])", "pixel[c]"),
    "blend": ("(REAL(level) - gray) * factor", "(REAL(level) - gray)"),
    "mean": ("(float)measured->sum / (float)pixels", "(float)measured->sum / (pixels + 99.0f)"),
    "autocontrast": ("double scale = 255 /", "double scale = 254 /"),
    "equalize": ("(size / 2 + below) / size", "below / size"),
    "hue of pillow": ("((hue * 6 + 1) * 257) >> 16", "((hue * 6 + 9) * 257) >> 16"),
    "hue of torchvision": ("255.999f", "255.0f"),
    "sharpness": ("(2 * sum + 13) / 26", "2 * sum / 26"),
    "blur": ("const float *)step.data + step.whole_width", "const float *)step.data"),
    "nearest, by whole numbers": ("(long long)numbers[2]) >> 16", "(long long)numbers[2] + 32768) >> 16"),
    "nearest, by a walk": ("m[4] * 0.5", "m[4]"),
    "bilinear of pillow": ("(lower - upper) * dy", "(lower - upper)"),
    "bicubic of pillow": ("(a - b) * 2.0 + c - d", "(a - b) * 2.0 + c"),
    "nearest of torchvision": ("(int)rintf(from_y)", "(int)floorf(from_y)"),
    "bilinear of torchvision": ("{s * l, s * r, t * l, t * r}", "{s * r, s * l, t * l, t * r}"),
    "a window": ("step.flip_y ? step.height - 1 - y : y", "y"),
    "a rectangle": ("x < step.left + step.width)", "x < step.left + step.width - 1)"),
}


SLOW = pytest.mark.slow(reason="a build each, of the same comparison")
FIRST, *OTHERS = WRONG_STEPS


@pytest.mark.parametrize("wrong", [FIRST, *(pytest.param(each, marks=SLOW) for each in OTHERS)])
def test_no_engine_changes_levels_as_the_cpu_does_not(gpu, wrong):
    """Every kind of step is compared, whatever the example's numbers ask for."""
    before, _ = WRONG_STEPS[wrong]
    assert before in launch.levels_code()
    gpu.cupy.cuda.Module.changes = (WRONG_STEPS[wrong],)
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=40, width=44), pp.random_invert(p=0.1), TENSOR])
    assert re.match(f"{NO_KERNELS}[\\d,]+ of 15,840 values are not the CPU's", refusal(pipeline))


@pytest.mark.parametrize("on_error", ["replace", "skip"])
def test_a_loader_has_the_batches_of_the_cpu_where_samples_are_broken_too(gpu, on_error):  # noqa: ARG001
    pipeline = pp.Pipeline([*PIPELINE.ops[:2], pp.random_flip(), *PIPELINE.ops[2:]]).for_training()
    source = [
        {"image": b"no image" if index in (3, 9) else jpeg(60 + index, 80, index), "label": index}
        for index in range(16)
    ]
    options = {"batch_size": 8, "shuffle": True, "on_error": on_error, "max_errors": 2}
    with pp.Loader(source, pipeline, **options) as cpu, pp.Loader(source, pipeline, device="gpu", **options) as ours:
        for _ in range(2):
            for batch, expected in zip(ours, cpu, strict=True):
                assert batch.draws == expected.draws
                for name in ("label", "index", "attempt"):
                    assert np.array_equal(batch[name], expected[name])
                for name in ("original_size", "transform"):
                    assert np.array_equal(batch[name], expected[name])
                assert np.abs(batch["tensor"].astype(int) - expected["tensor"].astype(int)).mean() < 3  # two decoders
        assert [each.index for each in ours.errors] == [each.index for each in cpu.errors]
        assert len(ours.errors) == 2


def test_a_batch_is_handed_to_cupy_where_it_lies(gpu):
    """Pixels on the GPU are not copied; what is in the host's memory goes there; texts stay."""
    source = [{"image": jpeg(60 + index, 80, index), "label": index, "name": str(index)} for index in range(8)]
    for device in ("gpu", "cpu"):
        with pp.Loader(source, PIPELINE, batch_size=8, device=device) as ours:
            (batch,) = ours
            images, labels = batch.cupy("tensor", "label")
            assert type(images) is type(labels) is gpu.cupy.ndarray
            assert np.shares_memory(images, batch["tensor"]) == (device == "gpu")
            assert np.array_equal(images.get(), np.asarray(batch["tensor"]))
            assert labels.get().tolist() == list(range(8))
            assert batch.cupy()["name"] == [str(index) for index in range(8)]


# pixels in place of files, and operators


class OfTriton:
    """A tensor of Triton's Python backend in device memory, as CUDA shared memory gives it."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self):
        return self._array


@pytest.mark.parametrize("given", ["rgb", "bgr"])
def test_frames_are_taken_where_they_lie(gpu, given):
    pipeline = pp.Pipeline([pp.pixels(color="rgb", given=given), *AFTER_DECODE])
    photos = [scene(60 + 7 * n, 90 - 5 * n, n) for n in range(9)]
    expected = pp.Engine(pipeline, threads=1).run_batch(photos)
    on_device = [gpu.cupy.asarray(photo) for photo in photos]
    rows_apart = gpu.cupy.asarray(np.pad(photos[0], [(0, 0), (0, 5), (0, 0)]))[:, :-5]
    with pp.Engine(pipeline, device="gpu") as engine:
        for arrays in (photos, on_device, [*photos[:4], *on_device[4:]], [rows_apart, *on_device[1:]]):
            batch = engine.run_batch(arrays)
            assert batch.errors == [None] * 9
            assert np.array_equal(batch["tensor"].get(), expected["tensor"])
            assert np.array_equal(batch["transform"], expected["transform"])
        refused = engine.run([photos[0], np.zeros((20, 30), np.uint8), np.zeros((0, 30, 3), np.uint8)])
        assert [getattr(result, "reason", None) for result in refused] == [None, "UNSUPPORTED", "BAD_DIMENSIONS"]
        frames = engine.split(OfTriton(gpu.cupy.asarray(np.stack([photos[0], photos[0]]))))
        assert len(frames) == 2
        assert all(np.array_equal(one.get(), expected["tensor"][0]) for one in engine.run(frames))
        warm_up(engine)


def test_a_frame_in_device_memory_is_not_copied(gpu):
    plan = pp.Pipeline([pp.pixels(), *AFTER_DECODE]).plan
    device = gpu.Gpu(0)
    decoder = device.decoder(plan, EngineOptions())
    frames = [gpu.cupy.asarray(scene(60, 90, n)) for n in range(5)]
    chunks = list(decoder.chunks(frames, [plan.place] * 5))
    assert [len(chunk.indices) for chunk in chunks] == [3, 2]
    with device.lane(), decoder.decode(chunks[0]) as images:
        assert [image.pixels.data.ptr for image in images] == [frame.data.ptr for frame in frames[:3]]
    device.close()


def test_operators_get_arrays_of_the_library_that_they_take(gpu):
    seen = []

    @pp.operator("acme.either", version=1, arrays=("numpy", "cupy"))
    def either(pixels):
        seen.append(isinstance(pixels, gpu.cupy.ndarray))
        return pixels[::-1]

    @pp.operator("acme.host", version=1)
    def host(pixels):
        seen.append(isinstance(pixels, gpu.cupy.ndarray))
        return np.minimum(pixels, 99)

    @pp.operator("acme.cuda", version=1, place="tensor", shape=(36, 108), dtype="uint8", arrays="cupy")
    def cuda(tensor):
        seen.append(isinstance(tensor, gpu.cupy.ndarray))
        return gpu.cupy.ascontiguousarray(tensor.transpose(1, 2, 0)).reshape(36, 108)

    @pp.operator("acme.odd", version=1)
    def odd(pixels):
        if pixels[0, 0, 0] == 3:
            raise ValueError
        return pixels

    crop = pp.resize(height=36, width=36)
    ops = [pp.pixels(), crop, either(), host(), odd(), pp.tensor(dtype="uint8"), cuda()]
    photos = [scene(60 + 7 * n, 90, n) for n in range(4)]
    with pp.Engine(pp.Pipeline(ops), device="gpu") as engine:
        results = engine.run([*photos, np.full((50, 50, 3), 3, np.uint8)])
    assert len(seen) == 4 * 3 + 2
    assert sum(seen) == 4 * 2 + 1
    by_hand = [np.minimum(pp.apply(crop, photo)[::-1], 99) for photo in photos]
    for result, levels in zip(results, by_hand, strict=False):
        assert np.array_equal(result.get(), levels.reshape(36, 108))
    assert results[-1].reason == "OPERATOR"
