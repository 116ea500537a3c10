"""Measures how much each JPEG decoder differs from libjpeg-turbo, and tests whether a batch changes an image's pixels.

Every kind of JPEG is decoded in calls of 1, 8 and 64 images of its own kind, and among 63 images of other kinds. All
results are recorded. The assertions cover only what the engine guarantees about its own decoders.
"""

import importlib
from itertools import cycle, islice

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.options import EngineOptions
from pixprep.gpu import samples
from support import sampled
from support.decoding import PLAN, decoded
from support.images import jpeg, photo, scene

pytestmark = pytest.mark.gpu

CUDA = ("GPU_ONLY", "HYBRID_CPU_GPU")
CODES = "nvjpeg_cuda_decoder:hybrid_huffman_threshold"
RAW = {
    "engine legacy": (("HW_GPU_ONLY",), "nvjpeg_hw_decoder:force_legacy_batch=1"),
    "engine single": (("HW_GPU_ONLY",), "nvjpeg_hw_decoder:force_batch_single=1"),
    "default": (("HW_GPU_ONLY", *CUDA), ""),
    "CUDA, codes by the CPU": (CUDA, f"{CODES}={1 << 30}"),
    "CUDA, codes by the GPU": (CUDA, f"{CODES}=1"),
    "CPU": (("CPU_ONLY",), ""),
}
"""nvImageCodec's decoders by name, as kinds of decoders and an option. The threshold is a number of pixels."""
MODES = ("consistent", "cuda", "cpu")  # values of an engine's option ``decoder``
CALLS = (1, 8, 64)
LARGEST_MEAN = samples.LARGEST_MEAN


def kinds():
    """Return JPEGs by description: the engine's samples, every sampling, restart markers after every block, and real
    photos.
    """
    found, odd = dict(samples.samples()), scene(61, 83)
    for number, name in enumerate(("4:4:4", "4:2:2", "4:2:0")):
        found[f"{name}, restarts at every block"] = jpeg(odd, subsampling=number, restart_marker_blocks=1)
    for factors in sampled.SAMPLINGS:
        found[f"a scan each, {' '.join(f'{h}x{v}' for h, v in factors)}"] = sampled.sampled(factors)
    return found | {f"photo {name}": photo(name) for name in ("china", "flower")}


def on_host(pixels):
    """Return a copy of the pixels on the GPU in host memory."""
    return importlib.import_module("pixprep.gpu.nvimagecodec").on_host(pixels)


def raw(cupy, way):
    """Return ``run(batch)``, which decodes with nvImageCodec. For each image, it returns (pixels or None, False).

    The first call is a full batch, as in the engine.
    """
    codec = importlib.import_module("nvidia.nvimgcodec")
    names, option = RAW[way]
    stream, backends = cupy.cuda.Stream(non_blocking=True), [codec.Backend(getattr(codec, name)) for name in names]
    try:
        decoder = codec.Decoder(device_id=0, backends=backends, options=f":fancy_upsampling=1 {option}")
    except RuntimeError as error:
        pytest.skip(f"NO SUCH DECODER: {way}: {error}")
    params = codec.DecodeParams(apply_exif_orientation=True, color_spec=codec.SRGB, sample_format=codec.I_RGB)

    def run(batch):
        with stream:
            streams = [codec.CodeStream(each) for each in batch]
            images = decoder.decode(streams, params=params, cuda_stream=int(stream.ptr))
            stream.synchronize()
            return [(None if image is None else read(image), False) for image in images]

    def read(image):
        is_there = image.buffer_kind == codec.ImageBufferKind.STRIDED_DEVICE
        return on_host(cupy.asarray(image)) if is_there else np.array(image)

    run([samples.samples()["4:2:0"]] * 128)
    return run, stream  # nvImageCodec frees memory on this stream, so the stream must outlive the decoder


def engine(gpu, mode):
    """Return ``run(batch)`` for the engine's decoder. Instead of False, it returns whether the CPU decoded the
    image.
    """
    device = gpu.Gpu(0)
    decoder = device.decoder(PLAN, EngineOptions(damage="structural", decoder=mode))

    def run(batch):
        found = []
        for chunk in decoder.chunks(batch, [PLAN.place] * len(batch)):
            with device.lane(), decoder.decode(chunk) as images:
                for image in images:
                    refused = isinstance(image, pp.ImageError)
                    found.append((None, False) if refused else (on_host(image.pixels), image.is_fallback))
        return found

    return run


def row(run, encoded, others):
    """Return the results for one JPEG over all calls; ``distinct`` is the number of different results."""
    theirs = decoded(encoded).pixels[:, :, :3]
    different, refused, fallbacks = {}, 0, 0
    batches = [[encoded] * count for count in CALLS]
    for batch in [*batches, [encoded, *islice(cycle(others), max(CALLS) - 1)]]:
        try:
            found = run(batch)
        except RuntimeError as error:
            return {"raised": str(error)[:300]}
        for pixels, is_fallback in found if batch in batches else found[:1]:
            refused, fallbacks = refused + (pixels is None), fallbacks + is_fallback
            if pixels is not None:
                different[pixels.tobytes()] = pixels
    same = [pixels for pixels in different.values() if pixels.shape == theirs.shape]
    apart = [np.abs(pixels.astype(np.int16) - theirs) for pixels in same]
    return {
        "refused": refused,
        "fallbacks": fallbacks,
        "distinct": len(different),
        "other_shape": len(different) - len(same),
        "max": max((int(each.max()) for each in apart), default=None),
        "mean": max((round(float(each.mean()), 3) for each in apart), default=None),
    }


@pytest.mark.parametrize("way", [*RAW, *(f"pixprep {mode}" for mode in MODES)])
def test_the_pixels_of_every_kind_of_jpeg(cupy, gpu, record, way):
    ours = way.startswith("pixprep ")
    run, _ = (engine(gpu, way.removeprefix("pixprep ")), None) if ours else raw(cupy, way)
    every = {name: encoded for name, encoded in kinds().items() if not isinstance(decoded(encoded), pp.ImageError)}
    others = [encoded for encoded in every.values() if len(encoded) < 1 << 14]
    wrong = {}
    for kind, encoded in every.items():
        found = row(run, encoded, others)
        record("pixels", way=way, kind=kind, **found)
        is_far = found.get("other_shape", 1) or (found["mean"] or 0) > LARGEST_MEAN
        if ours and (is_far or found["refused"] or found["distinct"] > 1):
            wrong[kind] = found
        if way == "pixprep cpu" and found.get("max"):
            wrong[kind] = found
    assert not wrong
    assert len(every) > 150 or CALLS != (1, 8, 64)


def test_the_bound_rejects_swapped_channels_and_a_shift():
    """As a negative control, swapped channels and a shift, which are errors of a wrong decoder, must exceed the
    bound.
    """
    pixels = decoded(samples.samples()["4:4:4"]).pixels[:, :, :3].astype(int)
    for wrong in (pixels[:, :, ::-1], np.roll(pixels, 1, axis=1)):
        assert np.abs(wrong - pixels).mean() > LARGEST_MEAN
