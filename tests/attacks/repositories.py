"""Functions that corrupt the small model repository of the fixture ``models``, and that return the report of ``check``
on it.
"""

import os
import signal
from contextlib import contextmanager

from pixprep.serving import repository

PIPELINE, CONFIG = "m/1/pipeline.json", "m/config.pbtxt"
OUTPUT = 'backend: "pixprep"\noutput { name: "tensor" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] '


@contextmanager
def patience(seconds=60):
    """Fail if the ``with`` block does not end. The default is long, because a busy machine is not a fault."""

    def fail(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def problems(models):
    """Return the output of ``pixprep check``.

    Assert that the command takes at most a few seconds, and that its output is printable.
    """
    with patience():
        found = [str(problem) for problem in repository.check(models)]
    assert all(line.isprintable() and len(line) < 3200 for line in found)
    return found


def put(path, make):
    """Replace a file, using ``make`` to create the replacement at its path."""
    if path.exists():
        path.unlink()
    make(path)


def sparse(n_bytes):
    """Return a function that creates a sparse file of ``n_bytes`` zeros."""

    def make(path):
        path.touch()
        os.truncate(path, n_bytes)

    return make
