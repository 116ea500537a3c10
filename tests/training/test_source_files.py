"""Tests ``read.files`` and ``read.table``: which files they read, in which order, and with which labels."""

import os
from pathlib import Path

import pytest

import pixprep as pp
from pixprep import read
from pixprep.training.sources import read_image
from support.broken_data import WAYS, make, small_jpeg
from support.records import refusals


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


def listing(source):
    return [(sample["name"], sample.get("label")) for sample in source]


def test_folders_are_classes_sorted_by_name_with_all_nested_files(tmp_path):
    write(
        tmp_path, "b/2.jpg", "b/10.PNG", "b/deep/er/0.webp", "a/x.jpeg", "a/notes.txt", "a/.hidden.jpg", ".trash/1.jpg"
    )
    source = read.files(tmp_path)
    assert source.classes == ("a", "b")
    assert listing(source) == [("a/x.jpeg", 0), ("b/10.PNG", 1), ("b/2.jpg", 1), ("b/deep/er/0.webp", 1)]
    assert source.notes == ("skipped, because these are not image files: a/notes.txt",)
    assert source.labels.tolist() == [0, 1, 1, 1]


def test_the_classes_of_one_folder_can_be_used_for_another(tmp_path):
    train = read.files(write(tmp_path / "train", "a/1.jpg", "b/1.jpg", "c/1.jpg"))
    assert listing(read.files(write(tmp_path / "v", "c/1.jpg", "a/1.jpg", "b/1.jpg"), classes=train.classes)) == [
        ("a/1.jpg", 0),
        ("b/1.jpg", 1),
        ("c/1.jpg", 2),
    ]


def test_a_folder_with_only_images_has_no_labels(tmp_path):
    write(tmp_path, "b.jpg", "a.jpg", "texts/c.txt")
    source = read.files(tmp_path)
    assert listing(source) == [("a.jpg", None), ("b.jpg", None)]
    assert (source.classes, source.labels) == ((), None)


def test_images_next_to_the_class_folders_are_named(tmp_path):
    source = read.files(write(tmp_path, "stray.jpg", "a/1.jpg"))
    assert listing(source) == [("a/1.jpg", 0)]
    assert source.notes == ("skipped, because these files are not in the folder of a class: stray.jpg",)


def test_circular_links_end(tmp_path):
    write(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    with pytest.raises(pp.DataError, match=r"a/again: links form a loop"):
        read.files(tmp_path)


def test_a_class_can_be_a_link_to_another_disk(tmp_path):
    write(tmp_path / "disk", "1.jpg")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a").symlink_to(tmp_path / "disk")
    assert listing(read.files(tmp_path / "train")) == [("a/1.jpg", 0)]


def test_names_that_are_not_utf8_are_read(tmp_path):
    (tmp_path / "a").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "a") + b"/\xff\xfe.jpg")).write_bytes(b"bytes")
    (sample,) = read.files(tmp_path)
    assert bytes(read_image(sample, pp.Limits())) == b"bytes"


def test_a_list_keeps_its_order_and_its_labels(tmp_path, monkeypatch):
    write(tmp_path, "b.jpg", "a.jpg")
    monkeypatch.chdir(tmp_path)
    source = read.files(["b.jpg", Path("a.jpg")], labels=[5, 3], classes="uvwxyz")
    monkeypatch.chdir("/")
    assert [(sample["image"].name, sample["label"]) for sample in source] == [("b.jpg", 5), ("a.jpg", 3)]
    assert read_image(source[0], pp.Limits()) == b"x"


def test_a_pattern_is_the_sorted_list_of_matching_files(tmp_path):
    for name in ("a/2.jpg", "a/1.jpg", "b/3.jpg", "b/3.png", "a[1]/4.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(small_jpeg(0))
    source = read.files(tmp_path / "*" / "*.jpg")
    assert [sample["name"] for sample in source] == ["a/1.jpg", "a/2.jpg", "a[1]/4.jpg", "b/3.jpg"]
    assert "label" not in source[0]
    assert len(read.files(tmp_path / "a[1]")) == 1  # the folder has this name
    assert [sample["label"] for sample in read.files(tmp_path / "{a,b}" / "?.jpg", labels=[0, 0, 1])] == [0, 0, 1]


def test_a_list_has_the_same_fingerprint_wherever_its_folder_is(tmp_path):
    names = ("a/1.jpg", "b..c/2.jpg", "a/3.jpg")
    sources = []
    for folder in ("here", "there/deeper"):
        write(tmp_path / folder, *names)
        sources.append(read.files([tmp_path / folder / name for name in names]))
    assert [sample["name"] for sample in sources[0]] == list(names)
    assert [sample["image"] for sample in sources[1]] == [tmp_path / "there/deeper" / name for name in names]
    assert sources[0].fingerprint == sources[1].fingerprint
    spread = read.files(["/a.jpg", "/b/c.jpg"])
    assert [(str(sample["image"]), sample["name"]) for sample in spread] == [
        ("/a.jpg", "a.jpg"),
        ("/b/c.jpg", "b/c.jpg"),
    ]


def test_each_of_eight_kinds_of_broken_files_is_named_and_breaks_only_itself(tmp_path):
    broken = make(tmp_path, 160)
    source = read.files(tmp_path)
    pipeline = pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor(dtype="uint8")])
    found, named = {}, []
    with pp.Engine(pipeline, threads=2) as engine:
        for sample in source:
            try:
                (result,) = engine.run([read_image(sample, pp.Limits())])
            except pp.ImageError as error:
                result = error
                named.append(error.detail.partition(": ")[0])
            if isinstance(result, pp.ImageError):
                found[sample["name"]] = result.reason
    assert found == broken
    # these are found before decoding
    assert [broken[name] for name in named] == ["EMPTY", "TOO_LARGE_BYTES", "UNREADABLE"]
    assert sorted(broken.values()) == sorted(reason for reason, _ in WAYS.values())


def test_a_folder_named_like_an_image_is_not_a_file(tmp_path):
    source = read.files([tmp_path])
    with pytest.raises(pp.ImageError, match=r"\[UNREADABLE\] .*: is not a regular file"):
        read_image(source[0], pp.Limits())


TABLE = """\ufeffimage,label,who
a.jpg,dog,one
b.jpg,cat,"two, and more"

c.jpg,dog
../d.jpg,cat,x
/etc/passwd,cat,x
"e.jpg,dog,x
f.jpg,cat,
"""


def test_an_invalid_line_of_a_table_breaks_its_sample(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE, encoding="utf-8")
    source = read.table(tmp_path / "t.csv")
    assert source.classes == ("cat", "dog")
    assert len(source) == 7
    errors = refusals(source)
    assert errors == {
        2: "[BAD_RECORD] t.csv, line 5: has 2 fields, but the table has 3 columns",
        3: f"[BAD_RECORD] t.csv, line 6: the file '../d.jpg' is not inside {tmp_path}",
        4: f"[BAD_RECORD] t.csv, line 7: the file '/etc/passwd' is not inside {tmp_path}",
        5: "[BAD_RECORD] t.csv, line 8: unexpected end of data",
    }
    assert source.notes == tuple(text.partition("] ")[2] for text in errors.values())
    assert source[1] == {"image": tmp_path / "b.jpg", "name": "b.jpg", "label": 0, "who": "two, and more"}
    assert source[6]["who"] == ""


def test_a_table_uses_the_given_columns_and_root(tmp_path):
    (tmp_path / "t.tsv").write_text(f"file\tclass\n{tmp_path}/a.jpg\t4\n{tmp_path}/b.jpg\t-1\n")
    source = read.table(tmp_path / "t.tsv", image="file", label="class", root="/")
    assert [(sample["image"], sample["label"]) for sample in source] == [
        (tmp_path / "a.jpg", 4),
        (tmp_path / "b.jpg", -1),
    ]
    assert source.classes == ()
    assert "label" not in read.table(tmp_path / "t.tsv", image="file", label=None, root="/")[0]
