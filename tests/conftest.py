"""Settings that apply to all tests.

OpenBLAS uses a single thread, because its threads spin while the cores are busy. Hypothesis tries 30 examples, and has
no deadline, because a busy machine would miss it. Threads with real-time priority are reset to the normal priority.
"""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from rarely import KEPT

with suppress(ImportError):  # the machines of tools/gpu_hour lack Hypothesis
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None, max_examples=30)
    settings.load_profile("untimed")
# With several threads, a 3 x 3 matrix product took a minute of processor time at a load of 80.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _usual_priority():
    """Reset the real-time priority that SVT-AV1's encoder sets if it runs as root; otherwise, servers and other tests
    would starve.
    """
    yield
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # the thread may have ended meanwhile
                os.sched_setscheduler(int(thread.name), os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture
def few_images(monkeypatch):
    """Make ``verify`` generate 2 images instead of 26, for tests of its report."""
    from pixprep.importers.verify import comparison  # noqa: PLC0415  (most tests do not need it)

    images = comparison.generated()[12:14]
    monkeypatch.setattr(comparison, "generated", lambda: images)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that run only in `make test-slow`, not in `make test` (see rarely.py)."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    for name in KEPT.keys() & cases.keys():
        these, count = cases[name], KEPT[name]
        kept = {index * len(these) // count for index in range(count)}
        for index, item in enumerate(these):
            if index not in kept:
                item.add_marker(pytest.mark.slow(reason="rarely.py: make test-slow runs it"))


def pytest_terminal_summary(terminalreporter):
    """Print the processor time of this process and of the ended processes that it started.

    In contrast to the duration, the processor time does not depend on what else the machine does.
    """
    terminalreporter.write_line(f"{sum(os.times()[:4]):.0f} s of processor time")
