"""Configures PyTorch for the parity tests, so that it returns the same results on every processor and torchvision works
without its C++ extension.

The wheels of some package registries contain no extension, or one that needs CUDA's libraries.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# On Intel processors, MKL fuses the sums of a matrix product, which would change the positions of torchvision's grid:
# see docs/levels.md.
os.environ["MKL_CBWR"] = "COMPATIBLE"
# On a busy machine, the busy waiting of PyTorch's threads takes three quarters of the CPU time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
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


FLOATS = ("test_profiles", "test_transformers", "test_random_processors", "test_real")


@pytest.fixture(autouse=True)
def several_threads(request):
    """Run PyTorch with two threads where results of its bilinear resize without antialiasing are compared.

    With a single thread, which some modules select for speed, PyTorch rounds the last bit of these results differently.
    With two or more threads, the number of threads has no effect.
    """
    torch = sys.modules["torch"]
    if torch is None or not request.path.name.startswith(FLOATS):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
