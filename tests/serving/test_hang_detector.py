"""Tests that a Triton server that does not respond to probes is restarted if it hangs, but not if it only lacks
processor time.
"""

import signal
import subprocess
import sys
import time

import pytest

from pixprep.serving.embedded.stubs import thread_states
from pixprep.serving.embedded.supervisor import SILENCES, HangDetector

HUNG = f"Triton did not respond to {SILENCES} HTTP probes in a row"


@pytest.fixture
def process():
    """Return a function that starts a Python process with a given program, as a replacement for Triton."""
    processes = []

    def start(program):
        processes.append(
            subprocess.Popen([sys.executable, "-c", f"print(flush=True); {program}"], stdout=subprocess.PIPE)
        )
        processes[-1].stdout.readline()
        return processes[-1]

    yield start
    for each in processes:
        each.kill()
        each.communicate()


def wait_for_state(pid, letter):
    deadline = time.monotonic() + 120
    while thread_states(pid) != [letter]:
        assert time.monotonic() < deadline, thread_states(pid)
        time.sleep(0.01)


def verdicts_without_answers(detector, *, probes=SILENCES):
    """Return the reason to restart Triton, or an empty string, after each of ``probes`` unanswered probes."""
    return [detector.count(is_answered=False) for _ in range(probes)]


def test_a_process_without_processor_time_is_not_mistaken_for_a_hung_one(process):
    busy = process("exec('while True: pass')")
    wait_for_state(busy.pid, "R")
    assert verdicts_without_answers(HangDetector(busy.pid), probes=10 * SILENCES) == [""] * 10 * SILENCES


@pytest.mark.parametrize(("program", "number", "letter"), [
    ("exec('while True: pass')", signal.SIGSTOP, "T"), ("import threading; threading.Event().wait()", None, "S")
])  # fmt: skip
def test_a_stopped_or_endlessly_waiting_process_is_hung_after_five_probes(process, program, number, letter):
    hung = process(program)
    if number:
        hung.send_signal(number)
    wait_for_state(hung.pid, letter)
    detector = HangDetector(hung.pid)
    assert verdicts_without_answers(detector, probes=SILENCES - 1) == [""] * (SILENCES - 1)
    assert detector.count(is_answered=True) == ""  # a successful probe resets the count
    assert verdicts_without_answers(detector) == [""] * (SILENCES - 1) + [HUNG]


def test_a_process_that_runs_without_answering_for_too_long_is_given_up(process):
    busy = process("exec('while True: pass')")
    wait_for_state(busy.pid, "R")
    detector = HangDetector(busy.pid, deaf_s=0)
    assert detector.count(is_answered=True) == ""
    assert detector.count(is_answered=False) == "Triton is running, but has not responded to HTTP probes for 0 s"
