"""Set-up of the parity tests: PyTorch as it computes on every processor, and without torchvision's C++ extension.

No registry has that extension for the CPU.
"""

import os
import sys

# On an Intel processor MKL fuses a matrix product's sums, and torchvision's grid has other places (docs/levels.md).
os.environ["MKL_CBWR"] = "COMPATIBLE"
try:
    import torch
except (ImportError, OSError):  # not there, or a build that looks for CUDA's libraries
    sys.modules["torch"] = None  # so that every test that needs it is skipped with a message
else:
    # torchvision registers fakes for these two at import; without its extension nothing defines them.
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
