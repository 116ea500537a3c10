"""Former name of ``pixprep.postprocessing.detections``."""

from pixprep.postprocessing.detections import *  # noqa: F403
