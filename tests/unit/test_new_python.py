"""What the commands say on a Python for which there is no embedded Triton (`make test-library PYTHON=python3.13`)."""

import sys
from importlib.util import find_spec

import pytest

from pixprep.cli import main

pytestmark = pytest.mark.skipif(sys.version_info < (3, 13) or find_spec("pytriton"), reason="HAS A TRITON: it serves")


def test_serve_names_the_python_that_it_needs(tmp_path, capsys):
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    assert main(["serve", "--model-repository", str(tmp_path / "models"), "--no-check"]) == 1
    assert capsys.readouterr().err == (
        "pixprep: the embedded Triton needs NumPy 1.26, which ends at Python 3.12, and this is "
        f"{sys.version_info.major}.{sys.version_info.minor}: make an environment of Python 3.12 "
        '(`uv venv --python 3.12`, pyenv, conda), and pip install "pixprep[server]" in it\n'
    )
