"""Attack: The first sample of a Parquet file of a few hundred bytes takes gigabytes of memory. The file contains a
dictionary with the same value in every row, or compressed zeros.

Defence: A row group is limited to 128 MiB, or to 16 times the bytes of its columns in the file. The numbers in the
footer are checked first. A few rows are then read at a time, and their bytes are counted.

Outcome: The samples of the row group are rejected, at little cost of time and memory. Samples of other row groups are
not affected.
"""

import time

import pytest

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from support.broken_data import small_jpeg
from support.records import refusals

pa = pytest.importorskip("pyarrow", reason="NO PYARROW: pip install pyarrow", exc_type=ImportError)
pq = pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
MIB = 1 << 20
ZEROS = bytes(MIB)


def dictionary(count):
    """Return an array of ``count`` rows that all refer to the same one-megabyte dictionary entry."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count), pa.array([ZEROS], pa.binary()))


BOMBS = {
    "a dictionary": (lambda: dictionary(2000), {"dictionary_pagesize_limit": 4 * MIB}),
    "a dictionary inside": (
        lambda: pa.StructArray.from_arrays([dictionary(2000)], ["bytes"]),
        {"dictionary_pagesize_limit": 4 * MIB},
    ),
    "zeros": (lambda: pa.array([ZEROS] * 300, pa.binary()), {"use_dictionary": False}),
}


@pytest.fixture
def pool():
    """Return an Arrow memory pool that nothing else uses."""
    before = pa.default_memory_pool()
    yield pa.system_memory_pool()
    pa.set_memory_pool(before)


@pytest.mark.parametrize("name", BOMBS)
def test_a_row_group_that_expands_is_rejected(tmp_path, pool, name):
    make, options = BOMBS[name]
    column = make()
    pq.write_table(
        pa.table({"image": column}), tmp_path / "a.parquet", compression="zstd", store_schema=False, **options
    )
    honest = pa.array([small_jpeg(0)] * 2, pa.binary())
    if pa.types.is_struct(column.type):
        honest = pa.StructArray.from_arrays([honest], ["bytes"])
    pq.write_table(pa.table({"image": honest}), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 50_000
    source = read.parquet(tmp_path / "*.parquet")
    pa.set_memory_pool(pool)
    start = time.process_time()
    with (
        patience(30),
        pytest.raises(pp.ImageError, match=r"a\.parquet, row 0: the row group 0 takes more than 134,217,728"),
    ):
        source[0]
    assert time.process_time() - start < 50
    assert pool.max_memory() < 400 * MIB
    assert source[-1]["image"] == small_jpeg(0)


def test_data_that_is_equally_large_in_the_file_is_read(tmp_path):
    images = [small_jpeg(n) for n in range(6)]
    pq.write_table(pa.table({"image": images * 500}), tmp_path / "a.parquet")
    source = read.parquet(tmp_path / "a.parquet")
    assert refusals(source) == {}
    assert [source[n]["image"] for n in (0, 1, 1025, 2999)] == [images[n % 6] for n in (0, 1, 1025, 2999)]
