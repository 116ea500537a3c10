"""The files that Triton will read: ``build`` writes a model repository, ``check`` checks one."""

from pixprep.repository.build import Built, build
from pixprep.repository.check import check, check_pipeline, left_out
from pixprep.repository.models import Problem
from pixprep.repository.trial import try_out

__all__ = ["Built", "Problem", "build", "check", "check_pipeline", "left_out", "try_out"]
