"""How far nvImageCodec's decoders are from libjpeg-turbo, for each sampling: measured, and recorded as numbers.

Asserted is little: no decoder may have a mean difference as large as swapped channels or a shifted image have.
"""

import importlib
import io
from dataclasses import replace

import numpy as np
import pytest
import simplejpeg
from PIL import Image

import pixprep as pp
from decoding import PLAN, decoded
from images import photo

pytestmark = pytest.mark.gpu

SIZES = {"small": (427, 640), "over a megapixel": (1067, 1601)}  # from 1e6 pixels on nvJPEG reads Huffman on the GPU
SAMPLINGS = ("444", "422", "420", "440", "411", "gray")
FRAMES = ("baseline", "progressive")
MODES = ("consistent", "fastest", "cuda", "cpu")  # an engine's decoder
BACKENDS = ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU", "CPU_ONLY")  # nvImageCodec's, each of them alone
LARGEST_MEAN = 3.0  # levels, over all values of an image
every_jpeg = pytest.mark.parametrize(
    "encoding", [(size, s, frame) for size in SIZES for s in SAMPLINGS for frame in FRAMES], ids="-".join
)


def photo_pixels(size):
    """An enlarged photo with grain, so that every block has something to decode."""
    height, width = SIZES[size]
    image = Image.open(io.BytesIO(photo("flower"))).resize((width, height), Image.Resampling.BICUBIC)
    grain = np.random.default_rng((height, width)).integers(-6, 7, (height, width, 3))
    return np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8)


def encode(size, sampling, frame):
    """The JPEG; a skip where no encoder at hand makes such a one."""
    pixels = photo_pixels(size)
    if frame == "baseline" and sampling != "gray":
        return simplejpeg.encode_jpeg(pixels, 90, colorsubsampling=sampling)
    if sampling in ("440", "411"):
        return _by_opencv(pixels, sampling)
    image = Image.fromarray(pixels).convert("L" if sampling == "gray" else "RGB")
    options = {} if sampling == "gray" else {"subsampling": {"444": 0, "422": 1, "420": 2}[sampling]}
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, progressive=frame == "progressive", **options)
    return file.getvalue()


def _by_opencv(pixels, sampling):
    cv2 = pytest.importorskip("cv2", reason=f"NO ENCODER of progressive {sampling}: pip install opencv-python-headless")
    factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{sampling}")
    options = [cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    done, encoded = cv2.imencode(".jpg", pixels[:, :, ::-1], options)
    assert done
    return encoded.tobytes()


def plan_of(sampling, chroma="fancy"):
    return replace(PLAN, is_gray=sampling == "gray", chroma=chroma)


def by_libjpeg_turbo(plan, encoded):
    return decoded(encoded, plan).pixels[:, :, :3]


def by_mode(gpu, plan, mode, batch):
    """Each image's pixels by pixprep's GPU decoder, and how many of them the CPU decoder had to make."""
    device = gpu.Gpu(0)
    decoder = device.decoder(plan, pp.Limits(), damage="strict", codec=mode)
    pixels, fallbacks = [], 0
    for chunk in decoder.chunks(batch, [plan.place] * len(batch)):
        with device.lane(), decoder.decode(chunk) as images:
            pixels += [gpu.on_host(image.pixels) for image in images]
            fallbacks += sum(image.is_fallback for image in images)
    return pixels, fallbacks


@pytest.fixture(scope="module")
def stream(cupy):
    """For all tests: nvImageCodec frees an image's memory on it, so it must not be destroyed first."""
    return cupy.cuda.Stream(non_blocking=True)


def by_backend(stream, backend, encoded, *, gray):
    """The pixels by one of nvImageCodec's backends; None where it refuses the image."""
    codec = importlib.import_module("nvidia.nvimgcodec")
    backends = [codec.Backend(getattr(codec, backend))]
    try:
        decoder = codec.Decoder(device_id=0, backends=backends, options=":fancy_upsampling=1")
    except RuntimeError:  # no decoder is of it: nvJPEG's is HYBRID_CPU_GPU, its hardware's is HW_GPU_ONLY
        return None
    params = codec.DecodeParams(
        color_spec=codec.GRAY if gray else codec.SRGB, sample_format=codec.I_Y if gray else codec.I_RGB
    )
    with stream:
        (image,) = decoder.decode([codec.CodeStream(encoded)], params=params, cuda_stream=int(stream.ptr))
        if image is None:
            return None
        pixels = np.asarray(image.cpu())
        stream.synchronize()
        return pixels.reshape(*pixels.shape[:2], -1)


def difference(pixels, expected):
    """Numbers for the record."""
    assert pixels.shape == expected.shape
    levels = np.abs(pixels.astype(int) - expected)
    return {
        "max": int(levels.max()),
        "mean": round(float(levels.mean()), 4),
        "share": round(float((levels > 0).mean()), 4),
    }


def check(numbers):
    assert numbers["mean"] <= LARGEST_MEAN, numbers


@every_jpeg
def test_the_decoders_of_the_engine(gpu, record, encoding):
    size, sampling, frame = encoding
    encoded = encode(size, sampling, frame)
    for mode in MODES:
        for chroma in ("fancy", "fast"):
            plan = plan_of(sampling, chroma)
            (pixels,), fallbacks = by_mode(gpu, plan, mode, [encoded])
            numbers = difference(pixels, by_libjpeg_turbo(plan, encoded))
            where = {"size": size, "sampling": sampling, "frame": frame, "mode": mode, "chroma": chroma}
            record("decode modes against libjpeg-turbo", **where, fallbacks=fallbacks, **numbers)
            check(numbers)
            if mode == "cpu":
                assert numbers["max"] == 0, "nvImageCodec's CPU decoder is libjpeg-turbo"


@every_jpeg
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_decoders_of_nvimagecodec_one_by_one(stream, record, backend, encoding):
    size, sampling, frame = encoding
    encoded = encode(size, sampling, frame)
    pixels = by_backend(stream, backend, encoded, gray=sampling == "gray")
    where = {"backend": backend, "size": size, "sampling": sampling, "frame": frame}
    if pixels is None:
        record("decoders of nvImageCodec against libjpeg-turbo", **where, is_refused=True)
        return
    numbers = difference(pixels, by_libjpeg_turbo(plan_of(sampling), encoded))
    record("decoders of nvImageCodec against libjpeg-turbo", **where, is_refused=False, **numbers)
    check(numbers)


@pytest.mark.parametrize("mode", MODES)
def test_whether_one_batch_gives_equal_images_unequal_pixels(gpu, record, mode):
    """``fastest`` may share a batch between the ways of the hardware engine; the others may not."""
    for size in SIZES:
        batch, fallbacks = by_mode(gpu, plan_of("420"), mode, [encode(size, "420", "baseline")] * 64)
        different = len({pixels.tobytes() for pixels in batch})
        record(
            "different pixels of 64 equal images in a batch",
            mode=mode,
            size=size,
            different=different,
            fallbacks=fallbacks,
        )
        assert different == 1 or mode == "fastest"


def test_the_bound_refuses_swapped_channels_and_a_shift():
    """A negative control, of what a wrong decoder would do."""
    pixels = photo_pixels("small")
    for wrong in (pixels[:, :, ::-1], np.roll(pixels, 1, axis=1)):
        with pytest.raises(AssertionError):
            check(difference(wrong, pixels))
