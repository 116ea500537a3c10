"""Imports NVIDIA DALI pipelines from a serialized graph or a Python file.

The modules are:

- ``graph`` reads the operators of a serialized graph.
- ``importer`` evaluates these operators in sequence.
- ``values`` defines the inputs and outputs of operators: encoded images, decoded images, and numbers.
- ``ops``, ``geometry``, ``windows`` and ``clips`` convert operators on images, and ``numbers`` converts operators on
  numbers.
- ``rules`` finds the op that is equivalent to the arithmetic with which a graph computes a size or a crop.
- ``requests`` converts inputs of the graph that are not encoded images.
- ``script`` serializes a pipeline that a Python file defines.
"""

from __future__ import annotations

from pixprep.importers.dali.importer import from_dali, interface, read_graph

__all__ = ["from_dali", "interface", "read_graph"]
