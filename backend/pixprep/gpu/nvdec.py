"""Decodes clips on an NVIDIA GPU. PyAV reads the packets, NVDEC decodes them, and a CUDA kernel converts them to RGB.

PyAV opens or rejects the file, and determines which packets must be decoded. It also decodes the first frame, which
determines the size and the color space of the clip. NVDEC, which is called through PyNvVideoCodec, receives the packets
from a key frame up to the last requested frame, and returns NV12 surfaces. The kernel converts each surface to the RGB
pixels that FFmpeg would return. PyNvVideoCodec's own conversion is not used, because its color matrix cannot be chosen.
If NVDEC fails, or its pixels might differ from FFmpeg's, PyAV decodes the clip. Therefore, all errors about a clip are
raised by PyAV.

NVDEC conceals damage: a packet with damaged data may become a frame of noise, which NVDEC only reports on standard
output. With ``damage="strict"``, PyAV decodes all clips and reports their damage.

A new decoder is created for each clip, so that the decoder state after a damaged clip does not affect the next clip.
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
"""NVDEC's names of the codecs, by FFmpeg's names. NVDEC also supports VP8 and MPEG-4, but pixprep decodes them on the
CPU: in VP8, the packets of hidden frames do not result in a picture, and MPEG-4 only limits the error of the inverse
transform, so the pixels differ between decoders."""
_FILTERS = {"h264": "h264_mp4toannexb", "hevc": "hevc_mp4toannexb"}
_MAX_AGAIN = 2
"""Maximum number of packets to decode for a clip, as a multiple of the number of packets in the clip."""
_SAMPLED = (0, 1, 4, 5, 9, 11)
"""Indices of the frames that are compared. They belong to both groups of pictures of a sample with twelve frames."""
_FAULTS: tuple[type[Exception], ...] = (
    *(nvc.PyNvVCException, nvc.PyNvVCExceptionUnsupported),
    *(av.error.FFmpegError, RuntimeError, MemoryError, ValueError, IndexError),
    *(TypeError, AttributeError),
)
_SAMPLE_FAULTS: tuple[type[Exception], ...] = (ImageError, *_FAULTS)  # ``decode`` converts some faults to ImageErrors


class _Refused(Exception):  # noqa: N818  (not an error)
    """Raised if PyAV must decode the clip, because NVDEC's pixels might differ from FFmpeg's."""


class _Run(NamedTuple):
    """Consecutive packets of a clip. A decoder can begin with the first packet.

    Attributes:
        packets: Position of each packet in the clip, and the packet's bytes in NVDEC's format.
        wanted: Positions of the packets whose frames are requested.
    """

    packets: list[tuple[int, bytes]]
    wanted: set[int]


class Nvdec:
    """Decodes clips on CuPy's current GPU.

    The constructor decodes a sample clip of each codec with NVDEC and with PyAV. Codecs whose frames differ are not
    used.
    """

    def __init__(self) -> None:
        self._device_id = cupy.cuda.Device().id
        self._show = SurfaceKernel().show
        self._has_warned = False
        self._codecs = [*_NVIDIA]
        faults = {name: self._fault(name) for name in _NVIDIA}
        self._codecs = [name for name, fault in faults.items() if fault is None]
        for name, fault in faults.items():
            if fault is not None:
                log.warning("the CPU decodes %s clips, because NVDEC cannot be used: %s", name, fault)

    def frames(self, clip: Packets) -> Mapping[int, Any] | None:
        """See ``ffmpeg.Elsewhere``. Returns device arrays that queued work on the thread's current stream fills."""
        try:
            return self._frames(clip)
        except _Refused:
            return None
        except _FAULTS as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning("the CPU decodes a clip, because NVDEC failed: %s (logged only once)", _line(error))
            return None

    def _fault(self, name: str) -> str | None:
        """Describe why a codec cannot be used on this GPU. Return None if the codec can be used."""
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
        return f"{sum(apart):,} values of a sample differ from FFmpeg's" if any(apart) else None

    def _frames(self, clip: Packets) -> Mapping[int, Any]:
        """See ``frames``.

        Raises:
            _Refused: PyAV must decode the clip.
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
            stream.synchronize()  # before the decoder frees its memory, which queued work still reads
        if len(found) < len(clip.wanted):
            raise _Refused("NVDEC did not return every requested frame")
        return found

    def _numbers(self, name: str, clip: Packets) -> surfaces.Coefficients:
        """Return the coefficients of a clip's color conversion.

        Raises:
            _Refused: NVDEC's pixels might differ from FFmpeg's.
        """
        first = clip.first
        if name not in self._codecs:
            raise _Refused("the codec is not supported")
        is_even = first.height % 2 == first.width % 2 == 0
        if first.format.name not in _FORMATS or not is_even or first.interlaced_frame or clip.turn % 90 or clip.is_gray:
            raise _Refused("the kind of frame is not supported")
        numbers = coefficients(first.format.name, first.colorspace, first.color_range)
        if numbers is None:
            raise _Refused("the color space is not supported")
        return numbers

    @staticmethod
    def _surfaces(decoder: Any, run: _Run, clip: Packets) -> Iterator[tuple[int, Any]]:
        """Yield the position and the surface of each requested frame.

        A surface is valid until the next iteration.
        """
        left = set(run.wanted)
        for position, data in (
            *run.packets,
            (0, b""),
        ):  # an empty packet ends the stream
            clip.check()
            packet, memory = nvc.PacketData(), np.frombuffer(data, np.uint8)
            packet.bsl_data, packet.bsl, packet.pts = memory.ctypes.data if data else 0, len(data), position
            for surface in decoder.Decode(packet):
                shown = surface.getPTS()
                if shown in left:
                    left.remove(shown)
                    yield shown, surface

    def _shown(self, surface: Any, clip: Packets, numbers: surfaces.Coefficients) -> Any:
        """Queue the conversion of a surface to RGB, and return the pixels."""
        height, width = clip.first.height, clip.first.width
        is_expected = surface.format == nvc.Pixel_Format.NV12 and tuple(surface.shape) == (height * 3 // 2, width)
        if not is_expected:
            raise _Refused("the size of frames changes")
        luma, chroma = surface.GetPtrToPlane(0), surface.GetPtrToPlane(1)
        where = surfaces.Surface(luma, chroma, surface.strides[0], height, width, clip.turn // 90 % 4)
        return self._show(where, numbers)


def _runs(clip: Packets, name: str, sequences: Sequences) -> Iterator[_Run]:
    """Yield the runs of packets to decode. Each run begins with a packet at which a decoder can begin.

    All packets must use the same sequence header.

    Raises:
        _Refused: A decoder cannot begin at any packet, the sequence headers differ, or the runs contain many more
            packets than the clip. PyAV decodes such a clip packet by packet, and checks its deadline.
    """
    begins: dict[int, list[int]] = {}
    keys = [place for place, packet in enumerate(clip.packets) if packet.is_keyframe]
    may_begin = cache(lambda place: any(sequences.begins(data) for data in _converted(clip, name, [place])))
    for position in clip.wanted:
        stamp = clip.packets[position].pts
        before = (key for key in reversed(keys) if key <= position and clip.packets[key].pts <= stamp)
        begin = next(filter(may_begin, before), None)
        if begin is None:
            raise _Refused("no key frame at which a decoder can start")
        begins.setdefault(begin, []).append(position)
    if sum(max(wanted) + 1 - begin for begin, wanted in begins.items()) > _MAX_AGAIN * len(clip.packets):
        raise _Refused("groups of pictures overlap")
    headers = {header for data in _converted(clip, name, [0]) for header in sequences.headers(data)}
    for begin, wanted in sorted(begins.items()):
        shown = clip.packets[begin].pts
        places = [  # without the frames that are shown before the key frame, because they may refer to earlier pictures
            place for place in range(begin, max(wanted) + 1) if not begin or clip.packets[place].pts >= shown
        ]
        packets = [each for each in zip(places, _converted(clip, name, places), strict=True) if each[1]]
        headers = headers.union(*(sequences.headers(data) for _, data in packets))
        if len(headers) != 1 or not all(map(sequences.is_plain, headers)):
            raise _Refused("interlaced frames, film grain, or different sequence headers")
        yield _Run(packets, set(wanted))


def _converted(clip: Packets, name: str, places: Sequence[int]) -> Iterator[bytes]:
    """Convert packets to NVDEC's format.

    For H.264 and H.265, the packets then contain start codes, and parameter sets precede key frames.
    """
    changed = av.bitstream.BitStreamFilterContext(_FILTERS[name], clip.stream) if name in _FILTERS else None
    for place in places:
        data = bytes(clip.packets[place])
        yield b"".join(map(bytes, changed.filter(av.Packet(data)))) if changed else data


@cache
def coefficients(form: str, matrix: int, color_range: int) -> surfaces.Coefficients | None:
    """Determine the coefficients of this machine's libswscale from a frame of noise.

    Args:
        form: FFmpeg's name of the pixel format.
        matrix: Number of the color matrix (ISO/IEC 23091-2).
        color_range: FFmpeg's number of the color range.

    Returns:
        None if no known coefficients reproduce the frame.
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
    except (OSError, ValueError):  # FFmpeg does not support the color matrix
        return None
    return surfaces.coefficients(surfaces.Planes(*planes), expected)


def sample(name: str) -> bytes:
    """Return a codec's sample clip, which was created by tools/sample_clips.py.

    The clip contains 12 frames of 160 x 192 pixels, in 2 groups of pictures.
    """
    return (files("pixprep.gpu") / "clips" / name).read_bytes()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
