"""Tests that run the fault table on a live server with clients in flight: no request may be lost or get a wrong
response. A short soak test follows.

``tools/faults.py`` runs all cases, and ``tools/soak.py`` runs the long soak test.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import pixprep as pp
from serving.fault_cases import CASES, NOT_HERE, run
from support.endurance import endurance, growth
from support.serving import GOOD, Clients

pytestmark = pytest.mark.server

EVERYDAY = (*range(1, 16), 17, *range(19, 25))


@pytest.mark.parametrize("number", EVERYDAY, ids=lambda number: f"{number} {CASES[number].fault}")
def test_every_request_gets_one_right_response_or_a_clear_error(usual, oracle, tmp_path, number):
    row = run(number, usual, oracle, tmp_path)
    print(f"\n{row.HEAD}\n{row}")  # noqa: T201
    # on failure, the log shows why a model may have been restarted
    assert (row.lost, row.wrong) == (0, 0), "\n".join([row.remark, *usual.log[-20:]])
    assert row.right > 0
    if not CASES[number].takes_the_model:
        assert row.errors == 0, row.remark


def test_every_row_of_the_table_is_run_or_gives_a_reason():
    assert sorted([*CASES, *NOT_HERE]) == list(range(1, 45))
    assert not CASES.keys() & NOT_HERE.keys()


def test_a_wrong_response_is_detected(usual, oracle):
    """These are negative controls. One oracle expects the tensors of a different pipeline, and the other oracle expects
    that every image is invalid.
    """

    shifted = SimpleNamespace(tensors=lambda *args: oracle.tensors(*args) + np.float32(1e-6), agrees=oracle.agrees)
    always_rejecting = SimpleNamespace(tensors=lambda *_: pp.ImageError("CORRUPT", "it is not"))
    for wrong_oracle, protocol in itertools.product((shifted, always_rejecting), ("http", "grpc")):
        with Clients(usual, wrong_oracle) as clients:
            assert clients.ask([GOOD[0]], protocol=protocol) == "wrong"


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_one_outlier_of_memory_is_not_growth_and_a_leak_is(factor):
    steady, leak = [100.0] * 12, [100.0 + step for step in range(12)]
    for place in range(12):
        assert growth([*steady[:place], factor * 100, *steady[place + 1 :]]) == 0
        assert growth([*leak[:place], factor * leak[place], *leak[place + 1 :]]) > 0.015
    assert growth([1.0, 2.0]) == 1


@pytest.mark.slow(reason="8 s of requests; make soak looks for leaks")
def test_after_2000_requests_and_some_hang_ups_the_server_uses_the_same_resources(tmp_path, oracle):
    with endurance(tmp_path, oracle) as it:
        it.steady(500)
        before = it.held()
        it.steady(1500)
        it.hang_up(40)
        after = it.held()
        assert it.clients.counts["right"] == it.clients.sent >= 2000, it.clients.notes
        assert after.regions == before.regions
        assert abs(after.files - before.files) <= 2  # one connection may have been opened or closed
        assert abs(after.threads - before.threads) <= 4  # gRPC starts additional threads under load
        it.reload(2)
        assert it.held().regions == before.regions
        assert it.clients.counts["lost"] == it.clients.counts["wrong"] == 0, it.clients.notes
