"""nvImageCodec's decoders of JPEGs, compared with the CPU decoder before they decode anybody's.

It does not say that a JPEG is damaged, and takes any three components for YCbCr. There are three kinds of decoders: the
fixed-function hardware engine, which has baseline JPEGs alone; CUDA; and libjpeg-turbo on the CPU.
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
    """Leave out of stderr that nvImageCodec's plugins for JPEG 2000 and TIFF find no library: six lines an import."""
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
    'pip install ".[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver) in a checkout of pixprep, or choose '
    'the decoder "cpu" (an argument of Engine, a parameter of the Triton model)'
)
_CUDA = (nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU)
_HARDWARE = nvimgcodec.HW_GPU_ONLY
_KINDS: dict[Codec, Sequence[Sequence[Any]]] = {
    "consistent": ((_HARDWARE, *_CUDA), _CUDA),
    "cuda": (_CUDA,),
    "cpu": ((nvimgcodec.CPU_ONLY,),),
}
"""Kinds of decoders by codec: the first that passes the comparison decodes."""
_ONE_WAY = "nvjpeg_hw_decoder:force_legacy_batch=1"
"""nvImageCodec 0.9 has three ways for GPUs with several hardware engines: one image, over 12 images of mixed samplings,
and all other calls. So neighbours would choose an image's way. With this option every call takes the third."""
_USUAL, _UNIFORM = "4:2:0", (64, 8, 1)
"""A sample, and how many of it a call has: beside the mixed first call, what the three ways differ by."""
MOST = 128
"""Images of a chunk. The hardware engine decodes as many images of a call as there were in the first call (rounded up
to what it takes at once), and the CUDA decoder the rest. So the first call has this many, and none has more: who
decodes an image does not depend on its neighbours."""
MAX_THREADS, MAX_STREAMS = 16, 8
"""Limits of nvImageCodec: each thread keeps memory for the largest image that it has decoded, twice on the host, once
on the GPU: without a bound, a machine of 96 cores would spend gigabytes."""
KEPT_BYTES = 1 << 30
"""Memory that a thread keeps for the pixels of its next images. A buffer only grows: where each batch has one large
image in another place, every buffer would become that large."""
SCARCE_BYTES = 256 << 20
"""Free memory of a GPU with less of which a failed decode is put down to the lack of it."""


class NvImageCodec:
    """A decoder of JPEGs to uint8 (height, width, 3) RGB or (height, width, 1) gray, on CuPy's current device.

    The arguments, ``words`` and what it raises are those of ``GpuDecoder``. nvImageCodec gets at most 16 threads, and
    one less than there are cores.
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
        self._lock = threading.Lock()  # nvImageCodec takes one call at a time for each decoder
        self._local = threading.local()
        self._counting = threading.Lock()
        self._calls = 0  # whose images are being decoded, or worked on
        self._is_used = self._has_warned = False
        self._seen: frozenset[Trait] = frozenset()
        self._kinds, self._decoder = self._checked("cpu" if is_fast_idct else codec)
        self.words = self._described()

    def takes(self, header: JpegHeader, structure: Structure) -> bool:
        """Tell whether it decodes JPEGs of this kind, and to the CPU's colours, as the samples have shown."""
        return self._is_ours(header) and self._seen.issuperset(traits_of(header, structure))

    @contextmanager
    def decoded(self, encoded: Sequence[U8], placed: Sequence[Placed]) -> Iterator[list[Any]]:
        """Images of nvImageCodec, None for what it refuses; they are valid until the same thread's next call."""
        with self._counting:
            self._calls += 1
        try:
            images = self._batch(encoded, [3 * each.height * each.width for each in placed]) if encoded else []
            yield [image if _is_shaped(image, each) else None for image, each in zip(images, placed, strict=True)]
        finally:
            with self._counting:
                self._calls -= 1

    def trim(self) -> None:
        """Give memory back that is kept for the next images; any thread may ask for it.

        nvImageCodec gives none back, so between batches it is made again.
        """
        self._local = threading.local()
        with self._lock:
            if self._calls or not self._is_used or self._decoder is None:
                return
            cupy.cuda.runtime.deviceSynchronize()
            with suppress(RuntimeError):  # no memory, perhaps: the old one still decodes
                decoder = self._made(self._kinds)
                self._first_call(decoder)
                self._decoder, self._is_used = decoder, False

    def close(self) -> None:
        """Nothing can be decoded any more."""
        self._decoder = None  # its threads and device memory

    def _batch(self, encoded: Sequence[U8], needs: Sequence[int]) -> list[Any]:
        """Images of these bytes each, None where it failed; this thread's buffers are used again, and new ones kept."""
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
        # the same objects come back, or None: they stay kept, each once
        local.images = [*kept, *(image for image, _ in new)]
        local.sizes = [*map(max, sizes, needs), *sizes[len(needs) :], *(need for _, need in new)]
        if None in decoded:
            free = int(cupy.cuda.runtime.memGetInfo()[0])
            if free < SCARCE_BYTES:
                self._warn(f"{free >> 20} MiB of the GPU's memory are free")
        return decoded

    def _warn(self, why: str) -> None:
        """Once: it may happen with every image."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("nvImageCodec does not decode JPEGs, so the CPU does: %s; this is said once", why)

    def _call(self, decoder: Any, streams: list[Any], **buffers: Any) -> list[Any]:
        stream = int(cupy.cuda.get_current_stream().ptr)
        return list(decoder.decode(streams, params=self._params, cuda_stream=stream, **buffers))

    def _made(self, kinds: Sequence[Any]) -> Any:
        """A decoder of nvImageCodec.

        Raises:
            RuntimeError: there is none of these kinds here.
        """
        return nvimgcodec.Decoder(
            device_id=self._device_id,
            max_num_cpu_threads=self._threads,
            backends=[nvimgcodec.Backend(kind) for kind in kinds],
            options=f":num_cuda_streams={min(self._threads, MAX_STREAMS)} {self._options}",
        )

    # before the first image

    def _checked(self, codec: Codec) -> tuple[Sequence[Any], Any]:
        """Kinds of nvImageCodec's decoders that ``codec`` allows here, and a decoder of these."""
        fault = ""
        for kinds in _KINDS[codec]:
            if fault:
                log.warning("the hardware JPEG engine decodes nothing here: %s", fault)
            try:
                decoder = self._made(kinds)
            except RuntimeError as error:
                raise SetupError(f"nvImageCodec makes no decoder here: {error}: {REMEDY}") from None
            fault = self._fault(decoder)
            if not fault:
                return kinds, decoder
        raise SetupError(f"{fault}: {REMEDY}")

    def _fault(self, decoder: Any) -> str:
        """Difference of a decoder's pixels from the CPU's, or from call to call; "" for none."""
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
                    f"nvImageCodec's pixels are {apart:.1f} levels from libjpeg-turbo's on this GPU, on average over a "
                    f"JPEG ({name})"
                )
            seen.update(traits[name])
        self._seen = frozenset(seen)
        if not seen:
            return "nvImageCodec decodes no JPEG on this GPU"
        for count in _UNIFORM if _USUAL in first else ():
            again = self._call(decoder, [_stream(_USUAL) for _ in range(count)])
            if not all(each is None or np.array_equal(on_host(to_array(each)), first[_USUAL]) for each in again):
                return f"nvImageCodec gives a JPEG ({_USUAL}) other pixels in a call of {count} than in one of {MOST}"
        return ""

    def _first_call(self, decoder: Any) -> dict[str, U8]:
        """Decode as many samples as a chunk may have images: those of each kind that are decoded, on the host."""
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
        """Tell whether it can be decoded to the CPU's colours: red, green and blue would be taken for YCbCr."""
        return not header.is_rgb and (header.orientation == 1 or self._is_for_turned)

    def _described(self) -> str:
        """Words for the decoders of JPEGs here; the hardware engine is asked for one, alone."""
        if _CUDA[0] not in self._kinds:
            return "libjpeg-turbo (nvImageCodec's)"
        if _HARDWARE not in self._kinds:
            return "CUDA"
        try:
            has_hardware = self._call(self._made((_HARDWARE,)), [_stream(_USUAL)]) != [None]
        except RuntimeError:
            has_hardware = False
        if has_hardware:
            return "the hardware JPEG engine, and CUDA for what it does not take"
        return "CUDA, for no hardware JPEG engine is at hand (in a container: NVIDIA_DRIVER_CAPABILITIES with video)"


def to_array(image: Any) -> Any:
    """An nvImageCodec image in device memory without a copy or a wait; anything in host memory is uploaded.

    nvImageCodec was given the lane's stream, and the image names the stream on which its pixels will be ready. What the
    lane queues there comes after them, so that nobody waits; ``cupy.asarray`` would, once for each image.
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
    """A copy in host memory of pixels whose rows may lie apart; for these, CuPy's own would need a kernel of CuPy's."""
    height, width, channels = pixels.shape
    n_bytes = (height - 1) * pixels.strides[0] + width * channels
    whole = cupy.ndarray(n_bytes, np.uint8, memptr=pixels.data).get()
    return as_strided(whole, pixels.shape, pixels.strides)


def _stream(name: str) -> Any:
    return nvimgcodec.CodeStream(np.frombuffer(samples()[name], np.uint8))


def _is_shaped(image: Any | None, placed: Placed) -> bool:
    """Tell whether nvImageCodec has decoded an image, to the height and width that its header says."""
    return image is not None and tuple(image.shape[:2]) == (placed.height, placed.width)
