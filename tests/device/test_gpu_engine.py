"""The GPU engine's own logic with no GPU: nvImageCodec's CPU backend, the kernels through the shim, a fake CuPy."""

import contextlib
import gc
import importlib
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import cuda_shim
import pixprep as pp
from images import JUNK, cmyk, jpegs, noise, others, photo, png, read, with_exif
from images import jpeg as encode
from pixprep import cli
from pixprep.serve import doctor

nvidia = pytest.importorskip("nvidia", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytestmark = pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here")

AFTER_DECODE = [
    pp.original_size(),
    pp.resize(40, filter="bicubic"),
    pp.center_crop(36),
    pp.transform(),
    pp.tensor(dtype="uint8"),
]
PIPELINE = pp.Pipeline([pp.decode(), *AFTER_DECODE])
OURS = ("kernels.gpu", "decoders.gpu", "devices.gpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shim")


@pytest.fixture
def gpu(monkeypatch, folder):
    """CuPy and nvImageCodec, played, and pixprep's modules over them."""
    import fake_cupy  # noqa: PLC0415  (needs nvImageCodec)

    cupy, codec = fake_cupy.modules(folder), fake_cupy.codecs()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", codec)
    monkeypatch.setattr(nvidia, "nvimgcodec", codec)
    for name in OURS:
        monkeypatch.delitem(sys.modules, f"pixprep.{name}", raising=False)
    devices, decoders = (importlib.import_module(f"pixprep.{name}") for name in ("devices.gpu", "decoders.gpu"))
    yield SimpleNamespace(cupy=cupy, codec=codec, Gpu=devices.Gpu, GpuDecoder=decoders.GpuDecoder)
    for name in OURS:
        sys.modules.pop(f"pixprep.{name}", None)


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
    images = [*jpegs().values(), *others().values(), *JUNK.values(), jpeg(80, 80, 2)[:900]]
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


CASES = {
    "plain": ({}, {}),
    "gray": ({"color": "gray"}, {}),
    "bgr": ({"color": "bgr"}, {}),
    "as stored": ({"apply_exif_orientation": False}, {}),
    "fast chroma, by libjpeg-turbo": ({"chroma": "fast"}, {"decoder": "cpu"}),
    "on white": ({"alpha": "white"}, {}),
    "lenient": ({}, {"damage": "lenient"}),
    "limits": ({}, {"limits": pp.Limits(max_pixels=4000, formats=("jpeg", "png"))}),
    "by libjpeg-turbo": ({}, {"decoder": "cpu"}),
    "fast IDCT": ({"idct": "fast"}, {}),
    "fast IDCT, fastest": ({"idct": "fast"}, {"decoder": "fastest"}),
    "fast IDCT, by libjpeg-turbo": ({"idct": "fast"}, {"decoder": "cpu"}),
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES)
def test_every_output_error_and_count_equals_the_cpu_engines_alone_and_in_a_batch(case):
    decode, options = CASES[case]
    pipeline, images = pp.Pipeline([pp.decode(**decode), *AFTER_DECODE]), mixed()
    if options.get("decoder") != "fastest":
        images += damaged()
    on_cpu = {name: value for name, value in options.items() if name != "decoder"}
    with on_gpu(pipeline, **options) as ours, pp.Engine(pipeline, **on_cpu) as theirs:
        batch, expected = ours.run_batch(images), theirs.run_batch(images)
        same(batch, expected)
        assert (batch.recovered > 20) == (case == "lenient")
        for index in range(0, len(images), 7):
            same(ours.run_batch([images[index]]), theirs.run_batch([images[index]]))


@pytest.mark.usefixtures("gpu")
def test_what_nvimagecodec_does_not_read_goes_to_the_cpu_decoder_and_is_counted():
    with on_gpu() as engine:
        assert engine.run_batch([jpeg(50, 70), png(noise(60, 61)), cmyk(), b"refused", photo()[:900]]).fallbacks == 2
        assert engine.run_batch([jpeg(50, 70)]).fallbacks == 0


@pytest.mark.usefixtures("gpu")
def test_every_image_is_decoded_whole_also_where_a_fraction_would_do():
    """Those that fall back on the CPU decoder too, so that an image gets the same pixels whoever decodes it."""
    images = [jpeg(200, 300, 5), jpeg(300, 200, progressive=True), cmyk(), photo(), png(noise(200, 300))]
    reduced = pp.Pipeline([pp.decode(reduced=True), *AFTER_DECODE])
    with on_gpu(reduced) as ours, pp.Engine(PIPELINE) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


@pytest.mark.usefixtures("gpu")
def test_the_fastest_decoder_takes_what_the_cpu_refuses():
    """The negative control of the check before nvImageCodec, and its reason: it does not say that a JPEG is damaged."""
    images = damaged()
    with on_gpu(decoder="fastest") as ours, pp.Engine(PIPELINE) as theirs:
        refused = [sum(error is not None for error in each.run_batch(images).errors) for each in (ours, theirs)]
    assert refused[0] < refused[1] / 2


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("like", ["pillow", "pillow12", "torchvision", "torch", "opencv"])
def test_the_passes_of_every_library_have_the_cpu_engines_order(like):
    images = [jpeg(200, 60), jpeg(60, 200), jpeg(200, 40), jpeg(60, 40)]
    resize = pp.resize(height=40, width=40, like=like)
    pipeline = pp.Pipeline([pp.decode(), resize, pp.tensor(dtype="uint8")])
    with on_gpu(pipeline) as ours, pp.Engine(pipeline) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


# chunks and buffers


def decoder_of(gpu, **options):
    """A decoder without an engine."""
    return gpu.GpuDecoder(
        PIPELINE.plan,
        pp.Limits(),
        damage="strict",
        codec="consistent",
        device_id=0,
        to_array=gpu.cupy.asarray,
        stream=lambda: 0,
        **{"budget": 1 << 30, "cores": 16} | options,
    )


def pixels(decoder, images):
    """A copy of what is decoded of each image, and how many images each chunk has."""
    found, sizes = [], []
    for chunk in decoder.chunks(images):
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
        ({"cores": 1}, [3, 3, 3]),
        ({"cores": 4}, [4, 4, 1]),
    ],
    ids=str,
)
def test_a_batch_is_cut_by_the_memory_of_its_pixels_and_so_that_chunks_overlap(gpu, options, sizes):
    images = [jpeg(50, 70, seed) for seed in range(9)]
    whole, _ = pixels(decoder_of(gpu), images)
    found, cut = pixels(decoder_of(gpu, **options), images)
    assert cut == sizes
    assert all(map(np.array_equal, found, whole))


def test_no_chunk_has_more_images_than_a_grid_has_blocks_in_z(gpu):
    count = 4 * 65_535 + 4
    assert [len(chunk.images) for chunk in decoder_of(gpu).chunks([b"bad"] * count)] == [65_535] * 4 + [4]


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


def test_buffers_do_not_all_grow_to_the_largest_image_in_time(gpu):
    small, large = jpeg(20, 20), jpeg(300, 400, 1)
    large_bytes = 3 * 300 * 400
    decoder, most = decoder_of(gpu, kept_bytes=2 * large_bytes), 0
    for place in range(12):
        pixels(decoder, [small] * place + [large] + [small] * (11 - place))
        most = max(most, sum(image.capacity for image in gpu.codec.Decoder.reused))
    assert 2 * large_bytes < most < 4 * large_bytes  # the limit, and one more; without it: 12


def test_a_header_is_read_once(gpu):  # noqa: ARG001  (it makes "gpu" the fake one)
    """Before the chunk is decoded; an image that falls back is read again by the CPU decoder."""
    read = []

    class Counted(pp.Limits):
        def check_bytes(self, n_bytes):
            read.append(n_bytes)
            super().check_bytes(n_bytes)

    with on_gpu(limits=Counted()) as engine:
        read.clear()
        engine.run_batch([photo(), b"junk", photo(), jpeg(50, 70)])
        assert len(read) == 4
        engine.run_batch([png(noise(60, 61))])
        assert len(read) == 6


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
        monkeypatch.setattr(sys.modules["pixprep.kernels.gpu"], "MIDDLE_BYTES", most)
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
    to_array = sys.modules["pixprep.devices.gpu"]._to_array
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
    """By the watchdog's thread: the images that a lane works on live until it has done with them."""
    images = [jpeg(50, 70, seed) for seed in range(64)]
    whole, is_over = engine.run_batch(images), threading.Event()

    def trim():
        count = 0
        while not is_over.wait(0.0005):
            engine.trim()
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        trimmed = pool.submit(trim)
        for _ in range(10):
            same(engine.run_batch(images), whole)
        is_over.set()
        assert trimmed.result() > 20


def test_the_kernels_wait_for_what_the_caller_has_queued(engine, gpu):
    """An output may lie where one did that the caller has dropped, and that a model of its own still reads."""
    fake = gpu.cupy.cuda.Stream
    for _ in range(2):
        fake.waited_for = ()
        with fake(non_blocking=True) as callers:
            engine.run_batch([jpeg(50, 70, seed) for seed in range(8)])
        assert {event.stream for event in fake.waited_for} == {callers}


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


REMEDY = 'pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver), or '
NO_KERNELS = "no CUDA kernels that work on this GPU: "
WRONG_COLUMN = (("+ c * LEVELS + thread", "+ c * LEVELS"), ("+ (int)level]", "+ 0]"))


def test_a_compiler_that_is_not_there_is_a_setup_error(gpu):
    def missing(**_):
        raise RuntimeError('Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file\n  listdir(...)')

    gpu.cupy.RawModule = missing
    said = 'Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file: '
    assert refusal() == NO_KERNELS + said + REMEDY + 'take the device "cpu"'


def test_fast_kernels_that_compute_something_else_are_not_used_but_the_plain_ones(gpu, caplog):
    gpu.cupy.RawModule.changes = (("0x0630", "0x0631"),)  # one byte from the wrong channel
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        (record,) = caplog.records
        said, _, fault = record.getMessage().partition(": ")
        assert said == "the fast CUDA kernels are not used on this GPU, but slower ones"
        assert re.fullmatch(r"[\d,]+ of 7,776 values are not the CPU's, by up to \d+", fault)
        same(engine.run_batch(mixed()), cpu.run_batch(mixed()))


def test_fast_kernels_that_do_not_compile_are_not_used_but_the_plain_ones(gpu, caplog):
    make = gpu.cupy.RawModule

    def compiled(*, code, options):
        if "dp4a" in code:
            raise gpu.cupy.cuda.compiler.CompileException("dp4a: sm_61 or later\nand more")
        return make(code=code, options=options)

    gpu.cupy.RawModule = compiled
    with on_gpu() as engine, pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(mixed()), cpu.run_batch(mixed()))
    assert [record.getMessage() for record in caplog.records] == [
        "the fast CUDA kernels are not used on this GPU, but slower ones: dp4a: sm_61 or later"
    ]


def test_no_engine_computes_something_else_than_the_cpu(gpu):
    gpu.cupy.RawModule.changes = (("level > 255 ? 255", "level > 255 ? 254"),)
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
    gpu.cupy.RawModule.changes = WRONG_COLUMN
    pipeline = pp.Pipeline([pp.decode(), op, pp.tensor(dtype="uint8")])
    with pytest.raises(pp.SetupError, match="are not the CPU's") if is_checked else contextlib.nullcontext():
        on_gpu(pipeline).close()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_kernels_are_checked_with_and_without_llvmlite(monkeypatch, color, caplog):
    pipeline = pp.Pipeline([pp.decode(color=color), *AFTER_DECODE])
    on_gpu(pipeline).close()
    monkeypatch.setattr("pixprep.kernels.cpu.machine_code", lambda: None)
    on_gpu(pipeline).close()
    assert not caplog.records


@pytest.mark.parametrize(
    "change", [lambda image: image[:, :, ::-1], lambda image: np.roll(image, 8, axis=1)], ids=["channels", "columns"]
)
def test_a_gpu_decoder_that_decodes_something_else_stops_the_engine(gpu, change):
    real = gpu.codec.Decoder.decode
    gpu.codec.Decoder.decode = lambda self, *arguments, **options: [
        change(np.asarray(image)) for image in real(self, *arguments, **options)
    ]
    assert re.match(r"nvImageCodec's pixels are \d+\.\d levels from .*, on average: pip", refusal())


def test_a_gpu_decoder_that_is_not_there_or_decodes_nothing_stops_the_engine(gpu):
    """Without nvJPEG it says no to every image: the CPU would do all the work, and nobody would know."""
    last = 'choose the decoder "cpu" (an argument of Engine, a parameter of the Triton model)'
    gpu.codec.Decoder.refused = range(9)
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
    assert (found.ok, found.found) == (True, "the engine starts; its decoder and kernels compare with the CPU's")
    gpu.cupy.RawModule.changes = WRONG_COLUMN
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
    assert np.array_equal(*(np.load(tmp_path / device / "photo.npy") for device in ("cpu", "gpu")))
