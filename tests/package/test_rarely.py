"""Tests that every test which `make test` omits exists."""

from pathlib import Path

import pytest

from rarely import KEPT

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", KEPT)
def test_tests_left_to_make_test_slow_exist(name):
    path, _, function = name.partition("::")
    assert f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8")
