"""Fixtures of the attack tests: measuring the cost of one image in a separate process, and a small model repository
that tests corrupt.
"""

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import pixprep as pp
from attacks.repositories import CONFIG, PIPELINE
from support.images import jpeg, scene
from support.pipeline_texts import VALID


@dataclass(frozen=True)
class Cost:
    """Result and cost of one image in an engine with one thread.

    Attributes:
        text: ``ok``, or the message of the ImageError. Any other text is a bug that the test has found.
        seconds: Processor time in seconds.
        mib: Maximum growth of the process's memory, in MiB.
    """

    text: str
    seconds: float
    mib: float

    @property
    def reason(self):
        """Return the reason of an ImageError, such as ``TRUNCATED`` for ``[TRUNCATED] …``. If the text has no reason,
        return the whole text.
        """
        return self.text[1 : self.text.index("]")] if self.text.startswith("[") else self.text

    def within(self, *reasons, mib, seconds=math.inf):
        """Assert that the result is one of ``reasons``, which may include ``ok``, and that the cost is below the
        limits.
        """
        assert self.reason in reasons, self
        assert self.seconds < seconds, self
        assert self.mib < mib, self


@pytest.fixture(scope="session")
def measure_pipeline():
    """Return a function that runs a pipeline on an encoded image and measures the total cost of both."""
    command = [sys.executable, "-W", "ignore", Path(__file__).parent / "measured.py"]
    # hides libtiff's warnings
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as process:

        def cost(pipeline, encoded=None):
            for part in (pipeline.to_json().encode(), jpeg(scene(16, 16)) if encoded is None else encoded):
                process.stdin.write(len(part).to_bytes(8, "big") + part)
            process.stdin.flush()
            return Cost(**json.loads(process.stdout.readline()))

        yield cost
        process.stdin.close()


@pytest.fixture(scope="session")
def measure(measure_pipeline):
    """Return a function that measures the cost of decoding one encoded image."""
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(dtype="uint8")])  # reads all pixels
    return partial(measure_pipeline, pipeline)


@pytest.fixture
def models(tmp_path):
    """Return a valid repository that contains one model."""
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    (tmp_path / "models" / PIPELINE).write_text(VALID)
    (tmp_path / "models" / CONFIG).write_text('backend: "pixprep"\n')
    return tmp_path / "models"
