"""Tests ``read.coco``: images are in the order of their ids, boxes are corners, and messages name broken
annotations.
"""

import json

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.records import coco_annotations, refusals, write_coco


def coco(folder, content, *, crowd=True, **options):
    (folder / "i.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return read.coco(folder, folder / "i.json", crowd=crowd, **options)


def test_boxes_are_corners_and_labels_are_contiguous(tmp_path):
    write_coco(tmp_path)
    source = read.coco(tmp_path / "images", tmp_path / "instances.json", crowd=True)
    assert (source.classes, source.category_ids, source.notes) == (("china", "flower"), (3, 7), ())
    assert [len(sample["boxes"]) for sample in source] == [0, 1, 2, 3, 4, 5]
    sample = source[3]
    assert (sample["image"], sample["name"]) == (tmp_path / "images" / "3.jpg", "3.jpg")
    assert (sample["id"], sample["size"]) == (130, (90, 120))
    assert sample["boxes"].tolist() == [[0.5, 2.25, 10.5, 22.375], [1.5, 2.25, 12.5, 22.375], [2.5, 2.25, 14.5, 22.375]]
    assert sample["labels"].tolist() == [0, 1, 0]
    assert sample["ids"].tolist() == [3000, 3001, 3002]
    assert sample["iscrowd"].tolist() == [False, False, True]
    assert sample["area"].tolist() == [200.5] * 3


def test_images_are_in_the_order_of_their_ids_and_annotations_in_file_order(tmp_path):
    content = coco_annotations(4)
    content["images"].reverse()
    content["annotations"].reverse()
    source = coco(tmp_path, content)
    assert [sample["id"] for sample in source] == [100, 110, 120, 130]
    assert source[3]["ids"].tolist() == [3002, 3001, 3000]


def change(content, **fields):
    """Change the second annotation of image 130."""
    (each,) = (each for each in content["annotations"] if each["id"] == 3001)
    each.update(fields)


def test_a_broken_annotation_breaks_its_image(tmp_path):
    content = coco_annotations()
    change(content, category_id=5)
    source = coco(tmp_path, content)
    text = "i.json, image 130: annotation 3001: has the unknown category 5"
    assert refusals(source) == {3: f"[BAD_RECORD] {text}"}
    assert source.notes == (text,)


def test_annotations_without_an_image_are_noted(tmp_path):
    content = coco_annotations()
    change(content, image_id=99)
    content["annotations"] += [{"id": 1}, 5, {**content["annotations"][0], "id": 12, "image_id": 98}]
    source = coco(tmp_path, content)
    assert refusals(source) == {}
    assert source.notes == (
        "annotations[15]: Object missing required field `image_id`",
        "annotations[16]: Expected `object`, got `int`",
        "2 annotations refer to missing images, such as annotation 3001 to image 99",
    )
    assert source[3]["ids"].tolist() == [3000, 3002]


def test_broken_images_are_named_and_the_others_are_read(tmp_path):
    content = coco_annotations(4)
    content["images"][0]["height"] = -5
    content["images"][1]["file_name"] = "../../etc/passwd"
    content["images"][2] = {"id": "120", "file_name": "2.jpg"}
    content["images"] += [{"id": 200, "file_name": "a\0b"}, {"id": 300, "file_name": "/etc/passwd"}]
    source = coco(tmp_path, content)
    assert refusals(source) == {
        0: "[BAD_RECORD] i.json, image 100: has the invalid size -5 x 120",
        1: f"[BAD_RECORD] image 110: the file '../../etc/passwd' is not inside {tmp_path}",
        3: f"[BAD_RECORD] image 300: the file '/etc/passwd' is not inside {tmp_path}",
        4: "[BAD_RECORD] i.json, images[2]: Expected `int`, got `str` - at `$.id`",
        5: "[BAD_RECORD] i.json, images[4]: the file name contains a NUL character",
    }
    assert source[2]["ids"].tolist() == [3000, 3001, 3002]


def test_crowds_are_omitted_and_reported(tmp_path):
    source = coco(tmp_path, coco_annotations(5), crowd=False)
    assert source.notes == ("2 boxes around crowds are ignored: use crowd=True to keep them",)
    assert [sample["ids"].tolist() for sample in source][3:] == [[3000, 3001], [4000, 4001, 4003]]
    assert not any(sample["iscrowd"].any() for sample in source)
    assert source.fingerprint != coco(tmp_path, coco_annotations(5)).fingerprint


def test_images_without_a_box_are_omitted_on_request(tmp_path):
    content = coco_annotations(5)
    content["images"][4]["height"] = -5
    # the box of image 120 is a line
    content["annotations"][1:3] = [{**content["annotations"][1], "bbox": [3, 3, 30, 1]}]
    source = coco(tmp_path, content, empty=False)
    assert [source[index]["name"] for index in range(2)] == ["1.jpg", "3.jpg"]
    assert [source[index]["ids"].tolist() for index in range(2)] == [[1000], [3000, 3001, 3002]]
    assert source[1]["size"] == (90, 120)
    assert refusals(source) == {2: "[BAD_RECORD] i.json, image 140: has the invalid size -5 x 120"}
    content["annotations"] = []
    content["images"].pop()
    with pytest.raises(pp.DataError, match="no image has a box larger than one pixel in both dimensions"):
        coco(tmp_path, content, empty=False)


def test_two_images_with_the_same_id_are_both_rejected(tmp_path):
    content = coco_annotations(3)
    content["images"].append({"id": 110, "file_name": "x.jpg"})
    assert refusals(coco(tmp_path, content)) == {
        1: "[BAD_RECORD] i.json, image 110: several images have this id",
        2: "[BAD_RECORD] i.json, image 110: several images have this id",
    }


def test_an_image_without_a_size_has_none(tmp_path):
    content = coco_annotations(2)
    del content["images"][0]["height"], content["images"][1]["width"]
    assert all("size" not in sample for sample in coco(tmp_path, content))


def test_keypoints_are_points(tmp_path):
    content = coco_annotations(3)
    for category in content["categories"]:
        category["keypoints"] = ["nose", "tail"]
    for number, each in enumerate(content["annotations"][1:]):
        each["keypoints"] = [number, 2.5, 2, 0, 0, 0]
    sample = coco(tmp_path, content, keypoints=True)[2]
    assert sample["points"].tolist() == [[[0, 2.5], [0, 0]], [[1, 2.5], [0, 0]]]
    assert sample["visible"].tolist() == [[2, 0], [2, 0]]
    assert (sample["points"].dtype, sample["visible"].dtype) == (np.float32, np.uint8)
    content["annotations"][2]["keypoints"].pop()
    source = coco(tmp_path, content, keypoints=True)
    assert refusals(source) == {
        2: "[BAD_RECORD] i.json, image 120: annotations[2]: 2 keypoints require 6 numbers, not 5"
    }
    assert coco(tmp_path, content, keypoints=True)[1]["visible"].tolist() == [[0, 0]]
    with pytest.raises(pp.DataError, match=r"they define \[0\]$"):
        coco(tmp_path, coco_annotations(2), keypoints=True)


def test_files_without_annotations_or_valid_images_are_read(tmp_path):
    content = {"images": [{"id": 5, "file_name": "a.jpg"}], "annotations": [], "categories": []}
    assert coco(tmp_path, content)[0]["boxes"].shape == (0, 4)
    annotation = {"image_id": 5, "category_id": 1, "bbox": [1, 1, 1, 1]}
    content = {"images": [{"id": "5"}], "annotations": [annotation], "categories": [{"id": 1, "name": "a"}]}
    assert list(refusals(coco(tmp_path, content))) == [0]


# masks


def shaped(folder, segmentation, **options):
    """Return a source of one image, 90 x 120, that contains one object of this shape."""
    content = coco_annotations(2)
    content["images"], content["annotations"] = content["images"][1:], content["annotations"][:1]
    content["annotations"][0]["segmentation"] = segmentation
    return coco(folder, content, masks=True, **options)


def test_polygons_and_run_lengths_become_masks(tmp_path):
    rectangle = np.zeros((90, 120), np.uint8)
    rectangle[10:30, 20:60] = 1
    two = [[20, 10, 60, 10, 60, 30, 20, 30], [100, 80, 120, 80, 120, 90, 100, 90]]
    both = rectangle.copy()
    both[80:, 100:] = 1
    runs = np.diff(np.flatnonzero(np.diff(rectangle.T.ravel(), prepend=0)), prepend=0, append=90 * 120).tolist()
    for segmentation, expected in (
        (two[:1], rectangle),
        (two, both),
        ([], rectangle * 0),
        ({"counts": [20 * 90 + 10, *runs[1:]], "size": [90, 120]}, rectangle),
        ({"counts": [0, 90 * 120], "size": [90, 120]}, rectangle * 0 + 1),
        ({"counts": "0`a:", "size": [90, 120]}, rectangle * 0 + 1),
    ):
        masks = np.asarray(shaped(tmp_path, segmentation)[0]["masks"])
        assert masks.dtype == np.uint8
        assert np.array_equal(masks, expected[None])
    triangle = np.asarray(shaped(tmp_path, [[0, 0, 90, 90, 0, 90]])[0]["masks"])[0]
    rows, columns = np.indices((90, 120))
    inside = columns < rows
    assert (triangle[(np.abs(rows - columns) > 1)] == inside[(np.abs(rows - columns) > 1)]).all()


def test_masks_follow_their_boxes_through_a_loader(tmp_path):
    write_coco(tmp_path, 3)
    content = coco_annotations(3)
    for index, each in enumerate(content["annotations"]):
        left, top, width, height = each["bbox"] = [30 * index, 5, 20, 40]
        each["segmentation"] = [[left, top, left + width, top, left + width, top + height, left, top + height]]
    (tmp_path / "instances.json").write_text(json.dumps(content))
    ops = [pp.decode(), pp.random_flip(), pp.crop(0, 0, 90, 70), pp.boxes(), pp.masks(), pp.tensor()]
    source = read.coco(tmp_path / "images", tmp_path / "instances.json", masks=True)
    with pp.Loader(source, pp.Pipeline(ops).for_training(), batch_size=3) as loader:
        (batch,) = loader
    assert [len(each) for each in batch["masks"]] == [len(each) for each in batch["boxes"]]
    for boxes, masks in zip(batch["boxes"], batch["masks"], strict=True):
        for (left, top, right, bottom), mask in zip(boxes.astype(int).tolist(), masks, strict=True):
            assert mask[top:bottom, left:right].all()
            assert mask.sum() == (bottom - top) * (right - left)


def test_an_invalid_shape_fails_its_image_when_it_is_drawn(tmp_path):
    source = shaped(tmp_path, [[0.5, 1, 2, 3]])
    write_coco(tmp_path, 2)
    pipeline = pp.Pipeline([pp.decode(), pp.center_crop(90, 120), pp.masks(), pp.tensor()]).for_training()
    sample = source[0] | {"image": tmp_path / "images" / "1.jpg"}
    with (
        pp.Loader([sample], pipeline, batch_size=1) as loader,
        pytest.raises(pp.ImageError, match=r'^\[BAD_RECORD\] 1.jpg: "masks": segmentation 1 of 1: a polygon must'),
    ):
        next(iter(loader))
