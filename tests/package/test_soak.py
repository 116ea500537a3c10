"""Verdict of `make soak` on a server's memory: an outlier is not a leak, and a leak is found."""

import pytest

from support.endurance import growth


@pytest.mark.parametrize("odd", [3.0, 300.0])
@pytest.mark.parametrize("place", range(12))
def test_one_odd_sample_of_memory_is_no_growth(odd, place):
    samples = [100.0] * 12
    samples[place] = odd
    assert growth(samples) == 0


def test_memory_that_rises_by_each_sample_is_growth_and_what_settles_in_the_first_half_is_none():
    assert growth([100.0 + 2 * sample for sample in range(12)]) > 0.02
    assert growth([50.0, 60.0, 70.0, 80.0, 90.0, 100.0] + [100.0] * 6) == 0
