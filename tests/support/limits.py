"""Limits of this process, lowered for a while."""

import resource
import sys
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited(which, most):
    """The soft limit of a resource, such as ``resource.RLIMIT_FSIZE``, is ``most`` inside."""
    soft, hard = resource.getrlimit(which)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python keeps a .pyc that was cut off
    resource.setrlimit(which, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))
        sys.dont_write_bytecode = writes


def memory_for(more):
    """Limit the address space to these bytes in addition to the process's current use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limited(resource.RLIMIT_AS, pages * resource.getpagesize() + more)
