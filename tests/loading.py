"""Small samples and pipelines for the tests of the Loader."""

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

import pixprep as pp
from images import jpeg, scene

PLAIN = pp.Pipeline([pp.decode(), pp.resize(height=24, width=24), pp.tensor(dtype="uint8")])

TRAINING = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(height=24, width=24),
        pp.random_flip(),
        pp.resize(height=24, width=24, only="serving"),
        pp.normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25]),
        pp.tensor(),
    ]
).for_training()
DETECTION = pp.Pipeline(
    [pp.decode(), pp.random_flip(), pp.resize(height=24, width=24), pp.boxes(normalized=True), pp.tensor()]
).for_training()


@cache
def encoded(index):
    """A JPEG whose size and pixels are another for each index."""
    return jpeg(scene(30 + index % 7, 40 + index % 5, seed=index))


def samples(count=40):
    """Dicts of a list, which is a source."""
    return [{"image": encoded(index), "label": index % 3, "name": f"photo {index}"} for index in range(count)]


def same(one, other):
    """Tell whether two batches are equal in all that a training sees."""
    arrays = [*one.outputs, "index", "attempt", "is_padding", *(name for name in ("label",) if name in one)]
    return all(np.array_equal(one[name], other[name]) for name in arrays) and one.draws == other.draws


def expected(index, pipeline=PLAIN):
    """The tensor of a sample by an engine alone."""
    with pp.Engine(pipeline, threads=1) as engine:
        return engine.run([encoded(index)])[0]


def killed(code, count):
    """The first lines that some code prints, each as JSON, in a process that is then ended by SIGKILL."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    lines = [json.loads(child.stdout.readline()) for _ in range(count)]
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return lines
