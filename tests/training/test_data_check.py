"""Tests ``pixprep data check``: the detected source, the report and the exit code."""

import json

import pytest

import pixprep as pp
from pixprep.cli.parser import main
from support.broken_data import make
from support.images import GONE, with_exif
from support.records import (
    coco_annotations,
    tar_bytes,
    tar_members,
    write_coco,
    write_folder,
    write_table,
    write_tfrecord,
    write_voc,
)


def check(capsys, *words):
    """Run the command. Return its exit code, the lines of stdout, and the lines of stderr."""
    code = main(["data", "check", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


def test_all_broken_samples_are_named_and_counted(tmp_path, capsys):
    broken = make(tmp_path, 160)
    code, lines, errors = check(capsys, tmp_path)
    assert (code, errors) == (1, [])
    found = {line.split("] ")[1].split(": ")[0]: line[1 : line.index("]")] for line in lines[:-1]}
    assert found == broken
    assert lines[-1].startswith(f"{tmp_path}: 160 samples, 8 broken: ")
    assert all(f"{reason} 1" in lines[-1] for reason in broken.values())


def test_json_has_the_same_contents(tmp_path, capsys):
    broken = make(tmp_path, 160)
    assert main(["data", "check", str(tmp_path), "--json", "--threads", "1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["notes"]) == (160, [])
    assert {row["detail"].split(": ")[0]: row["reason"] for row in found["broken"]} == broken
    names = [sample["name"] for sample in pp.read.files(tmp_path)]
    assert all(row["detail"].startswith(names[row["index"]]) for row in found["broken"])


def test_a_data_set_without_errors_is_reported(tmp_path, capsys):
    write_folder(tmp_path)
    assert check(capsys, tmp_path) == (0, [f"{tmp_path}: 6 samples, none broken"], [])


def test_skipped_data_is_reported_as_a_note(tmp_path, capsys):
    write_folder(tmp_path)
    (tmp_path / "china" / "x\n.txt").write_text("")
    code, lines, errors = check(capsys, tmp_path)
    assert (code, lines) == (0, [f"{tmp_path}: 6 samples, none broken"])
    assert errors == ["note: skipped, because these are not image files: china/x\\n.txt"]


@pytest.mark.parametrize(
    ("kind", "make_", "name"),
    [
        ("files", write_folder, ""),
        ("table", lambda path: write_table(path / "t.csv"), "t.csv"),
        ("tfrecord", lambda path: write_tfrecord(path / "a-0-of-1.tfrecord"), "*.tfrecord*"),
        ("coco", write_coco, "instances.json"),
        ("voc", write_voc, ""),
        ("tar", lambda path: (path / "a.tar").write_bytes(tar_bytes(tar_members())), "a.tar"),
    ],
)
def test_the_format_is_detected_from_the_name_or_given(tmp_path, capsys, kind, make_, name):
    make_(tmp_path)
    path = tmp_path / name
    given = {"tfrecord": ["checksums=false"], "coco": [f"images={tmp_path}/images", "crowd=true"]}
    options = [word for each in given.get(kind, []) for word in ("--option", each)]
    for text in (path, f"{kind}:{path}"):
        assert check(capsys, text, *options) == (0, [f"{text}: 6 samples, none broken"], [])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["gone"], "gone: no such file or folder"),
        (["gone.csv"], f"gone.csv: {GONE}"),
        (["gone-*.tar"], "gone-*.tar: no file has this name or matches this pattern"),
        (
            ["x.bin"],
            "x.bin: the kind of source cannot be determined from the name: prefix the path with "
            "coco:, files:, lmdb:, parquet:, table:, tar:, tfrecord:, videos:, voc:",
        ),
        (["i.json"], "i.json: COCO annotations need the folder of the images: add --option images=FOLDER"),
        (["voc:.", "--option", "splt=train"], "voc has no option 'splt'; its options are split, classes"),
        (
            ["i.json", "--option", "image=x"],
            "coco has no option 'image'; its options are images, keypoints, masks, crowd, empty",
        ),
    ],
)
def test_an_unreadable_data_set_is_one_line(tmp_path, monkeypatch, capsys, words, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"x")
    (tmp_path / "i.json").write_text(json.dumps(coco_annotations()))
    assert check(capsys, *words) == (1, [], [f"pixprep: {text}"])


def test_samples_are_run_through_the_given_pipeline(tmp_path, capsys):
    content = coco_annotations(1)
    content["images"][0] |= {"height": 24, "width": 40}
    write_coco(tmp_path, 1, content)
    (tmp_path / "images" / "0.jpg").write_bytes(with_exif(6))
    words = [tmp_path / "instances.json", "--option", f"images={tmp_path / 'images'}"]
    code, lines, _ = check(capsys, *words)
    assert code == 1
    assert lines[0].startswith("[BAD_RECORD] 0.jpg: the image has 40 x 24 pixels, but ")
    assert "its annotation was made for 24 x 40: " in lines[0]
    assert "apply_exif_orientation" in lines[0]
    ops = [pp.decode(apply_exif_orientation=False), pp.center_crop(8), pp.tensor()]
    pp.Pipeline(ops).save(tmp_path / "p.json")
    assert check(capsys, *words, "--pipeline", tmp_path / "p.json")[0] == 0
