"""Creates clips with PyAV. Each frame shows its own number."""

import io
import struct
from fractions import Fraction

import numpy as np
import pytest

av = pytest.importorskip("av", reason="NO PYAV: no clip was made")

BITS, BLOCK = 9, 16
CODECS = {
    "h264.mp4": ("libx264", "mp4", {"g": "30", "bf": "3"}),
    "h264-one-key.mp4": ("libx264", "mp4", {"g": "500", "bf": "2"}),
    "h264-open.mkv": ("libx264", "matroska", {"g": "20", "bf": "3", "x264-params": "open-gop=1"}),
    "h264.mov": ("libx264", "mov", {"g": "25"}),
    "h264.avi": ("libx264", "avi", {"bf": "0"}),
    "h264-b.avi": ("libx264", "avi", {"bf": "2"}),
    "h265.mp4": ("libx265", "mp4", {"x265-params": "log-level=none:keyint=24"}),
    "h265.mkv": ("libx265", "matroska", {"x265-params": "log-level=none:keyint=24:open-gop=0"}),
    "h265-layers.mp4": ("libx265", "mp4", {"x265-params": "log-level=none:keyint=24:temporal-layers=3:bframes=7"}),
    "h264-refresh.mp4": ("libx264", "mp4", {"x264-params": "intra-refresh=1:keyint=20:bframes=0"}),
    "vp8.webm": ("libvpx", "webm", {"g": "20", "cpu-used": "8"}),
    "vp9.webm": ("libvpx-vp9", "webm", {"g": "20", "cpu-used": "8"}),
    "av1.mp4": ("libsvtav1", "mp4", {"preset": "12", "g": "20", "svtav1-params": "lp=1"}),
    "av1.webm": ("libsvtav1", "webm", {"preset": "12", "g": "20", "svtav1-params": "lp=1"}),
    "mpeg4.mp4": ("mpeg4", "mp4", {"g": "12", "bf": "2"}),
    "mpeg4.avi": ("mpeg4", "avi", {"g": "12"}),
}
"""Encoder, container and options of each kind of clip."""


def pixels(number, height=96, width=160):
    """Return an RGB frame that shows its number as ``BITS`` blocks above a moving pattern."""
    y, x = np.mgrid[:height, :width]
    frame = np.stack([x + 3 * number, y + 2 * number, x + y - number], axis=-1) % 256
    frame = (64 + frame // 2).astype(np.uint8)
    for bit in range(BITS):
        frame[:BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = 235 if number >> bit & 1 else 20
    return frame


def number(frame):
    """Read the number that ``pixels`` has drawn on a frame."""
    return sum(int(frame[BLOCK // 2, bit * BLOCK + BLOCK // 2, 0] > 127) << bit for bit in range(BITS))


def clip(
    name="h264.mp4", count=70, *, height=96, width=160, stamps=None, rate=30, pixel_format="yuv420p", cut=0, **stream
):
    """Encode a clip.

    Args:
        name: Kind of clip: a key of ``CODECS``, or a tuple like its values.
        count: Number of frames.
        height: Height in pixels.
        width: Width in pixels.
        stamps: Timestamp of each frame in milliseconds. Default: a constant frame rate.
        rate: Frames per second.
        pixel_format: Pixel format of the encoder.
        cut: Number of packets to omit at the beginning.
        stream: Attributes to set on the codec context, such as ``colorspace``.
    """
    encoder, container, options = CODECS[name] if isinstance(name, str) else name
    memory, packets = io.BytesIO(), []
    with av.open(memory, "w", format=container) as file:
        track = file.add_stream(encoder, rate=rate, options=options)
        track.width, track.height, track.pix_fmt = width, height, pixel_format
        if stamps is not None:
            track.codec_context.time_base = track.time_base = Fraction(1, 1000)
        for key, value in stream.items():
            setattr(track.codec_context, key, value)
        for index in range(count):
            frame = av.VideoFrame.from_ndarray(pixels(index, height, width), format="rgb24")
            if stamps is not None:
                frame.pts, frame.time_base = stamps[index], Fraction(1, 1000)
            packets += track.encode(frame)
        for packet in [*packets, *track.encode()][cut:]:
            file.mux(packet)
    return memory.getvalue()


def edited(encoded, *parts):
    """Return an MP4 of ``clip`` at 30 frames per second, with an edit list that plays only some of its parts.

    Args:
        encoded: Encoded MP4. Its tables must follow the frames, so that the offsets of the frames do not change.
        parts: First frame and number of frames of each part. The number of frames must be a multiple of three, because
            the edit list uses milliseconds.
    """
    at = encoded.index(b"elst") - 4
    (n_bytes,), (begin,) = (struct.unpack(">i", encoded[place : place + 4]) for place in (at, at + 20))
    edits = [struct.pack(">3i", 100 * count // 3, begin + 512 * first, 1 << 16) for first, count in parts]
    edit_list = struct.pack(">i4s2i", 16 + 12 * len(edits), b"elst", 0, len(edits)) + b"".join(edits)
    changed = bytearray(encoded[:at] + edit_list + encoded[at + n_bytes :])
    for kind in (b"edts", b"trak", b"moov"):
        of_kind = encoded.rindex(kind, 0, at) - 4
        (size,) = struct.unpack(">i", encoded[of_kind : of_kind + 4])
        changed[of_kind : of_kind + 4] = struct.pack(">i", size + len(edit_list) - n_bytes)
    return bytes(changed)
