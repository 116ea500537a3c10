"""Triton's entry point of the ``pixprep`` backend; everything happens in the package."""

from pixprep.serving.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
