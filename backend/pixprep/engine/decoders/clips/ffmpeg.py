"""Decode the requested frames of clips (MP4, MOV, Matroska, WebM, AVI) from memory with FFmpeg (PyAV).

The packets of a clip are read first, without decoding them. Their timestamps determine the frames of the clip, and the
key frame before each requested frame. Packets are then decoded from this key frame to the last requested frame. In
H.264, H.265 and MPEG-4, pictures that are neither requested nor referenced by other pictures are skipped. With the
defaults of x264, this takes 60 % of the time of decoding all pictures.

FFmpeg can read only the bytes of the clip. The container format is passed to FFmpeg instead of being probed, so that a
file cannot select other demuxers, such as those of playlists. Protocols are disabled, and only the listed codecs are
allowed.
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
from pixprep.engine.decoders.clips.sequences import is_key, is_shown, may_begin, needs_another, spare
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
_MAX_SAMPLES = 2_000_000  # maximum for all tracks of an MP4; the index of FFmpeg takes 35 bytes per sample
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
        is_elsewhere: Whether a decoder other than FFmpeg produced the frames, as arrays on its device.
    """

    frames: list[Any]
    indices: list[int]
    times: list[float]
    is_elsewhere: bool = False


class Frames(NamedTuple):
    """Times and size of the frames of a clip. They are known before the requested frames are decoded.

    Attributes:
        times: Time of each frame in seconds, in display order.
        height, width: Size of a frame in pixels, after the rotation that the container specifies.
        rate: Number of frames per second that the container specifies, or 25 if it does not.
    """

    times: list[Fraction]
    height: int
    width: int
    rate: float = 25.0


Choose = Callable[[Frames], Sequence[int]]


class Packets(NamedTuple):
    """Input of a decoder that is used instead of FFmpeg's.

    Attributes:
        stream: FFmpeg's video stream.
        packets: All packets of the stream in decoding order. They must not be modified.
        wanted: Index of the packet of each requested frame, in display order.
        first: First frame of the clip, decoded by FFmpeg. Requested frames of a different size are rejected.
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
"""Function that decodes to the same pixels as FFmpeg. It returns the requested frames, rotated, by the indices of their
packets, or None if FFmpeg must decode the clip or report the error."""


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

    The first frame of a clip is the first one that can be decoded. If a clip was cut between key frames, earlier frames
    refer to pictures that it does not contain; they are not counted.

    Args:
        encoded: Bytes of the file.
        choose: Function that returns the indices of the requested frames, given ``Frames``. An index may occur several
            times. The function may raise an ImageError.
        limits: Limits of the engine.
        is_gray: Whether to convert frames to one channel in full range, which is the BT.601 luma of the RGB colors, as
            in PyAV's ``to_ndarray("gray")``. It differs from the luma of the stream if the stream specifies a different
            matrix. The conversion to RGB uses the matrix and the range that the stream specifies. As in FFmpeg, they
            default to BT.601 and limited range.
        apply_rotation: Whether to apply the rotation that the container specifies.
        elsewhere: Decoder that is tried first. This function still validates the clip and chooses the frames.

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
        raise ImageError(
            "UNSUPPORTED", f"the clip has {count:,} samples in all tracks; the maximum is {_MAX_SAMPLES:,}"
        )
    ends_at = monotonic() + limits.max_decode_s
    try:
        with av.open(io.BytesIO(data), format=_DEMUXERS[kind], options=_OPTIONS) as file:
            reader = _Reader(file, kind, limits, ends_at)
            return reader.clip(choose, is_gray=is_gray, apply_rotation=apply_rotation, elsewhere=elsewhere)
    except av.error.EOFError:
        raise ImageError("TRUNCATED", f"the clip ends after {len(data):,} bytes") from None
    except (av.error.FFmpegError, ValueError, OSError, MemoryError) as error:
        raise ImageError(
            "CORRUPT", f"the clip is damaged, or of a kind that FFmpeg does not support: {type(error).__name__}"
        ) from None


class _Reader:
    """Reader of one open file."""

    def __init__(self, file: Any, kind: Container, limits: Limits, ends_at: float) -> None:
        self._file = file
        self._limits = limits
        self._ends_at = ends_at  # deadline on the clock of ``time.monotonic``
        if not file.streams.video:
            raise ImageError("UNSUPPORTED", "the file has no video stream")
        if len(file.streams) > _MAX_STREAMS:
            raise ImageError("UNSUPPORTED", f"the clip has {len(file.streams)} streams; the maximum is {_MAX_STREAMS}")
        self._stream = file.streams.video[0]
        self._codec = self._stream.codec_context
        if self._codec is None or self._codec.name not in CODECS:
            names = ", ".join(dict.fromkeys(CODECS.values()))
            raise ImageError("UNSUPPORTED", f"the video codec is not supported; the supported codecs are {names}")
        self._limits.check_size(self._codec.height, self._codec.width)
        self._codec.thread_count = 1  # each lane decodes a different clip
        self._codec.options = {"err_detect": "explode", "max_pixels": str(limits.max_pixels)}
        self._reformatter = VideoReformatter()
        self._packets = self._read()
        self._begun: tuple[int, Sequence[Any]] = (
            0,
            (),
        )  # number of packets that were decoded to find the first frame, and their frames
        if not any(is_shown(packet, self._codec) for packet in self._packets):
            raise ImageError("TRUNCATED", "the clip does not contain a frame")
        self._first = self._begin()
        stamps = self._shown_stamps()
        has_stamps = None not in stamps and len({*stamps}) == len(stamps)
        self._stamps = sorted(stamps) if kind != "avi" and has_stamps else []
        self._spare = spare(self._codec.extradata, self._packets) if self._codec.name == "hevc" else frozenset()
        # Index of the packet of each presentation timestamp. Only shown packets count, because a packet that an edit
        # list excludes may have the same timestamp.
        self._position = {
            packet.pts: index for index, packet in enumerate(self._packets) if is_shown(packet, self._codec)
        }

    def clip(self, choose: Choose, *, is_gray: bool, apply_rotation: bool, elsewhere: Elsewhere | None) -> Clip:
        """See ``decode``."""
        first = self._first
        self._limits.check_size(first.height, first.width)
        if (matrix := first.side_data.get("DISPLAYMATRIX")) is not None:  # PyAV reports only its angle
            a, b, _, c, d = struct.unpack("<5i", bytes(matrix)[:20])
            if a * d - b * c < 0:
                raise ImageError("UNSUPPORTED", "a clip that its container mirrors is not supported")
        height, width = first.height, first.width
        turn = first.rotation if apply_rotation else 0
        times, stamps = self._times()
        length = times[-1] - times[0]
        if length > self._limits.max_clip_s:
            limit = self._limits.max_clip_s
            raise ImageError(
                "TOO_MANY_PIXELS", f"{float(length):,.0f} s; the limit is {limit:,} (parameter max_clip_s)"
            )
        shown = (width, height) if turn % 180 else (height, width)
        indices = list(choose(Frames(times, *shown, float(self._stream.average_rate or 25))))
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
            decoded = elsewhere(work)
            if decoded is not None:
                return Clip([decoded[at[index]] for index in indices], indices, seconds, is_elsewhere=True)
        found: dict[int, U8] = {}
        wanted = {(stamps[index] if stamps else index): index for index in distinct}
        for index, frame in self._stamped(wanted) if stamps else self._counted(wanted):
            if (frame.height, frame.width, frame.rotation if apply_rotation else 0) != (height, width, turn):
                raise ImageError("UNSUPPORTED", "a clip whose frames differ in size is not supported")
            found[index] = self._pixels(frame, is_gray=is_gray, turn=turn)
        missing = [index for index in distinct if index not in found]
        if missing:
            raise ImageError("CORRUPT", f"frame {missing[0] + 1:,} of {len(times):,} cannot be decoded")
        return Clip([found[index] for index in indices], indices, seconds)

    def _begin(self) -> Any:
        """Return the first frame that can be decoded, and remove the packets before it.

        Packets before the first frame occur in clips that were cut between key frames.

        Raises:
            ImageError: CORRUPT: No frame can be decoded.
            InvalidDataError: A packet is damaged although the clip contains its key frame.
        """
        if self._codec.name == "mpeg4":  # FFmpeg returns gray where other decoders report a missing picture
            self._packets = [*dropwhile(needs_another, self._packets)]
        begin, has_key = 0, False
        for index, packet in enumerate((*self._packets, None), 1):
            has_key = has_key or (packet is not None and may_begin(packet, self._codec))
            try:
                frames = self._decoded(packet)
            except av.error.InvalidDataError:
                if has_key:
                    raise
                self._codec.flush_buffers()
                begin = index
                continue
            if frames:
                is_gray = self._codec.name == "mpeg4" and not (frames[0].key_frame or self._packets[0].is_discard)
                if is_gray:
                    break
                self._begun = (index - begin, frames) if packet is not None else (0, ())
                self._packets = self._packets[begin:]
                return frames[0]
        raise ImageError("CORRUPT", "no frame can be decoded, because the clip does not contain a complete key frame")

    def _shown_stamps(self) -> list[Any]:
        """Return the timestamps of the shown packets, except frames before the first frame, which cannot be decoded.

        The packets of such frames precede that of the first frame. If the first frame begins an open group of pictures,
        they may also follow it, because these frames refer to pictures before the group.
        """
        stamps, first = [packet.pts for packet in self._packets if is_shown(packet, self._codec)], self._first.pts
        if None in stamps or first not in stamps:
            return [None]
        begin = stamps.index(first)
        before = [stamp for stamp in stamps[:begin] if stamp > first]
        return [*before, first, *dropwhile(lambda stamp: stamp < first, stamps[begin + 1 :])]

    def _times(self) -> tuple[list[Fraction], list[int]]:
        """Return the time of each frame in seconds after the first one, and the timestamps if the packets have them."""
        if stamps := self._stamps:
            return [(stamp - stamps[0]) * self._stream.time_base for stamp in stamps], stamps
        count = sum(1 for _ in self._all())  # count the decoded frames, because the packets do not specify their number
        if not count:
            raise ImageError("CORRUPT", "no frame can be decoded")
        rate = self._stream.average_rate or Fraction(25)
        return [index / rate for index in range(count)], []

    def _read(self) -> list[Any]:
        """Return all packets of the stream in decoding order."""
        packets, n_bytes = [], 0
        for packet in self._file.demux(self._stream):
            if not packet.size:
                continue
            if packet.is_corrupt:
                raise ImageError("TRUNCATED", "the clip ends before its last packet")
            packets.append(packet)
            n_bytes += packet.size  # several packets may refer to the same bytes
            if n_bytes > 2 * self._limits.max_image_bytes:
                raise ImageError(
                    "TOO_LARGE_BYTES",
                    f"the packets of the clip have at least {n_bytes:,} bytes in total, more than its file may have "
                    "(parameter max_image_bytes)",
                )
            self._check_time()
            if len(packets) > self._limits.max_clip_frames:
                raise ImageError(
                    "TOO_MANY_PIXELS",
                    f"more than {self._limits.max_clip_frames:,} frames in the clip (parameter max_clip_frames)",
                )
        return packets

    def _stamped(self, wanted: dict[int, int]) -> Iterator[tuple[int, Any]]:
        """Iterate over the requested frames as (index, frame); ``wanted`` maps their timestamps to their indices."""
        keys = [(index, packet.pts) for index, packet in enumerate(self._packets) if is_key(packet, self._codec)]
        segments: dict[int, list[int]] = {}
        for stamp in wanted:  # begin at the last key frame that precedes it in both display and decoding order
            before = [index for index, key in keys if index <= self._position[stamp] and key <= stamp]
            segments.setdefault(before[-1] if before else 0, []).append(stamp)
        try:
            for key, stamps in sorted(segments.items()):
                for frame in self._segment(key, stamps):
                    yield wanted.pop(frame.pts), frame
        except av.error.InvalidDataError:
            if [*segments] == [0]:
                raise
        if wanted and [*segments] != [0]:
            # Some frames of H.264 refer to pictures before their key frame. Decode these from the first packet.
            for frame in self._segment(0, [*wanted]):
                yield wanted.pop(frame.pts), frame

    def _segment(self, key: int, stamps: Sequence[int]) -> Iterator[Any]:
        """Iterate over the frames with the given timestamps, decoding from a key frame before them to the last one."""
        left = {*stamps}
        for frame in self._shown(key, max(self._position[stamp] for stamp in stamps), left):
            if frame.pts in left:
                left.remove(frame.pts)
                yield frame
            if not left:
                return

    def _shown(self, key: int, last: int, wanted: set[int]) -> Iterator[Any]:
        """Iterate over the frames from the packet of a key frame to the last packet.

        Frames that are not requested may be skipped.
        """
        begun, frames = (0, ()) if key else self._begun
        self._begun = 0, ()
        if not begun:
            self._codec.flush_buffers()
        yield from frames
        first = self._packets[key].pts if key else None
        for index, packet in enumerate((*self._packets[key + begun : last + 1], None), key + begun):
            if packet is not None:
                if first is not None and packet.pts < first:
                    continue  # it is shown before the key frame, and may refer to pictures before the key frame
                if index in self._spare and packet.pts not in wanted:
                    continue
                if self._codec.name in _SKIPPING:
                    self._codec.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
            yield from self._decoded(packet)

    def _counted(self, wanted: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Iterate over the requested frames as (index, frame), decoding all frames from the first one."""
        numbered = enumerate(islice(self._all(), max(wanted) + 1))
        return ((index, frame) for index, frame in numbered if index in wanted)

    def _all(self) -> Iterator[Any]:
        """Iterate over all frames that the decoder returns."""
        self._codec.flush_buffers()
        for packet in (*self._packets, None):
            yield from self._decoded(packet)

    def _decoded(self, packet: Any) -> Sequence[Any]:
        self._check_time()
        frames: list[Any] = self._codec.decode(packet)
        for frame in frames:
            if frame.is_corrupt:
                raise ImageError("CORRUPT", "FFmpeg could not decode a frame completely")
        return frames

    def _check_time(self) -> None:
        """Raise ImageError (TOO_MANY_PIXELS) if the clip has taken longer than ``max_decode_s``."""
        if monotonic() > self._ends_at:
            limit = self._limits.max_decode_s
            raise ImageError("TOO_MANY_PIXELS", f"decoding takes longer than {limit} s (parameter max_decode_s)")

    def _pixels(self, frame: Any, *, is_gray: bool, turn: int) -> U8:
        """Convert a frame to the pixels of ``Clip.frames``, rotated counterclockwise by a multiple of 90 degrees.

        The format is not ``rgba``, because swscale then does not write the last columns of images whose width is
        16 n + 2 or 16 n + 4. One thread is requested, because by default swscale starts one thread per core for each
        frame.
        """
        if turn % 90:
            raise ImageError("UNSUPPORTED", f"a rotation of the clip by {turn} degrees is not supported")
        converted = self._reformatter.reformat(frame, format="gray" if is_gray else "rgb24", threads=1)
        pixels: npt.NDArray[Any] = converted.to_ndarray().reshape(frame.height, frame.width, -1)
        return np.ascontiguousarray(np.rot90(pixels, turn // 90)) if turn else pixels
