"""Limits of this process, lowered for a while."""

import resource
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited(which, most):
    """The soft limit of a resource, such as ``resource.RLIMIT_FSIZE``, is ``most`` inside."""
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def memory_for(more):
    """No more than these bytes of address space beside what the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limited(resource.RLIMIT_AS, pages * resource.getpagesize() + more)
