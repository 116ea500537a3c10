"""The GPU engine's own logic with no GPU: nvImageCodec's CPU backend, the kernels through the shim, a fake CuPy."""

import contextlib
import gc
import importlib
import io
import re
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

import cuda_shim
import pixprep as pp
from images import cmyk, noise, others, photo, png
from pixprep import cli
from pixprep.compiler import compile_pipeline
from pixprep.kernels import launch
from pixprep.triton import doctor

nvimgcodec = pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytestmark = pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here")

PIPELINE = pp.Pipeline(
    [
        pp.decode(decoder="cpu"),
        pp.original_size(),
        pp.resize(40, filter="bicubic"),
        pp.center_crop(36),
        pp.transform(),
        pp.tensor(dtype="uint8"),
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shim")


@pytest.fixture
def gpu(monkeypatch, folder):
    """``pixprep.devices.gpu`` over the fake CuPy."""
    import fake_cupy  # noqa: PLC0415  (needs nvImageCodec)

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy.modules(folder))
    for name in ("kernels.gpu", "decoders.gpu", "devices.gpu"):
        monkeypatch.delitem(sys.modules, f"pixprep.{name}", raising=False)
    yield importlib.import_module("pixprep.devices.gpu")
    for name in ("kernels.gpu", "decoders.gpu", "devices.gpu"):
        sys.modules.pop(f"pixprep.{name}", None)


@pytest.fixture
def engine(gpu):  # noqa: ARG001  (it makes device "gpu" the fake one)
    with pp.Engine(PIPELINE, device="gpu") as engine:
        yield engine


def jpeg(height, width, seed=0, **options):
    file = io.BytesIO()
    Image.fromarray(noise(height, width, seed=seed)).save(file, "JPEG", **options)
    return file.getvalue()


def mixed():
    return [
        jpeg(50, 70),
        b"not an image",
        jpeg(200, 90, 1, progressive=True),
        png(noise(60, 61)),
        jpeg(80, 80, 2)[:900],
        photo(),
        jpeg(64, 48, 3, subsampling=0),
    ]


def same(ours, theirs):
    assert [str(error) for error in ours.errors] == [str(error) for error in theirs.errors]
    for name, array in theirs.outputs.items():
        assert np.array_equal(ours.outputs[name], array), name


def test_every_output_and_every_error_equals_the_cpu_engines(engine):
    images = mixed()
    with pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(images), cpu.run_batch(images))


def test_what_nvimagecodec_does_not_read_goes_to_the_cpu_decoder_and_is_counted(engine):
    engine.run_batch(mixed())
    assert engine._decoder.fallbacks == 1  # the PNG; refused images are no fallback


def test_a_refused_image_costs_no_other_one(engine, monkeypatch):
    """nvImageCodec says None and no reason: the CPU decoder finds it, or decodes after all."""
    decoder = engine._decoder
    images = [jpeg(50, 70), jpeg(60, 70, 1), jpeg(70, 70, 2)]
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)

    class Moody:
        def decode(self, streams, **arguments):
            results = real.decode(streams, **arguments)
            return [None if index == 1 else image for index, image in enumerate(results)]

    real = decoder._decoder
    monkeypatch.setattr(decoder, "_decoder", Moody())
    same(engine.run_batch(images), expected)
    assert decoder.fallbacks == 1


def test_an_image_that_fails_leaves_the_next_batches_alone(engine, monkeypatch):
    """No buffer may be given to two images after a failed decode: one client would get another's picture."""
    decoder, real = engine._decoder, engine._decoder._decoder
    images = [jpeg(50, 70, seed) for seed in range(3)]

    def fail_second(streams, **arguments):
        return [None if index == 1 else image for index, image in enumerate(real.decode(streams, **arguments))]

    first = [decoded.pixels.copy() for decoded in decoder.decode(images)]
    monkeypatch.setattr(decoder, "_decoder", types.SimpleNamespace(decode=fail_second))
    decoder.decode(images)
    monkeypatch.setattr(decoder, "_decoder", real)
    buffers = list(decoder._local.images)
    assert len({id(buffer) for buffer in buffers}) == 3
    again = [decoded.pixels for decoded in decoder.decode(images)]
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(again, first, strict=True))


def test_a_batch_over_the_memory_budget_is_cut_into_chunks(engine, gpu, monkeypatch):
    images = [jpeg(50, 70, seed) for seed in range(9)]
    monkeypatch.setattr(gpu, "PIXEL_BYTES", 3 * 50 * 70 * 4)
    monkeypatch.setattr(engine._decoder, "_cores", 9)
    assert list(engine._device.chunks(images)) == [range(4), range(4, 8), range(8, 9)]
    with pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(images), cpu.run_batch(images))


def test_a_batch_is_cut_so_that_the_host_reads_one_chunk_while_another_is_decoded(engine, monkeypatch):
    """But for few images, which the cores read at once."""
    images = [jpeg(50, 70, seed) for seed in range(9)]
    for cores, chunks in ((1, [range(3), range(3, 6), range(6, 9)]), (4, [range(4), range(4, 8), range(8, 9)])):
        monkeypatch.setattr(engine._decoder, "_cores", cores)
        assert list(engine._device.chunks(images)) == chunks
        with pp.Engine(PIPELINE) as cpu:
            same(engine.run_batch(images), cpu.run_batch(images))


def test_no_chunk_has_more_images_than_a_grid_has_blocks_in_z(engine):
    count = 4 * 65_535 + 4
    chunks = list(engine._device.chunks([b"bad"] * count))
    assert [len(chunk) for chunk in chunks] == [65_535] * 4 + [4]


def test_a_header_is_read_once_and_belongs_to_its_image(engine, monkeypatch):
    decoder = sys.modules["pixprep.decoders.gpu"]
    read, real = [], decoder.read_header
    monkeypatch.setattr(decoder, "read_header", lambda *a, **k: read.append(None) or real(*a, **k))
    images = [*mixed(), *mixed()[:2], jpeg(50, 70)]
    images.append(images[-1])
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
        same(engine.run_batch(images), expected)
        assert len(read) <= len(images) + 3  # again: the two that are refused twice, and the one that is there twice
        engine._decoder._known = {id(image): (b"another", None) for image in images}
        assert [result.height for result in engine._decoder.decode([images[0]])] == [50]
        assert not [known for known in engine._decoder._known if known == id(images[0])]


@pytest.mark.parametrize("most", [1, 10_000, 30_000])
def test_a_batch_is_launched_in_parts_where_too_much_memory_would_lie_between_the_passes(engine, monkeypatch, most):
    images = [jpeg(50 + index, 900, index) for index in range(7)]
    with pp.Engine(PIPELINE) as cpu:
        expected = cpu.run_batch(images)
    monkeypatch.setattr(engine._decoder, "_cores", 9)
    monkeypatch.setattr(sys.modules["pixprep.kernels.gpu"], "MIDDLE_BYTES", most)
    needs, prepare, taken, empty = [], launch.prepare, [], sys.modules["cupy"].empty
    monkeypatch.setattr(launch, "prepare", lambda *a, **k: needs.append(prepare(*a, **k)) or needs[-1])
    monkeypatch.setattr(sys.modules["cupy"], "empty", lambda shape, dtype: taken.append(shape) or empty(shape, dtype))
    for _ in range(2):
        engine.trim()  # which gives back what the check at its start, or the last batch, has left
        needs.clear()
        taken.clear()
        same(engine.run_batch(images), expected)
        assert needs[0].middle_bytes > 30_000
        between = [shape for shape in taken if isinstance(shape, int)]
        largest_alone = max((need.middle_bytes for need in needs if len(need.images) == 1), default=0)
        assert 0 < max(between) <= max(most, largest_alone)


def test_one_image_over_the_budget_is_a_chunk_of_its_own(engine, gpu, monkeypatch):
    monkeypatch.setattr(gpu, "PIXEL_BYTES", 1)
    monkeypatch.setattr(engine._decoder, "_cores", 3)
    assert list(engine._device.chunks([b"bad", jpeg(50, 70), jpeg(20, 20)])) == [range(1), range(1, 2), range(2, 3)]


def test_buffers_are_used_again_and_batches_of_any_size_stay_right(engine):
    with pp.Engine(PIPELINE) as cpu:
        for count in (3, 7, 2, 7, 1):
            images = [jpeg(50 + index, 70 + count, index) for index in range(count)]
            same(engine.run_batch(images), cpu.run_batch(images))
        assert 1 <= len(engine._decoder._local.images) <= 7
        engine.trim()
        assert not hasattr(engine._decoder._local, "images")
        same(engine.run_batch(images), cpu.run_batch(images))


def test_a_stream_outlives_its_thread_and_its_device_and_serves_the_next_ones(gpu):
    """nvImageCodec frees memory on the stream that it was allocated on, whenever that is."""
    fake = sys.modules["cupy"].cuda.Stream

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


def test_memory_may_be_given_back_while_a_batch_runs(engine, gpu, monkeypatch):
    """By the watchdog's thread: the images that a lane works on live until it has done with them."""
    monkeypatch.setattr(gpu, "PIXEL_BYTES", 3 * 50 * 70 * 4)
    images = [jpeg(50, 70, seed) for seed in range(16)]
    whole, is_over = engine.run_batch(images), threading.Event()

    def trim():
        count = 0
        while not is_over.wait(0.0005):
            engine.trim()
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        trimmed = pool.submit(trim)
        for _ in range(20):
            same(engine.run_batch(images), whole)
        is_over.set()
        assert trimmed.result() > 20


def test_the_kernels_wait_for_what_the_caller_has_queued(engine, monkeypatch):
    """An output may lie where one did that the caller has dropped, and that a model of its own still reads."""
    fake, (kernel,) = sys.modules["cupy"].cuda, engine._kernels.values()
    real, waited_for = kernel.run, []

    def run(*arguments):
        waited_for.append(fake.get_current_stream().waited_for)
        real(*arguments)

    monkeypatch.setattr(kernel, "run", run)
    monkeypatch.setattr(engine._decoder, "_cores", 1)
    images = [jpeg(50, 70, seed) for seed in range(8)]
    for _ in range(2):
        waited_for.clear()
        with fake.Stream(non_blocking=True) as callers:
            engine.run_batch(images)
        (event,) = set(waited_for)
        assert len(waited_for) == 4  # chunks
        assert event.stream is callers


def test_a_closed_engine_has_no_threads_and_no_decoder_any_more(gpu):  # noqa: ARG001  (it makes "gpu" the fake one)
    before = threading.active_count()
    with pp.Engine(PIPELINE, device="gpu") as engine:
        engine.run_batch(mixed())
        assert threading.active_count() > before
    assert threading.active_count() == before
    assert engine._decoder._decoder is None  # nvImageCodec's own threads and device memory
    engine.close()  # as whoever closes an engine that a with statement has closed


def test_it_says_when_the_gpu_has_stopped_working(engine, monkeypatch):
    """After an illegal address, say, every call of CUDA's fails in this process."""
    images = [jpeg(50, 70)]
    runtime = sys.modules["cupy"].cuda.runtime
    monkeypatch.setattr(runtime, "broken", "cudaErrorIllegalAddress: an illegal memory access was encountered")
    with pytest.raises(runtime.CUDARuntimeError):
        engine.run_batch(images)
    assert not engine.is_working()
    monkeypatch.undo()
    assert engine.is_working()


def test_a_compiler_that_is_not_there_is_a_setup_error(gpu, monkeypatch):  # noqa: ARG001  (as above)
    def missing(**_):
        raise RuntimeError('Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file\n  listdir(...)')

    monkeypatch.setattr(sys.modules["cupy"], "RawModule", missing)
    with pytest.raises(pp.SetupError) as caught:
        pp.Engine(PIPELINE, device="gpu")
    assert str(caught.value) == (
        'no CUDA kernels that work on this GPU: Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file: '
        'pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver), or take the device "cpu"'
    )


def spoil(monkeypatch, *changes):
    """Kernels whose source is changed, as if a GPU did something else than the tests here."""
    real = sys.modules["pixprep.kernels.launch"].source

    def source(plan, *, plain=False):
        code = real(plan, plain=plain)
        for before, after in changes:
            code = code.replace(before, after)
        return code

    monkeypatch.setattr(sys.modules["pixprep.kernels.launch"], "source", source)


@pytest.mark.usefixtures("gpu")
def test_fast_kernels_that_compute_something_else_are_not_used_but_the_plain_ones(monkeypatch, caplog):
    """One byte from the wrong channel."""
    spoil(monkeypatch, ("0x0630", "0x0631"))
    with pp.Engine(PIPELINE, device="gpu") as engine, pp.Engine(PIPELINE) as cpu:
        (record,) = caplog.records
        said, _, fault = record.getMessage().partition(": ")
        assert said == "the fast CUDA kernels are not used on this GPU, but slower ones"
        assert re.fullmatch(r"[\d,]+ of 7,776 values are not the CPU's, by up to \d+", fault)
        same(engine.run_batch(mixed()), cpu.run_batch(mixed()))


@pytest.mark.usefixtures("gpu")
def test_fast_kernels_that_do_not_compile_are_not_used_but_the_plain_ones(monkeypatch, caplog):
    cupy = sys.modules["cupy"]
    make = cupy.RawModule

    def compiled(*, code, options):
        if "dp4a" in code:
            raise cupy.cuda.compiler.CompileException("dp4a: sm_61 or later\nand more")
        return make(code=code, options=options)

    monkeypatch.setattr(cupy, "RawModule", compiled)
    with pp.Engine(PIPELINE, device="gpu") as engine, pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(mixed()), cpu.run_batch(mixed()))
    assert [record.getMessage() for record in caplog.records] == [
        "the fast CUDA kernels are not used on this GPU, but slower ones: dp4a: sm_61 or later"
    ]


@pytest.mark.usefixtures("gpu")
def test_no_engine_computes_something_else_than_the_cpu(monkeypatch):
    spoil(monkeypatch, ("level > 255 ? 255", "level > 255 ? 254"))
    with pytest.raises(pp.SetupError, match=r"this GPU: [\d,]+ of 7,776 values are not the CPU's, by up to 1: pip"):
        pp.Engine(PIPELINE, device="gpu")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("op", "is_checked"),
    [
        (pp.center_crop(224), True),
        (pp.pad(120, 120), True),
        (pp.crop(top=900, left=1000, height=64, width=64), True),
        (pp.crop(top=9000, left=1000, height=64, width=64), False),
    ],
)
def test_kernels_are_checked_with_images_that_the_plan_takes(monkeypatch, op, is_checked):
    spoil(monkeypatch, ("+ c * LEVELS + thread", "+ c * LEVELS"), ("+ (int)level]", "+ 0]"))
    pipeline = pp.Pipeline([pp.decode(decoder="cpu"), op, pp.tensor(dtype="uint8")])
    with pytest.raises(pp.SetupError, match="are not the CPU's") if is_checked else contextlib.nullcontext():
        pp.Engine(pipeline, device="gpu").close()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_kernels_are_checked_with_and_without_llvmlite(monkeypatch, color, caplog):
    pipeline = pp.Pipeline([replace_decode(color=color), *PIPELINE.ops[1:]])
    pp.Engine(pipeline, device="gpu").close()
    monkeypatch.setattr("pixprep.kernels.cpu._compiled", lambda _: None)
    pp.Engine(pipeline, device="gpu").close()
    assert not caplog.records


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("wrong", ["channels", "columns"])
def test_a_gpu_decoder_that_decodes_something_else_stops_the_engine(monkeypatch, wrong):
    real = sys.modules["pixprep.devices.gpu"]._to_array
    change = {"channels": lambda image: image[:, :, ::-1], "columns": lambda image: np.roll(image, 8, axis=1)}[wrong]
    monkeypatch.setattr(sys.modules["pixprep.devices.gpu"], "_to_array", lambda image: change(real(image)))
    with pytest.raises(pp.SetupError, match=r"^nvImageCodec's pixels are \d+\.\d levels from .*, on average: pip"):
        pp.Engine(PIPELINE, device="gpu")


@pytest.mark.usefixtures("gpu")
def test_doctor_says_whether_the_engine_works_on_a_gpu(monkeypatch):
    monkeypatch.setitem(vars(sys.modules["pixprep.decoders.gpu"]), "_BACKENDS", {"consistent": (nvimgcodec.CPU_ONLY,)})
    found = doctor.gpu_engine("gpu:0")
    assert (found.ok, found.found) == (True, "the engine starts; its decoder and kernels compare with the CPU's")
    spoil(monkeypatch, ("+ c * LEVELS + thread", "+ c * LEVELS"), ("+ (int)level]", "+ 0]"))
    found = doctor.gpu_engine("gpu:0")
    assert (found.ok, found.found) == (None, "no CUDA kernels that work on this GPU")
    assert re.match(r"KIND_GPU instances will not load: [\d,]+ of 301,056 values are not .*: pip install", found.remedy)


@pytest.mark.usefixtures("gpu")
def test_the_command_run_takes_a_gpu(tmp_path, capsys):
    (tmp_path / "pipeline.json").write_text(PIPELINE.to_json())
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


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("limits", [pp.Limits(formats=("png",)), pp.Limits(max_pixels=100)])
def test_limits_that_no_sample_keeps_stop_no_engine(limits):
    pp.Engine(PIPELINE, device="gpu", limits=limits).close()


def test_buffers_do_not_all_grow_to_the_largest_image_in_time(engine, monkeypatch):
    small, large = jpeg(20, 20), jpeg(300, 400, 1)
    decoder, large_bytes = engine._decoder, 3 * 300 * 400
    monkeypatch.setattr(sys.modules["pixprep.decoders.gpu"], "KEPT_BYTES", 2 * large_bytes)
    most = 0
    for place in range(12):
        decoder.decode([small] * place + [large] + [small] * (11 - place))
        most = max(most, sum(image.capacity for image in decoder._local.images))
    assert 2 * large_bytes < most < 4 * large_bytes  # the limit, and one more; without it: 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientations_equal_the_cpu_engines(engine, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    images = [jpeg(40, 90, exif=exif)]
    with pp.Engine(PIPELINE) as cpu:
        same(engine.run_batch(images), cpu.run_batch(images))


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


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("damage", ["strict", "lenient"])
def test_a_damaged_jpeg_gets_the_cpus_answer_alone_and_in_a_batch(damage):
    pipeline = pp.Pipeline([replace_decode(damage=damage), *PIPELINE.ops[1:]])
    images = damaged()
    with pp.Engine(pipeline, device="gpu") as ours, pp.Engine(pipeline) as theirs:
        expected = theirs.run_batch(images)
        batch = ours.run_batch(images)
        same(batch, expected)
        assert batch.recovered == expected.recovered
        assert (batch.recovered > 20) == (damage == "lenient")
        for index in range(0, len(images), 7):
            same(ours.run_batch([images[index]]), theirs.run_batch([images[index]]))


@pytest.mark.usefixtures("gpu")
def test_without_the_check_nvimagecodec_decodes_what_the_cpu_refuses(monkeypatch):
    """The negative control, and the reason: this is what ``"decoder": "fastest"`` gives up."""
    images = damaged()
    with pp.Engine(PIPELINE, device="gpu") as ours, pp.Engine(PIPELINE) as theirs:
        monkeypatch.setattr(ours._decoder, "_readers", None)
        refused = [sum(error is not None for error in each.run_batch(images).errors) for each in (ours, theirs)]
    assert refused[0] < refused[1] / 2


@pytest.mark.usefixtures("gpu")
def test_limits_are_kept_before_anything_is_decoded():
    with pp.Engine(PIPELINE, device="gpu", limits=pp.Limits(max_pixels=4000)) as engine:
        batch = engine.run_batch([jpeg(50, 70), jpeg(100, 100)])
    assert batch.errors[0] is None
    assert str(batch.errors[1]) == "[TOO_MANY_PIXELS] 100 x 100 pixels; the limit is 4,000 (parameter max_pixels)"


@pytest.mark.usefixtures("gpu")
def test_fast_chroma_differs_from_fancy_alike_on_both_decoders():
    images = [jpeg(80, 80, 5, subsampling=2)]
    fast = pp.Pipeline([replace_decode(chroma="fast"), *PIPELINE.ops[1:]])
    with pp.Engine(fast, device="gpu") as ours, pp.Engine(fast) as theirs, pp.Engine(PIPELINE) as fancy:
        expected = theirs.run_batch(images)
        same(ours.run_batch(images), expected)
        assert not np.array_equal(fancy.run_batch(images).outputs["tensor"], expected.outputs["tensor"])


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("codec", ["consistent", "fastest", "cpu"])
def test_the_fast_idct_equals_the_cpu_engines_whichever_decoder_is_named(codec):
    """No CUDA decoder has it: libjpeg-turbo decodes the whole batch, and nothing is a fallback."""
    images = [jpeg(80, 80, 5), jpeg(64, 48, 3, subsampling=0), jpeg(40, 90, progressive=True), photo(), b"not an image"]
    fast = pp.Pipeline([replace_decode(idct="fast", decoder=codec), *PIPELINE.ops[1:]])
    with pp.Engine(fast, device="gpu") as ours, pp.Engine(fast) as theirs, pp.Engine(PIPELINE) as accurate:
        expected = theirs.run_batch(images)
        same(ours.run_batch(images), expected)
        assert ours.fallbacks == 0
        assert not np.array_equal(accurate.run_batch(images).outputs["tensor"], expected.outputs["tensor"])


@pytest.mark.usefixtures("gpu")
def test_every_image_is_decoded_whole_also_where_a_fraction_would_do():
    """Those that fall back on the CPU decoder too, so that an image gets the same pixels whoever decodes it."""
    images = [jpeg(200, 300, 5), jpeg(300, 200, progressive=True), cmyk(), photo(), png(noise(200, 300))]
    inexact = [pp.resize(40, filter="bicubic") if isinstance(op, pp.resize) else op for op in PIPELINE.ops[1:]]
    auto = pp.Pipeline([replace_decode(scale="auto"), *inexact])
    with pp.Engine(auto, device="gpu") as ours, pp.Engine(PIPELINE) as theirs, pp.Engine(auto) as reduced:
        expected = theirs.run_batch(images)
        same(ours.run_batch(images), expected)
        assert not np.array_equal(reduced.run_batch(images).outputs["tensor"], expected.outputs["tensor"])


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("idct", ["accurate", "fast"])
def test_a_cmyk_jpeg_has_the_same_result_or_error_as_on_the_cpu(idct):
    pipeline = pp.Pipeline([replace_decode(idct=idct), *PIPELINE.ops[1:]])
    with pp.Engine(pipeline, device="gpu") as ours, pp.Engine(pipeline) as theirs:
        batch = ours.run_batch([cmyk(), jpeg(50, 70)])
        same(batch, theirs.run_batch([cmyk(), jpeg(50, 70)]))
    assert (batch.errors[0] is None) == (idct == "accurate")


@pytest.mark.usefixtures("gpu")
def test_transparent_images_on_white_equal_the_cpu_engines():
    images = [others()[name] for name in ("png alpha", "png gray alpha", "png palette alpha", "webp lossless alpha")]
    white = pp.Pipeline([replace_decode(alpha="white"), *PIPELINE.ops[1:]])
    with pp.Engine(white, device="gpu") as ours, pp.Engine(white) as theirs, pp.Engine(PIPELINE) as dropped:
        expected = theirs.run_batch(images)
        same(ours.run_batch(images), expected)
        assert ours.fallbacks == len(images)
        assert not np.array_equal(dropped.run_batch(images).outputs["tensor"], expected.outputs["tensor"])


def replace_decode(**changes):
    return pp.decode(**{"decoder": "cpu"} | changes)


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_is_not_there_is_a_setup_error():
    with pytest.raises(pp.SetupError, match=r'device "gpu:3": this machine has 1, numbered from 0'):
        pp.Engine(PIPELINE, device="gpu:3")


@pytest.mark.usefixtures("gpu")
def test_a_decoder_that_cannot_be_made_stops_the_engine():
    gpu_only = pp.Pipeline([replace_decode(decoder="consistent"), *PIPELINE.ops[1:]])
    # With the nvJPEG of its CUDA installed, nvImageCodec makes one, and it decodes nothing.
    with pytest.raises(pp.SetupError, match=r"^nvImageCodec (makes no decoder here|decodes no JPEG .*): .*pip install"):
        pp.Engine(gpu_only, device="gpu")


def test_a_gpu_decoder_that_decodes_nothing_stops_the_engine(gpu, monkeypatch):
    """Without nvJPEG, nvImageCodec says no to every image: the CPU would do all the work, and nobody would know."""
    nothing = types.SimpleNamespace(decode=lambda streams, **_: [None for _ in streams])
    monkeypatch.setattr(sys.modules["pixprep.decoders.gpu"].nvimgcodec, "Decoder", lambda **_: nothing)
    with pytest.raises(pp.SetupError) as caught:
        gpu.Gpu(0).decoder(compile_pipeline(PIPELINE), pp.Limits())
    assert str(caught.value) == (
        'nvImageCodec decodes no JPEG on this GPU: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the CUDA of '
        'the driver), or write "decoder": "cpu" in decode'
    )
