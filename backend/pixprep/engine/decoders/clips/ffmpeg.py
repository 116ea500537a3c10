"""Decodes the requested frames of clips (MP4, MOV, Matroska, WebM, AVI) from memory with FFmpeg (PyAV).

The packets of the clip are read first, without decoding. Their timestamps determine the frames of the clip, and the key
frame before each requested frame. Packets are decoded from that key frame up to the last requested frame. In H.264,
H.265 and MPEG-4, pictures that are neither requested nor referenced by others are skipped. With x264's defaults, 60 %
of the work remains.

FFmpeg cannot read anything except the bytes of the clip. The container format is passed instead of probed, so that
playlists and other demuxers cannot be reached. Protocols are disabled, and only the listed codecs are allowed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import dropwhile, islice
from time import monotonic
from typing import Any, NamedTuple

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from pixprep.engine.decoders import Encoded, Limits
from pixprep.engine.decoders.clips.containers import Container, check_whole, container, count_samples
from pixprep.engine.decoders.clips.pictures import is_key, is_shown, may_begin, needs_another, spare
from pixprep.errors import ImageError

U8 = npt.NDArray[np.uint8]
CODECS = {
    "h264": "H.264",
    "hevc": "H.265",
    "vp8": "VP8",
    "vp9": "VP9",
    "av1": "AV1",
    "libdav1d": "AV1",
    "mpeg4": "MPEG-4",
}
_DEMUXERS: dict[Container, str] = {"mp4": "mov", "mkv": "matroska", "avi": "avi"}
_SKIPPING = ("h264", "mpeg4")
_MAX_STREAMS = 32
_MAX_SAMPLES = 2_000_000  # in all tracks of an MP4; FFmpeg's index takes 35 bytes per sample
_OPTIONS = {
    "protocol_whitelist": "none",
    "codec_whitelist": ",".join((*CODECS, "av1")),
    "max_streams": str(_MAX_STREAMS),
}


class Clip(NamedTuple):
    """The requested frames of a clip.

    Attributes:
        frames: Frames as uint8 (height, width, 3) RGB or (height, width, 1) gray. A frame that was requested twice is
            the same object.
        indices: Index of each frame in the file, in display order.
        times: Time of each frame in seconds after the first frame of the file.
        is_elsewhere: Whether a different decoder produced the frames, as arrays on its device.
    """

    frames: list[Any]
    indices: list[int]
    times: list[float]
    is_elsewhere: bool = False


class Frames(NamedTuple):
    """Times and size of a clip's frames, according to its packets.

    Attributes:
        times: Time of each frame in seconds, in display order.
        height, width: Size of a frame in pixels after the rotation of the container.
    """

    times: list[Fraction]
    height: int
    width: int


Choose = Callable[[Frames], Sequence[int]]


class Packets(NamedTuple):
    """Input of a decoder that replaces FFmpeg's.

    Attributes:
        stream: FFmpeg's video stream.
        packets: All packets of the stream in decoding order; they must not be modified.
        wanted: Position of the packet of each requested frame, in display order.
        first: First frame of the clip, decoded by FFmpeg. Requested frames with a different size are rejected.
        turn: Rotation in degrees, counterclockwise.
        is_gray: Whether to return one channel instead of RGB.
        check: Function that raises an ImageError after the deadline of the clip.
    """

    stream: Any
    packets: Sequence[Any]
    wanted: Sequence[int]
    first: Any
    turn: int
    is_gray: bool
    check: Callable[[], None]


Elsewhere = Callable[[Packets], Mapping[int, Any] | None]
"""Function that decodes to FFmpeg's pixels. It returns the requested, rotated frames by the positions of their packets,
or None if FFmpeg must decode or report the error."""


def decode(
    encoded: Encoded,
    choose: Choose,
    limits: Limits,
    *,
    is_gray: bool = False,
    apply_rotation: bool = True,
    elsewhere: Elsewhere | None = None,
) -> Clip:
    """Decode the frames of a clip that ``choose`` selects by their indices in display order.

    The first frame of a clip is the first one that can be decoded. Earlier frames, which refer to pictures before the
    file, are not counted.

    Args:
        encoded: Bytes of the file.
        choose: Function that returns the indices of the requested frames in ascending order, given ``Frames``. It may
            raise an ImageError.
        limits: Limits of the engine; see ``Limits``.
        is_gray: Whether to convert to one channel in full range, the BT.601 luma of the RGB colors, as PyAV's
            ``to_ndarray("gray")``. This differs from the stream's own luma if the stream specifies a different matrix.
            RGB colors use the matrix and range that the stream specifies, and BT.601 and limited range by default, as
            in FFmpeg.
        apply_rotation: Whether to apply the rotation that the container specifies.
        elsewhere: Decoder that is tried first. Validation and the choice of frames still happen in this function.

    Raises:
        ImageError: EMPTY, TOO_LARGE_BYTES, UNKNOWN_FORMAT, UNSUPPORTED, BAD_DIMENSIONS, TOO_MANY_PIXELS, TRUNCATED,
            CORRUPT, or any error of ``choose``.
    """
    data = memoryview(encoded).cast("B")
    limits.check_bytes(len(data))
    kind = container(data)
    try:
        check_whole(kind, data)
        count = count_samples(data, 0, len(data)) if kind == "mp4" else 0
    except ValueError as error:
        raise ImageError("UNSUPPORTED", str(error)) from None
    if count > _MAX_SAMPLES:
        raise ImageError("UNSUPPORTED", f"{count:,} samples of sound and pictures; at most {_MAX_SAMPLES:,} in a clip")
    ends_at = monotonic() + limits.max_decode_s
    try:
        with av.open(io.BytesIO(data), format=_DEMUXERS[kind], options=_OPTIONS) as file:
            reader = _Reader(file, kind, limits, ends_at)
            return reader.clip(choose, is_gray=is_gray, apply_rotation=apply_rotation, elsewhere=elsewhere)
    except av.error.EOFError:
        raise ImageError("TRUNCATED", f"the clip ends after {len(data):,} bytes") from None
    except (av.error.FFmpegError, ValueError, OSError, MemoryError) as error:
        raise ImageError(
            "CORRUPT", f"a damaged clip, or a kind that FFmpeg does not read: {type(error).__name__}"
        ) from None


class _Reader:
    """One open file."""

    def __init__(self, file: Any, kind: Container, limits: Limits, ends_at: float) -> None:
        self._file = file
        self._limits = limits
        self._ends_at = ends_at  # by the clock ``monotonic``
        if not file.streams.video:
            raise ImageError("UNSUPPORTED", "the file has no video stream")
        if len(file.streams) > _MAX_STREAMS:
            raise ImageError("UNSUPPORTED", f"{len(file.streams)} streams; at most {_MAX_STREAMS}")
        self._stream = file.streams.video[0]
        self._codec = self._stream.codec_context
        if self._codec is None or self._codec.name not in CODECS:
            names = ", ".join(dict.fromkeys(CODECS.values()))
            raise ImageError("UNSUPPORTED", f"a video codec that pixprep does not decode; it decodes {names}")
        self._limits.check_size(self._codec.height, self._codec.width)
        self._codec.thread_count = 1  # a lane decodes a clip of its own
        self._codec.options = {"err_detect": "explode", "max_pixels": str(limits.max_pixels)}
        self._reformatter = VideoReformatter()
        self._packets = self._read()
        self._begun: tuple[int, Sequence[Any]] = 0, ()  # how many packets the decoder has had, and what it showed
        if not any(is_shown(packet, self._codec) for packet in self._packets):
            raise ImageError("TRUNCATED", "the clip has no frame")
        self._first = self._begin()
        stamps = self._shown_stamps()
        is_whole = None not in stamps and len({*stamps}) == len(stamps)
        self._stamps = sorted(stamps) if kind != "avi" and is_whole else []
        self._spare = spare(self._codec.extradata, self._packets) if self._codec.name == "hevc" else frozenset()
        # Of each presentation time's frame: packets that an edit list leaves out may have the same time.
        self._position = {
            packet.pts: place for place, packet in enumerate(self._packets) if is_shown(packet, self._codec)
        }

    def clip(self, choose: Choose, *, is_gray: bool, apply_rotation: bool, elsewhere: Elsewhere | None) -> Clip:
        """See ``decode``."""
        first = self._first
        self._limits.check_size(first.height, first.width)
        if (matrix := first.side_data.get("DISPLAYMATRIX")) is not None:  # of which PyAV says the angle alone
            a, b, _, c, d = struct.unpack("<5i", bytes(matrix)[:20])
            if a * d - b * c < 0:
                raise ImageError("UNSUPPORTED", "a clip that its container mirrors")
        height, width = first.height, first.width
        turn = first.rotation if apply_rotation else 0
        times, stamps = self._times()
        length = times[-1] - times[0]
        if length > self._limits.max_clip_s:
            most = self._limits.max_clip_s
            raise ImageError("TOO_MANY_PIXELS", f"{float(length):,.0f} s; the limit is {most:,} (parameter max_clip_s)")
        shown = (width, height) if turn % 180 else (height, width)
        indices = list(choose(Frames(times, *shown)))
        distinct = sorted({*indices})
        if len(distinct) * height * width > self._limits.max_clip_pixels:
            raise ImageError(
                "TOO_MANY_PIXELS",
                f"{len(distinct)} frames of {height} x {width} pixels; "
                f"the limit is {self._limits.max_clip_pixels:,} (parameter max_clip_pixels)",
            )
        seconds = [float(times[index]) for index in indices]
        if elsewhere and stamps:
            at = {index: self._position[stamps[index]] for index in distinct}
            work = Packets(self._stream, self._packets, [*at.values()], first, turn, is_gray, self._check_time)
            there = elsewhere(work)
            if there is not None:
                return Clip([there[at[index]] for index in indices], indices, seconds, is_elsewhere=True)
        found: dict[int, U8] = {}
        wanted = {(stamps[index] if stamps else index): index for index in distinct}
        for index, frame in self._stamped(wanted) if stamps else self._counted(wanted):
            if (frame.height, frame.width, frame.rotation if apply_rotation else 0) != (height, width, turn):
                raise ImageError("UNSUPPORTED", "a clip whose frames differ in size")
            found[index] = self._pixels(frame, is_gray=is_gray, turn=turn)
        missing = [index for index in distinct if index not in found]
        if missing:
            raise ImageError("CORRUPT", f"frame {missing[0] + 1:,} of {len(times):,} does not decode")
        return Clip([found[index] for index in indices], indices, seconds)

    def _begin(self) -> Any:
        """The first frame that decodes. Packets before it, of a clip that was cut between key frames, leave.

        Raises:
            ImageError: CORRUPT: nothing decodes.
            InvalidDataError: a packet is damaged, and not one that the cut has left without its key frame.
        """
        if self._codec.name == "mpeg4":  # FFmpeg returns gray where other decoders report a missing picture
            self._packets = [*dropwhile(needs_another, self._packets)]
        begin, has_key = 0, False
        for place, packet in enumerate((*self._packets, None), 1):
            has_key = has_key or (packet is not None and may_begin(packet, self._codec))
            try:
                frames = self._decoded(packet)
            except av.error.InvalidDataError:
                if has_key:
                    raise
                self._codec.flush_buffers()
                begin = place
                continue
            if frames:
                is_gray = self._codec.name == "mpeg4" and not (frames[0].key_frame or self._packets[0].is_discard)
                if is_gray:
                    break
                self._begun = (place - begin, frames) if packet is not None else (0, ())
                self._packets = self._packets[begin:]
                return frames[0]
        raise ImageError("CORRUPT", "no frame decodes: the clip has no whole key frame to begin with")

    def _shown_stamps(self) -> list[Any]:
        """The times of the packets that are shown, but for those before the first frame, which do not decode.

        They lie before its packet; or behind it, of an open group, as they may need what was before the group.
        """
        stamps, first = [packet.pts for packet in self._packets if is_shown(packet, self._codec)], self._first.pts
        if None in stamps or first not in stamps:
            return [None]
        begin = stamps.index(first)
        before = [stamp for stamp in stamps[:begin] if stamp > first]
        return [*before, first, *dropwhile(lambda stamp: stamp < first, stamps[begin + 1 :])]

    def _times(self) -> tuple[list[Fraction], list[int]]:
        """Times at which frames are shown, in seconds from the first; and their stamps, if the packets have them."""
        if stamps := self._stamps:
            return [(stamp - stamps[0]) * self._stream.time_base for stamp in stamps], stamps
        count = sum(1 for _ in self._all())  # as many as the decoder shows: no packet says so
        if not count:
            raise ImageError("CORRUPT", "no frame of the clip can be decoded")
        rate = self._stream.average_rate or Fraction(25)
        return [index / rate for index in range(count)], []

    def _read(self) -> list[Any]:
        """Every packet of the stream, in the order of decoding."""
        packets, n_bytes = [], 0
        for packet in self._file.demux(self._stream):
            if not packet.size:
                continue
            if packet.is_corrupt:
                raise ImageError("TRUNCATED", "the clip ends before its last packet")
            packets.append(packet)
            n_bytes += packet.size  # many may name the same bytes
            if n_bytes > 2 * self._limits.max_image_bytes:
                raise ImageError(
                    "TOO_LARGE_BYTES",
                    f"its packets have {n_bytes:,} bytes and more, which no file of its size has "
                    "(parameter max_image_bytes)",
                )
            self._check_time()
            if len(packets) > self._limits.max_clip_frames:
                raise ImageError(
                    "TOO_MANY_PIXELS",
                    f"over {self._limits.max_clip_frames:,} frames in the clip (parameter max_clip_frames)",
                )
        return packets

    def _stamped(self, wanted: dict[int, int]) -> Iterator[tuple[int, Any]]:
        """(index, frame) of the wanted, which are given by their stamps."""
        keys = [(place, packet.pts) for place, packet in enumerate(self._packets) if is_key(packet, self._codec)]
        segments: dict[int, list[int]] = {}
        for stamp in wanted:  # begins with the last key frame before it, in the order shown and in that of decoding
            before = [place for place, key in keys if place <= self._position[stamp] and key <= stamp]
            segments.setdefault(before[-1] if before else 0, []).append(stamp)
        try:
            for key, stamps in sorted(segments.items()):
                for frame in self._segment(key, stamps):
                    yield wanted.pop(frame.pts), frame
        except av.error.InvalidDataError:
            if [*segments] == [0]:
                raise
        if wanted and [*segments] != [0]:
            # Some key frames of H.264 are not the first that is needed: from the first of all there is no doubt.
            for frame in self._segment(0, [*wanted]):
                yield wanted.pop(frame.pts), frame

    def _segment(self, key: int, stamps: Sequence[int]) -> Iterator[Any]:
        """The frames of these stamps, from a key frame before them to the last."""
        left = {*stamps}
        for frame in self._shown(key, max(self._position[stamp] for stamp in stamps), left):
            if frame.pts in left:
                left.remove(frame.pts)
                yield frame
            if not left:
                return

    def _shown(self, key: int, last: int, wanted: set[int]) -> Iterator[Any]:
        """The frames from a key frame's packet to the last; of those that are not wanted, some are skipped."""
        begun, frames = (0, ()) if key else self._begun
        self._begun = 0, ()
        if not begun:
            self._codec.flush_buffers()
        yield from frames
        first = self._packets[key].pts if key else None
        for place, packet in enumerate((*self._packets[key + begun : last + 1], None), key + begun):
            if packet is not None:
                if first is not None and packet.pts < first:
                    continue  # shown before the key frame, it may need pictures from before the key frame
                if place in self._spare and packet.pts not in wanted:
                    continue
                if self._codec.name in _SKIPPING:
                    self._codec.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
            yield from self._decoded(packet)

    def _counted(self, wanted: Collection[int]) -> Iterator[tuple[int, Any]]:
        """(index, frame) of the wanted, counted from the first."""
        numbered = enumerate(islice(self._all(), max(wanted) + 1))
        return ((index, frame) for index, frame in numbered if index in wanted)

    def _all(self) -> Iterator[Any]:
        """Every frame that the decoder shows."""
        self._codec.flush_buffers()
        for packet in (*self._packets, None):
            yield from self._decoded(packet)

    def _decoded(self, packet: Any) -> Sequence[Any]:
        self._check_time()
        frames: list[Any] = self._codec.decode(packet)
        for frame in frames:
            if frame.is_corrupt:
                raise ImageError("CORRUPT", "FFmpeg could not decode a frame whole")
        return frames

    def _check_time(self) -> None:
        """Raise ImageError TOO_MANY_PIXELS once the time for the clip is over."""
        if monotonic() > self._ends_at:
            most = self._limits.max_decode_s
            raise ImageError("TOO_MANY_PIXELS", f"its decode took more than {most} s (parameter max_decode_s)")

    def _pixels(self, frame: Any, *, is_gray: bool, turn: int) -> U8:
        """See ``Clip.frames``; turned by a multiple of 90 degrees, anticlockwise.

        Not ``rgba``: of that swscale leaves the last columns as they were in memory, where a width is 16 n + 2 or + 4.
        By one thread: swscale would start as many as there are cores, for each frame again.
        """
        if turn % 90:
            raise ImageError("UNSUPPORTED", f"a clip that is turned by {turn} degrees")
        converted = self._reformatter.reformat(frame, format="gray" if is_gray else "rgb24", threads=1)
        pixels: npt.NDArray[Any] = converted.to_ndarray().reshape(frame.height, frame.width, -1)
        return np.ascontiguousarray(np.rot90(pixels, turn // 90)) if turn else pixels
