"""Decoding on an NVIDIA GPU: one nvImageCodec call for all JPEGs of a chunk; the rest goes to the CPU decoder.

nvImageCodec decodes the kinds of JPEGs that it was compared with the CPU decoder by, on this machine, when the decoder
was made. The CPU decoder has everything else, on the cores of the host, meanwhile: other formats, rare kinds of JPEGs,
and what nvImageCodec refuses. So the reason why an image is refused is the same on every device.

No CUDA decoder has the fast IDCT: with ``"idct": "fast"`` nvImageCodec decodes on the CPU, by libjpeg-turbo. There it
has another decoder for images that it turns upright, which knows neither the fast IDCT nor the fast chroma: these go to
the CPU decoder.

nvImageCodec does not say that a JPEG is damaged. Only one whose structure is whole reaches it (``structural``). With
the other levels of damage libjpeg-turbo reads its data first, too, on the cores of the host: images and errors are then
those of the CPU. A large batch is cut into chunks, so that the host reads one while another is decoded.

Every image is decoded whole: ``reduced`` allows less, and asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.cores import cores
from pixprep.engine.decoders import Chunk, Decoded, Encoded, neighbours
from pixprep.engine.decoders.header import check_header, read_whole_header, said_pixels
from pixprep.engine.decoders.images import CpuDecoder, Read, is_whole
from pixprep.engine.decoders.structure import Structure, structures
from pixprep.engine.options import EngineOptions
from pixprep.errors import ImageError
from pixprep.gpu.nvimagecodec import MOST, NvImageCodec, to_array
from pixprep.plan.plan import Place, Plan

U8 = npt.NDArray[np.uint8]

_JPEG = b"\xff\xd8\xff"
_CHUNKS, _CHECKED_CHUNKS = 2, 4
"""Chunks of a large batch: one for each lane; more where the cores of the host read every image's data first."""
_LEAST = 8
"""Images of a chunk: a call takes its time, however few they are. In a simulation 16 gave a sixth less for a
batch of 16, and more chunks gave nothing."""


class Image(NamedTuple):
    """An image of a chunk.

    Attributes:
        read: as the CPU decoder takes it, or why it is refused; for nvImageCodec it has an array of the encoded bytes.
        n_bytes: of its pixels.
        is_ours: nvImageCodec reads it; where it lies is known.
    """

    read: Read | ImageError
    n_bytes: int = 0
    is_ours: bool = False


class GpuDecoder:
    """See ``Decoder``. Pixels are uint8 (height, width, 3) RGB or (height, width, 1) gray, on the device.

    When it is made, it decodes ``samples`` and compares them with the CPU decoder's.

    Args:
        plan: what to decode to.
        options: of the engine. Its threads read JPEGs; nvImageCodec has at most 16 of them.
        budget: the bytes of the pixels of one chunk, at most.

    Attributes:
        words: what decodes here.

    Raises:
        SetupError: nvImageCodec lacks something here, or decodes something else than libjpeg-turbo does.
    """

    def __init__(self, plan: Plan, options: EngineOptions, *, budget: int) -> None:
        damage = options.damage or "structural"
        self._plan = replace(plan, reduced=False)
        self._cpu = CpuDecoder(self._plan, options.limits, damage=damage)
        self._limits = options.limits
        self._is_strict = damage in ("strict", "structural")
        self._budget = budget
        self._threads = options.threads or cores()
        self._codec = NvImageCodec(self._plan, codec=options.decoder, threads=self._threads)
        self.words = self._codec.words
        self._is_reading = damage != "structural"
        self._pool = ThreadPoolExecutor(self._threads, "pixprep-decode")

    def chunks(self, encoded: Sequence[Encoded], places: Sequence[Place], *, is_whole: bool = True) -> Iterator[Chunk]:
        """See ``Decoder``: neighbours, whose pixels fit into the budget together, or one image.

        A large batch has a chunk for each lane at least. Where the cores read every image's data first, it has twice as
        many, as long as each core has an image of one.
        """
        del is_whole  # they all are
        least, parts = (self._threads, _CHECKED_CHUNKS) if self._is_reading else (_LEAST, _CHUNKS)
        count = len(encoded)
        most = max(1, min(-(-count // max(1, min(parts, count // least))), MOST))
        for begin in range(0, count, most):
            images = self._read(encoded[begin : begin + most], places[begin : begin + most])
            for start, end in neighbours([image.n_bytes for image in images], self._budget):
                yield Chunk(range(begin + start, begin + end), images[start:end])

    @contextmanager
    def decode(self, chunk: Chunk) -> Iterator[list[Decoded | ImageError]]:
        """See ``Decoder``: the pixels are valid until the same thread's next call."""
        results: dict[int, Decoded | ImageError] = {}
        on_host: dict[int, Future[Decoded | ImageError]] = {}
        ours: dict[int, Read] = {}
        for index, (read, _, is_ours) in enumerate(chunk.images):
            if isinstance(read, ImageError):
                results[index] = read
            elif is_ours:
                ours[index] = read
            else:
                on_host[index] = self._pool.submit(self._by_cpu, read)
        batch = list(ours)
        if self._is_reading:
            are_whole = list(self._pool.map(is_whole, [read.encoded for read in ours.values()]))
            batch = [index for index, whole in zip(batch, are_whole, strict=True) if whole]
        placed = {index: read.placed for index, read in ours.items() if read.placed is not None}
        streams = [ours[index].encoded for index in batch]
        with self._codec.decoded(streams, [placed[index] for index in batch]) as arrays:
            for index, array in zip(batch, arrays, strict=True):
                if array is not None:
                    results[index] = Decoded(to_array(array), placed[index])
            for index in ours.keys() - results.keys():
                on_host[index] = self._pool.submit(self._by_cpu, ours[index])
            for index, later in on_host.items():
                result = later.result()
                if isinstance(result, Decoded):
                    result = result._replace(pixels=to_array(result.pixels))
                results[index] = result
            yield [results[index] for index in range(len(chunk.images))]

    def _read(self, encoded: Sequence[Encoded], places: Sequence[Place]) -> list[Image]:
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

    def _read_whole(self, encoded: U8, structure: Structure, place: Place) -> Image | None:
        """The header of a JPEG that is whole; None where something is odd."""
        header = read_whole_header(encoded.data, structure)
        if header is None or structure.scans > self._limits.max_scans:
            return None
        try:
            self._limits.check_format("jpeg")
            check_header(header, encoded.data, self._limits, is_strict=self._is_strict)
            placed = place(*header.size(is_upright=self._plan.apply_exif_orientation))
        except ImageError as error:
            return Image(error.as_value())
        read = Read(encoded, place, "jpeg", header, placed)
        return Image(read, 3 * header.height * header.width, self._codec.takes(header, structure))

    def _read_odd(self, encoded: Encoded, place: Place) -> Image:
        """The header of what is no JPEG, or not a whole one: the CPU decodes it, or finds what is wrong."""
        read = self._cpu.read(encoded, place)
        if isinstance(read, ImageError):
            return Image(read)
        if read.header is not None:
            return Image(read, 3 * read.header.height * read.header.width)
        said, most = said_pixels(memoryview(encoded).cast("B"), read.name), self._limits.max_pixels
        return Image(read, 3 * (most if said is None else min(said, most)))

    def _by_cpu(self, read: Read) -> Decoded | ImageError:
        """A copy of what the CPU decodes an image to, without the byte that has no meaning."""
        with self._cpu.decode(Chunk((0,), (read,))) as (result,):
            if isinstance(result, ImageError):
                return result
            height, width, channels = result.pixels.shape
            pixels = np.empty((height, width, min(channels, 3)), np.uint8)
            for channel in range(pixels.shape[2]):  # NumPy takes four times as long for all three at once
                pixels[:, :, channel] = result.pixels[:, :, channel]
            return result._replace(pixels=pixels, is_fallback=True)

    def trim(self) -> None:
        """See ``Decoder``."""
        self._cpu.trim()
        self._codec.trim()

    def close(self) -> None:
        """See ``Decoder``: once is enough, and twice does no harm."""
        self._pool.shutdown()
        self._codec.close()
