"""Tests that mutated images, base64 text and pipeline files give a result or a documented error, with bounded memory.

The inputs come from tools/fuzz.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_damaged_images_texts_and_pipeline_files_give_a_result_or_a_documented_error():
    """This test runs a hundred inputs of each kind; ``make fuzz`` runs 20,000."""
    command = [sys.executable, ROOT / "tools" / "fuzz.py", "--count", "100", "--seed", "7"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'backend'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {sum(report[kind].values()) for kind in ("image", "pipeline file", "base64")} == {100}
    assert min(report["base64"][found] for found in ("ok", "left")) > 5
    assert min(report["image"][found] for found in ("ok", "recovered", "CORRUPT", "TRUNCATED")) > 3
    assert report["pipeline file"]["ok"] > 0
