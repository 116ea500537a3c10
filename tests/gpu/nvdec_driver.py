"""Runs the code of PyNvVideoCodec's wheel without a GPU, over a mock of NVIDIA's driver that uses PyAV and host memory.

This module is run as a program, because the dynamic loader must find ``libraries``. It prints the results for the clips
as JSON. CuPy is also mocked.
"""

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import av
import av.error
import numpy as np

import pixprep as pp
from gpu import fake_cupy, fake_nvdec
from support.clips import CODECS as CLIPS
from support.clips import clip

COMPILER = shutil.which("gcc") or shutil.which("clang")
LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
CODECS = {codec.value: codec.name for codec in fake_nvdec.cudaVideoCodec}
NAMES = [name for name in CLIPS if name.partition(".")[2] != "avi" and not name.startswith(("vp8", "mpeg4"))]
STREAM = 0x77
AFTER = [pp.resize(height=30, width=40), pp.tensor(layout="tchw", dtype="uint8")]


def libraries(folder):
    """Build the mocked driver's libraries in a folder."""
    built = Path(folder, LIBRARIES[0])
    source = Path(__file__).parents[1] / "shim" / "driver.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-o", built, source], check=True)
    for name in LIBRARIES[1:]:
        Path(folder, name).symlink_to(built.name)


class Played(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("width", "height", "count", "error")),
        ("times", ctypes.c_longlong * 64),
        ("frames", ctypes.c_void_p * 64),
    )


class Driver:
    """Decoder with one PyAV context per parser."""

    END, TIME = 1, 2

    def __init__(self):
        self.contexts, self.kept, self.seen, self.fault = {}, {}, set(), 0
        kinds = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_longlong, ctypes.c_ulong)
        self._function = ctypes.CFUNCTYPE(None, *kinds, ctypes.POINTER(Played))(self._play)
        library = ctypes.CDLL("libnvcuvid.so.1")
        library.play(self._function)
        self.streams = library.seen_streams

    def _play(self, parser, codec, payload, size, time, flags, out):  # noqa: PLR0917  (C has no names)
        for stream in [*fake_cupy.Stream.alive]:  # a frame is copied after the earlier work of its stream
            stream.drain()
        out.contents.error = self.fault
        self.seen.add(flags)
        if parser not in self.contexts or (self.contexts[parser] is None and size):
            name = {"H264": "h264", "HEVC": "hevc", "VP9": "vp9", "AV1": "libdav1d"}[CODECS[codec]]
            self.contexts[parser] = av.CodecContext.create(name, "r")
        context, packet = self.contexts[parser], None
        if size:
            packet = av.Packet(ctypes.string_at(payload, size))
            packet.pts = time
        try:
            frames = context.decode(packet) if context else []
        except av.error.FFmpegError:
            frames = []
        if flags & self.END:
            self.contexts[parser] = None
        kept = self.kept[parser] = [np.ascontiguousarray(fake_nvdec.surface(frame)[0]) for frame in frames]
        for index, (frame, memory) in enumerate(zip(frames, kept, strict=True)):
            out.contents.width, out.contents.height = frame.width, frame.height
            out.contents.times[index], out.contents.frames[index] = frame.pts, memory.ctypes.data
        out.contents.count = len(frames)


def outcome(encoded, pipeline):
    """Return whether the tensors equal the CPU's, and how many clips the CPU decoded."""
    with pp.Engine(pipeline) as cpu, pp.Engine(pipeline, device="gpu") as gpu:
        ours, theirs = cpu.run_batch(encoded), gpu.run_batch(encoded)
        return {
            "equal": bool(np.array_equal(ours["tensor"], np.array(theirs["tensor"]))),
            "errors": sum(each is not None for each in theirs.errors),
            "fallbacks": theirs.fallbacks,
        }


def main(folder):
    """Decode the clips and print the results."""
    fake_cupy.install(folder)
    fake_cupy.Stream.ptr, fake_cupy.Device.id = STREAM, 0
    sys.modules.pop("PyNvVideoCodec", None)
    driver = Driver()
    import PyNvVideoCodec as nvc  # noqa: N813, PLC0415  (this import loads the driver)

    encoded = [clip(name) for name in NAMES]
    said = {"version": nvc.__version__, "file": nvc.__file__}
    for frames in (5, 70):
        said[str(frames)] = outcome(encoded, pp.Pipeline([pp.decode_video(frames=frames), *AFTER]))
    said["flags"], said["streams"] = sorted(driver.seen), driver.streams()
    driver.fault = 999
    said["fault"] = outcome(encoded[:2], pp.Pipeline([pp.decode_video(frames=5), *AFTER]))
    said["documented"] = {name: getattr(nvc, name).__doc__ for name in ("CreateDecoder",)}
    said["members"] = {
        each: sorted(dir(getattr(nvc, each)))
        for each in ("PacketData", "DecodedFrame", "PyNvDecoder", "cudaVideoCodec", "Pixel_Format")
    }
    said["errors"] = [issubclass(each, Exception) for each in (nvc.PyNvVCException, nvc.PyNvVCExceptionUnsupported)]
    sys.stdout.write(f"\n{json.dumps(said)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
