"""Tests that follow every tutorial in docs/ command by command, as far as the required environments exist."""

import shutil
import sys
from pathlib import Path

import pytest

from serving.server.walkthrough import ROOT, Walkthrough, environment, is_same

pytestmark = pytest.mark.server

ENVIRONMENTS = {"pytorch": (".venv-parity", "torch"), "dali": (".venv-tensorflow", "nvidia.dali")}
"""Environments by the prompt of the commands. Each is a pair of the environment's folder and the library that must be
installed in it."""
TUTORIALS = {
    "pixels-differ.md": (9, 0.02, {}),
    "tutorial-training.md": (11, 5.0, {"pytorch": ("onnxscript",)}),
    "tutorial-model-py.md": (23, 0.02, {}),
    "tutorial-pytorch.md": (15, 0.02, {"pytorch": ("onnxscript", "timm")}),
    "troubleshooting.md": (10, 0.02, {}),
    "tutorial-dali.md": (15, 0.02, {"dali": ()}),
}
"""For each page, the number of its commands, the tolerance of printed numbers, and further libraries that its
environments must have. The tolerance is necessary because a training differs from processor to processor.
"""


@pytest.fixture
def checkout(tmp_path, demo_repository):
    """Return a folder with the files of a checkout that the pages refer to, after `make demo`."""
    folder = tmp_path / "checkout"
    shutil.copytree(demo_repository, folder / "model_repository")
    for name in ("client_examples", "training_examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_prints_the_shown_output(page, checkout, tmp_path):
    count, tolerance, further = TUTORIALS[page]
    paths = {None: Path(sys.executable).parent}
    for prompt, libraries in further.items():
        name, needed = ENVIRONMENTS[prompt]
        if programs := environment(tmp_path, name, needed, *libraries):
            paths[prompt] = programs
    followed = Walkthrough(page, checkout, paths, tolerance).run()
    if missing := further.keys() - paths.keys():
        pytest.skip(f"NO {' '.join(missing).upper()}: {followed} of {count} commands of {page} ran: make tutorials")
    assert followed == count


def test_output_is_compared_with_tolerance_and_ellipses():
    assert is_same("a 1.00\n...\nc", "a 1.01\nb\nb\nc\n")
    assert is_same("a\n  b", "a b\n")
    assert not is_same("a 1.00", "a 1.10")
    assert is_same("a 1.00", "a 1.10", tolerance=0.2)
    assert not is_same("a\nb", "a")
    assert not is_same("a", "a\nb")
    assert not is_same("a\n...", "b")
    assert not is_same("a\n...\na", "a")
