"""Context managers and a command that lower resource limits, such as the memory of this process."""

import resource
import subprocess
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


def in_own_mounts(folder, size):
    """Return a command prefix that mounts a file system of this size on a folder. Return None if mounting is not
    permitted.
    """
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    script = f'mount -t tmpfs -o size={size} tmpfs "{folder}" && exec "$@"'
    words = [*unshare, script, "sh"]
    allowed = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return words if allowed else None
