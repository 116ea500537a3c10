"""Decoding on an NVIDIA GPU: one nvImageCodec call for all JPEGs of a chunk; what it refuses goes to the CPU decoder.

So the CPU decoder has the last word on a bad image, and the reason is the same on every device. No CUDA decoder has the
fast IDCT: with ``"idct": "fast"`` nvImageCodec decodes on the CPU, by libjpeg-turbo.

nvImageCodec does not say that a JPEG is damaged. Unless the plan asks for the fastest decoder, libjpeg-turbo reads its
data first, on the cores of the host: only a JPEG without damage reaches nvImageCodec, and images and errors are those
of the CPU. A large batch is cut into chunks, so that the host reads headers and data of one while another is decoded.

Every image is decoded whole: ``"scale": "auto"`` allows less, and asks for nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from nvidia import nvimgcodec

from pixprep.decoders import Decoded, Encoded, Limits
from pixprep.decoders.cpu import CpuDecoder, is_whole
from pixprep.decoders.header import JpegHeader, read_header
from pixprep.errors import ImageError, SetupError
from pixprep.plan import Plan

REMEDY = (
    'pip install "pixprep[gpu-cuda12]" (or gpu-cuda13, for the CUDA of the driver), or write "decoder": "cpu" in decode'
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
"""Memory that a thread keeps for the pixels of its next images. A buffer only grows, so that in batches with one large
image each, now here, now there, every buffer would become as large as that."""


class GpuDecoder:
    """See ``Decoder``. Pixels are uint8 (height, width, 3) RGB or (height, width, 1) gray, on the device.

    Args:
        plan: what to decode to.
        limits: what is refused from the header.
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
        device_id: int,
        to_array: Callable[[Any], Any],
        stream: Callable[[], int],
    ) -> None:
        self.fallbacks = 0
        self._cpu = CpuDecoder(replace(plan, scale="full"), limits)
        self._limits = limits
        self._is_strict = plan.damage == "strict"
        self._known: dict[int, tuple[Encoded, JpegHeader | None]] = {}
        self._cores = len(os.sched_getaffinity(0))
        self._readers = None if plan.decoder == "fastest" else ThreadPoolExecutor(self._cores)
        self._to_array = to_array
        self._stream = stream
        is_fast_idct = plan.idct == "fast"
        try:
            self._decoder = nvimgcodec.Decoder(
                device_id=device_id,
                backends=[nvimgcodec.Backend(kind) for kind in _BACKENDS["cpu" if is_fast_idct else plan.decoder]],
                options=f":fancy_upsampling={int(plan.chroma == 'fancy')}" + " :fast_idct=1" * is_fast_idct,
            )
        except RuntimeError as error:
            raise SetupError(f"nvImageCodec makes no decoder here: {error}: {REMEDY}") from None
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=plan.apply_exif_orientation,
            color_spec=nvimgcodec.GRAY if plan.is_gray else nvimgcodec.SRGB,
            sample_format=nvimgcodec.I_Y if plan.is_gray else nvimgcodec.I_RGB,
        )
        self._lock = threading.Lock()  # nvImageCodec: one call at a time for each decoder
        self._local = threading.local()

    @property
    def recovered(self) -> int:
        """See ``Decoder``."""
        return self._cpu.recovered

    def release(self) -> None:
        """See ``Decoder``: the device has a budget of bytes for each chunk."""

    def decode(self, encoded: Sequence[Encoded]) -> list[Decoded | ImageError]:
        """See ``Decoder.decode``: the pixels are valid until the same thread's next call."""
        results: list[Decoded | ImageError | None] = [None] * len(encoded)
        batch: list[int] = []
        for index, image in enumerate(encoded):
            try:
                if self._is_for_nvimgcodec(image):
                    batch.append(index)
            except ImageError as error:
                results[index] = error.as_value()
        if self._readers:
            are_whole = self._readers.map(is_whole, [encoded[index] for index in batch])
            batch = [index for index, whole in zip(batch, list(are_whole), strict=True) if whole]
        for index, decoded in zip(batch, self._batch([encoded[index] for index in batch]), strict=True):
            results[index] = None if decoded is None else Decoded.whole(self._to_array(decoded))
        return [self._on_cpu(encoded[index]) if result is None else result for index, result in enumerate(results)]

    def chunks(self, encoded: Sequence[Encoded], *, budget: int) -> Iterator[range]:
        """Ranges of images whose pixels have at most ``budget`` bytes together, and at least one image each.

        No chunk is more than a quarter of the batch, for as long as each core has an image of it.
        """
        most = min(max(self._cores, -(-len(encoded) // _CHUNKS)), _LARGEST)
        self._known = {}
        start = used = 0
        for index, image in enumerate(encoded):
            need = self._n_bytes(image)
            if index > start and (used + need > budget or index - start == most):
                yield range(start, index)
                start, used = index, 0
            used += need
        if start < len(encoded):
            yield range(start, len(encoded))

    def _n_bytes(self, encoded: Encoded) -> int:
        try:
            header = self._header(encoded)
        except ImageError:
            return 0  # it will not be decoded
        self._known[id(encoded)] = encoded, header
        return 3 * header.height * header.width if header else 3 * self._limits.max_pixels

    def _header(self, encoded: Encoded) -> JpegHeader | None:
        """The header of a JPEG within the limits; None for other formats. Read once for the chunks and the decode."""
        known = self._known.pop(id(encoded), None)
        if known is not None and known[0] is encoded:
            return known[1]
        return read_header(memoryview(encoded).cast("B"), self._limits, is_strict=self._is_strict)[1]

    def _is_for_nvimgcodec(self, encoded: Encoded) -> bool:
        """Whether the CUDA decoder reads it; a file that has no end is left to libjpeg-turbo, which refuses it."""
        header = self._header(encoded)
        if header is None or header.components not in (1, 3):
            return False
        return header.frame in _LOSSY_HUFFMAN and bytes(encoded).rfind(_END_OF_IMAGE) >= header.scan

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
        if sum(image.capacity for image in kept) > KEPT_BYTES:
            kept = []
        streams = [nvimgcodec.CodeStream(bytes(image)) for image in encoded]
        buffers = {"images": kept[: len(streams)]} if len(kept) >= len(streams) else {}
        with self._lock:
            images = list(self._decoder.decode(streams, params=self._params, cuda_stream=self._stream(), **buffers))
        if not buffers:  # else the same objects come back, or None: they stay kept, each once
            local.images = [image for image in images if image is not None]
        return images

    def _on_cpu(self, encoded: Encoded) -> Decoded | ImageError:
        (decoded,) = self._cpu.decode([encoded])
        self._cpu.release()
        if isinstance(decoded, ImageError):
            return decoded
        with self._lock:  # both lanes count
            self.fallbacks += 1
        return Decoded.whole(self._to_array(decoded.pixels[:, :, :3].copy()))
