"""Clips on an NVIDIA GPU: NVDEC decodes, by PyNvVideoCodec, what PyAV has read, and a kernel makes FFmpeg's RGB of it.

PyAV opens the file, refuses it, and says which packets are wanted. It also decodes the first frame, which tells the
size and the colours. NVDEC has the packets from a key frame on, to the last that is wanted, and gives surfaces of NV12.
PyNvVideoCodec's own RGB is not used: it takes no matrix. A clip goes to PyAV where NVDEC's pixels might be others, or
where NVDEC fails; so PyAV has the last word on a bad clip.

NVDEC hides damage, and says nothing of it but a line on standard output: a packet that is damaged inside may come as a
frame of noise. Who must know has ``damage="strict"``, and PyAV decodes.

Each clip has a decoder of its own: no state of a bad clip reaches the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import av
import av.bitstream
import av.error
import cupy
import numpy as np
import numpy.typing as npt
import PyNvVideoCodec as nvc  # noqa: N813  (as NVIDIA's samples do)

from pixprep.engine.decoders import Limits
from pixprep.engine.decoders.clips.ffmpeg import Packets, decode
from pixprep.engine.decoders.clips.sequences import SEQUENCES, Sequences
from pixprep.errors import ImageError
from pixprep.gpu import surfaces
from pixprep.gpu.kernel import SurfaceKernel

log = logging.getLogger(__name__)

U8 = npt.NDArray[np.uint8]

_FORMATS = ("yuv420p", "yuvj420p")
_ALIASES = {"libdav1d": "av1"}
_NVIDIA = {"h264": "H264", "hevc": "HEVC", "vp9": "VP9", "av1": "AV1"}
"""NVDEC decodes VP8 and MPEG-4, too. VP8's hidden frames have packets without a picture; and MPEG-4 leaves the inverse
transform to the decoder, within bounds, so that two of them differ."""
_FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}
_MAX_AGAIN = 2
"""Times that the packets of a clip may be decoded: they are in memory together."""
_SAMPLED = (0, 1, 4, 5, 9, 11)
"""Frames compared of the samples' twelve, in both groups of pictures."""
_FAULTS: tuple[type[Exception], ...] = (
    *(nvc.PyNvVCException, nvc.PyNvVCExceptionUnsupported),
    *(av.error.FFmpegError, RuntimeError, MemoryError, ValueError, IndexError),
    *(TypeError, AttributeError),
)
_SAMPLE_FAULTS: tuple[type[Exception], ...] = (ImageError, *_FAULTS)  # some of which ``decode`` makes ImageErrors of


class _Refused(Exception):  # noqa: N818  (no fault of anybody's)
    """NVDEC's pixels might be others than FFmpeg's."""


class _Run(NamedTuple):
    """Packets from one that a decoder may begin with.

    Attributes:
        packets: their positions, and their bytes as NVDEC takes them.
        wanted: positions of those whose frames are wanted.
    """

    packets: list[tuple[int, bytes]]
    wanted: set[int]


class Nvdec:
    """Decodes clips on CuPy's current GPU. When it is made, it compares a sample of each codec with PyAV's frames."""

    def __init__(self) -> None:
        self._device_id = cupy.cuda.Device().id
        self._show = SurfaceKernel().show
        self._has_warned = False
        self._codecs = [*_NVIDIA]
        faults = {name: self._fault(name) for name in _NVIDIA}
        self._codecs = [name for name, fault in faults.items() if fault is None]
        for name, fault in faults.items():
            if fault is not None:
                log.warning("NVDEC does not decode clips of %s here, so the CPU does: %s", name, fault)

    def frames(self, clip: Packets) -> Mapping[int, Any] | None:
        """See ``ffmpeg.Elsewhere``: arrays of the device, which the queue of the calling thread's stream writes."""
        try:
            return self._frames(clip)
        except _Refused:
            return None
        except _FAULTS as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning("NVDEC does not decode a clip, so the CPU does: %s; this is said once", _line(error))
            return None

    def _fault(self, name: str) -> str | None:
        """Fault of a codec on this GPU; None if it has none."""
        encoded = sample(name)
        try:
            expected = decode(encoded, lambda _: _SAMPLED, Limits())
            ours = decode(encoded, lambda _: _SAMPLED, Limits(), elsewhere=self._frames)
            apart = [
                int(np.count_nonzero(mine.get() != theirs))
                for mine, theirs in zip(ours.frames, expected.frames, strict=True)
            ]
        except _Refused as error:
            return str(error)
        except _SAMPLE_FAULTS as error:
            return _line(error)
        return f"{sum(apart):,} values of a sample are not FFmpeg's" if any(apart) else None

    def _frames(self, clip: Packets) -> Mapping[int, Any]:
        """See ``frames``.

        Raises:
            _Refused: FFmpeg is to decode.
        """
        name = clip.stream.codec_context.name
        name = _ALIASES.get(name, name)
        numbers = self._numbers(name, clip)
        runs = list(_runs(clip, name, SEQUENCES[name]))
        found: dict[int, Any] = {}
        stream = cupy.cuda.get_current_stream()
        decoder = nvc.CreateDecoder(
            gpuid=self._device_id,
            codec=getattr(nvc.cudaVideoCodec, _NVIDIA[name]),
            cudastream=int(stream.ptr),
            usedevicememory=True,
        )
        try:
            for run in runs:
                for position, surface in self._surfaces(decoder, run, clip):
                    found[position] = self._shown(surface, clip, numbers)
        finally:
            stream.synchronize()  # what is queued reads the decoder's memory
        if len(found) < len(clip.wanted):
            raise _Refused("NVDEC does not give every frame that is wanted")
        return found

    def _numbers(self, name: str, clip: Packets) -> surfaces.Coefficients:
        """The colours of a clip that NVDEC decodes as FFmpeg does."""
        first = clip.first
        if name not in self._codecs:
            raise _Refused("another codec")
        is_even = first.height % 2 == first.width % 2 == 0
        if first.format.name not in _FORMATS or not is_even or first.interlaced_frame or clip.turn % 90 or clip.is_gray:
            raise _Refused("another kind of frame")
        numbers = coefficients(first.format.name, first.colorspace, first.color_range)
        if numbers is None:
            raise _Refused("colours of another kind")
        return numbers

    @staticmethod
    def _surfaces(decoder: Any, run: _Run, clip: Packets) -> Iterator[tuple[int, Any]]:
        """Each wanted frame's position and surface, which is there until the next one is asked for."""
        left = set(run.wanted)
        for position, data in (*run.packets, (0, b"")):  # without bytes it is the end: the next run begins again
            clip.check()
            packet, memory = nvc.PacketData(), np.frombuffer(data, np.uint8)
            packet.bsl_data, packet.bsl, packet.pts = memory.ctypes.data if data else 0, len(data), position
            for surface in decoder.Decode(packet):
                shown = surface.getPTS()
                if shown in left:
                    left.remove(shown)
                    yield shown, surface

    def _shown(self, surface: Any, clip: Packets, numbers: surfaces.Coefficients) -> Any:
        """A surface as RGB."""
        height, width = clip.first.height, clip.first.width
        is_expected = surface.format == nvc.Pixel_Format.NV12 and tuple(surface.shape) == (height * 3 // 2, width)
        if not is_expected:
            raise _Refused("frames that differ in size")
        luma, chroma = surface.GetPtrToPlane(0), surface.GetPtrToPlane(1)
        where = surfaces.Surface(luma, chroma, surface.strides[0], height, width, clip.turn // 90 % 4)
        return self._show(where, numbers)


def _runs(clip: Packets, name: str, sequences: Sequences) -> Iterator[_Run]:
    """Runs of packets to decode, each from a packet that one may begin with; one header binds all of it.

    Raises:
        _Refused: there is no such packet, or there are several headers; or what is to be decoded is much more than the
            clip, which FFmpeg does a packet at a time, and until its deadline.
    """
    begins: dict[int, list[int]] = {}
    keys = [place for place, packet in enumerate(clip.packets) if packet.is_keyframe]
    may_begin = cache(lambda place: any(sequences.begins(data) for data in _converted(clip, name, [place])))
    for position in clip.wanted:
        stamp = clip.packets[position].pts
        before = (key for key in reversed(keys) if key <= position and clip.packets[key].pts <= stamp)
        begin = next(filter(may_begin, before), None)
        if begin is None:
            raise _Refused("no picture to begin with")
        begins.setdefault(begin, []).append(position)
    if sum(max(wanted) + 1 - begin for begin, wanted in begins.items()) > _MAX_AGAIN * len(clip.packets):
        raise _Refused("groups of pictures inside each other")
    headers = {header for data in _converted(clip, name, [0]) for header in sequences.headers(data)}
    for begin, wanted in sorted(begins.items()):
        shown = clip.packets[begin].pts
        places = [  # what is shown before it may need pictures from before it
            place for place in range(begin, max(wanted) + 1) if not begin or clip.packets[place].pts >= shown
        ]
        packets = [each for each in zip(places, _converted(clip, name, places), strict=True) if each[1]]
        headers = headers.union(*(sequences.headers(data) for _, data in packets))
        if len(headers) != 1 or not all(map(sequences.is_plain, headers)):
            raise _Refused("interlaced frames, a film's grain, or frames that are not alike")
        yield _Run(packets, set(wanted))


def _converted(clip: Packets, name: str, places: Sequence[int]) -> Iterator[bytes]:
    """Packets as NVDEC takes them: of H.264 and H.265 with start codes, and parameters before a key frame."""
    changed = av.bitstream.BitStreamFilterContext(_FILTERS[name], clip.stream) if name in _FILTERS else None
    for place in places:
        data = bytes(clip.packets[place])
        yield b"".join(map(bytes, changed.filter(av.Packet(data)))) if changed else data


@cache
def coefficients(form: str, matrix: int, color_range: int) -> surfaces.Coefficients | None:
    """Coefficients of this machine's libswscale for these colours, found by a frame of noise; None: not known.

    Args:
        form: of the pixels, as FFmpeg calls it.
        matrix: by its number (ISO/IEC 23091-2).
        color_range: FFmpeg's number.
    """
    numbers = np.random.default_rng(0)
    frame, planes = av.VideoFrame(64, 64, form), []
    for plane in frame.planes:
        levels = numbers.integers(0, 256, (plane.height, plane.line_size), np.uint8)
        plane.update(levels.tobytes())
        planes.append(levels[:, : plane.width])
    frame.colorspace, frame.color_range = matrix, color_range
    try:
        expected: U8 = frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
    except (OSError, ValueError):  # a matrix that FFmpeg does not convert
        return None
    return surfaces.coefficients(surfaces.Planes(*planes), expected)


def sample(name: str) -> bytes:
    """A clip of a codec: twelve frames of 160 x 192 in two groups of pictures, made by tools/sample_clips.py."""
    return (files("pixprep.gpu") / "clips" / name).read_bytes()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
