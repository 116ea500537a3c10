"""Decodes JPEGs with nvImageCodec. Its decoders are first compared with the CPU decoder on sample JPEGs.

nvImageCodec does not report damage, and interprets any three components as YCbCr. It has three kinds of decoders: the
fixed-function hardware engine, which supports only baseline JPEGs; a CUDA decoder; and libjpeg-turbo on the CPU.
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
from pixprep.gpu.lanes import current_lane
from pixprep.gpu.samples import LARGEST_MEAN, Trait, sample_traits, samples, traits_of
from pixprep.plan.plan import Placed, Plan

_OTHER_FORMATS = (b"nvjpeg2k", b"nvtiff", b"nvJPEG2000", b"nvTIFF")


@contextmanager
def _without_other_formats() -> Iterator[None]:
    """Suppress the six lines in which nvImageCodec's JPEG 2000 and TIFF plugins report missing libraries on stderr."""
    try:
        stderr = os.dup(2)
    except OSError:  # stderr is closed
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
"""Combinations of decoder kinds to try for each codec. The first combination that passes the comparison is used."""
_ONE_WAY = "nvjpeg_hw_decoder:force_legacy_batch=1"
"""Option that makes every call use the same code path. On GPUs with several hardware engines, nvImageCodec 0.9 has one
path for a single image, one for more than 12 images with different chroma subsamplings, and one for all other calls.
Without this option, the path of an image would depend on the other images of the call; with it, the third path is
always used."""
_USUAL, _UNIFORM = "4:2:0", (64, 8, 1)
"""Name of a sample JPEG, and the numbers of copies of it to decode in one call. Together with the first call, which
mixes different samples, these calls cover all three code paths of ``_ONE_WAY``."""
MOST = 128
"""Maximum number of images per chunk. In each call, the hardware engine decodes at most as many images as the first
call contained (rounded up to the engine's batch size), and the CUDA decoder decodes the rest. The first call therefore
contains exactly ``MOST`` images, and no later call contains more. Otherwise, the choice of the decoder for an image
would depend on the other images of the call."""
MAX_THREADS, MAX_STREAMS = 16, 8
"""Maximum numbers of threads and streams of nvImageCodec. Each thread keeps two host buffers and one GPU buffer, each
as large as the largest image that the thread has decoded. Without a limit, a machine with 96 cores would use gigabytes.
"""
KEPT_BYTES = 1 << 30
"""Maximum total size in bytes of the pixel buffers that a lane keeps for its next images. A buffer never shrinks.
Therefore, if each batch had a large image at a different index, all buffers would become large."""
SCARCE_BYTES = 256 << 20
"""If a decode fails with less free GPU memory than this, in bytes, it is reported as out of memory."""


class NvImageCodec:
    """Decodes JPEGs on CuPy's current device to uint8 arrays (height, width, 3), or (height, width, 1) for gray.

    The arguments, the attribute ``words`` and the errors are those of ``GpuDecoder``. nvImageCodec uses at most 16
    threads, and leaves at least one core free.
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
        self._counting = threading.Lock()
        self._calls = 0  # number of calls whose images are still being decoded or used
        self._is_used = self._has_warned = False
        self._seen: frozenset[Trait] = frozenset()
        self._kinds, self._decoder = self._checked("cpu" if is_fast_idct else codec)
        self.words = self._described()

    def takes(self, header: JpegHeader, structure: Structure) -> bool:
        """Return whether nvImageCodec decoded all samples with the traits of this JPEG to the CPU decoder's colors."""
        return self._is_ours(header) and self._seen.issuperset(traits_of(header, structure))

    @contextmanager
    def decoded(self, encoded: Sequence[U8], placed: Sequence[Placed]) -> Iterator[list[Any]]:
        """Decode images, and yield None for each image that nvImageCodec rejects.

        The pixels are valid until the next call in this lane.
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
        """Free the memory that nvImageCodec keeps for later images. Any thread may call this method.

        nvImageCodec releases this memory only with its decoder. Therefore, the decoder is replaced by a new one, unless
        a batch is being decoded.
        """
        with self._lock:
            if self._calls or not self._is_used or self._decoder is None:
                return
            cupy.cuda.runtime.deviceSynchronize()
            with suppress(RuntimeError):  # possibly out of memory; the previous decoder is then kept
                decoder = self._made(self._kinds)
                self._first_call(decoder)
                self._decoder, self._is_used = decoder, False

    def close(self) -> None:
        """Close the decoder. Afterwards, no image can be decoded."""
        self._decoder = None  # releases the decoder's threads and device memory

    def _batch(self, encoded: Sequence[U8], needs: Sequence[int]) -> list[Any]:
        """Decode images into the lane's reusable buffers. The result is None for each image that failed."""
        lane = current_lane()
        kept, sizes = lane.images, lane.sizes
        if sum(sizes) > KEPT_BYTES:
            kept, sizes = [], []
        streams = [nvimgcodec.CodeStream(each) for each in encoded]
        missing = [None] * (len(streams) - len(kept))
        buffers = {"images": [*kept[: len(streams)], *missing]} if kept else {}
        try:
            with self._lock:
                self._is_used = True
                if _HARDWARE in self._kinds:
                    lane.catch_up()
                with span("pixprep:decode"):
                    decoded = self._call(self._decoder, streams, **buffers)
        except RuntimeError as error:
            self._warn(str(error).partition("\n")[0])
            lane.images, lane.sizes = [], []
            return [None] * len(encoded)
        new = [
            (image, need)
            for image, need in zip(decoded[len(kept) :], needs[len(kept) :], strict=True)
            if image is not None
        ]
        # nvImageCodec returns the buffers that were passed to it, or None for failures. Keep each buffer exactly once.
        lane.images = [*kept, *(image for image, _ in new)]
        lane.sizes = [*map(max, sizes, needs), *sizes[len(needs) :], *(need for _, need in new)]
        if None in decoded:
            free = int(cupy.cuda.runtime.memGetInfo()[0])
            if free < SCARCE_BYTES:
                self._warn(f"only {free >> 20} MiB of GPU memory are free")
        return decoded

    def _warn(self, why: str) -> None:
        """Log only the first failure, because the same failure may occur with every image."""
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

    # Comparison of nvImageCodec's decoders with the CPU decoder, before the first image is decoded

    def _checked(self, codec: Codec) -> tuple[Sequence[Any], Any]:
        """Return the first kinds of decoders of ``codec`` that pass the comparison, and a decoder of these kinds."""
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
        """Describe how a decoder's pixels differ from the CPU decoder's or between calls. Return "" if they do not."""
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
        """Decode ``MOST`` samples, the maximum of a chunk, and return one image of each sample that could be decoded.

        The images are copied to the host. Their keys are the names of the samples.
        """
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
        """Return whether the colors can match the CPU decoder's. nvImageCodec would interpret RGB components as YCbCr.

        With the fast IDCT or the fast chroma upsampling, images with an EXIF orientation differ as well.
        """
        return not header.is_rgb and (header.orientation == 1 or self._is_for_turned)

    def _described(self) -> str:
        """Describe the JPEG decoders for logs, after testing whether the machine has the hardware engine."""
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
        return (
            "CUDA, without a hardware JPEG engine (a container needs NVIDIA_DRIVER_CAPABILITIES with video, and a MIG "
            "instance needs a profile with media engines)"
        )


def to_array(image: Any) -> Any:
    """Return an nvImageCodec image as a CuPy array, without a copy or a wait. An image in host memory is uploaded.

    nvImageCodec decodes on the lane's stream. The CUDA array interface of an image contains the stream on which its
    pixels will be ready. If this is also the current stream, no synchronization is needed, whereas ``cupy.asarray``
    would synchronize for each image.
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
    """Copy pixels with any row stride to host memory, and wait until the copy is complete.

    For strided rows, CuPy's own copy would compile a kernel.
    """
    height, width, channels = pixels.shape
    assert pixels.dtype == np.uint8
    assert pixels.strides[1:] == (channels, 1)
    n_bytes = (height - 1) * pixels.strides[0] + width * channels
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(n_bytes), np.uint8, n_bytes)
    stream = cupy.cuda.get_current_stream()
    pixels.data.copy_to_host_async(host.ctypes.data, n_bytes, stream)
    stream.synchronize()
    return as_strided(host, pixels.shape, pixels.strides)


def _stream(name: str) -> Any:
    return nvimgcodec.CodeStream(np.frombuffer(samples()[name], np.uint8))


def _is_shaped(image: Any | None, placed: Placed) -> bool:
    """Return whether nvImageCodec has decoded an image to the height and width in the header of the JPEG."""
    return image is not None and tuple(image.shape[:2]) == (placed.height, placed.width)
