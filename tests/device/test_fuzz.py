"""Mutated images and pipeline files: a result or the documented error, and bounded memory. See tools/fuzz.py."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The tool with something broken inside; what it is, the test says.
BROKEN = """
import runpy, sys
from pixprep import engine, pipeline_file
from pixprep.decoders import cpu
sys.argv = [{tool!r}, "--work", "--count", "400"]
{fault}
runpy.run_path({tool!r}, run_name="__main__")
"""


def run(*command, tmp_path):
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'backend'}"}
    with (tmp_path / "out").open("w+") as out:
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            env=environment,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    return done.returncode, (tmp_path / "out").read_text(), done.stderr


def test_a_thousand_damaged_images_and_pipeline_files_give_a_result_or_the_documented_error(tmp_path):
    status, said, errors = run(ROOT / "tools" / "fuzz.py", "--count", "1200", "--seed", "7", tmp_path=tmp_path)
    assert status == 0, errors
    report = json.loads(said)
    assert sum(report["image"].values()) == sum(report["pipeline file"].values()) == 1200
    assert min(report["image"][found] for found in ("ok", "recovered", "CORRUPT", "TRUNCATED")) > 50
    assert report["pipeline file"]["ok"] > 10


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (
            "cpu.CpuDecoder._remains = lambda self, encoded, buffer: self._turbojpeg(encoded, buffer, is_strict=False)",
            r"image.*memory of another image",
        ),
        ("pipeline_file._choices = lambda cls, field: [None]", r"pipeline file.*TypeError"),
        (
            "engine.Engine._refuse_misfits = lambda self, x: x[2].pixels.__imul__(0) if 2 in x else None",
            r"image.*neighbour",
        ),
    ],
)
def test_a_fault_is_found(tmp_path, fault, found):
    """Negative controls: a check that is missing, one that raises, and results in the wrong place."""
    source = BROKEN.format(tool=str(ROOT / "tools" / "fuzz.py"), fault=fault)
    status, said, errors = run("-c", source, tmp_path=tmp_path)
    assert status == 1
    assert re.search(found, said + errors, re.DOTALL), errors[-800:]
