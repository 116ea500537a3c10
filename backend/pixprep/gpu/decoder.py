"""Decodes images on an NVIDIA GPU: JPEGs with one nvImageCodec call per chunk, and other images with the CPU decoder.

When the decoder is created, nvImageCodec is compared with the CPU decoder on this machine. Afterwards, nvImageCodec
decodes the kinds of JPEGs that passed the comparison. At the same time, the CPU decoder decodes all other images on the
cores of the host: other formats, rare kinds of JPEGs, and JPEGs that nvImageCodec rejects. Therefore, an image is
rejected for the same reason on every device.

No CUDA decoder supports the fast IDCT. With ``"idct": "fast"``, nvImageCodec decodes on the CPU with libjpeg-turbo.
However, nvImageCodec decodes images with an EXIF orientation by code that supports neither the fast IDCT nor the fast
chroma upsampling. These images are therefore decoded by the CPU decoder.

nvImageCodec does not report damage. With ``damage="structural"``, it receives only JPEGs whose marker structure is
complete. With the other values of ``damage``, libjpeg-turbo first reads the data of each JPEG on the host, so that the
images and errors are the same as on the CPU. A large batch is split into chunks, so that the host reads one chunk while
the GPU decodes the previous chunk.

Every image is decoded at its full size. The plan's ``reduced`` allows decoding at a smaller size, but does not require
it.
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
from pixprep.engine.decoders.header import check_header, declared_pixels, read_whole_header
from pixprep.engine.decoders.images import CpuDecoder, Read, is_whole
from pixprep.engine.decoders.structure import Structure, structures
from pixprep.engine.options import EngineOptions
from pixprep.errors import ImageError
from pixprep.gpu.nvimagecodec import MOST, NvImageCodec, to_array
from pixprep.plan.plan import Place, Plan

U8 = npt.NDArray[np.uint8]

_JPEG = b"\xff\xd8\xff"
_CHUNKS, _CHECKED_CHUNKS = 2, 4
"""Number of chunks into which a large batch is split: one chunk per lane, or two per lane if the host first reads the
data of every image."""
_LEAST = 8
"""Minimum number of images per chunk, because each call has a fixed cost. In a simulation, a minimum of 16 reduced the
throughput for batches of 16 images by a sixth, and more than ``_CHUNKS`` chunks did not increase the throughput."""


class Image(NamedTuple):
    """One image of a chunk.

    Attributes:
        read: The encoded image with its header, or the reason why the image is rejected. The encoded bytes of a JPEG
            for nvImageCodec are a NumPy array.
        n_bytes: Size of the decoded pixels in bytes.
        is_ours: Whether nvImageCodec decodes the image. If so, ``read`` contains the placement of the image.
    """

    read: Read | ImageError
    n_bytes: int = 0
    is_ours: bool = False


class GpuDecoder:
    """Decoder that uses a GPU; see ``Decoder``.

    The decoded pixels are uint8 (height, width, 3) RGB or (height, width, 1) gray on the device. The constructor
    decodes the JPEGs of ``samples``, and compares the results with those of the CPU decoder.

    Args:
        plan: Plan that specifies the channels and the arithmetic of the decoded images.
        options: Options of the engine. ``threads`` is the number of threads that read JPEGs on the host; nvImageCodec
            uses at most 16 of its own.
        budget: Maximum size of the decoded pixels of one chunk in bytes.

    Attributes:
        words: Description of the decoder for logs.

    Raises:
        SetupError: A dependency of nvImageCodec is missing, or its pixels differ from libjpeg-turbo's.
    """

    def __init__(self, plan: Plan, options: EngineOptions, *, budget: int) -> None:
        damage = options.damage or "structural"
        self._plan = replace(plan, reduced=False)
        self._cpu = CpuDecoder(self._plan, options.limits, damage=damage)
        self._limits = options.limits
        self._is_accepted = "jpeg" in options.limits.formats
        self._is_strict = damage in ("strict", "structural")
        self._budget = budget
        self._threads = options.threads or cores()
        self._codec = NvImageCodec(self._plan, codec=options.decoder, threads=self._threads)
        self.words = self._codec.words
        self._is_reading = damage != "structural"
        self._pool = ThreadPoolExecutor(self._threads, "pixprep-decode")

    def chunks(self, encoded: Sequence[Encoded], places: Sequence[Place], *, is_whole: bool = True) -> Iterator[Chunk]:
        """See ``Decoder``. A chunk contains consecutive images whose pixels fit into the budget, or a single image.

        A large batch is split into at least one chunk per lane. If the host first reads the data of every image, the
        batch is split into twice as many chunks, provided that each chunk has at least one image per core.
        """
        del is_whole  # this decoder always decodes whole images
        least, parts = (self._threads, _CHECKED_CHUNKS) if self._is_reading else (_LEAST, _CHUNKS)
        count = len(encoded)
        most = max(1, min(-(-count // max(1, min(parts, count // least))), MOST))
        for begin in range(0, count, most):
            images = self._read(encoded[begin : begin + most], places[begin : begin + most])
            for start, end in neighbours([image.n_bytes for image in images], self._budget):
                yield Chunk(range(begin + start, begin + end), images[start:end])

    @contextmanager
    def decode(self, chunk: Chunk) -> Iterator[list[Decoded | ImageError]]:
        """See ``Decoder``. The pixels are valid until the next call from the same thread."""
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
        """Read the headers of images. One call checks the structure of all JPEGs; other images are read one by one."""
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
        """Read the header of a JPEG with a complete structure. Return None if anything about the JPEG is unusual."""
        header = read_whole_header(encoded.data, structure)
        if header is None or structure.scans > self._limits.max_scans:
            return None
        try:
            if not self._is_accepted:
                self._limits.check_format("jpeg")
            check_header(header, encoded.data, self._limits, is_strict=self._is_strict)
            placed = place(*header.size(is_upright=self._plan.apply_exif_orientation))
        except ImageError as error:
            return Image(error.as_value())
        read = Read(encoded, place, "jpeg", header, placed)
        return Image(read, 3 * header.height * header.width, self._codec.takes(header, structure))

    def _read_odd(self, encoded: Encoded, place: Place) -> Image:
        """Read the header of any other image. The CPU decoder decodes such an image, or rejects it with a reason."""
        read = self._cpu.read(encoded, place)
        if isinstance(read, ImageError):
            return Image(read)
        if read.header is not None:
            return Image(read, 3 * read.header.height * read.header.width)
        said, most = declared_pixels(memoryview(encoded).cast("B"), read.name), self._limits.max_pixels
        return Image(read, 3 * (most if said is None else min(said, most)))

    def _by_cpu(self, read: Read) -> Decoded | ImageError:
        """Decode an image on the CPU, and return a copy of its pixels without the unused fourth channel."""
        with self._cpu.decode(Chunk((0,), (read,))) as (result,):
            if isinstance(result, ImageError):
                return result
            height, width, channels = result.pixels.shape
            pixels = np.empty((height, width, min(channels, 3)), np.uint8)
            for channel in range(pixels.shape[2]):  # copying all channels at once would take NumPy four times as long
                pixels[:, :, channel] = result.pixels[:, :, channel]
            return result._replace(pixels=pixels, is_fallback=True)

    def trim(self) -> None:
        """See ``Decoder``."""
        self._cpu.trim()
        self._codec.trim()

    def close(self) -> None:
        """See ``Decoder``. Calling this method again has no effect."""
        self._pool.shutdown()
        self._codec.close()
