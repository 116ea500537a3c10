"""Verification of a pipeline, which compares each stage with the library whose pixel values it reproduces.

The result is a certificate. Each original receives pixprep's result of the previous stage, so that a difference appears
in the stage that causes it. The last rows compare end to end::

    encoded ─► decode ─► resize ─► tensor      pixprep (stages), each against the library (originals)
                                               or, if it cannot be used, against frozen vectors (frozen)
"""

from __future__ import annotations

from pixprep.importers.verify.comparison import verify
from pixprep.importers.verify.drawn import verify_training
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row

__all__ = ["Certificate", "Omission", "Originals", "Row", "verify", "verify_training"]
