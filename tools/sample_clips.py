"""Write the clips in backend/pixprep/gpu/clips, which compare a GPU's video decoder with PyAV.

    .venv/bin/python tools/sample_clips.py

Unrelated colours move over the frames, so no codec can skip frames. The clips declare different colour matrices. Other
versions of the encoders produce different bytes: regenerate the clips only if they must change.
"""

import io
from pathlib import Path

import av
import numpy as np
from PIL import Image

FOLDER = Path(__file__).parents[1] / "backend" / "pixprep" / "gpu" / "clips"
# width and height in pixels (NVDEC needs at least 144 for H.265); number of frames
HEIGHT, WIDTH, COUNT, GROUP = 160, 192, 12, 6
BT709, BT601, BT2020 = 1, 5, 9
CLIPS = {
    "h264": ("libx264", "mp4", BT709, {"bf": "2", "crf": "34", "x264-params": f"keyint={GROUP}:scenecut=0"}),
    "hevc": ("libx265", "mp4", BT601, {"x265-params": f"log-level=none:info=0:crf=36:keyint={GROUP}:scenecut=0"}),
    "vp9": ("libvpx-vp9", "webm", BT2020, {"g": str(GROUP), "crf": "50", "b": "0"}),
    "av1": ("libsvtav1", "mp4", BT709, {"preset": "8", "g": str(GROUP), "crf": "50", "svtav1-params": "lp=1"}),
}
"""Encoder, container, colour matrix and options of each codec."""


def frame(index: int) -> av.VideoFrame:
    """Encode one clip."""
    cells = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    picture = Image.fromarray(cells).resize((WIDTH + 4 * COUNT, HEIGHT + 2 * COUNT), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture)[2 * index : 2 * index + HEIGHT, 4 * index : 4 * index + WIDTH]
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")


def main() -> None:
    """Write all clips."""
    FOLDER.mkdir(exist_ok=True)
    for name, (encoder, container, matrix, options) in CLIPS.items():
        memory = io.BytesIO()
        with av.open(memory, "w", format=container) as file:
            track = file.add_stream(encoder, rate=25, options=options)
            track.width, track.height, track.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            track.codec_context.colorspace = matrix
            for index in range(COUNT):
                file.mux(track.encode(frame(index).reformat(format="yuv420p", dst_colorspace=matrix)))
            file.mux(track.encode())
        (FOLDER / name).write_bytes(memory.getvalue())


if __name__ == "__main__":
    main()
