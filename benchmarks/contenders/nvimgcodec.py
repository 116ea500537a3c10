"""nvImageCodec's CPU decoder, then pixprep's kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nvidia import nvimgcodec

from contenders import Run, each, pixprep_full
from pixprep.compiler import compile_pipeline
from pixprep.kernels.cpu import CpuKernel

PACKAGES = ("nvidia-nvimgcodec-cu12", "pixprep", "llvmlite", "numpy")
MEAN_LEVELS = 0.0


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    decoder = nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
        backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)],
        max_num_cpu_threads=threads,
        options=":fancy_upsampling=1",
    )
    params = nvimgcodec.DecodeParams(color_spec=nvimgcodec.SRGB, sample_format=nvimgcodec.I_RGB)
    (output,) = compile_pipeline(pixprep_full.pipeline(filter_name)).outputs.values()
    kernel = CpuKernel(output)

    def one(image: nvimgcodec.Image, out: np.ndarray) -> None:
        pixels = np.asarray(image.cpu())
        kernel.run([pixels], [output.geometry.place(*pixels.shape[:2])], [out])

    transform = each(one, threads)

    def run(batch: Sequence[bytes]) -> np.ndarray:
        return transform(decoder.decode([nvimgcodec.CodeStream(photo) for photo in batch], params=params))

    return run
