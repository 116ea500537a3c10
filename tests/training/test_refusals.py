"""Tests the messages about mistakes in training: impossible orders, options of a Loader, and files that are not a data
set.
"""

import gzip
from pathlib import Path

import numpy as np

import pixprep as pp
from pixprep.training.order import Order
from support.loading import PLAIN, TRAINING, loader, samples
from support.records import record, tar_bytes, tar_members
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


@refusals("training")
def test_a_mistake_raises_the_expected_message(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = (order, loader, mixed, samples, file, folder, record, tar_bytes, gzip)
    names = {each.__name__: each for each in called} | {"np": np, "PLAIN": PLAIN, "folder_data": FolderData}
    said = refusal(call, tar=tar_bytes(tar_members(1)), **names)
    assert said.replace(f"{tmp_path}/", "") == words
