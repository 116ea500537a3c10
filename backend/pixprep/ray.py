"""Public name of ``pixprep.cluster.ray``."""

from pixprep.cluster.ray import *  # noqa: F403
