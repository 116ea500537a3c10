"""Rows of the fault table against a live server with neighbours; `tools/faults.py` runs all of them."""

import logging

import pytest

from fault_cases import CASES, ELSEWHERE, Case, Suite
from serving import PHOTO

pytestmark = pytest.mark.server

# Those of milliseconds, then an overload, reloads, a broken deployment, and a process that is killed.
QUICK = ("1", "2", "3", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "19", "21", "23", "34", "35", "26")
RECOVERY_S = 10.0
BY_ROW = {case.row: case for case in CASES}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    with Suite(tmp_path_factory.mktemp("faults")) as suite:
        yield suite


@pytest.mark.parametrize("row", QUICK)
def test_nothing_is_lost_or_wrong_and_the_next_request_is_served(suite, row, caplog):
    caplog.set_level(logging.CRITICAL, "pixprep")
    outcome = suite.run(BY_ROW[row])
    assert outcome.lost == outcome.wrong == 0, outcome.notes
    assert outcome.sent == outcome.right + outcome.errors
    assert outcome.right > 0
    assert outcome.recovery_s < RECOVERY_S


def test_a_success_that_should_be_a_refusal_counts_as_wrong(suite):
    outcome = suite.run(Case("", "", lambda fault: fault.bad([PHOTO], r"\[TRUNCATED\]")))
    assert outcome.wrong == 2


def test_another_refusal_than_the_expected_one_counts_as_wrong(suite):
    outcome = suite.run(Case("", "", lambda fault: fault.bad([b"not an image"], r"\[TRUNCATED\]")))
    assert outcome.wrong == 2


def test_an_error_of_a_neighbour_counts_as_wrong(suite):
    def without_ensemble(fault):
        assert fault.live.server.control("models/ensemble/unload")[0] == 200
        for _ in range(20):
            fault.good()
        assert fault.live.server.control("models/ensemble/load")[0] == 200

    outcome = suite.run(Case("", "", without_ensemble))
    assert outcome.wrong == outcome.shared > 0


def test_every_row_of_the_table_is_run_or_says_why_not():
    rows = {case.row for case in CASES} | set(ELSEWHERE)
    assert rows == {str(row) for row in range(1, 45)}
    assert len(BY_ROW) == len(CASES)
