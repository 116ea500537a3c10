"""Import NVIDIA DALI pipelines from a serialized graph or a Python file.

The modules are:

- ``graph`` reads the operators of a serialized graph.
- ``importer`` evaluates these operators one after the other.
- ``values`` defines the inputs and outputs of operators: encoded images, decoded images, and numbers.
- ``ops``, ``geometry``, ``windows`` and ``clips`` convert the operators on images, and ``numbers`` those on numbers.
- ``rules`` finds the op that equals a size or a crop which the graph computes from the size of the image.
- ``requests`` converts inputs of the graph that are not encoded images.
- ``script`` serializes a pipeline that a Python file defines.
"""

from __future__ import annotations

from pixprep.importers.dali.importer import from_dali, interface, read_graph

__all__ = ["from_dali", "interface", "read_graph"]
