"""Limits of the programs that try a model file in a separate process."""

import resource

MAX_BYTES = 16 << 30
"""Maximum size of the address space in bytes, because a model file may allocate any amount of memory."""


def limit_memory() -> None:
    """Limit the address space of this process to ``MAX_BYTES``, or to the hard limit if that is smaller."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_BYTES if hard == resource.RLIM_INFINITY else min(MAX_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
