"""Comparison of arrays for all pixel tests. A failed comparison reports where the arrays differ, and by how much."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """Tolerance of a comparison.

    ``largest`` is the maximum difference, ``exact`` is the minimum fraction of equal values, and ``why`` is the reason
    for this tolerance.
    """

    largest: float
    exact: float
    why: str


EQUAL = Tolerance(0, 1, "the same arithmetic on the same pixels")
ONE_LEVEL_MOSTLY_EQUAL = Tolerance(1, 0.97, "Pillow keeps a box in float32, so that a few ties round the other way")
ORACLE = Tolerance(1, 0.75, "float64 against 22-bit coefficients: ties round either way, and 2-tap bilinear has many")
FLOAT32 = Tolerance(1e-6, 0.4, "folded and rounded once, against float32 rounded at each step, for values below 4")
FLOAT16 = Tolerance(
    2e-3, 0.9, "float16 has 11 bits: half a unit in the last place of values below 4, and half of one more"
)


def assert_close(actual, expected, tolerance=EQUAL):
    """Assert that two arrays have the same shape, and the same values within the tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if actual.size == 0:
        return
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    worst = np.unravel_index(np.argmax(difference), difference.shape)
    share = float((difference == 0).mean())
    report = (
        f"worst at {tuple(map(int, worst))}: {actual[worst]}, expected {expected[worst]}; largest difference "
        f"{difference.max():.6g} of {tolerance.largest:g}, {share:.2%} exact of {tolerance.exact:.0%} ({tolerance.why})"
    )
    # with few values, the fraction of equal values is not meaningful
    is_enough = share >= tolerance.exact or (difference.size < 500 and tolerance.exact < 1)
    assert difference.max() <= tolerance.largest, report
    assert is_enough, report
