"""Rows of the fault table against a live server with neighbours; `tools/faults.py` runs all of them."""

import pytest

from fault_cases import CASES, NOT_HERE, run
from serving import GOOD, PHOTO, Clients, Oracle, Serve, write_repository

pytestmark = pytest.mark.server

# Those of milliseconds, then a broken deployment and a process that is killed.
QUICK = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 35, 26)


@pytest.fixture(scope="module")
def oracle():
    oracle = Oracle()
    yield oracle
    oracle.close()


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    with Serve(write_repository(folder / "models", is_small=False), triton_log=folder / "triton.log") as serve:
        yield serve


@pytest.mark.parametrize("number", QUICK)
def test_nothing_is_lost_or_wrong_and_the_next_request_is_served(serve, oracle, tmp_path, number):
    row = run(number, serve, oracle, tmp_path, scale=1)
    assert row.lost == row.wrong == 0, row
    assert row.sent == row.right + row.errors
    assert row.right > 0


def test_another_tensor_than_the_engines_counts_as_wrong(serve, oracle):
    class Crossed:
        def tensors(self, model, images):
            return oracle.tensors(model, [GOOD[1] for _ in images])

    with Clients(serve, Crossed()) as clients:
        assert clients.ask([PHOTO]) == "wrong"


def test_every_row_of_the_table_is_run_or_says_why_not():
    assert sorted([*CASES, *NOT_HERE]) == list(range(1, 45))
