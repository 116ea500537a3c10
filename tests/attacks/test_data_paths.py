"""Attack: An annotation, a table or an archive refers to other files of the machine, by an absolute path, "..", a link
or a URL.

Defence: A name in an annotation is joined to the folder that the user specifies, and must not leave this folder. VOC's
``<filename>`` is ignored. Whether a name refers to an object in a bucket depends on the user's folder, not on a ``://``
in the name. The contents of an archive are never written to disk, and its links are not followed. Keys that would lead
outside a folder are rejected, because users may name their own output files after keys.

Outcome: The sample is rejected with its name, and no other file is opened.
"""

import json
import tarfile

import pytest

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import coco_annotations, tar_bytes, write_voc

NAMES = [
    "/etc/passwd", "../secret.jpg", "../../secret.jpg", "a/../../secret.jpg", "./../secret.jpg",
    "a/b/../../../secret.jpg", "//etc/passwd", "/proc/self/environ", "..", ".", "", "../images-of-another/a.jpg",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (tmp_path / "images-of-another").mkdir()
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_coco_cannot_leave_its_folder(folder, name):
    content = coco_annotations(2)
    content["images"][1]["file_name"] = name
    (folder / "i.json").write_text(json.dumps(content))
    source = read.coco(folder, folder / "i.json")
    assert source[0]["image"] == folder / "0.jpg"
    refused_or_inside(source, 1, folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_table_cannot_leave_its_folder(folder, name):
    (folder / "t.csv").write_text(f"image,label\na.jpg,x\n{name},y\n")
    refused_or_inside(read.table(folder / "t.csv"), 1, folder)


def refused_or_inside(source, index, folder):
    """Assert that the sample is rejected, or that its file is in ``folder``.

    The name ``.`` refers to the folder itself, which is not a regular file.
    """
    try:
        path = source[index]["image"]
    except pp.ImageError as error:
        assert error.reason == "BAD_RECORD"  # noqa: PT017  (or else it lies inside)
        assert "is not inside" in error.detail  # noqa: PT017
    else:
        assert path.resolve() in (folder, *folder.rglob("*"))


@pytest.mark.parametrize(
    "name", ["http://127.0.0.1:9/x.jpg", "s3://bucket/x.jpg", "nobody://x", "a://", "x/file:///etc"]
)
def test_a_name_that_is_a_url_is_a_broken_sample_and_is_not_requested(folder, name):
    content = coco_annotations(3)
    content["images"][1]["file_name"] = name
    (folder / "i.json").write_text(json.dumps(content))
    (folder / "t.csv").write_text(f"image\n0.jpg\n{name}\n2.jpg\n")
    for number in (0, 2):
        (folder / f"{number}.jpg").write_bytes(small_jpeg(number))
    for source in (read.coco(folder, folder / "i.json"), read.table(folder / "t.csv", label=None)):
        with patience(10), pp.Loader(source, PLAIN, batch_size=3, on_error="skip", max_errors=1.0) as loader:
            assert [batch["index"].tolist() for batch in loader] == [[0, 2]]
            (broken,) = loader.errors
        assert broken.error.reason == "BAD_RECORD"
        assert f"the file name {name!r} is a URL, not a path in {folder}" in str(broken.error)


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "a/b", ".."])
def test_a_name_in_a_voc_list_is_not_a_path(tmp_path, name):
    write_voc(tmp_path, 2)
    (tmp_path / "ImageSets" / "Main" / "x.txt").write_text(f"0\n{name}\n")
    with pytest.raises(pp.DataError, match="is not a valid name of an image"):
        read.voc(tmp_path, "x")


def test_the_file_name_in_an_xml_file_is_not_read(tmp_path):
    write_voc(tmp_path, 2)  # the <filename> of each file is ../../0.jpg
    assert read.voc(tmp_path)[0]["image"] == tmp_path / "JPEGImages" / "0.jpg"


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "a/..", "//x"])
def test_a_key_that_leads_out_of_an_archive_is_rejected(tmp_path, name):
    members = [("a.jpg", b"1"), ("a.cls", b"1"), (f"{name}.jpg", b"2"), (f"{name}.cls", b"2")]
    (tmp_path / "t.tar").write_bytes(tar_bytes(members))
    source = read.tar(tmp_path / "t.tar")
    assert source[0]["image"] == b"1"
    if len(source) == 1:  # a path that contains ".." is skipped, like a hidden file
        assert source.notes
        return
    with pytest.raises(pp.ImageError, match=r"the name is an absolute path, or contains \.\."):
        source[1]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_link_or_a_device_in_an_archive_is_not_followed(tmp_path, kind):
    members = [
        ("a.jpg", b"1"),
        ("a.cls", b"1"),
        ("b.jpg", {"type": kind, "linkname": "/etc/passwd", "size": 600}),
        ("b.cls", b"2"),
        ("c.jpg", b"3"),
        ("c.cls", b"3"),
    ]
    (tmp_path / "t.tar").write_bytes(tar_bytes(members))
    source = read.tar(tmp_path / "t.tar")
    with pytest.raises(pp.ImageError, match=r"the member .jpg is a (link|special file)"):
        source[1]
    assert source[2]["image"] == b"3"
    assert [path.name for path in tmp_path.iterdir()] == ["t.tar"]
