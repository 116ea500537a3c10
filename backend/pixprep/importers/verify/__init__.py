"""Verifies a pipeline by comparing each stage with the library whose pixels the stage reproduces.

The results are collected in a certificate. In each stage, the library processes pixprep's result of the previous stage,
so that a difference is reported for the stage that causes it. The last rows of the certificate compare the tensors that
pixprep and the libraries compute from the encoded image.

- ``comparison`` compares pipelines for serving, and ``drawn`` compares pipelines for training.
- ``stages`` runs the stages of a pipeline in pixprep. ``originals`` and ``twins`` run the stages in the libraries.
- ``frozen`` contains stored results, which are used if a library is not installed.
"""

from __future__ import annotations

from pixprep.importers.verify.comparison import verify
from pixprep.importers.verify.drawn import verify_training
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row

__all__ = ["Certificate", "Omission", "Originals", "Row", "verify", "verify_training"]
