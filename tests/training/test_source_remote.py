"""Tests sources in a bucket: the samples are the same as on a disk, and a network failure never counts as a broken
sample.
"""

import pickle
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from pixprep.training.opening import open_source
from pixprep.training.sources.storage import expanded
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import tar_bytes, tar_members, write_coco, write_folder, write_parquet, write_tfrecord, write_voc

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install fsspec")
CHECKSUMS = find_spec("google_crc32c") is not None


class Shaky(fsspec.AbstractFileSystem):
    """In-memory file system. ``faults`` is the number of calls that will fail, and ``log`` contains the other calls."""

    protocol = "shaky"
    cachable = False
    faults = 0
    whole = False
    log: ClassVar = []

    def _asked(self, method, path, *args, **options):
        if Shaky.faults:
            Shaky.faults -= 1
            raise TimeoutError("nobody answers")
        Shaky.log.append((method, args, options))
        return getattr(fsspec.filesystem("memory"), method)(path, *args, **options)

    def cat_file(self, path, start=None, end=None, **_):
        return self._asked("cat_file", path) if Shaky.whole else self._asked("cat_file", path, start=start, end=end)

    def size(self, path):
        return self._asked("size", path)

    def ls(self, path, detail=True, **_):
        return self._asked("ls", path, detail=detail)

    def glob(self, path, **_):
        return [found.lstrip("/") for found in self._asked("glob", path)]


fsspec.register_implementation("shaky", Shaky, clobber=True)


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Return a function that uploads the files of ``tmp_path`` to a bucket and returns the bucket's URL."""
    monkeypatch.setattr(Shaky, "faults", 0)
    monkeypatch.setattr(Shaky, "log", [])
    monkeypatch.setattr(Shaky, "whole", False)
    monkeypatch.setattr("pixprep.training.sources.remote._FIRST_WAIT_S", 0.001)
    memory = fsspec.filesystem("memory")

    def put():
        for path in tmp_path.rglob("*"):
            if path.is_file():
                memory.pipe_file(f"/bucket/{path.relative_to(tmp_path)}", path.read_bytes())
        return "shaky:///bucket"

    yield put
    if memory.exists("/bucket"):
        memory.rm("/bucket", recursive=True)


def comparable(source):
    def value(each):
        if isinstance(each, np.ndarray):
            return each.tolist()
        return bytes(each) if isinstance(each, memoryview) else each.read_bytes() if hasattr(each, "open") else each

    return [{name: value(each) for name, each in sample.items()} for sample in source]


def test_folders_tars_records_and_coco_equal_those_on_the_disk(bucket, tmp_path):
    write_folder(tmp_path / "photos", 6)
    write_coco(tmp_path / "coco", 4)
    write_voc(tmp_path / "voc", 4)
    write_tfrecord(tmp_path / "0.tfrecord", 2)
    write_tfrecord(tmp_path / "1.tfrecord", 3, 2)
    for number in range(3):
        (tmp_path / f"{number:03}.tar").write_bytes(tar_bytes(tar_members(2, number)))
    if has_pyarrow := find_spec("pyarrow") is not None:
        write_parquet(tmp_path / "0.parquet", 5)
    url = bucket()
    annotations = tmp_path / "coco" / "instances.json"
    for make in (
        lambda root: read.files(f"{root}/photos"),
        lambda root: read.files([f"{root}/photos/china/0.jpg", f"{root}/photos/flower/1.jpg"], labels=[0, 1]),
        lambda root: read.tfrecord(f"{root}/*.tfrecord", label="image/class/label", checksums=CHECKSUMS),
        lambda root: read.tar(f"{root}/{{000..002}}.tar", about="json"),
        lambda root: read.coco(f"{root}/coco/images", annotations),
        lambda root: read.voc(f"{root}/voc", "train"),
        lambda root: read.voc(f"{root}/voc"),
        *[lambda root: read.parquet(f"{root}/*.parquet", label="label")] * has_pyarrow,
    ):
        ours, theirs = make(url), make(tmp_path)
        assert comparable(ours) == comparable(theirs)
        assert (ours.classes, ours.fingerprint) == (theirs.classes, theirs.fingerprint)
        assert comparable(pickle.loads(pickle.dumps(ours))) == comparable(theirs)  # noqa: S301
    assert len(open_source(f"{url}/001.tar", {})) == len(open_source(f"{url}/photos/china", {})) - 1 == 2


def test_a_table_can_name_objects(bucket, tmp_path):
    write_folder(tmp_path / "photos", 2)
    (tmp_path / "t.csv").write_text("image,label\nchina/0.jpg,5\nflower/1.jpg,6\n../x.jpg,7\n")
    source = read.table(tmp_path / "t.csv", root=f"{bucket()}/photos")
    assert [(source[index]["image"], source[index]["label"]) for index in range(2)] == [
        (small_jpeg(0), 5),
        (small_jpeg(1), 6),
    ]
    with pytest.raises(pp.ImageError, match=r"line 4: the file '../x.jpg' is not inside "):
        source[2]


def test_a_shard_is_scanned_one_megabyte_at_a_time(bucket, tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes([(f"{n}.jpg", bytes(3000)) for n in range(200)]))
    read.tar(f"{bucket()}/a.tar", label=None)
    assert [method for method, *_ in Shaky.log] == ["size", "cat_file"]


def test_a_few_network_faults_are_tolerated(bucket, tmp_path):
    write_folder(tmp_path, 6)
    source = read.files(bucket())
    Shaky.faults = 4
    assert source[0]["image"] == small_jpeg(0)


@pytest.mark.parametrize("on_error", ["raise", "replace", "skip"])
def test_a_network_failure_ends_the_epoch_with_the_objects_name_for_any_error_policy(bucket, tmp_path, on_error):
    write_folder(tmp_path, 16)
    source = read.files(bucket())
    with pp.Loader(source, PLAIN, batch_size=2, on_error=on_error, max_errors=1.0, prefetch=1) as loader:
        batches = iter(loader)
        next(batches)
        Shaky.faults = 10_000
        with pytest.raises(
            pp.DataError, match=r"shaky:///bucket/.*/\d+.jpg: could not be read in 5 attempts: TimeoutError: nobody"
        ):
            list(batches)


def test_a_missing_object_is_a_broken_sample(bucket, tmp_path):
    write_folder(tmp_path, 4)
    source = read.files(bucket())
    fsspec.filesystem("memory").rm("/bucket/china/2.jpg")
    with pytest.raises(pp.ImageError, match=r"^\[UNREADABLE\] china/2.jpg: cannot be read: no such object$"):
        source[1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda url: read.tar(f"{url}/no-*.tar"), "no-*.tar: no file has this name or matches this pattern"),
        (lambda url: read.tar(f"{url}/no.tar"), "no.tar: cannot be read: no such object"),
        (lambda url: read.files(f"{url}/no"), "no: cannot be read: no such object"),
        (
            lambda url: read.files([f"{url}/a.jpg", "memory://b/a.jpg"]),
            "the files of a list must all be on the same server",
        ),
        (lambda _: read.tar("nobody://b/a.tar"), "nobody://b/a.tar: Protocol not known: nobody"),
    ],
)
def test_a_url_without_an_object_is_one_error(bucket, make, words):
    with pytest.raises(pp.DataError) as caught:
        make(bucket())
    assert words in str(caught.value)


def test_a_server_without_ranges_is_rejected_before_it_sends_each_shard_for_each_sample(bucket, tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes(tar_members(3)))
    source = read.tar(f"{bucket()}/a.tar")
    Shaky.whole = True
    with pytest.raises(pp.DataError, match=r"a\.tar: the server does not support range requests: download the file"):
        source[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{000..002}.tar", ["000.tar", "001.tar", "002.tar"]),
        ("{8..10}", ["8", "9", "10"]),
        ("{a,b}-{1..2}", ["a-1", "a-2", "b-1", "b-2"]),
        ("a{b}c", ["a{b}c"]),
        ("{x..z}", ["{x..z}"]),
    ],
)
def test_braces_are_expanded_as_in_a_shell(text, found):
    assert expanded(text) == found
