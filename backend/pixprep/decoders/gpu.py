"""Decoding on an NVIDIA GPU: one nvImageCodec call for all JPEGs of a chunk; what it refuses goes to the CPU decoder.

So the CPU decoder has the last word on a bad image, and the reason is the same on every device. No CUDA decoder has the
fast IDCT: with ``"idct": "fast"`` nvImageCodec decodes on the CPU, by libjpeg-turbo. There it has another decoder for
images that it turns upright, which knows neither the fast IDCT nor the fast chroma: these go to the CPU decoder.

nvImageCodec does not say that a JPEG is damaged. Unless the fastest decoder is asked for, libjpeg-turbo reads its data
first, on the cores of the host: only a JPEG without damage reaches nvImageCodec, and images and errors are those of the
CPU. A large batch is cut into chunks, so that the host reads headers and data of one while another is decoded.

Every image is decoded whole: ``reduced`` allows less, and asks for nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from nvidia import nvimgcodec

from pixprep.decoders import Chunk, Codec, Damage, Decoded, Encoded, Limits
from pixprep.decoders.cpu import CpuDecoder, is_whole
from pixprep.decoders.header import JpegHeader, read_header
from pixprep.errors import ImageError, SetupError
from pixprep.plan import Placed, Plan

REMEDY = (
    'pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver), or choose the decoder "cpu" '
    "(an argument of Engine, a parameter of the Triton model)"
)
_BACKENDS = {
    "consistent": (nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU),
    "fastest": (nvimgcodec.HW_GPU_ONLY, nvimgcodec.GPU_ONLY, nvimgcodec.HYBRID_CPU_GPU),
    "cpu": (nvimgcodec.CPU_ONLY,),
}
_LOSSY_HUFFMAN = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive; the others go to libjpeg-turbo
_END_OF_IMAGE = b"\xff\xd9"
_CHUNKS = 4
_LARGEST = 65_535  # images of a chunk: each is one z of a kernel's grid, and CUDA allows no more
KEPT_BYTES = 1 << 30
"""See ``kept_bytes``. A buffer only grows: where each batch has one large image in another place, every buffer would
become that large."""


@dataclass(frozen=True)
class Read:
    """An image whose header has been read.

    Attributes:
        encoded: the image.
        placed: where it lies in every output; None: its size is not known, or nvImageCodec does not read it.
        error: why it is refused.
    """

    encoded: Encoded
    placed: Placed | None = None
    error: ImageError | None = None


class GpuDecoder:
    """See ``Decoder``. Pixels are uint8 (height, width, 3) RGB or (height, width, 1) gray, on the device.

    Args:
        plan: what to decode to.
        limits: what is refused from the header.
        damage: what becomes of a damaged JPEG.
        codec: what may decode.
        budget: the bytes of the pixels of one chunk, at most.
        kept_bytes: memory that a thread keeps for the pixels of its next images.
        cores: that read JPEGs; default: as many as this process may use.
        device_id: the GPU, or nvImageCodec's number for "no GPU".
        to_array: wraps an nvImageCodec image without a copy, and uploads a NumPy array.
        stream: gives the CUDA stream, as a number, that the calling thread works on.

    Raises:
        SetupError: nvImageCodec lacks something here.
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
        cores: int | None = None,
        device_id: int,
        to_array: Callable[[Any], Any],
        stream: Callable[[], int],
    ) -> None:
        self._plan = replace(plan, reduced=False)
        self._cpu = CpuDecoder(self._plan, limits, damage=damage)
        self._limits = limits
        self._is_strict = damage == "strict"
        self._budget = budget
        self._kept_bytes = kept_bytes
        self._cores = cores or len(os.sched_getaffinity(0))
        self._readers = None if codec == "fastest" else ThreadPoolExecutor(self._cores)
        self._to_array = to_array
        self._stream = stream
        is_fast_idct = plan.idct == "fast"
        is_fast = is_fast_idct or (codec == "cpu" and plan.chroma == "fast")
        self._is_for_turned = not (is_fast and plan.apply_exif_orientation)
        try:
            self._decoder = nvimgcodec.Decoder(
                device_id=device_id,
                backends=[nvimgcodec.Backend(backend) for backend in _BACKENDS["cpu" if is_fast_idct else codec]],
                options=f":fancy_upsampling={int(plan.chroma == 'fancy')}" + " :fast_idct=1" * is_fast_idct,
            )
        except RuntimeError as error:
            raise SetupError(f"nvImageCodec makes no decoder here: {error}: {REMEDY}") from None
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=plan.apply_exif_orientation,
            color_spec=nvimgcodec.GRAY if plan.is_gray else nvimgcodec.SRGB,
            sample_format=nvimgcodec.I_Y if plan.is_gray else nvimgcodec.I_RGB,
        )
        self._lock = threading.Lock()  # nvImageCodec takes one call at a time for each decoder
        self._local = threading.local()

    def chunks(self, encoded: Sequence[Encoded]) -> Iterator[Chunk[Read]]:
        """See ``Decoder``: neighbours, whose pixels fit into the budget together, or one image.

        No chunk is more than a quarter of the batch, as long as each core has an image of it.
        """
        most = min(max(self._cores, -(-len(encoded) // _CHUNKS)), _LARGEST)
        images: list[Read] = []
        start = used = 0
        for index, each in enumerate(encoded):
            image, need = self._read(each)
            if images and (used + need > self._budget or len(images) == most):
                yield Chunk(range(start, index), images)
                images, start, used = [], index, 0
            images.append(image)
            used += need
        if images:
            yield Chunk(range(start, len(encoded)), images)

    @contextmanager
    def decode(self, chunk: Chunk[Read]) -> Iterator[list[Decoded | ImageError]]:
        """See ``Decoder``: the pixels are valid until the same thread's next call."""
        batch = [index for index, image in enumerate(chunk.images) if image.placed]
        if self._readers:
            are_whole = self._readers.map(is_whole, [chunk.images[index].encoded for index in batch])
            batch = [index for index, whole in zip(batch, list(are_whole), strict=True) if whole]
        arrays = self._batch([chunk.images[index].encoded for index in batch])
        decoded = {index: array for index, array in zip(batch, arrays, strict=True) if array is not None}
        yield [self._result(image, decoded.get(index)) for index, image in enumerate(chunk.images)]

    def _read(self, encoded: Encoded) -> tuple[Read, int]:
        """The header of an image, and the bytes that its pixels take."""
        try:
            _, header = read_header(memoryview(encoded).cast("B"), self._limits, is_strict=self._is_strict)
            if header is None:
                return Read(encoded), 3 * self._limits.max_pixels
            placed = self._plan.place(*header.size(is_upright=self._plan.apply_exif_orientation))
        except ImageError as error:
            return Read(encoded, error=error.as_value()), 0
        is_ours = _is_for_nvimgcodec(encoded, header) and (header.orientation == 1 or self._is_for_turned)
        return Read(encoded, placed if is_ours else None), 3 * header.height * header.width

    def _result(self, image: Read, decoded: Any | None) -> Decoded | ImageError:
        """What nvImageCodec made of an image, or else the CPU."""
        if image.error is not None:
            return image.error
        if decoded is not None:
            assert image.placed is not None
            return Decoded(self._to_array(decoded), image.placed)
        with self._cpu.decoded(image.encoded) as result:
            if isinstance(result, ImageError):
                return result
            pixels = self._to_array(result.pixels[:, :, :3].copy())
            return replace(result, pixels=pixels, is_fallback=True)

    def trim(self) -> None:
        """Give memory back that the threads keep for their next images; any thread may ask for it."""
        self._local = threading.local()
        self._cpu.trim()

    def close(self) -> None:
        """End the threads; nothing can be decoded any more. Once is enough, and twice does no harm."""
        if self._readers:
            self._readers.shutdown()
        self._decoder = None  # its threads and device memory

    def _batch(self, encoded: list[Encoded]) -> list[Any]:
        """Images of nvImageCodec, None where it failed; buffers of this thread's last call are used again."""
        if not encoded:
            return []
        local = self._local
        kept: list[Any] = getattr(local, "images", [])
        if sum(image.capacity for image in kept) > self._kept_bytes:
            kept = []
        streams = [nvimgcodec.CodeStream(bytes(image)) for image in encoded]
        buffers = {"images": kept[: len(streams)]} if len(kept) >= len(streams) else {}
        with self._lock:
            images = list(self._decoder.decode(streams, params=self._params, cuda_stream=self._stream(), **buffers))
        if not buffers:  # else the same objects come back, or None: they stay kept, each once
            local.images = [image for image in images if image is not None]
        return images


def _is_for_nvimgcodec(encoded: Encoded, header: JpegHeader) -> bool:
    """Whether the CUDA decoder reads it; a file that has no end is left to libjpeg-turbo, which refuses it."""
    if header.components not in (1, 3) or header.frame not in _LOSSY_HUFFMAN:
        return False
    return bytes(encoded).rfind(_END_OF_IMAGE) >= header.scan
