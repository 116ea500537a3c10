"""NVIDIA DALI's pipelines: a serialized graph, or the Python file of one, as a pipeline of the same pixels.

``importer`` walks over the operators that ``graph`` reads, and gives each its inputs, which are ``values``: the encoded
photo, an image, or numbers. ``ops`` has the operators on images (``geometry``, ``windows``, ``clips``), and
``numbers`` those on numbers. Numbers that a graph computes of an image's size become the rule of an op (``rules``), and
numbers of a request its inputs (``requests``). ``script`` serializes a Python file.
"""

from __future__ import annotations

from pixprep.importers.dali.importer import from_dali, interface, read_graph

__all__ = ["from_dali", "interface", "read_graph"]
