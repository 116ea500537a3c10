"""Tests of client_examples/spark_batch.py on a real Spark session: every row is correct and occurs exactly once, and
invalid rows contain the reason.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="NO SPARK: make scale-ray")

import pyarrow.parquet as pq

import pixprep as pp

pytestmark = pytest.mark.skipif(not shutil.which("java"), reason="NO JAVA: apt-get install default-jre-headless")
EXAMPLES = Path(__file__).parents[2] / "client_examples"
PIPELINE = pp.Pipeline([pp.decode(), pp.resize(32), pp.center_crop(24), pp.normalize(mean=0.5, std=0.25), pp.tensor()])
BROKEN = b"not an image"
COUNT = 100


def test_every_photo_becomes_a_row_and_a_broken_one_has_the_reason(tmp_path):
    folder, output = tmp_path / "photos", tmp_path / "tensors"
    folder.mkdir()
    contents = [path.read_bytes() for path in sorted((EXAMPLES / "images").glob("*.jpg"))]
    photos = {f"{i:03}.jpg": BROKEN if i % 50 == 7 else contents[i % len(contents)] for i in range(COUNT)}
    for name, encoded in photos.items():
        (folder / name).write_bytes(encoded)
    PIPELINE.save(tmp_path / "pipeline.json")
    command = [sys.executable, EXAMPLES / "spark_batch.py", folder, tmp_path / "pipeline.json", output]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = {Path(row["path"]).name: row for row in pq.read_table(output).to_pylist()}
    assert sorted(found) == sorted(photos)
    assert pq.read_table(output).num_rows == COUNT
    with pp.Engine(PIPELINE, threads=1) as engine:
        for name, encoded in photos.items():
            row = found[name]
            if encoded == BROKEN:
                assert row["error"].startswith("[UNKNOWN_FORMAT]")
                assert not any(row["tensor"])
            else:
                assert row["error"] is None
                assert np.array_equal(np.float32(row["tensor"]), engine.run([encoded])[0].ravel()), name
