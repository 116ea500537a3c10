"""The certificate: a pipeline against the libraries whose pixels it claims, stage by stage.

The original of a stage gets what pixprep made in the stage before, so that a difference shows where it arises; the
last rows compare end to end::

    encoded ─► decode ─► resize ─► tensor      pixprep (stages), each against the library (originals)
                                               or, where that cannot be used, against frozen vectors (frozen)
"""

from __future__ import annotations

from pixprep.importers.verify.comparison import verify
from pixprep.importers.verify.drawn import verify_training
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row

__all__ = ["Certificate", "Omission", "Originals", "Row", "verify", "verify_training"]
