"""Mock of PyNvVideoCodec that decodes with PyAV. It has those names, arguments and behaviour of version 2.2.4 that
pixprep uses.

The behaviour was observed by running the wheel's own code over a mock of NVIDIA's driver
(tests/gpu/test_nvdec_contract.py). A packet consists of an address and a number of bytes, and a packet without bytes
ends the stream. Frames are NV12 with consecutive rows, in memory that the next call overwrites. Damage is not an error.
"""

import ctypes
import enum
from types import ModuleType

import av
import av.error
import numpy as np

from gpu import fake_cupy


class PyNvVCException(Exception):  # noqa: N818
    pass


class PyNvVCExceptionUnsupported(PyNvVCException):
    pass


class cudaVideoCodec(enum.Enum):  # noqa: N801
    H264, HEVC, VP9, AV1 = 4, 8, 10, 11


class Pixel_Format(enum.Enum):  # noqa: N801
    NV12, YUV444, P016 = 3, 4, 5


class PacketData:
    """Packet that rejects unknown attribute names, like the real class."""

    __slots__ = ("bsl", "bsl_data", "pts")

    def __init__(self):
        self.bsl = self.bsl_data = self.pts = 0


class DecodedFrame:
    dtype = "|u1"

    def __init__(self, memory, pts, form):
        self._memory, self._pts = memory, pts
        self.shape, self.strides, self.format = memory.shape, memory.strides, form

    def getPTS(self):
        return self._pts

    def GetPtrToPlane(self, index):
        return self._memory.ctypes.data + index * self._memory.shape[0] * 2 // 3 * self._memory.strides[0]


class PyNvDecoder:
    made = 0
    packets = 0
    fault = None  # error that a call raises
    lost = ()  # indices of decoded frames that are never returned
    change = None  # function that this GPU applies to the planes of a frame
    codecs = frozenset(cudaVideoCodec)  # codecs that this GPU decodes
    outside = 0  # number of calls outside of the worker's stream

    def __init__(self, codec, stream):
        assert isinstance(stream, int)
        self._codec, self._given, self._count = codec, [], 0
        type(self).made += 1
        self._open()

    def _open(self):
        name = {"H264": "h264", "HEVC": "hevc", "VP9": "vp9", "AV1": "libdav1d"}[self._codec.name]
        self._context = av.CodecContext.create(name, "r")
        self._context.thread_count = 1

    def Decode(self, packet):
        type(self).packets += 1
        type(self).outside += fake_cupy.Device.depth() == 0
        for memory in self._given:  # the next frames overwrite this memory, in stream order
            fake_cupy.Stream.current().enqueue(lambda memory=memory: memory.fill(99))
        if type(self).fault:
            raise PyNvVCException(type(self).fault)
        if self._codec not in type(self).codecs:
            raise PyNvVCException(
                "HandleVideoSequence : \nError code : 801\nError Type : Codec not supported on this GPU"
            )
        if packet.bsl:
            data = av.Packet(ctypes.string_at(packet.bsl_data, packet.bsl))
            data.pts = packet.pts
            frames = self._decoded(data)
        else:
            frames = self._decoded(None)
            self._open()
        self._given, surfaces = [], []
        for frame in frames:
            self._count += 1
            if self._count in type(self).lost:
                continue
            memory, form = surface(frame)
            if type(self).change:
                memory[:] = type(self).change(memory)
            self._given.append(memory)
            surfaces.append(DecodedFrame(memory, frame.pts, form))
        return surfaces

    def _decoded(self, data):
        try:
            return self._context.decode(data)
        except av.error.FFmpegError:  # NVDEC does not report the error
            return []


def surface(frame):
    """Return a frame in NVDEC's layout: luma first, followed by interleaved U and V."""
    if frame.format.name not in ("yuv420p", "yuvj420p"):
        return np.zeros((frame.height * 3 // 2, frame.width), np.uint8), Pixel_Format.P016
    luma, u, v = (np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width] for plane in frame.planes)
    chroma = np.stack([u, v], axis=-1).reshape(len(u), -1)
    return np.concatenate([luma, chroma]), Pixel_Format.NV12


def played():
    """Return a mock of ``PyNvVideoCodec`` with its own class ``PyNvDecoder``."""
    module = ModuleType("PyNvVideoCodec")
    decoder = type("PyNvDecoder", (PyNvDecoder,), {})

    def CreateDecoder(gpuid=0, codec=cudaVideoCodec.H264, cudacontext=0, cudastream=0, usedevicememory=False):  # noqa: ARG001
        assert usedevicememory is True
        return decoder(codec, cudastream)

    names = (CreateDecoder, PacketData, DecodedFrame, decoder, Pixel_Format, cudaVideoCodec)
    for each in (*names, PyNvVCException, PyNvVCExceptionUnsupported):
        setattr(module, each.__name__, each)
    return module
