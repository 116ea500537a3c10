"""Tests of the table of `pixprep send`: its formats, and runs that were interrupted, damaged or mixed."""

import csv
import json
from contextlib import suppress

import pytest

from pixprep.errors import PixprepError
from pixprep.serving.embedded.table import Table

ORIGIN = {"model": "ensemble", "top": 2}
BEST = [{"score": 2.5, "class": 7, "label": "cat"}, {"score": -1.0, "class": 0, "label": None}]
BOX = {"box": [1.0, 2.0, 3.5, 4.0], "score": 0.9, "class": 3}
ROWS = [
    {"file": "a, b.jpg", "latency_ms": 1.5, "error": 'the "file" is empty'},
    {"file": "c.jpg", "latency_ms": 2.0, "outputs": {"logits": BEST, "file": [0.25], "vector": [1.0, 2.0]}},
    {"file": "d.jpg", "latency_ms": 3.0, "outputs": {"logits": BEST[:1]}, "objects": [BOX]},
]


def write(path, rows=ROWS, origin=ORIGIN):
    with Table(path, origin) as table:
        for row in rows:
            table.add(row)
    return table


def interrupt(path, rows=ROWS, origin=ORIGIN):
    """Write the journal that a process leaves if it is killed after some rows."""
    with suppress(KeyboardInterrupt), Table(path, origin) as table:
        for row in rows:
            table.add(row)
        raise KeyboardInterrupt
    return path.with_name(f"{path.name}.part")


def test_a_csv_table_has_the_best_class_in_columns_and_lists_as_json(tmp_path):
    write(tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(newline="") as file:
        first, second, third = csv.DictReader(file)
    names = ["file", "error", "latency_ms", "objects", "logits.label", "logits.class", "logits.score", "logits"]
    assert list(first) == [*names, "outputs.file", "vector"]
    assert [value for value in first.values() if value] == ["a, b.jpg", 'the "file" is empty', "1.5"]
    assert (second["logits.label"], second["logits.class"], second["logits.score"]) == ("cat", "7", "2.5")
    assert (json.loads(second["logits"]), second["outputs.file"], second["vector"]) == (BEST, "0.25", "[1.0, 2.0]")
    assert (json.loads(third["objects"]), third["logits"]) == ([BOX], "")


def test_a_table_of_json_lines_has_the_rows_unchanged(tmp_path):
    write(tmp_path / "answers.jsonl")
    assert [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()] == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl"]


def test_a_parquet_table_has_nested_columns_also_if_its_first_rows_are_errors(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install pyarrow")
    errors = [{"file": f"{number}.jpg", "latency_ms": 0.0, "error": "empty"} for number in range(1500)]
    write(tmp_path / "answers.parquet", [*errors, *ROWS[1:], {"file": "\udc80.jpg", "latency_ms": 1, "error": "?"}])
    rows = parquet.read_table(tmp_path / "answers.parquet").to_pylist()
    assert (len(rows), rows[0]["error"], rows[0]["outputs"], rows[-1]["file"]) == (1503, "empty", None, "\\udc80.jpg")
    assert (rows[1500]["outputs"]["logits"], rows[1501]["objects"]) == (BEST, [BOX])


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_a_run_continues_after_the_last_complete_row_and_repeats_failed_photos(tmp_path, cut):
    journal = interrupt(tmp_path / "t.jsonl")
    journal.write_bytes(journal.read_bytes()[: -cut or None])
    interrupt(tmp_path / "t.jsonl", ROWS[:1])  # a second run, which is interrupted after a photo that fails again
    with Table(tmp_path / "t.jsonl", ORIGIN) as table:
        left = [row for row in ROWS if (row["file"],) not in table.answered]
        assert [row["file"] for row in left] == ["a, b.jpg", *["d.jpg"] * bool(cut)]
        for row in left:
            table.add({"file": row["file"], "latency_ms": 9.0, "outputs": {}})
        assert (table.rows, table.failed) == (3, 0)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(row["file"], row["latency_ms"]) for row in rows] == [
        ("a, b.jpg", 9.0), ("c.jpg", 2.0), ("d.jpg", 9.0 if cut else 3.0)
    ]  # fmt: skip
    assert not journal.exists()


def test_a_run_that_fails_before_its_first_row_leaves_no_file(tmp_path):
    interrupt(tmp_path / "t.csv", rows=[])
    assert not list(tmp_path.iterdir())


def test_a_table_that_cannot_be_continued_is_refused(tmp_path):
    def refused(name, origin=ORIGIN):
        with pytest.raises(PixprepError) as caught:
            Table(tmp_path / name, origin)
        return str(caught.value).replace(f"{tmp_path}/", "")

    assert refused("t.xlsx") == "t.xlsx: choose a file name that ends in .csv, .jsonl, .parquet"
    write(tmp_path / "t.csv")
    assert refused("t.csv") == "t.csv is already complete: remove it, or choose a different file"
    interrupt(tmp_path / "other.csv")
    advice = "remove it, or choose a different table"
    assert refused("other.csv", {"model": "m", "top": 2}) == (
        'other.csv.part was begun with other options: {"format": "pixprep answers/1", "model": "ensemble", "top": 2}: '
        + advice
    )
    (tmp_path / "foreign.csv.part").write_text("0123456789\n")
    assert refused("foreign.csv") == f"foreign.csv.part is not a journal of pixprep: {advice}"
    assert (tmp_path / "foreign.csv.part").read_text() == "0123456789\n"
    journal = interrupt(tmp_path / "damaged.csv")
    size = len(journal.read_bytes().splitlines(keepends=True)[0])
    journal.write_bytes(journal.read_bytes().replace(b'"file": "a', b'"fil": "a'))
    assert refused("damaged.csv") == f"damaged.csv.part is damaged at byte {size}: remove it to start again"
    with Table(tmp_path / "busy.csv", ORIGIN):
        assert refused("busy.csv") == "busy.csv: another process is writing this table"
