"""Tests of the commands' messages on a Python version without an embedded Triton (`make test-library
PYTHON=python3.13`).
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

from pixprep.cli.parser import main

ROOT = Path(__file__).parents[2]
with_no_triton = pytest.mark.skipif(
    sys.version_info < (3, 13) or find_spec("pytriton") is not None, reason="HAS A TRITON: it can serve"
)


@pytest.mark.parametrize("extra", ["client", "server", "classifier", "demo"])
@pytest.mark.parametrize(("python", "is_new"), [("3.12", False), ("3.13", True)])
def test_no_extra_requires_a_numpy_that_its_python_would_have_to_compile(extra, python, is_new):
    """NumPy 1.26 has no wheel for Python 3.13, so pip would compile it, which took more than five minutes."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found, extras = {}, [extra]
    for name in extras:
        for requirement in map(Requirement, listed[name]):
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                found.setdefault(requirement.name, []).append(str(requirement.specifier))
                extras += sorted(requirement.extras - {*extras}) if requirement.name == "pixprep" else []
    assert ("<2" in found.get("numpy", ())) is not is_new
    assert ("nvidia-pytriton" in found) is (extra in ("server", "demo") and not is_new)
    assert found.get("tritonclient", [">=2.60" if is_new else "==2.51.0"]) == [">=2.60" if is_new else "==2.51.0"]


@with_no_triton
@pytest.mark.parametrize("command", ["serve", "demo"])
def test_serving_commands_name_the_python_that_they_need(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    options = ["--no-check"] if command == "serve" else []
    assert main([command, "--model-repository", str(tmp_path / "models"), *options]) == 1
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["m"]
    assert capsys.readouterr().err == (
        "pixprep: the embedded Triton does not support Python "
        f"{sys.version_info.major}.{sys.version_info.minor}, because it requires NumPy 1.26: create an environment "
        "with "
        'Python 3.12, such as with `uv venv --python 3.12`, and in it pip install ".[server]" in a checkout of '
        "pixprep\n"
    )
