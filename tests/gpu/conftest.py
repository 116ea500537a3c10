"""The folder of the CUDA kernels' shims: each set of options is built once for all tests."""

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shim")
