"""Imports NVIDIA DALI pipelines from a serialized graph or a Python file.

The modules are:

- ``graph`` reads the operators of a serialized graph. ``script`` serializes a pipeline that a Python file defines.
- ``importer`` evaluates these operators in sequence.
- ``values`` defines the inputs and outputs of operators: encoded images, decoded images, and numbers.
- ``inputs`` converts the inputs of the graph and the decoders. ``geometry`` converts operators that move pixels,
  ``images`` converts all other operators on images, and ``numbers`` converts operators on numbers.
- ``rules`` finds the op that is equivalent to the arithmetic with which a graph computes a size or a crop. ``sizes``
  defines the image sizes for which it compares them.
"""

from __future__ import annotations

from pixprep.importers.dali.importer import from_dali, interface, read_graph

__all__ = ["from_dali", "interface", "read_graph"]
