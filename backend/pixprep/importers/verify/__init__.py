"""Certificate, which compares a pipeline stage by stage with the libraries whose pixel values it reproduces.

Each original receives pixprep's result of the previous stage, so that a difference appears in the stage that causes it.
The last rows compare end to end::

    encoded ─► decode ─► resize ─► tensor      pixprep (stages), each against the library (originals)
                                               or, if it is not installed, against frozen vectors (frozen)
"""

from __future__ import annotations

from pixprep.importers.verify.comparison import verify
from pixprep.importers.verify.drawn import verify_training
from pixprep.importers.verify.originals import Originals
from pixprep.importers.verify.report import Certificate, Omission, Row

__all__ = ["Certificate", "Omission", "Originals", "Row", "verify", "verify_training"]
