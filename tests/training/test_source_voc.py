"""Tests ``read.voc``: VOC's boxes become zero-based corners, and errors in XML files are reported."""

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.records import refusals, write_voc


@pytest.fixture
def folder(tmp_path):
    write_voc(tmp_path)
    return tmp_path


def test_boxes_are_zero_based_and_end_after_the_last_pixel(folder):
    source = read.voc(folder)
    assert len(source) == 6
    sample = source[1]
    assert (sample["image"], sample["name"], sample["size"]) == (folder / "JPEGImages" / "1.jpg", "1.jpg", (90, 120))
    # one box covers the whole photo, and one covers a part
    assert sample["boxes"].tolist() == [[0, 0, 120, 90], [7, 11, 52.5, 60]]
    assert [source.classes[label] for label in sample["labels"]] == ["cat", "dog"]
    assert sample["difficult"].tolist() == [False, True]
    assert sample["truncated"].tolist() == [True, True]
    assert (sample["boxes"].dtype, sample["labels"].dtype) == (np.float32, np.int64)


def test_a_split_is_a_list_of_names_in_order(folder):
    assert [sample["name"] for sample in read.voc(folder, "train")] == [f"{n}.jpg" for n in range(1, 6)]
    (folder / "ImageSets" / "Main" / "cat_val.txt").write_text("4  1\n\n2 -1\n")
    assert [sample["name"] for sample in read.voc(folder, "cat_val")] == ["4.jpg", "2.jpg"]


def test_classes_are_the_given_ones(folder):
    source = read.voc(folder, classes=["dog", "cat"])
    assert source[1]["labels"].tolist() == [1, 0]
    with pytest.raises(pp.ImageError, match=r"1.xml: object 1: the class 'dog' is unknown: pass classes with its name"):
        read.voc(folder, classes=["cat"])[1]


def test_an_invalid_annotation_breaks_its_image(folder):
    (folder / "Annotations" / "2.xml").write_text("<html><body>404")
    assert list(refusals(read.voc(folder))) == [2]


def test_a_missing_image_or_annotation_breaks_only_itself(folder):
    source = read.voc(folder)
    (folder / "Annotations" / "1.xml").unlink()
    (folder / "JPEGImages" / "3.jpg").unlink()
    with pytest.raises(pp.ImageError, match=r"\[UNREADABLE\] Annotations/1.xml: cannot be read"):
        source[1]
    source = read.voc(folder, "train")
    with pytest.raises(
        pp.ImageError, match=r"\[UNREADABLE\] Annotations/3.xml: JPEGImages does not contain an image with this name"
    ):
        source[2]
    assert source.notes == ("1 annotated images are not in JPEGImages, such as 3",)


def test_a_photo_without_objects_has_no_boxes_and_a_missing_size_stays_missing(folder):
    (folder / "Annotations" / "0.xml").write_text("<annotation><size><width>0</width></size></annotation>")
    sample = read.voc(folder)[0]
    assert (sample["boxes"].shape, sample["labels"].shape) == ((0, 4), (0,))
    assert "size" not in sample
