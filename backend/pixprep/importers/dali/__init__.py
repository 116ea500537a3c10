"""Importer of NVIDIA DALI pipelines, from a serialized graph or a Python file, with equal pixel values.

``importer`` walks over the operators that ``graph`` reads. Each operator receives its inputs as ``values``: the encoded
photo, an image, or numbers. ``ops`` contains the operators on images (with ``geometry``, ``windows`` and ``clips``),
and ``numbers`` contains those on numbers. Numbers that a graph computes from an image's size become the rule of an op
(``rules``), and numbers of a request become inputs of the pipeline (``requests``). ``script`` serializes a Python file.
"""

from __future__ import annotations

from pixprep.importers.dali.importer import from_dali, interface, read_graph

__all__ = ["from_dali", "interface", "read_graph"]
