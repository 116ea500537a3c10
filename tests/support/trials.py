"""A fixture that runs trials of ONNX files in the test process. A ``conftest.py`` imports it for its folder."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from pixprep.serving.repository import trial


@pytest.fixture(scope="module", autouse=True)
def _trials_in_this_process():
    """Run ONNX files in this process, which has already loaded ONNX Runtime. tests/attacks runs them as users do."""

    def run(command, *, cwd, check, **options):
        if not command[2].endswith(".onnx_trial"):
            return subprocess.run(command, cwd=cwd, check=check, **options)
        from pixprep.serving.repository import onnx_trial  # noqa: PLC0415  (loads ONNX Runtime)

        patch.setattr(onnx_trial, "limit_memory", lambda: None)
        before = os.getcwd()  # noqa: PTH109
        os.chdir(cwd)
        try:
            onnx_trial.main(command[-1])
        except Exception as error:  # noqa: BLE001  (like the program)
            return SimpleNamespace(returncode=1, stderr=(str(error) or type(error).__name__).splitlines()[0].encode())
        finally:
            os.chdir(before)
        return SimpleNamespace(returncode=0, stderr=b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))
        yield
