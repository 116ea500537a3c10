"""Public module: formats of boxes, and functions that map boxes and points between a tensor and its photo."""

from pixprep.plan.boxes import *  # noqa: F403
from pixprep.postprocessing.coordinates import *  # noqa: F403
