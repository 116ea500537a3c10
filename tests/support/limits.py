"""Context managers that temporarily lower resource limits of this process."""

import resource
import sys
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited(which, most):
    """Set the soft limit of a resource, such as ``resource.RLIMIT_FSIZE``, to ``most`` for the duration of the
    block.
    """
    soft, hard = resource.getrlimit(which)
    # otherwise, Python might keep a truncated .pyc file
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(which, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))
        sys.dont_write_bytecode = writes


def memory_for(more):
    """Limit the address space to the current size of the process plus ``more`` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limited(resource.RLIMIT_AS, pages * resource.getpagesize() + more)
