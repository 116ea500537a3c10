"""Fixtures for this folder and its subfolders: a model that only declares inputs and outputs, and trial runs in this
process.
"""

import pytest

from support.faces import save_onnx
from support.trials import _trials_in_this_process  # noqa: F401  (a fixture that every test of this folder uses)


@pytest.fixture
def model(tmp_path):
    return save_onnx(tmp_path / "my.onnx")
