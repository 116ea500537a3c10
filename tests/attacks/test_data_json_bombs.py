"""Attack: A COCO file is nested 100,000 levels deep, contains numbers with a million digits, or contains gigabytes of
whitespace.

Defence: The parser requires a type for each value that it reads, and limits the depth of the values that it skips. A
file may have at most 2 GiB.

Outcome: The file is rejected with a one-line message that contains its name, or only the invalid annotation is
rejected.
"""

import json
import os

import pytest

import pixprep as pp
from attacks.repositories import patience, sparse
from pixprep import read
from support.records import coco_annotations

TEXTS = {
    "deep": '{"images": ' + "[" * 100_000,
    "deep in what is passed over": '{"info": ' + '{"a":' * 100_000,
    "deep in an annotation": '{"images": [1], "categories": [], "annotations": [{"segmentation": ' + "[" * 100_000,
    "UTF-16": json.dumps(coco_annotations(2)).encode("utf-16"),
    "half a surrogate pair": '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "\\ud800"}]}',
    "a NUL": b"\0" * 99,
}


def coco(folder, text):
    (folder / "i.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read.coco(folder, folder / "i.json")


@pytest.mark.parametrize("name", TEXTS)
def test_an_invalid_file_is_one_line(tmp_path, name):
    with patience(), pytest.raises(pp.DataError) as caught:
        coco(tmp_path, TEXTS[name])
    assert str(caught.value).startswith(f"{tmp_path}/i.json: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "-1e999", "9" * 30, "1" + "0" * 400 + ".5", "1e-999999999"])
@pytest.mark.parametrize("field", ["bbox", "image_id", "category_id", "id", "area", "iscrowd"])
def test_a_number_of_endless_digits_breaks_at_most_its_image(tmp_path, field, number):
    content = coco_annotations(4)
    content["annotations"][0][field] = ["X", 1, 1, 1] if field == "bbox" else "X"
    with patience():
        try:
            source = coco(tmp_path, json.dumps(content).replace('"X"', number))
        except pp.DataError as error:
            assert "is not valid JSON" in str(error)  # noqa: PT017  (or else it is a number)
            return
    assert len(source[3]["boxes"]) == 2
    try:
        assert len(source[1]["boxes"]) <= 1
    except pp.ImageError as error:
        assert error.reason == "BAD_RECORD"  # noqa: PT017


def test_gigabytes_are_not_read(tmp_path):
    sparse(3 << 30)(tmp_path / "i.json")
    with patience(), pytest.raises(pp.DataError, match=r"i.json: is larger than the limit of 2,147,483,648 bytes"):
        read.coco(tmp_path, tmp_path / "i.json")


@pytest.mark.parametrize("open_", [lambda path: read.coco(path.parent, path), read.table, read.tar, read.tfrecord])
def test_a_fifo_does_not_block(tmp_path, open_):
    os.mkfifo(tmp_path / "x.csv")
    with (
        patience(),
        pytest.raises(
            pp.DataError, match=r"x.csv: (cannot be read: Not a regular file|no such file|no file has this name)"
        ),
    ):
        open_(tmp_path / "x.csv")
