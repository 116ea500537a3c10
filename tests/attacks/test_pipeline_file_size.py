"""Attack: a pipeline file of 100 MB, to fill the memory of whoever checks it.

Defence: at most 1 MiB and one byte are ever read.
Outcome: refused in milliseconds; a valid file of exactly 1 MiB is read.
"""

import os
import tracemalloc

import pytest

import pixprep as pp
from attacks.pipelines import VALID
from pixprep.pipeline.file import MAX_BYTES


def test_a_file_of_a_hundred_megabytes_is_refused_after_its_first(tmp_path):
    path = tmp_path / "pipeline.json"
    path.touch()
    os.truncate(path, 100_000_000)
    tracemalloc.start()
    with pytest.raises(pp.PipelineError, match="is no pipeline file: it has over 1,048,576 bytes"):
        pp.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_BYTES


@pytest.mark.parametrize("extra", [0, 1])
def test_the_limit_is_one_mebibyte_to_the_byte(tmp_path, extra):
    path = tmp_path / "pipeline.json"
    path.write_text(VALID + " " * (MAX_BYTES - len(VALID) + extra))
    if extra:
        with pytest.raises(pp.PipelineError, match="over 1,048,576 bytes"):
            pp.load(path)
    else:
        assert pp.load(path).outputs
