"""What the parity tests share: PyTorch without torchvision's C++ extension, which no registry has for the CPU."""

import sys

try:
    import torch
except (ImportError, OSError):  # not there, or a build that looks for CUDA's libraries
    sys.modules["torch"] = None  # so that every test that wants it is skipped, and says so
else:
    # torchvision registers fakes for these two at import; without its extension nothing defines them.
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
