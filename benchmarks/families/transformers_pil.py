"""transformers: the same image processors with Pillow's backend."""

from __future__ import annotations

from functools import partial

from families import transformers

PACKAGES = transformers.PACKAGES
prepare = partial(transformers.prepare, suffix="Pil")
