"""Tests Parquet files: row groups are read once, columns match, and damaged files are reported."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from pixprep.training.opening import open_source
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import refusals, write_parquet

pytest.importorskip("pyarrow", reason="NO PYARROW: pip install pyarrow", exc_type=ImportError)
from pixprep.training.sources import row_groups


@pytest.fixture
def reads(monkeypatch):
    """Count how often each row group of each file is read."""
    counts, real = Counter(), row_groups.read
    monkeypatch.setattr(
        row_groups, "read", lambda path, *rest: (counts.update([(Path(path).name, rest[1])]), real(path, *rest))[1]
    )
    return counts


@pytest.mark.parametrize("shuffle", [False, "blocks"])
def test_each_row_group_is_read_once_per_epoch(tmp_path, reads, shuffle):
    write_parquet(tmp_path / "0.parquet", 40, group=5)
    write_parquet(tmp_path / "1.parquet", 23, 40, group=4)
    source = read.parquet(tmp_path / "*.parquet", label="label")
    assert source.blocks.tolist() == [*range(0, 40, 5), *range(40, 63, 4)]
    with pp.Loader(source, PLAIN, batch_size=7, shuffle=shuffle, seed=3) as loader:
        indices = [index for batch in loader for index in batch["index"].tolist()]
    assert sorted(indices) == [*range(63)]
    assert len(reads) == 14
    assert set(reads.values()) == {1}


def test_blocks_are_row_groups_and_pools_contain_their_samples(tmp_path):
    write_parquet(tmp_path / "0.parquet", 60, group=6)
    source = read.parquet(tmp_path / "0.parquet")
    order = pp.Loader(source, PLAIN, batch_size=6, shuffle="blocks", seed=3).order
    first, second = order.order(0), order.order(1)
    assert sorted(first) == sorted(second) == [*range(60)]
    assert first.tolist() != second.tolist()


def test_with_little_memory_two_row_groups_are_kept(tmp_path, reads):
    write_parquet(tmp_path / "0.parquet", 12, group=3)
    source = read.parquet(tmp_path / "0.parquet", cache_bytes=0)
    assert [source[index]["image"] for index in range(12)] == [small_jpeg(index) for index in range(12)]
    assert set(reads.values()) == {1}
    assert len(source._kept) == 2
    (note,) = source.notes
    assert note.startswith("0.parquet: a row group takes ")
    assert source[0]["image"] == small_jpeg(0)
    assert reads["0.parquet", 0] == 2


def test_dotted_names_are_fields_of_structs_and_lists_are_arrays(tmp_path):
    write_parquet(tmp_path / "a.parquet", 5)
    source = open_source(str(tmp_path / "a.parquet"), {"image": "image.bytes", "path": "image.path", "area": "area"})
    assert [source[index]["image"] for index in range(5)] == [small_jpeg(index) for index in range(5)]
    assert (source[4]["path"], source[4]["name"]) == ("4.jpg", "a.parquet, row 4")
    assert source[2]["area"].tolist() == [3.0, 3.0]
    assert source[4]["area"].dtype == np.float64
    balanced = pp.Loader(
        read.parquet(tmp_path / "a.parquet", label="label"), PLAIN, batch_size=2, shuffle=True, weights="balanced"
    )
    assert balanced.order.weights.tolist() == [1 / 3, 1 / 2, 1 / 3, 1 / 2, 1 / 3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image": "photo"}, "has no column 'photo'; its columns are 'image', 'label', 'area'"),
        ({"image": "image.data"}, "has no column 'image.data'; its columns are"),
        ({"image": "label"}, "the column 'label' must contain encoded images, as binary values or structs with binary"),
        ({"label": "area"}, "labels must be integers, but the column 'area' contains list<"),
    ],
)
def test_a_column_that_does_not_match_is_one_error(tmp_path, options, words):
    write_parquet(tmp_path / "a.parquet")
    with pytest.raises(pp.DataError) as caught:
        read.parquet(tmp_path / "a.parquet", **options)
    assert str(caught.value).startswith(f"{tmp_path}/a.parquet: ")
    assert words in str(caught.value)


def test_a_damaged_file_is_one_error_and_a_damaged_row_group_breaks_its_samples(tmp_path):
    write_parquet(tmp_path / "a.parquet", 6, group=2, write_page_checksum=True)
    whole = (tmp_path / "a.parquet").read_bytes()
    for name, data in {"cut": whole[:-40], "empty": b"", "text": b"image,label"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(pp.DataError, match=f"/{name}: is not a valid Parquet file: "):
            read.parquet(tmp_path / name)
    place = whole.index(small_jpeg(3)[-140:-100])
    (tmp_path / "a.parquet").write_bytes(whole[:place] + bytes(40) + whole[place + 40 :])
    source = read.parquet(tmp_path / "a.parquet")
    found = refusals(source)
    assert [*found] == [2, 3]
    assert found[3].startswith("[CORRUPT] a.parquet, row 3: the row group 1 cannot be read: ")
    with pp.Loader(source, PLAIN, batch_size=2, on_error="replace", max_errors=6) as loader:
        assert len([*loader]) == 3
        assert [broken.index for broken in loader.errors] == [2, 3]
    (tmp_path / "a.parquet").unlink()
    fresh = read.subset(source, [4])
    source._kept.clear()
    with pytest.raises(pp.ImageError, match=r"^\[UNREADABLE\] a.parquet, row 4: cannot be read: .*No such file"):
        fresh[0]


def test_a_null_breaks_its_sample_and_an_empty_file_is_rejected(tmp_path):
    rows = [{"image": small_jpeg(0), "label": 1}, {"image": None, "label": 1}, {"image": small_jpeg(2), "label": None}]
    write_parquet(tmp_path / "a.parquet", rows=rows)
    assert refusals(read.parquet(tmp_path / "a.parquet", label="label")) == {
        1: "[BAD_RECORD] a.parquet, row 1: the column 'image' is null in this row",
        2: "[BAD_RECORD] a.parquet, row 2: the column 'label' is null in this row",
    }
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "none.parquet")
    with pytest.raises(pp.DataError, match=r"none\.parquet: contains no rows"):
        read.parquet(tmp_path / "none.parquet")
    pq.ParquetWriter(tmp_path / "no group.parquet", pa.schema({"image": pa.binary()})).close()
    both = read.parquet([tmp_path / "none.parquet", tmp_path / "no group.parquet", tmp_path / "a.parquet"])
    assert (len(both), both[0]["image"]) == (3, small_jpeg(0))
    assert both.blocks.dtype == np.int64


def test_labels_of_any_integer_type_are_read_and_classes_come_from_the_files_metadata(tmp_path):
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    said = {"huggingface": json.dumps({"info": {"features": {"label": {"names": ["cat", "dog"]}}}})}
    for name, metadata in (("0.parquet", None), ("1.parquet", said)):
        columns = {"image": [small_jpeg(0)] * 2, "label": pa.array([1, None], pa.uint8())}
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), tmp_path / name)
    source = read.parquet(tmp_path / "*.parquet", label="label")
    assert (source.labels.tolist(), source.classes) == ([1, -1, 1, -1], ("cat", "dog"))


def test_a_forked_process_reads_with_its_own_threads(tmp_path):
    write_parquet(tmp_path / "a.parquet", 20, group=2)
    source = read.parquet(tmp_path / "a.parquet")
    assert source[0]["image"] == small_jpeg(0)
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(source[19]["image"] != small_jpeg(19))
    assert os.waitpid(child, 0)[1] == 0
