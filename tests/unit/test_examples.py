"""What the client examples compute, without a server."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "client_examples"


@pytest.fixture(scope="module")
def candidates():
    """The function of ``detect.py`` that reads a detector's output."""
    return runpy.run_path(str(EXAMPLES / "detect.py"))["candidates"]


FINISHED = np.array([[10, 20, 30, 40, 0.9, 2], [0, 0, 0, 0, 0, 0]], np.float32)


def test_rows_of_a_finished_suppression_are_read_as_they_are(candidates):
    boxes, scores, classes = candidates(FINISHED)
    np.testing.assert_array_equal(boxes, FINISHED[:, :4])
    assert (scores.tolist(), classes.tolist()) == ([pytest.approx(0.9), 0], [2, 0])


@pytest.mark.parametrize(
    ("column", "value"),
    [(2, 9), (3, 19), (4, 1.2), (4, -0.1), (4, np.nan), (5, 0.5)],  # YOLOX: middle, size, objectness, score
)
def test_rows_that_are_none_of_a_finished_suppression_are_refused(candidates, column, value):
    output = FINISHED.copy()
    output[0, column] = value
    with pytest.raises(SystemExit) as caught:
        candidates(output)
    assert str(caught.value) == (
        "detect.py: the rows of [2, 6] are not left, top, right, bottom, a score of 0 to 1 and a class: they need the "
        "model's own decoding, as its package does it"
    )
