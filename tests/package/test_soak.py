"""Tests of how `make soak` evaluates the memory of a server: outliers are ignored, and leaks are detected."""

import pytest

from support.endurance import growth


@pytest.mark.parametrize("outlier", [3.0, 300.0])
@pytest.mark.parametrize("place", range(12))
def test_one_outlier_of_memory_is_not_growth(outlier, place):
    samples = [100.0] * 12
    samples[place] = outlier
    assert growth(samples) == 0


def test_memory_that_rises_in_each_sample_is_growth_and_memory_that_settles_is_not():
    assert growth([100.0 + 2 * sample for sample in range(12)]) > 0.02
    assert growth([50.0, 60.0, 70.0, 80.0, 90.0, 100.0] + [100.0] * 6) == 0
