"""nvImageCodec's CPU decoder, of the region that the crop leaves, then cykooz-resizer."""

from __future__ import annotations

from collections.abc import Sequence

import cykooz_resizer as cykooz
import numpy as np
from nvidia import nvimgcodec
from PIL import Image

from contenders import CROP, MEAN, STD, Run, each, margins, resized

PACKAGES = ("nvidia-nvimgcodec-cu12", "cykooz-resizer", "pillow", "numpy")
MEAN_LEVELS = 0.5


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    if filter_name != "bilinear":
        raise NotImplementedError
    decoder = nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
        backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)],
        max_num_cpu_threads=threads,
        options=":fancy_upsampling=1",
    )
    params = nvimgcodec.DecodeParams(color_spec=nvimgcodec.SRGB, sample_format=nvimgcodec.I_RGB)
    how = cykooz.ResizeAlg.convolution(cykooz.FilterType.bilinear)
    factor = (1 / (255 * np.array(STD, np.float32)))[:, None, None]
    offset = (-np.array(MEAN, np.float32) / np.array(STD, np.float32))[:, None, None]

    def region(stream: nvimgcodec.CodeStream) -> tuple[nvimgcodec.CodeStream, cykooz.CropBox]:
        size = np.array([stream.height, stream.width])
        scale = size / resized(*size)
        first = margins(*resized(*size)) * scale
        start = np.floor(np.maximum(first - scale, 0)).astype(int)
        end = np.ceil(np.minimum(first + (CROP + 1) * scale, size)).astype(int)
        (top, left), (height, width) = first - start, CROP * scale
        part = stream.get_sub_code_stream(region=nvimgcodec.Region(start.tolist(), end.tolist()))
        return part, cykooz.CropBox(left, top, width, height)

    def one(decoded: tuple[nvimgcodec.Image, cykooz.CropBox], out: np.ndarray) -> None:
        image, box = decoded
        target = Image.new("RGB", (CROP, CROP))
        options = cykooz.ResizeOptions(resize_alg=how, crop_box=box)
        cykooz.Resizer().resize_pil(Image.fromarray(np.asarray(image.cpu())), target, options)
        np.multiply(np.asarray(target).transpose(2, 0, 1), factor, out=out)
        np.add(out, offset, out=out)

    transform = each(one, threads)

    def run(batch: Sequence[bytes]) -> np.ndarray:
        parts, boxes = zip(*[region(nvimgcodec.CodeStream(photo)) for photo in batch], strict=True)
        return transform(list(zip(decoder.decode(list(parts), params=params), boxes, strict=True)))

    return run
