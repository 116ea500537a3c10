"""Model repositories for Triton: ``build`` writes a repository, and ``check`` finds problems in a repository."""

from pixprep.serving.repository.build import build, plan_repository
from pixprep.serving.repository.check import check, check_pipeline, side_notes
from pixprep.serving.repository.door import explain_onnx
from pixprep.serving.repository.models import Problem
from pixprep.serving.repository.repository_plan import RepositoryPlan
from pixprep.serving.repository.trial import try_out

__all__ = [
    "Problem",
    "RepositoryPlan",
    "build",
    "check",
    "check_pipeline",
    "explain_onnx",
    "plan_repository",
    "side_notes",
    "try_out",
]
