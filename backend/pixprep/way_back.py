"""Former name of ``pixprep.postprocessing.coordinates``."""

from pixprep.postprocessing.coordinates import *  # noqa: F403
