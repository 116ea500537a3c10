"""Setup of the parity tests: PyTorch with the same results on every processor, and without torchvision's C++ extension.

No registry has that extension for the CPU.
"""

import os
import sys

# On Intel processors, MKL fuses the sums of a matrix product, so torchvision's grid would have other positions:
# see docs/levels.md.
os.environ["MKL_CBWR"] = "COMPATIBLE"
try:
    import torch
except (ImportError, OSError):  # missing, or a build that needs CUDA's libraries
    sys.modules["torch"] = None  # so that every test that needs it is skipped with a message
else:
    # torchvision registers fake implementations of these two ops at import, which only its extension defines
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
