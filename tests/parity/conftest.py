"""Configures PyTorch for the parity tests, so that it returns the same results on every processor and torchvision works
without its C++ extension.

The wheels of some package registries contain no extension, or one that needs CUDA's libraries.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# On Intel processors, MKL fuses the sums of a matrix product, which would change the positions of torchvision's grid:
# see docs/levels.md.
os.environ["MKL_CBWR"] = "COMPATIBLE"
try:
    import torch
except (ImportError, OSError):  # PyTorch is not installed, or its build needs CUDA's libraries
    sys.modules["torch"] = None  # all tests that need PyTorch are skipped with a message then
else:
    found = find_spec("torchvision")
    try:
        torch.ops.load_library(Path(found.origin if found else "").with_name("_C.so"))
    except OSError:
        # torchvision registers fake implementations of these two ops at import, which only its extension defines
        LIBRARY = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
