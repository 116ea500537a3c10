"""Fixture with a model that only declares inputs and outputs."""

import pytest

from support.faces import save_onnx


@pytest.fixture
def model(tmp_path):
    return save_onnx(tmp_path / "my.onnx")
