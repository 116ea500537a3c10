"""Provides OpenCV 4 for comparisons of warps. Test modules that import this module are skipped if OpenCV is missing."""

import pytest

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its warps were not compared")
if not cv2.__version__.startswith("4."):
    pytest.skip("NO OPENCV 4: the warps of OpenCV 5 have another arithmetic", allow_module_level=True)

FLAGS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}
