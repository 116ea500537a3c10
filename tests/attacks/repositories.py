"""Changes to the small model repository of the fixture ``models``, and the report of ``check`` on each."""

import os
import signal
from contextlib import contextmanager

from pixprep.serving import repository

PIPELINE, CONFIG = "m/1/pipeline.json", "m/config.pbtxt"
OUTPUT = 'backend: "pixprep"\noutput { name: "tensor" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] '


@contextmanager
def patience(seconds=5):
    """Limit of time: what hangs inside fails."""

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
    """Output of ``pixprep check``, in a few seconds and in lines that a terminal may show."""
    with patience():
        found = [str(problem) for problem in repository.check(models)]
    assert all(line.isprintable() and len(line) < 3200 for line in found)
    return found


def put(path, make):
    """Something else in the place of a file."""
    if path.exists():
        path.unlink()
    make(path)


def sparse(n_bytes):
    """Return a function that creates a sparse file of so many zeros."""

    def make(path):
        path.touch()
        os.truncate(path, n_bytes)

    return make
