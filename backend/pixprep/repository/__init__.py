"""The files that Triton will read: ``build`` writes a model repository, ``check`` checks one."""

from pixprep.repository.build import build, plan_repository
from pixprep.repository.check import check, check_pipeline, side_notes
from pixprep.repository.models import Problem
from pixprep.repository.repository_plan import RepositoryPlan
from pixprep.repository.trial import try_out

__all__ = ["Problem", "RepositoryPlan", "build", "check", "check_pipeline", "plan_repository", "side_notes", "try_out"]
