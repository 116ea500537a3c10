"""Tests the messages about mistakes in training: impossible orders, options of a Loader, and files that are not a data
set.
"""

import gzip  # noqa: F401  (lines of the table call it)
import json
import tarfile  # noqa: F401
from pathlib import Path

import numpy as np

import pixprep as pp
from pixprep import read
from pixprep.training.order import Order
from support.images import png, scene
from support.loading import PLAIN, TRAINING, loader, samples  # noqa: F401
from support.records import coco_annotations, example, message, record, tar_bytes, tar_members, voc_xml, write_voc  # noqa: F401
from support.refusals import refusal, refusals


def order(**fields):
    """Return an order of 40 samples."""
    return Order(**{"samples": 40, "batch_size": 8} | fields)


class FolderData:
    """Data set with the attributes of torchvision's ``ImageFolder``."""

    root, samples, loader = "pets", [("a.jpg", 0)], None

    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise AssertionError(index)


def mixed(pipeline=TRAINING, **fields):
    """Return a Loader that mixes images."""
    return loader(None, pipeline, mix=pp.Mix(3, **fields))


def file(name, content=b"x"):
    """Write a file and return its name."""
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def folder(name, *names):
    """Create a folder of files and return its name."""
    for path in (Path(name, each) for each in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    Path(name).mkdir(exist_ok=True)
    return name


def archive(*members):
    """Write a tar file and return its name."""
    return file("t.tar", tar_bytes(members))


def examples(*features):
    """Write a TFRecord file of examples, or of other bytes, and return its name."""
    made = (each if isinstance(each, bytes) else example(**each) for each in features)
    return file("t", b"".join(map(record, made)))


def coco(**fields):
    """Return the COCO image whose second annotation has these fields."""
    content = coco_annotations()
    (annotation,) = (each for each in content["annotations"] if each["id"] == 3001)
    annotation.update(fields)
    return read.coco(".", file("i.json", json.dumps(content)), crowd=True)[3]


def coco_mask(segmentation):
    """Return the mask of a COCO object of this shape in a photo of 90 x 120 pixels."""
    content = coco_annotations(2)
    content["annotations"][0]["segmentation"] = segmentation
    return np.asarray(read.coco(".", file("i.json", json.dumps(content)), masks=True)[1]["masks"])


def voc(*objects, xml=None):
    """Return the VOC sample whose annotation has these objects, or this XML."""
    write_voc(Path())
    Path("Annotations", "2.xml").write_text(xml or voc_xml(0, objects), encoding="utf-8")
    return read.voc(".")[2]


def voc_split(*names):
    """Return the VOC samples of a split of these names."""
    write_voc(Path())
    Path("ImageSets", "Main", "part.txt").write_text("\n".join(names), encoding="utf-8")
    return read.voc(".", "part")


def batches(source, **options):
    """Return all batches of a source."""
    with loader(source, **options) as one:
        return list(one)


def table(*labels, **options):
    """Return a table of files with these labels."""
    lines = ["image,label", *(f"a.jpg,{label}" for label in labels)]
    return read.table(file("t.csv", "".join(f"{line}\n" for line in lines)), **options)


def boxed(boxes, box_format="xyxy"):
    """Return the batch of a photo of 60 x 80 pixels with boxes in this format."""
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=9, width=9), pp.boxes(), pp.tensor()]).for_training()
    source = read.rows([{"image": png(scene(60, 80)), "boxes": boxes}], boxes="boxes", box_format=box_format)
    with loader(source, pipeline, batch_size=1) as one:
        return next(one)


def resumed(options=None, **state):
    """Resume a shuffled Loader, or one with other options, from its state after a batch with other values."""
    with loader(shuffle=True, seed=1) as one:
        next(one)
        saved = one.state_dict() | state
    with loader(**{"shuffle": True, "seed": 1} | (options or {})) as other:
        other.load_state_dict(saved)


NAMES = {**globals(), "PLAIN": PLAIN, "folder_data": FolderData, "tar": tar_bytes(tar_members(1))}


@refusals("training")
def test_a_mistake_raises_the_expected_message(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal(call, **NAMES).replace(f"{tmp_path}/", "").replace(str(tmp_path), ".") == words
