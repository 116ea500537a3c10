"""Tests the types of fields: a value has the declared type in every source, and types are inferred only if they are
unambiguous.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import CHECKSUMS, example, record, refusals, tar_bytes, write_lmdb, write_parquet

CLASSES = ("bird", "cat", "dog")


def table(folder, values, **options):
    (folder / "t.csv").write_text("".join(f"{line}\n" for line in ["image,label", *(f"a.jpg,{v}" for v in values)]))
    return read.table(folder / "t.csv", **options)


def parquet(folder, values, **options):
    pytest.importorskip("pyarrow", reason="NO PYARROW: pip install pyarrow", exc_type=ImportError)
    write_parquet(folder / "p.parquet", rows=[{"image": small_jpeg(0), "y": value} for value in values])
    return read.parquet(folder / "p.parquet", label="y", **options)


def tar(folder, values, **options):
    texts = [str(value).encode() for value in values]
    members = [
        (f"{n}.{suffix}", data) for n, text in enumerate(texts) for suffix, data in [("jpg", b"x"), ("cls", text)]
    ]
    (folder / "t.tar").write_bytes(tar_bytes(members))
    return read.tar(folder / "t.tar", **options)


def lmdb(folder, values, **options):
    pytest.importorskip("lmdb", reason="NO LMDB: pip install lmdb", exc_type=ImportError)
    texts = {f"y-{n}": str(value).encode() for n, value in enumerate(values, 1)}
    write_lmdb(folder / "words", len(values), **texts)
    return read.lmdb(folder / "words", image="image-%09d", label="y-%d", **options)


def tfrecord(folder, values, **options):
    made = [value.encode() if isinstance(value, str) else value for value in values]
    data = b"".join(record(example(image__encoded=[b"x"], y=[value])) for value in made)
    (folder / "t.tfrecord").write_bytes(data)
    return read.tfrecord(folder / "t.tfrecord", label="y", checksums=CHECKSUMS, **options)


def rows(_, values, **options):
    return read.rows([{"image": small_jpeg(0), "y": value} for value in values], label="y", **options)


def iterable(_, values, **options):
    return read.iterable([{"image": small_jpeg(0), "y": value} for value in values], label="y", **options)


SOURCES = [table, parquet, tar, lmdb, tfrecord, rows, iterable]
TYPES = [
    ("float", [-3.0, 0.5, 12.25], [-3.0, 0.5, 12.25]),
    ("float", ["0.0", "1e-3", "11"], [0.0, 0.001, 11.0]),
    ("int", ["-3", "11.0", "007"], [-3, 11, 7]),
    ("int", [0.0, 2.0, -7.0], [0, 2, -7]),
    ("str", ["1", "0.0", "x"], ["1", "0.0", "x"]),
    ("classes", ["dog", "bird", "dog"], [2, 0, 2]),
    ("multi_hot", ["cat dog", "dog", "bird"], [[0, 1, 1], [0, 0, 1], [1, 0, 0]]),
]


@pytest.mark.parametrize(
    ("kind", "values", "expected"), TYPES, ids=[f"{kind} {values[0]}" for kind, values, _ in TYPES]
)
@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_a_declared_field_has_its_type_in_every_source(make, kind, values, expected, tmp_path):
    source = make(tmp_path, values, types={"label": kind}, classes=CLASSES if kind in ("classes", "multi_hot") else ())
    found = [sample["label"] for sample in source]
    assert [each.tolist() if isinstance(each, np.ndarray) else each for each in found] == expected
    assert {type(each) for each in found} == {np.ndarray if kind == "multi_hot" else type(expected[0])}
    assert kind != "multi_hot" or {each.dtype for each in found} == {np.dtype(np.float32)}
    (tmp_path / "b").mkdir()
    other = make(tmp_path / "b", values, types={"label": "str"})
    assert source.fingerprint != other.fingerprint or kind == "str"


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_a_value_of_a_wrong_type_breaks_its_sample(make, tmp_path):
    for kind, value, words in (
        ("float", "1,5", "'1,5' is not a finite number"),
        ("float", "nan", "'nan' is not a finite number"),
        ("int", "0.5", "'0.5' is not an integer"),
        ("classes", "cow", "'cow' is not one of the classes"),
        ("multi_hot", "dog cow", "'cow' is not one of the classes"),
    ):
        text = f'"{value}"' if make is table else value
        classes = CLASSES if kind in ("classes", "multi_hot") else ()
        (folder := tmp_path / value.replace(" ", "-")).mkdir()
        source = make(folder, ["7", text], types={"label": kind}, classes=classes)
        assert words in refusals(source)[1]


@pytest.mark.parametrize(
    ("values", "expected", "classes"),
    [
        (["3", "-7", "007"], [3, -7, 7], ()),
        (["dog", "n0144", "cat"], [1, 2, 0], ("cat", "dog", "n0144")),
        (["golden retriever", "tabby cat"], [0, 1], ("golden retriever", "tabby cat")),
    ],
)
def test_labels_of_a_table_are_inferred_if_unambiguous(values, expected, classes, tmp_path):
    source = table(tmp_path, values)
    assert [sample["label"] for sample in source] == source.labels.tolist() == expected
    assert source.classes == classes


def test_empty_labels_do_not_form_a_class(tmp_path):
    source = table(tmp_path, ["dog", "", "7"], types={"label": "classes"})
    assert (source.classes, source[0]["label"], source[2]["label"]) == (("7", "dog"), 1, 0)
    assert refusals(source) == {1: "[BAD_RECORD] t.csv, line 3: the label '' is not one of the classes"}
    many = table(tmp_path, ["dog", "", "cat dog"], types={"label": "multi_hot"})
    assert (many.classes, [sample["label"].tolist() for sample in many]) == (("cat", "dog"), [[0, 1], [0, 0], [1, 1]])


def test_other_columns_of_a_table_are_text_unless_declared(tmp_path):
    (tmp_path / "t.csv").write_text("image,age,who\na.jpg,20.5,7\nb.jpg,old,8\n")
    source = read.table(tmp_path / "t.csv", label=None, types={"age": "float"})
    assert source[0] == {"image": tmp_path / "a.jpg", "name": "a.jpg", "age": 20.5, "who": "7"}
    assert refusals(source) == {1: "[BAD_RECORD] b.jpg: \"age\": 'old' is not a finite number"}


def test_lists_are_converted_value_by_value():
    made = [{"image": small_jpeg(0), "boxes": [[1, 2, 9, 9]] * 2, "labels": ["dog", "cat"], "score": ["0.5", 1]}]
    fields = {"boxes": "boxes", "labels": "labels", "score": "score"}
    (sample,) = read.rows(made, types={"labels": "classes", "score": "float"}, classes=CLASSES, **fields)
    assert (sample["labels"].tolist(), sample["labels"].dtype) == ([2, 1], np.int64)
    assert (sample["score"].tolist(), sample["score"].dtype) == ([0.5, 1.0], np.float64)


def test_a_sample_without_a_label_has_no_weight(tmp_path):
    lines = [f"{index}.jpg,{index % 2 - 1}" for index in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["image,label", *lines, "8.jpg,"]))
    source = read.table(tmp_path / "t.csv", types={"label": "int"})
    weights = pp.Loader(source, PLAIN, batch_size=1, shuffle=True, weights="balanced", on_error="replace").order.weights
    assert (weights / weights.sum()).tolist() == [0.125] * 8 + [0.0]


def test_labels_of_a_list_of_files_can_be_floats_or_arrays():
    assert [each["label"] for each in read.files(["a.jpg", "b.jpg"], labels=[0.5, 1.75])] == [0.5, 1.75]
    rows = read.files(["a.jpg", "b.jpg"], labels=np.eye(2, dtype=np.float32))
    assert [each["label"].tolist() for each in rows] == [[1, 0], [0, 1]]
    for source in (rows, read.files(["a.jpg", "b.jpg"], labels=[0.5, 1.75])):
        with pytest.raises(pp.DataError, match="requires integer labels that are known before samples are read"):
            pp.Loader(source, PLAIN, batch_size=1, shuffle=True, weights="balanced")


@pytest.mark.parametrize("make", SOURCES[1:], ids=lambda make: make.__name__)
def test_a_missing_field_is_omitted(make, tmp_path):
    values = [1, 2]
    make(tmp_path, values, types={"label": "int"})
    path = {parquet: "p.parquet", tar: "t.tar", lmdb: "words", tfrecord: "t.tfrecord"}.get(make)
    how = {lmdb: {"image": "image-%09d"}, tfrecord: {"checksums": CHECKSUMS}}.get(make, {})
    given = [{"image": small_jpeg(0), "y": 1}] * 2 if path is None else tmp_path / path
    source = getattr(read, make.__name__)(given, label=None, **how)
    assert "label" not in source[0]
