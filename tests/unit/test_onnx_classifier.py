"""The stand-alone classifier model, with a stand-in for the module that Triton's stub gives it."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from classifier_models import DISAGREEMENTS, Error, Request, load, one, save_small, started

MODEL = Path(__file__).parents[2] / "backend" / "pixprep" / "demo" / "onnx_classifier.py"


@pytest.fixture
def loaded(monkeypatch):
    return load(MODEL, monkeypatch)


@pytest.fixture
def module(loaded):
    return loaded[0]


@pytest.fixture
def logs(loaded):
    return loaded[1]


@pytest.fixture
def folder(tmp_path):
    return save_small(tmp_path)


def test_it_imports_nothing_of_pixprep():
    tree = ast.parse(MODEL.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    third_party = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert third_party == {"onnxruntime", "triton_python_backend_utils"}


def test_each_request_gets_what_the_onnx_file_computes(module, folder):
    first, second = (np.arange(n * 4, dtype=np.float32).reshape(n, 4) for n in (1, 3))
    one, three = started(module, folder).execute([Request(x=first), Request(x=second)])
    for answer, x in ((one, first), (three, second)):
        np.testing.assert_array_equal(answer.outputs["double"], x * 2)
        np.testing.assert_array_equal(answer.outputs["pairs"], x.reshape(len(x), 2, 2))


def test_a_request_gets_only_the_outputs_that_it_asks_for(module, folder):
    x = np.ones((1, 4), np.float32)
    (answer,) = started(module, folder).execute([Request(["double"], x=x)])
    assert answer.error is None
    assert answer.outputs.keys() == {"double"}


def test_a_request_that_fails_fails_alone_and_its_client_sees_no_details(module, folder, logs):
    good, bad = np.ones((1, 4), np.float32), np.ones((1, 3), np.float32)
    before, failed, missing, after = started(module, folder).execute(
        [Request(x=good), Request(x=bad), Request(), Request(x=good)]
    )
    message = "small: ONNX Runtime could not run this request; the server's log says why"
    for answer in (failed, missing):
        assert (str(answer.error), answer.error.code) == (message, "INTERNAL")
    for answer in (before, after):
        assert answer.error is None
        np.testing.assert_array_equal(answer.outputs["double"], good * 2)
    assert len(logs.errors) == 2
    assert "Reshape" in logs.errors[0]


def test_a_config_may_leave_outputs_out_and_fix_open_lengths(module, folder):
    started(module, folder, input=one(dims=[4]), output=one("pairs", dims=["2", "2"]))
    started(module, folder, max_batch_size=0, input=one(dims=[1, 4]), output=[])


@pytest.mark.parametrize(("changes", "message"), DISAGREEMENTS)
def test_a_config_that_disagrees_with_the_onnx_file_is_refused_in_one_line(module, folder, changes, message):
    with pytest.raises(Error) as caught:
        started(module, folder, **changes)
    assert str(caught.value) == f"small: {message}"


def test_a_missing_onnx_file_is_named(module, folder):
    (folder / "1" / "model.onnx").unlink()
    with pytest.raises(Error) as caught:
        started(module, folder)
    assert str(caught.value) == "small: model.onnx is missing in version 1 of the model"


def test_a_broken_onnx_file_is_refused_in_one_line_without_its_path(module, folder):
    (folder / "1" / "model.onnx").write_bytes(b"junk")
    with pytest.raises(Error) as caught:
        started(module, folder)
    message = str(caught.value)
    assert message.startswith("small: ONNX Runtime cannot load model.onnx: ")
    assert "\n" not in message
    assert str(folder) not in message


def test_threads_are_the_parameter_or_the_cores_that_the_process_may_use(module):
    assert module._threads({"parameters": {"threads": {"string_value": "3"}}}) == 3
    assert module._threads({}) == len(os.sched_getaffinity(0))
