"""nvImageCodec's JPEG decoders, which are compared with the CPU decoder before they decode images of users.

nvImageCodec does not report damage, and interprets any three components as YCbCr. It has three kinds of decoders: the
fixed-function hardware engine, which supports only baseline JPEGs; CUDA; and libjpeg-turbo on the CPU.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pixprep.cores import cores
from pixprep.engine.decoders import Codec, Limits
from pixprep.engine.decoders.header import JpegHeader, read_header
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.engine.decoders.structure import Structure
from pixprep.errors import ImageError, SetupError
from pixprep.gpu.kernel import span
from pixprep.gpu.samples import LARGEST_MEAN, Trait, sample_traits, samples, traits_of
from pixprep.plan.plan import Placed, Plan

_OTHER_FORMATS = (b"nvjpeg2k", b"nvtiff", b"nvJPEG2000", b"nvTIFF")


@contextmanager
def _without_other_formats() -> Iterator[None]:
    """Suppress six lines on stderr, in which nvImageCodec's JPEG 2000 and TIFF plugins report missing libraries."""
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            said.seek(0)
            for line in said:
                if not any(word in line for word in _OTHER_FORMATS):
                    os.write(2, line)


with _without_other_formats():
    from nvidia import nvimgcodec

log = logging.getLogger(__name__)

U8 = npt.NDArray[np.uint8]

REMEDY = (
    'run pip install ".[gpu-cuda12]" (or gpu-cuda13, to match the CUDA version of the driver) in a checkout of '
    'pixprep, or choose the decoder "cpu" (an argument of Engine, a parameter of the Triton model)'
)
_CUDA = (nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU)
_HARDWARE = nvimgcodec.HW_GPU_ONLY
_KINDS: dict[Codec, Sequence[Sequence[Any]]] = {
    "consistent": ((_HARDWARE, *_CUDA), _CUDA),
    "cuda": (_CUDA,),
    "cpu": ((nvimgcodec.CPU_ONLY,),),
}
"""Kinds of decoders to try, by codec. The first that passes the comparison is used."""
_ONE_WAY = "nvjpeg_hw_decoder:force_legacy_batch=1"
"""On GPUs with several hardware engines, nvImageCodec 0.9 has three code paths: for one image, for more than 12 images
of mixed chroma subsampling, and for all other calls. The path of an image would then depend on the other images of the
call. With this option every call takes the third path."""
_USUAL, _UNIFORM = "4:2:0", (64, 8, 1)
"""Sample, and numbers of copies per call. With the mixed first call, these calls cover all three code paths."""
MOST = 128
"""Maximum number of images per chunk. The hardware engine decodes as many images of a call as the first call had
(rounded up to its batch size), and the CUDA decoder decodes the others. The first call therefore has this number of
images, and no call has more, so that the decoder of an image does not depend on the other images."""
MAX_THREADS, MAX_STREAMS = 16, 8
"""Maximum numbers of threads and streams of nvImageCodec. Each thread keeps memory for the largest image that it has
decoded, twice on the host and once on the GPU. Without a limit, a machine with 96 cores would use gigabytes."""
KEPT_BYTES = 1 << 30
"""Maximum number of bytes that a thread keeps for the pixels of its next images. A buffer never shrinks: if each batch
had a large image at a different index, every buffer would become that large."""
SCARCE_BYTES = 256 << 20
"""If a decode fails with less free GPU memory than this, in bytes, it is reported as out of memory."""


class NvImageCodec:
    """Decoder of JPEGs to uint8 (height, width, 3) RGB or (height, width, 1) gray on CuPy's current device.

    Arguments, ``words`` and errors are those of ``GpuDecoder``. nvImageCodec uses at most 16 threads, and at most one
    less than the number of cores.
    """

    def __init__(self, plan: Plan, *, codec: Codec, threads: int) -> None:
        self._plan = replace(plan, outputs={})
        self._threads = max(1, min(threads, MAX_THREADS, cores() - 1))
        self._device_id = cupy.cuda.Device().id
        is_fast_idct = plan.idct == "fast"
        is_fast = is_fast_idct or (codec == "cpu" and plan.chroma == "fast")
        self._is_for_turned = not (is_fast and plan.apply_exif_orientation)
        self._options = f":fancy_upsampling={int(plan.chroma == 'fancy')}{' :fast_idct=1' * is_fast_idct} {_ONE_WAY}"
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=plan.apply_exif_orientation,
            color_spec=nvimgcodec.GRAY if plan.is_gray else nvimgcodec.SRGB,
            sample_format=nvimgcodec.I_Y if plan.is_gray else nvimgcodec.I_RGB,
        )
        self._lock = threading.Lock()  # a decoder of nvImageCodec does not support concurrent calls
        self._local = threading.local()
        self._counting = threading.Lock()
        self._calls = 0  # number of calls whose images are being decoded or still used
        self._is_used = self._has_warned = False
        self._seen: frozenset[Trait] = frozenset()
        self._kinds, self._decoder = self._checked("cpu" if is_fast_idct else codec)
        self.words = self._described()

    def takes(self, header: JpegHeader, structure: Structure) -> bool:
        """Return whether nvImageCodec decodes JPEGs of this kind to the CPU's colors, according to the samples."""
        return self._is_ours(header) and self._seen.issuperset(traits_of(header, structure))

    @contextmanager
    def decoded(self, encoded: Sequence[U8], placed: Sequence[Placed]) -> Iterator[list[Any]]:
        """Decode images. The pixels are valid until the next call from this thread.

        Yields None for each image that nvImageCodec rejects.
        """
        with self._counting:
            self._calls += 1
        try:
            images = self._batch(encoded, [3 * each.height * each.width for each in placed]) if encoded else []
            yield [image if _is_shaped(image, each) else None for image, each in zip(images, placed, strict=True)]
        finally:
            with self._counting:
                self._calls -= 1

    def trim(self) -> None:
        """Free the memory that is kept for later images. Any thread may call this.

        nvImageCodec does not release its own memory, so its decoder is created again between batches.
        """
        self._local = threading.local()
        with self._lock:
            if self._calls or not self._is_used or self._decoder is None:
                return
            cupy.cuda.runtime.deviceSynchronize()
            with suppress(RuntimeError):  # perhaps out of memory; the previous decoder still works
                decoder = self._made(self._kinds)
                self._first_call(decoder)
                self._decoder, self._is_used = decoder, False

    def close(self) -> None:
        """End the decoder. Nothing can be decoded afterwards."""
        self._decoder = None  # releases its threads and device memory

    def _batch(self, encoded: Sequence[U8], needs: Sequence[int]) -> list[Any]:
        """Decode into this thread's buffers, which are reused; None for each image that failed."""
        local = self._local
        kept: list[Any] = getattr(local, "images", [])
        sizes: list[int] = getattr(local, "sizes", [])
        if sum(sizes) > KEPT_BYTES:
            kept, sizes = [], []
        streams = [nvimgcodec.CodeStream(each) for each in encoded]
        missing = [None] * (len(streams) - len(kept))
        buffers = {"images": [*kept[: len(streams)], *missing]} if kept else {}
        try:
            with self._lock:
                self._is_used = True
                with span("pixprep:decode"):
                    decoded = self._call(self._decoder, streams, **buffers)
        except RuntimeError as error:
            self._warn(str(error).partition("\n")[0])
            local.images, local.sizes = [], []
            return [None] * len(encoded)
        new = [
            (image, need)
            for image, need in zip(decoded[len(kept) :], needs[len(kept) :], strict=True)
            if image is not None
        ]
        # nvImageCodec returns the passed buffers, or None for failures. Keep each buffer exactly once.
        local.images = [*kept, *(image for image, _ in new)]
        local.sizes = [*map(max, sizes, needs), *sizes[len(needs) :], *(need for _, need in new)]
        if None in decoded:
            free = int(cupy.cuda.runtime.memGetInfo()[0])
            if free < SCARCE_BYTES:
                self._warn(f"only {free >> 20} MiB of GPU memory are free")
        return decoded

    def _warn(self, why: str) -> None:
        """Log a failure once, because it may happen with every image."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("nvImageCodec failed, so the CPU decodes these JPEGs: %s (logged only once)", why)

    def _call(self, decoder: Any, streams: list[Any], **buffers: Any) -> list[Any]:
        stream = int(cupy.cuda.get_current_stream().ptr)
        return list(decoder.decode(streams, params=self._params, cuda_stream=stream, **buffers))

    def _made(self, kinds: Sequence[Any]) -> Any:
        """Create a decoder of nvImageCodec.

        Raises:
            RuntimeError: nvImageCodec does not provide these kinds of decoders on this machine.
        """
        return nvimgcodec.Decoder(
            device_id=self._device_id,
            max_num_cpu_threads=self._threads,
            backends=[nvimgcodec.Backend(kind) for kind in kinds],
            options=f":num_cuda_streams={min(self._threads, MAX_STREAMS)} {self._options}",
        )

    # Comparison before the first image

    def _checked(self, codec: Codec) -> tuple[Sequence[Any], Any]:
        """Return the kinds of decoders that ``codec`` allows and that pass the comparison, and a decoder with these."""
        fault = ""
        for kinds in _KINDS[codec]:
            if fault:
                log.warning("the hardware JPEG engine is not used: %s", fault)
            try:
                decoder = self._made(kinds)
            except RuntimeError as error:
                raise SetupError(f"nvImageCodec cannot create a decoder ({error}): {REMEDY}") from None
            fault = self._fault(decoder)
            if not fault:
                return kinds, decoder
        raise SetupError(f"{fault}: {REMEDY}")

    def _fault(self, decoder: Any) -> str:
        """Describe how a decoder's pixels differ from the CPU's, or between calls; "" if they do not."""
        traits, cpu = sample_traits(), CpuDecoder(self._plan, Limits())
        seen: set[Trait] = set()
        first = self._first_call(decoder)
        for name, ours in first.items():
            with cpu.decoded(samples()[name]) as expected:
                assert not isinstance(expected, ImageError)
                theirs = expected.pixels[:, :, : ours.shape[2]]
                apart = float((np.maximum(ours, theirs) - np.minimum(ours, theirs)).mean())
            if apart > LARGEST_MEAN:
                return (
                    f"on this GPU, nvImageCodec's pixels of a sample JPEG ({name}) differ from libjpeg-turbo's by "
                    f"{apart:.1f} on average"
                )
            seen.update(traits[name])
        self._seen = frozenset(seen)
        if not seen:
            return "nvImageCodec cannot decode any sample JPEG on this GPU"
        for count in _UNIFORM if _USUAL in first else ():
            again = self._call(decoder, [_stream(_USUAL) for _ in range(count)])
            if not all(each is None or np.array_equal(on_host(to_array(each)), first[_USUAL]) for each in again):
                return f"nvImageCodec decodes a JPEG ({_USUAL}) differently in calls of {count} and of {MOST} images"
        return ""

    def _first_call(self, decoder: Any) -> dict[str, U8]:
        """Decode as many samples as a chunk may have images, and copy the decoded ones of each kind to the host."""
        plan, limits = self._plan, Limits()
        ours: dict[str, tuple[bytes, Placed]] = {}
        for name, encoded in samples().items():
            _, header = read_header(memoryview(encoded), limits, is_strict=True)
            assert header is not None
            if self._is_ours(header):
                ours[name] = encoded, plan.place(*header.size(is_upright=plan.apply_exif_orientation))
        each_once = [np.frombuffer(encoded, np.uint8) for encoded, _ in ours.values()]
        small = [each for each in each_once if len(each) < 1 << 14]
        batch = [*each_once, *islice(cycle(small), MOST - len(each_once))]
        decoded = self._call(decoder, [nvimgcodec.CodeStream(each) for each in batch])
        return {
            name: on_host(to_array(image))
            for (name, (_, placed)), image in zip(ours.items(), decoded, strict=False)
            if _is_shaped(image, placed)
        }

    def _is_ours(self, header: JpegHeader) -> bool:
        """Return whether the colors can equal the CPU's. nvImageCodec would interpret RGB components as YCbCr."""
        return not header.is_rgb and (header.orientation == 1 or self._is_for_turned)

    def _described(self) -> str:
        """Describe the JPEG decoders for logs. Probes whether the hardware engine exists."""
        if _CUDA[0] not in self._kinds:
            return "libjpeg-turbo (nvImageCodec's)"
        if _HARDWARE not in self._kinds:
            return "CUDA"
        try:
            has_hardware = self._call(self._made((_HARDWARE,)), [_stream(_USUAL)]) != [None]
        except RuntimeError:
            has_hardware = False
        if has_hardware:
            return "the hardware JPEG engine, and CUDA for images that it does not support"
        return "CUDA, without a hardware JPEG engine (a container needs NVIDIA_DRIVER_CAPABILITIES with video)"


def to_array(image: Any) -> Any:
    """Return an nvImageCodec image as a CuPy array, without a copy or a wait. Host memory is uploaded.

    nvImageCodec decodes on the lane's stream, and the image names the stream on which its pixels will be ready. If both
    are the same stream, no synchronization is needed, whereas ``cupy.asarray`` would synchronize for each image.
    """
    if isinstance(image, np.ndarray):
        with span("pixprep:copy"):
            return cupy.asarray(image)
    if image.buffer_kind == nvimgcodec.ImageBufferKind.STRIDED_HOST:
        return cupy.asarray(np.asarray(image))
    said = image.__cuda_array_interface__
    if said["stream"] != cupy.cuda.get_current_stream().ptr:
        return cupy.asarray(image)
    shape, strides = said["shape"], said["strides"]
    n_bytes = shape[0] * (strides[0] if strides else shape[1] * shape[2])
    memory = cupy.cuda.UnownedMemory(said["data"][0], n_bytes, image, cupy.cuda.runtime.getDevice())
    return cupy.ndarray(shape, np.uint8, cupy.cuda.MemoryPointer(memory, 0), strides)


def on_host(pixels: Any) -> U8:
    """Copy pixels with any row stride to host memory. CuPy's own copy would compile a kernel for strided rows."""
    height, width, channels = pixels.shape
    assert pixels.dtype == np.uint8
    assert pixels.strides[1:] == (channels, 1)
    n_bytes = (height - 1) * pixels.strides[0] + width * channels
    whole = cupy.ndarray(n_bytes, np.uint8, memptr=pixels.data).get()
    return as_strided(whole, pixels.shape, pixels.strides)


def _stream(name: str) -> Any:
    return nvimgcodec.CodeStream(np.frombuffer(samples()[name], np.uint8))


def _is_shaped(image: Any | None, placed: Placed) -> bool:
    """Return whether nvImageCodec has decoded an image to the height and width of its header."""
    return image is not None and tuple(image.shape[:2]) == (placed.height, placed.width)
