"""transformers: image processors of vision-language models with the torchvision backend; Pillow decodes the photos."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import torch
import transformers
from contenders import torchvision as contender  # supports a torchvision without its C++ extension
from PIL import Image

from families import PROCESSORS, Run, alone, of

PACKAGES = (*contender.PACKAGES, "transformers")
SUFFIX = ""


def running(fields: dict[str, Any], suffix: str) -> Run:
    """Return ``run`` for the common code: Pillow, then the processor, one photo at a time."""
    fields = {**fields}
    processor = getattr(transformers, fields.pop("image_processor_type") + suffix)(**fields)

    def one(encoded: bytes) -> torch.Tensor:
        made = processor(Image.open(io.BytesIO(encoded)).convert("RGB"), return_tensors="pt")["pixel_values"]
        return made[0] if made.ndim in (3, 5) else made  # without the dimension of the only image

    return alone(one)


def prepare(row: str, threads: int, suffix: str = SUFFIX) -> Run:
    """See ``families``."""
    torch.set_num_threads(1)
    return of({name: partial(running, fields, suffix) for name, fields in PROCESSORS.items()}, row, threads)
