"""Entry point of the ``pixprep`` backend for Triton. The implementation is in the package ``pixprep``."""

from pixprep.serving.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
