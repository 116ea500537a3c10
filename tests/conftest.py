"""The environment of every test: one thread for OpenBLAS, whose threads spin where the cores are busy; no real time; no
deadline of Hypothesis, which a busy machine misses.
"""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from rarely import KEPT

with suppress(ImportError):  # the machines of tools/gpu_hour have no Hypothesis
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a product of 3 x 3 took a minute of processor time at a load of 80


@pytest.fixture(autouse=True)
def _usual_priority():
    """SVT-AV1's encoder gives root's process real-time priority, for which servers and other tests wait."""
    yield
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setscheduler(int(thread.name), os.SCHED_OTHER, os.sched_param(0))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what `make test` leaves to `make test-slow`, see rarely.py."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    for name in KEPT.keys() & cases.keys():
        these, count = cases[name], KEPT[name]
        kept = {index * len(these) // count for index in range(count)}
        for index, item in enumerate(these):
            if index not in kept:
                item.add_marker(pytest.mark.slow(reason="rarely.py leaves it to make test-slow"))
