"""Tests sources against the libraries that write and read these formats: they must find the same samples in the same
order.
"""

import json
import random
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from pixprep.training.sources import read_image
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import coco_annotations, refusals, tar_bytes, tar_members, write_coco, write_folder, write_voc

MISSING = "not installed: make parity, or make parity-tensorflow"


def library(name):
    """Return a library for the comparison, or skip the test with the command that installs the library."""
    return pytest.importorskip(name, reason=f"{name} is {MISSING}", exc_type=ImportError)


def bytes_of(sample):
    return bytes(read_image(sample, pp.Limits()))


# TensorFlow


def random_example(tf, rng):
    """Return an Example with features of every kind, which have no, one or many values. Also return its contents."""
    values = {
        "image/encoded": [rng.randbytes(rng.randrange(1, 5000))],
        "one": [rng.choice([0, 1, -1, 127, 128, 1 << 62, -(1 << 63), (1 << 63) - 1])],
        "many": [rng.randrange(-(1 << 63), 1 << 63) for _ in range(rng.randrange(300))],
        "real": [rng.choice([0.0, -0.5, 1e-30, 3e38])],
        "reals": [rng.uniform(-1e6, 1e6) for _ in range(rng.randrange(300))],
        "texts": [rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(9))],
        "n\u00e4me/\u65e5": [7],
    }
    lists = {}
    for name, row in values.items():
        if name in ("image/encoded", "texts"):
            lists[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=row))
        elif name.startswith("real"):
            lists[name] = tf.train.Feature(float_list=tf.train.FloatList(value=row))
        else:
            lists[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=row))
    return tf.train.Example(features=tf.train.Features(feature=lists)), values


@pytest.fixture
def tensorflow_file(tmp_path):
    """Return the path of a file that TensorFlow has written, and the values that it contains."""
    tf = library("tensorflow")
    rng = random.Random(5)
    written = [random_example(tf, rng) for _ in range(200)]
    with tf.io.TFRecordWriter(str(tmp_path / "t.tfrecord")) as writer:
        for example, _ in written:
            writer.write(example.SerializeToString())
    return tmp_path / "t.tfrecord", [values for _, values in written]


def test_tensorflows_records_are_read_as_written(tensorflow_file):
    path, written = tensorflow_file
    fields = {"one": "one", "many": ["many"], "real": "real", "reals": ["reals"], "texts": ["texts"], "x": "näme/日"}
    source = read.tfrecord(path, **fields)
    assert len(source) == len(written)
    for sample, values in zip(source, written, strict=True):
        assert bytes(sample["image"]) == values["image/encoded"][0]
        assert (sample["one"], sample["x"]) == (values["one"][0], 7)
        assert sample["many"].tolist() == values["many"]
        assert np.float32(sample["real"]) == np.float32(values["real"][0])
        assert np.array_equal(sample["reals"], np.array(values["reals"], np.float32))
        assert list(sample["texts"]) == values["texts"]


def test_tensorflow_rejects_the_same_record(tensorflow_file):
    tf = library("tensorflow")
    path, written = tensorflow_file
    offsets = np.cumsum([0, *(len(record.numpy()) + 16 for record in tf.data.TFRecordDataset(str(path)))])
    data = bytearray(path.read_bytes())
    data[offsets[70] + 40] ^= 4
    path.write_bytes(data)
    source, theirs = read.tfrecord(path), iter(tf.data.TFRecordDataset(str(path)))
    for _ in range(70):
        next(theirs)
    with pytest.raises(tf.errors.DataLossError):
        next(theirs)
    with pytest.raises(pp.ImageError, match=r"\[CORRUPT\] t.tfrecord, record 70: the checksum of the data is wrong"):
        source[70]
    assert bytes(source[71]["image"]) == written[71]["image/encoded"][0]  # TensorFlow has stopped before this record


def test_dalis_own_index_is_read(tensorflow_file, tmp_path):
    path, written = tensorflow_file
    program = shutil.which("tfrecord2idx", path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip(f"DALI's tfrecord2idx is {MISSING}")
    subprocess.run([program, str(path), str(tmp_path / "t.idx")], check=True, capture_output=True)
    source = read.tfrecord(path, index=tmp_path / "t.idx")
    assert [bytes(sample["image"]) for sample in source] == [values["image/encoded"][0] for values in written]


# WebDataset


def webdatasets(path):
    """Return the samples of a file, read with functions of WebDataset. The class ``WebDataset`` is not used, because it
    leaves files open.
    """
    iterators = library("webdataset.tariterators")
    with path.open("rb") as stream:
        return list(iterators.group_by_keys(iterators.tar_file_expander([{"url": path.name, "stream": stream}])))


def test_webdatasets_archives_are_read_equally(tmp_path):
    webdataset = library("webdataset")
    names = ["a/0001.jpg", "a/0001.cls", "b.c/0002.left.JPG", "b.c/0002.cls", "__x__", "é/0003.jpg", "é/0003.Cls"]
    with webdataset.TarWriter(str(tmp_path / "0.tar")) as writer:
        for n in range(20):
            writer.write({"__key__": f"some/{n:04}", "jpg": small_jpeg(n), "cls": n % 3, "json": {"n": n}})
    with tarfile.open(tmp_path / "1.tar", "w") as archive:
        for name in names:
            (tmp_path / "x").write_bytes(b"5" if name.lower().endswith("cls") else small_jpeg(1))
            archive.add(tmp_path / "x", name)
    theirs = webdatasets(tmp_path / "0.tar") + webdatasets(tmp_path / "1.tar")
    ours = read.tar(tmp_path / "?.tar", image="jpg;left.jpg")
    assert [sample["key"] for sample in ours] == [sample["__key__"] for sample in theirs]
    for sample, expected in zip(ours, theirs, strict=True):
        assert sample["image"] == expected.get("jpg", expected.get("left.jpg"))
        assert sample["label"] == int(expected["cls"])


def test_a_duplicate_member_is_rejected_by_both(tmp_path):
    members = [*tar_members(1), ("some/0000.cls", b"2")]
    (tmp_path / "0.tar").write_bytes(tar_bytes(members))
    with pytest.raises(ValueError, match="duplicate"):
        webdatasets(tmp_path / "0.tar")
    with pytest.raises(pp.ImageError, match="two members"):
        read.tar(tmp_path / "0.tar")[0]


# COCO, VOC, folders


def test_pycocotools_finds_the_same_boxes(tmp_path, capsys):
    coco = library("pycocotools.coco")
    content = coco_annotations(40)
    random.Random(3).shuffle(content["annotations"])
    random.Random(4).shuffle(content["images"])
    write_coco(tmp_path, 1, content)
    theirs = coco.COCO(str(tmp_path / "instances.json"))
    capsys.readouterr()
    ours = read.coco(tmp_path / "images", tmp_path / "instances.json", crowd=True)
    assert list(ours.category_ids) == sorted(theirs.getCatIds())
    assert list(ours.classes) == [theirs.cats[number]["name"] for number in ours.category_ids]
    for sample, number in zip(ours, sorted(theirs.getImgIds()), strict=True):
        rows = theirs.loadAnns(theirs.getAnnIds(imgIds=number))
        expected = np.array([[x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in rows)], np.float32)
        assert sample["name"] == theirs.imgs[number]["file_name"]
        assert np.array_equal(sample["boxes"], expected.reshape(-1, 4))
        assert [ours.category_ids[label] for label in sample["labels"]] == [row["category_id"] for row in rows]
        assert sample["ids"].tolist() == [row["id"] for row in rows]
        assert sample["iscrowd"].tolist() == [bool(row["iscrowd"]) for row in rows]


def some_shapes(count):
    """Return segmentations for an image of 90 x 120 pixels: run lengths, and polygons that are on the pixel grid, off
    the grid, outside the image, duplicated, or in several parts.
    """
    generator = np.random.default_rng(11)
    for index in range(count):
        parts = []
        for _ in range(1 + index % 3):
            points = generator.uniform(-20, 140, (int(generator.integers(3, 30)), 2))
            points = (points, points.round(), (points * 2).round() / 2, points.repeat(2, axis=0))[index % 4]
            points[0] *= (1, 1, 1, 400)[index // 4 % 4]
            parts.append(points.ravel().tolist())
        if index % 5:
            yield parts
        else:
            counts = np.diff(np.sort(generator.choice(90 * 120, 40, replace=False)), prepend=0, append=90 * 120)
            yield {"counts": counts.tolist(), "size": [90, 120]}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_pycocotools_fills_the_same_pixels(tmp_path, capsys):
    coco = library("pycocotools.coco")
    coder = library("pycocotools.mask")
    content = coco_annotations(25)
    for index, (each, shape) in enumerate(zip(content["annotations"], some_shapes(300), strict=True)):
        if index % 10 == 5:  # these run lengths are in their short form
            runs = coder.frPyObjects(shape, 90, 120)
            each["segmentation"] = {"size": [90, 120], "counts": runs["counts"].decode()}
        else:
            each["segmentation"] = shape
    write_coco(tmp_path, 1, content)
    theirs = coco.COCO(str(tmp_path / "instances.json"))
    count = 0
    for sample in read.coco(tmp_path / "images", tmp_path / "instances.json", crowd=True, masks=True):
        for mask, row in zip(np.asarray(sample["masks"]), theirs.loadAnns(sample["ids"].tolist()), strict=True):
            assert np.array_equal(mask, theirs.annToMask(row))
            count += 1
    assert count == 300
    capsys.readouterr()


def test_torchvisions_image_folder_lists_the_same_files(tmp_path):
    datasets = library("torchvision.datasets")
    write_folder(tmp_path, 20)
    for name in (
        "china/B.JPEG",
        "china/z/deep/1.png",
        "china/a.webp",
        "flower/_.bmp",
        "zebra é/10.tif",
        "zebra é/9.tif",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    theirs = datasets.ImageFolder(str(tmp_path))
    ours = read.files(tmp_path)
    assert list(ours.classes) == theirs.classes
    assert [(str(sample["image"]), sample["label"]) for sample in ours] == theirs.samples
    rows = read.rows(theirs.samples, image=0, label=1)
    assert [(str(sample["image"]), sample["label"]) for sample in rows] == theirs.samples


def test_torchvisions_voc_lists_the_same_photos_and_boxes(tmp_path):
    datasets = library("torchvision.datasets")
    root = tmp_path / "VOCdevkit" / "VOC2007"
    write_voc(root, 8)
    theirs = datasets.VOCDetection(str(tmp_path), year="2007", image_set="train")
    ours = read.voc(root, "train")
    assert [str(sample["image"]) for sample in ours] == theirs.images
    for sample, (_, target) in zip(ours, theirs, strict=True):
        objects = target["annotation"]["object"]
        corners = [[float(each["bndbox"][side]) for side in ("xmin", "ymin", "xmax", "ymax")] for each in objects]
        assert np.array_equal(sample["boxes"], np.array(corners, np.float32) - (1, 1, 0, 0))
        assert [ours.classes[label] for label in sample["labels"]] == [each["name"] for each in objects]


def test_a_photo_filled_by_a_box_remains_so_after_every_geometry(tmp_path):
    """VOC's coordinates are one-based and include the last pixel, so (1, 1, width, height) is the whole photo."""
    write_voc(tmp_path, 1)
    sample = read.voc(tmp_path)[0]
    height, width = sample["size"]
    assert sample["boxes"].tolist() == [[0, 0, width, height]]


# Hugging Face


@pytest.fixture
def hugging_face(tmp_path, monkeypatch):
    """Return a Hugging Face dataset of photos with classes."""
    # conftest sets None if PyTorch is missing, but datasets tests only whether the key exists
    if sys.modules.get("torch", 0) is None:
        monkeypatch.delitem(sys.modules, "torch")
    datasets = library("datasets")
    write_folder(tmp_path / "photos", 6)
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["china", "flower"]),
            "n": datasets.Value("int64"),
        }
    )
    rows = {
        "image": [{"bytes": small_jpeg(n), "path": f"{n}.jpg"} for n in range(6)],
        "label": [n % 2 for n in range(6)],
        "n": list(range(6)),
    }
    return datasets.Dataset.from_dict(rows, features=features)


def test_a_hugging_face_dataset_is_read_without_decoding(hugging_face):
    source = read.rows(hugging_face, label="label", n="n")
    assert source.classes == ("china", "flower")
    assert [bytes_of(sample) for sample in source] == [small_jpeg(n) for n in range(6)]
    assert [(sample["label"], sample["n"]) for sample in source] == [(n % 2, n) for n in range(6)]
    assert source[2]["name"] == "row 2, 2.jpg"
    numbers = read.rows(hugging_face.with_format("numpy"), label="label", n="n")
    assert list(numbers) == list(source)
    with pytest.raises(pp.DataError, match="the dataset has no column 'jpg'; its columns are 'image', 'label', 'n'"):
        read.rows(hugging_face, image="jpg")


def test_a_hugging_face_dataset_of_a_folder_and_of_parquet_is_read(hugging_face, tmp_path):
    datasets = library("datasets")
    hugging_face.to_parquet(str(tmp_path / "p.parquet"))
    cache = str(tmp_path / "cache")
    parquet = datasets.Dataset.from_parquet(str(tmp_path / "p.parquet"), cache_dir=cache)
    assert [bytes_of(sample) for sample in read.rows(parquet)] == [small_jpeg(n) for n in range(6)]
    ours, theirs = read.parquet(tmp_path / "p.parquet", label="label", n="n"), read.rows(parquet, label="label", n="n")
    assert [{**sample, "name": ""} for sample in ours] == [{**sample, "name": ""} for sample in theirs]
    assert ours.classes == theirs.classes == ("china", "flower")
    assert ours.labels.tolist() == theirs.labels.tolist()
    paths = [str(path) for path in sorted((tmp_path / "photos").rglob("*.jpg"))]
    listed = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    source = read.rows(listed)
    assert [bytes_of(sample) for sample in source] == [Path(path).read_bytes() for path in paths]


@pytest.mark.usefixtures("hugging_face")
def test_a_parquet_file_can_contain_paths_of_images(tmp_path):
    datasets = library("datasets")
    names = ["photos/china/0.jpg", "../photos/china/0.jpg", "/etc/passwd"]
    rows = {"image": [{"bytes": None, "path": name} for name in names]}
    image = datasets.Features({"image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}})
    datasets.Dataset.from_dict(rows, features=image).to_parquet(str(tmp_path / "named.parquet"))
    source = read.parquet(tmp_path / "named.parquet")
    assert bytes_of(source[0]) == (tmp_path / "photos" / "china" / "0.jpg").read_bytes()
    assert {index: error.partition(": ")[2] for index, error in refusals(source).items()} == {
        1: f"the file '../photos/china/0.jpg' is not inside {tmp_path}",
        2: f"the file '/etc/passwd' is not inside {tmp_path}",
    }


def test_a_streaming_hugging_face_dataset_is_an_iterable(hugging_face):
    stream = read.iterable(hugging_face.to_iterable_dataset(), samples=6, label="label")
    with pp.Loader(stream, PLAIN, batch_size=4, last="short") as loader:
        assert [batch["label"].tolist() for batch in loader] == [[0, 1, 0, 1], [0, 1]]


def test_a_filtered_and_shuffled_hugging_face_dataset_keeps_its_order(hugging_face):
    chosen = hugging_face.select([5, 1, 3])
    assert [sample["n"] for sample in read.rows(chosen, n="n")] == [5, 1, 3]
    assert json.dumps([sample["label"] for sample in read.rows(chosen, label="label")]) == "[1, 1, 1]"
