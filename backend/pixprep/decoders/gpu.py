"""Decoding on an NVIDIA GPU: one nvImageCodec call for all JPEGs of a chunk; what it refuses goes to the CPU decoder.

So the CPU decoder has the last word on a bad image, and the reason is the same on every device. It also decodes what
nvImageCodec would show in other colours (RGB-coded JPEGs). No CUDA decoder has the fast IDCT: with ``"idct": "fast"``
nvImageCodec decodes on the CPU, by libjpeg-turbo. There it has another decoder for images that it turns upright, which
knows neither the fast IDCT nor the fast chroma: these go to the CPU decoder.

nvImageCodec does not say that a JPEG is damaged. Only one whose structure is whole reaches it (``structural``). With
the other levels of damage libjpeg-turbo reads its data first, too, on the cores of the host: images and errors are then
those of the CPU. A large batch is cut into chunks, so that the host reads one while another is decoded.

Every image is decoded whole: ``reduced`` allows less, and asks for nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from nvidia import nvimgcodec

from pixprep.decoders import Chunk, Codec, Damage, Decoded, Encoded, Limits
from pixprep.decoders.cpu import CpuDecoder, is_whole
from pixprep.decoders.header import JpegHeader, check_header, read_header, read_whole_header
from pixprep.decoders.samples import LARGEST_MEAN, samples
from pixprep.decoders.structure import Structure, structures
from pixprep.errors import ImageError, SetupError
from pixprep.plan.plan import Place, Placed, Plan

log = logging.getLogger(__name__)

U8 = npt.NDArray[np.uint8]

REMEDY = (
    'pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver), or choose the decoder "cpu" '
    "(an argument of Engine, a parameter of the Triton model)"
)
_CUDA = (nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU)
_HARDWARE, _CPU = (nvimgcodec.HW_GPU_ONLY,), (nvimgcodec.CPU_ONLY,)
_LOSSY_HUFFMAN = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive; the others go to libjpeg-turbo
_JPEG = b"\xff\xd8\xff"
_CHUNKS, _CHECKED_CHUNKS = 2, 4
"""Of a large batch: one for each lane; more where the cores of the host read every image's data first."""
_LEAST = 8
"""Images of a chunk: a call takes its time, however few they are. In a simulation 16 gave a sixth less for a
batch of 16, and more chunks gave nothing."""
MOST = 128
"""Images of a chunk. The hardware engine decodes as many images of a call as there were in the first call (rounded up
to what it takes at once), and the CUDA decoder the rest. So the first call has this many, and none has more: who
decodes an image does not depend on its neighbours."""
MOST_THREADS, MOST_STREAMS = 16, 8
"""Of nvImageCodec. Each thread keeps memory for the largest image that it has decoded, twice on the host, once on the
GPU: without a bound, a machine of 96 cores would spend gigabytes."""
KEPT_BYTES = 1 << 30
"""See ``kept_bytes``. A buffer only grows: where each batch has one large image in another place, every buffer would
become that large."""
SCARCE_BYTES = 256 << 20
"""Free memory of a GPU with less of which a failed decode is put down to the lack of it."""


class Read(NamedTuple):
    """An image whose header has been read.

    Attributes:
        encoded: the image; for nvImageCodec an array of its bytes, without a copy.
        n_bytes: of its pixels.
        placed: where it lies in every output; None: its size is not known, or nvImageCodec does not read it.
        error: why it is refused.
    """

    encoded: Any
    n_bytes: int = 0
    placed: Placed | None = None
    error: ImageError | None = None


class Memory(NamedTuple):
    """What a decoder asks of its device.

    Attributes:
        to_array: wraps an nvImageCodec image without a copy, and uploads a NumPy array.
        to_host: a NumPy array of such an array's pixels.
        stream: the CUDA stream, as a number, that the calling thread works on.
        settle: returns when the device has done all that was queued.
        free_bytes: of the device's memory.
        span: names, for a profiler, what the calling thread queues meanwhile.
    """

    to_array: Callable[[Any], Any]
    to_host: Callable[[Any], U8]
    stream: Callable[[], int]
    settle: Callable[[], None]
    free_bytes: Callable[[], int]
    span: Callable[[str], AbstractContextManager[None]]


class GpuDecoder:
    """See ``Decoder``. Pixels are uint8 (height, width, 3) RGB or (height, width, 1) gray, on the device.

    When it is made, it decodes ``samples`` and compares them with the CPU decoder's.

    Args:
        plan: what to decode to.
        limits: what is refused from the header.
        damage: what becomes of a damaged JPEG.
        codec: what may decode. ``consistent``: the CUDA decoder, and the hardware engine beside it if its samples are
            the CUDA decoder's, bit for bit.
        budget: the bytes of the pixels of one chunk, at most.
        kept_bytes: memory that a thread keeps for the pixels of its next images.
        threads: that read JPEGs; default: as many as this process may use cores. nvImageCodec has at most 16 of them.
        device_id: the GPU, or nvImageCodec's number for "no GPU".
        memory: of the device.

    Raises:
        SetupError: nvImageCodec lacks something here, or decodes something else than libjpeg-turbo does.
    """

    def __init__(
        self,
        plan: Plan,
        limits: Limits,
        *,
        damage: Damage,
        codec: Codec,
        budget: int,
        kept_bytes: int = KEPT_BYTES,
        threads: int | None = None,
        device_id: int,
        memory: Memory,
    ) -> None:
        self._plan = replace(plan, reduced=False)
        self._cpu = CpuDecoder(self._plan, limits, damage=damage)
        self._limits = limits
        self._is_strict = damage in ("strict", "structural")
        self._budget = budget
        self._kept_bytes = kept_bytes
        self._threads = threads or len(os.sched_getaffinity(0))
        self._device_id = device_id
        self._memory = memory
        is_fast_idct = plan.idct == "fast"
        is_fast = is_fast_idct or (codec == "cpu" and plan.chroma == "fast")
        self._is_for_turned = not (is_fast and plan.apply_exif_orientation)
        self._options = f":fancy_upsampling={int(plan.chroma == 'fancy')}" + " :fast_idct=1" * is_fast_idct
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=plan.apply_exif_orientation,
            color_spec=nvimgcodec.GRAY if plan.is_gray else nvimgcodec.SRGB,
            sample_format=nvimgcodec.I_Y if plan.is_gray else nvimgcodec.I_RGB,
        )
        self._lock = threading.Lock()  # nvImageCodec takes one call at a time for each decoder
        self._local = threading.local()
        self._counting = threading.Lock()
        self._chunks = 0  # that are being decoded, or worked on
        self._is_used = self._has_warned = False
        self._kinds, self._decoder = self._checked("cpu" if is_fast_idct else codec)
        self._readers = None if damage == "structural" else ThreadPoolExecutor(self._threads)

    def chunks(self, encoded: Sequence[Encoded], places: Sequence[Place] | None = None) -> Iterator[Chunk[Read]]:
        """See ``Decoder``: neighbours, whose pixels fit into the budget together, or one image.

        A large batch has a chunk for each lane at least. Where the cores read every image's data first, it has twice as
        many, as long as each core has an image of one.
        """
        wholes = [self._plan.place] * len(encoded) if places is None else [_whole(place) for place in places]
        least, parts = (self._threads, _CHECKED_CHUNKS) if self._readers else (_LEAST, _CHUNKS)
        count = len(encoded)
        most = max(1, min(-(-count // max(1, min(parts, count // least))), MOST))
        for begin in range(0, count, most):
            those = wholes[begin : begin + most]
            images = self._read(encoded[begin : begin + most], those)
            start = used = 0
            for index, image in enumerate(images):
                if index > start and used + image.n_bytes > self._budget:
                    yield Chunk(range(begin + start, begin + index), images[start:index], those[start:index])
                    start, used = index, 0
                used += image.n_bytes
            yield Chunk(range(begin + start, begin + len(images)), images[start:], those[start:])

    @contextmanager
    def decode(self, chunk: Chunk[Read]) -> Iterator[list[Decoded | ImageError]]:
        """See ``Decoder``: the pixels are valid until the same thread's next call."""
        batch = [index for index, image in enumerate(chunk.images) if image.placed]
        if self._readers:
            are_whole = self._readers.map(is_whole, [chunk.images[index].encoded for index in batch])
            batch = [index for index, whole in zip(batch, list(are_whole), strict=True) if whole]
        with self._counting:
            self._chunks += 1
        try:
            arrays = self._batch([chunk.images[index] for index in batch])
            decoded = dict(zip(batch, arrays, strict=True))
            yield [
                self._result(image, place, decoded.get(index))
                for index, (image, place) in enumerate(zip(chunk.images, chunk.places, strict=True))
            ]
        finally:
            with self._counting:
                self._chunks -= 1

    def _read(self, encoded: Sequence[Encoded], places: Sequence[Place]) -> list[Read]:
        """The headers of images: of whole JPEGs from their structure, of everything else one by one."""
        arrays = {}
        for index, image in enumerate(encoded):
            view = memoryview(image).cast("B")
            if view[:3] == _JPEG and len(view) <= self._limits.max_image_bytes:
                arrays[index] = np.frombuffer(view, np.uint8)
        found = dict(zip(arrays, structures(list(arrays.values())), strict=True)) if arrays else {}
        return [
            (self._read_whole(arrays[index], structure, place) if (structure := found.get(index)) else None)
            or self._read_odd(image, place)
            for index, (image, place) in enumerate(zip(encoded, places, strict=True))
        ]

    def _read_whole(self, encoded: U8, structure: Structure, place: Place) -> Read | None:
        """The header of a JPEG that is whole; None where something is odd."""
        header = read_whole_header(encoded.data, structure)
        if header is None or structure.scans > self._limits.max_scans:
            return None
        try:
            self._limits.check_format("jpeg")
            check_header(header, encoded.data, self._limits, is_strict=self._is_strict)
            placed = place(*header.size(is_upright=self._plan.apply_exif_orientation))
        except ImageError as error:
            return Read(encoded, error=error.as_value())
        return Read(encoded, 3 * header.height * header.width, placed if self._is_ours(header) else None)

    def _read_odd(self, encoded: Encoded, place: Place) -> Read:
        """The header of what is no JPEG, or not a whole one: the CPU decodes it, or finds what is wrong."""
        try:
            _, header = read_header(memoryview(encoded).cast("B"), self._limits, is_strict=self._is_strict)
            if header is None:
                return Read(encoded, 3 * self._limits.max_pixels)
            place(*header.size(is_upright=self._plan.apply_exif_orientation))
        except ImageError as error:
            return Read(encoded, error=error.as_value())
        return Read(encoded, 3 * header.height * header.width)

    def _is_ours(self, header: JpegHeader) -> bool:
        """Whether nvImageCodec decodes it to the CPU's colours; it takes any three components for YCbCr."""
        is_read = header.components in (1, 3) and header.frame in _LOSSY_HUFFMAN and not header.is_rgb
        return is_read and (header.orientation == 1 or self._is_for_turned)

    def _result(self, image: Read, place: Place, decoded: Any | None) -> Decoded | ImageError:
        """What nvImageCodec made of an image, or else the CPU."""
        if image.error is not None:
            return image.error
        if decoded is not None:
            assert image.placed is not None
            return Decoded(self._memory.to_array(decoded), image.placed)
        with self._cpu.decoded(image.encoded, place) as result:
            if isinstance(result, ImageError):
                return result
            pixels = self._memory.to_array(result.pixels[:, :, :3].copy())
            return replace(result, pixels=pixels, is_fallback=True)

    def trim(self) -> None:
        """Give memory back that is kept for the next images; any thread may ask for it.

        nvImageCodec gives none back, so between batches it is made anew.
        """
        self._local = threading.local()
        self._cpu.trim()
        with self._lock:
            if self._chunks or not self._is_used or self._decoder is None:
                return
            self._memory.settle()
            with suppress(RuntimeError):  # no memory, perhaps: the old one still decodes
                decoder = self._made(self._kinds)
                self._first_call(decoder)
                self._decoder, self._is_used = decoder, False

    def close(self) -> None:
        """End the threads; nothing can be decoded any more. Once is enough, and twice does no harm."""
        if self._readers:
            self._readers.shutdown()
        self._decoder = None  # its threads and device memory

    def _batch(self, images: list[Read]) -> list[Any]:
        """Images of nvImageCodec, None where it failed; buffers of this thread's last call are used again."""
        if not images:
            return []
        local = self._local
        kept: list[Any] = getattr(local, "images", [])
        sizes: list[int] = getattr(local, "sizes", [])
        if sum(sizes) > self._kept_bytes:
            kept = []
        streams = [nvimgcodec.CodeStream(image.encoded) for image in images]
        buffers = {"images": kept[: len(streams)]} if len(kept) >= len(streams) else {}
        try:
            with self._lock:
                self._is_used = True
                with self._memory.span("pixprep:decode"):
                    decoded = self._call(self._decoder, streams, **buffers)
        except RuntimeError as error:
            self._warn(str(error).partition("\n")[0])
            local.images, local.sizes = [], []
            return [None] * len(images)
        needs = [image.n_bytes for image in images]
        if buffers:  # the same objects come back, or None: they stay kept, each once
            local.sizes = [*map(max, sizes, needs), *sizes[len(needs) :]]
        else:
            kept_ones = [(image, need) for image, need in zip(decoded, needs, strict=True) if image is not None]
            local.images, local.sizes = [image for image, _ in kept_ones], [need for _, need in kept_ones]
        if None in decoded:
            free = self._memory.free_bytes()
            if free < SCARCE_BYTES:
                self._warn(f"{free >> 20} MiB of the GPU's memory are free")
        return [
            each if image.placed and _is_shaped(each, image.placed) else None
            for each, image in zip(decoded, images, strict=True)
        ]

    def _warn(self, why: str) -> None:
        """Once: it may happen with every image."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("nvImageCodec does not decode JPEGs, so the CPU does: %s; this is said once", why)

    def _call(self, decoder: Any, streams: list[Any], **buffers: Any) -> list[Any]:
        return list(decoder.decode(streams, params=self._params, cuda_stream=self._memory.stream(), **buffers))

    def _made(self, kinds: Sequence[Any]) -> Any:
        """A decoder of nvImageCodec.

        Raises:
            RuntimeError: there is none of these kinds here.
        """
        threads = min(self._threads, MOST_THREADS)
        return nvimgcodec.Decoder(
            device_id=self._device_id,
            max_num_cpu_threads=threads,
            backends=[nvimgcodec.Backend(kind) for kind in kinds],
            options=f":num_cuda_streams={min(threads, MOST_STREAMS)} {self._options}",
        )

    # before the first image

    def _checked(self, codec: Codec) -> tuple[Sequence[Any], Any]:
        """What decodes here as ``codec`` says: nvImageCodec's kinds of decoders, and its decoder of these."""
        kinds = {"consistent": _CUDA, "fastest": _HARDWARE + _CUDA, "cpu": _CPU}[codec]
        try:
            decoder = self._made(kinds)
        except RuntimeError as error:
            raise SetupError(f"nvImageCodec makes no decoder here: {error}: {REMEDY}") from None
        pixels = self._first_call(decoder)
        self._compare(pixels)
        if codec != "consistent" or not self._is_hardware_equal(pixels):
            return kinds, decoder
        kinds = _HARDWARE + _CUDA
        decoder = self._made(kinds)
        self._compare(self._first_call(decoder))
        log.info("the hardware JPEG engine decodes too: its pixels are the CUDA decoder's")
        return kinds, decoder

    def _is_hardware_equal(self, pixels: dict[str, U8]) -> bool:
        """Whether the hardware engine alone decodes samples, and all that it decodes to these pixels."""
        try:
            ours = self._first_call(self._made(_HARDWARE))
        except RuntimeError:  # there is none
            return False
        return bool(ours) and all(name in pixels and np.array_equal(each, pixels[name]) for name, each in ours.items())

    def _first_call(self, decoder: Any) -> dict[str, U8]:
        """Decode as many samples as a chunk may have images: those of each kind that are decoded, on the host."""
        plan, limits = replace(self._plan, outputs={}), Limits()
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
            name: self._memory.to_host(self._memory.to_array(image))
            for (name, (_, placed)), image in zip(ours.items(), decoded, strict=False)
            if _is_shaped(image, placed)
        }

    def _compare(self, pixels: dict[str, U8]) -> None:
        """Raise SetupError unless the samples are decoded, and as the CPU decodes them."""
        if not pixels:
            raise SetupError(f"nvImageCodec decodes no JPEG on this GPU: {REMEDY}")
        cpu = CpuDecoder(replace(self._plan, outputs={}), Limits())
        for name, ours in pixels.items():
            with cpu.decoded(samples()[name]) as expected:
                assert not isinstance(expected, ImageError)
                apart = np.abs(ours.astype(int) - expected.pixels[:, :, : ours.shape[2]]).mean()
            if apart > LARGEST_MEAN:
                raise SetupError(
                    f"nvImageCodec's pixels are {apart:.1f} levels from libjpeg-turbo's on this GPU, on average over a "
                    f"JPEG ({name}): {REMEDY}"
                )


def _whole(place: Place) -> Place:
    """The same place, of an image that is decoded whole."""
    return lambda height, width: place(height, width)._replace(denominator=1)


def _is_shaped(image: Any | None, placed: Placed) -> bool:
    """Whether nvImageCodec has decoded an image, to the height and width that its header says."""
    return image is not None and tuple(image.shape[:2]) == (placed.height, placed.width)
