"""Triton's entry point of the ``pixprep`` backend; everything happens in the package."""

from pixprep.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
