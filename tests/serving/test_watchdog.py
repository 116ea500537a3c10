"""Tests of the watchdog. Tests in which the watchdog ends its process run it in a separate process."""

import subprocess
import sys
import threading

from pixprep.serving.triton.watchdog import Watchdog

HANGS = """
import threading, time
from pixprep.serving.triton.watchdog import Watchdog
watchdog = Watchdog(print, lambda: None, period_s=0.02)
with watchdog.limit(60):
    pass
with watchdog.limit({limit}):
    threading.Event().wait({work})
print("done", flush=True)
"""


def run(**values):
    command = [sys.executable, "-uc", HANGS.format(**values)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_an_endless_batch_ends_the_process_and_its_position_is_reported():
    done = run(limit=0.1, work=10)
    assert done.returncode == 1
    assert done.stdout == "a batch exceeded its time limit: the process of the model exits and must be restarted\n"
    assert "wait" in done.stderr
    assert 'File "<string>", line 8 in <module>' in done.stderr


def test_a_batch_that_ends_in_time_does_not_end_the_process():
    done = run(limit=50, work=0.2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_process_that_only_answers_health_probes_is_idle():
    """The supervisor's probes do not count as work, and other clients' probes take too little time to count as work."""
    idle_events = threading.Semaphore(0)
    watchdog = Watchdog(print, idle_events.release, idle_s=1.0, period_s=0.01)
    with watchdog.limit(60, is_work=False):
        pass
    assert not idle_events.acquire(timeout=1.5)
    is_stopped = threading.Event()

    def probe():
        while not is_stopped.wait(0.2):
            with watchdog.limit(60):
                pass

    probe_thread = threading.Thread(target=probe)
    probe_thread.start()
    assert idle_events.acquire(timeout=120)
    is_stopped.set()
    probe_thread.join()
    watchdog.close()


def test_an_idle_period_is_reported_once_and_again_after_another_batch():
    calls, idle_events = [], threading.Semaphore(0)

    def on_idle():
        calls.append(1)
        idle_events.release()

    watchdog = Watchdog(print, on_idle, idle_s=0.05, period_s=0.01)
    assert not idle_events.acquire(timeout=0.3)  # no batch has been run, so no memory can be freed
    for count in (1, 2):
        with watchdog.limit(60):
            assert not idle_events.acquire(timeout=0.2)  # a long batch does not count as idle time
        assert idle_events.acquire(timeout=120)
        assert not idle_events.acquire(timeout=0.2)
        assert len(calls) == count
    watchdog.close()
