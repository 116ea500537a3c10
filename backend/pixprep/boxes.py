"""Public name of the formats of boxes, and of the way between a tensor and its photo."""

from pixprep.plan.boxes import *  # noqa: F403
from pixprep.postprocessing.coordinates import *  # noqa: F403
