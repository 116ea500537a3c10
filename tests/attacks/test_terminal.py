"""Attack: files whose names write to the terminal: colours, titles, a line that says all is well; and no text.

Defence: names of files, and words of a server, are printed with controls escaped; JSON is ASCII.
Outcome: one line a file, whatever its name. Before the mend the names were printed as they were, and one that is not
UTF-8 could end the command in the middle.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.pipelines import VALID
from images import jpeg, noise

PIXPREP = Path(sys.executable).parent / "pixprep"
NAMES = (b"red\x1b[31m.jpg", b"title\x1b]0;x\x07.jpg", b"line\nok: no problem found.jpg", b"\xff\xfe.jpg", b"cr\rx.jpg")


def pixprep(*arguments):
    """Exit code, stdout and stderr of the command, under a terminal's strict UTF-8."""
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict", "PYTHONUTF8": "1"}
    done = subprocess.run([PIXPREP, *arguments], capture_output=True, env=environment, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "p.json").write_text(VALID)
    for name in NAMES:
        (tmp_path / "images").mkdir(exist_ok=True)
        with open(os.fsencode(tmp_path / "images") + b"/" + name, "wb") as file:  # noqa: PTH123  (bytes)
            file.write(jpeg(noise(16, 16)) if b"red" not in name else b"not an image")
    return tmp_path


def test_each_file_is_one_printable_line_whatever_its_name(folder):
    code, out, err = pixprep("run", folder / "p.json", folder / "images", "--output", folder / "out\x1b[31m")
    assert code == 1  # one of them is no image
    assert "Traceback" not in err
    assert len(out.splitlines()) == len(NAMES) - 1
    assert len(err.splitlines()) == 1
    assert all(line.isprintable() for line in (out + err).split("\n"))
    assert len(list((folder / "out\x1b[31m").iterdir())) == len(NAMES) - 1


def test_json_is_ascii(folder):
    _, out, err = pixprep("run", folder / "p.json", folder / "images", "--json")
    assert [set(json.loads(line)) >= {"file"} for line in out.splitlines()] == [True] * len(NAMES)
    assert out.isascii()
    assert err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "%s"],
        ["explain", "%s"],
        ["explain", "p.json", "--image", "%s"],
        ["explain", "p.json", "--output", "%s"],
        ["check", "p.json", "--image", "%s"],
        ["verify", "p.json", "--output", "%s"],
        ["run", "p.json", "%s"],
        ["build", "--pipeline", "%s"],
        ["serve", "--model-repository", "%s"],
        ["bench", "images", "--url", "%s"],
        ["import", "%s", "x.json"],
        ["run", "p.json", "images", "--threads", "%s"],
        ["%s"],
    ],
    ids=" ".join,
)
def test_an_argument_is_repeated_without_its_control_sequences(folder, monkeypatch, arguments):
    monkeypatch.chdir(folder)
    code, out, err = pixprep(*(argument.replace("%s", "no\x1b[31m\x07") for argument in arguments))
    assert code in (1, 2)
    assert "Traceback" not in err
    assert "\x1b" not in out + err
    assert "no\\x1b[31m\\x07" in err.replace("\\\\", "\\")
