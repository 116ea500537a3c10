"""Attack: Names of files contain terminal control sequences (for colours or titles), a fake line that reports success,
or invalid text.

Defence: All output passes through one function, which escapes control characters. A line break in a name does not end
the line. JSON output is ASCII.

Outcome: There is one line per file, whatever its name is. Before the fix, names were printed verbatim, and a name that
was not UTF-8 could abort the command. Names of nodes in an ONNX file, and of models that do not load, were fixed later.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pixprep as pp
from pixprep.cli import main
from support.images import jpeg, noise
from support.pipeline_texts import VALID

PIXPREP = Path(sys.executable).parent / "pixprep"
NAMES = (b"red\x1b[31m.jpg", b"title\x1b]0;x\x07.jpg", b"line\nok: no problem found.jpg", b"\xff\xfe.jpg", b"cr\rx.jpg")


def pixprep(*arguments):
    """Run the command in a terminal with strict UTF-8. Return its exit code, stdout and stderr."""
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict", "PYTHONUTF8": "1"}
    completed = subprocess.run([PIXPREP, *arguments], capture_output=True, env=environment, check=False)
    return completed.returncode, completed.stdout.decode(), completed.stderr.decode()


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
    assert code == 1  # the folder contains one file that is not an image
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
        ["check", "%s"], ["explain", "%s"], ["explain", "p.json", "--image", "%s"],
        ["explain", "p.json", "--output", "%s"], ["check", "p.json", "--image", "%s"],
        ["verify", "p.json", "--output", "%s"], ["run", "p.json", "%s"], ["build", "--pipeline", "%s"],
        ["serve", "--model-repository", "%s"], ["bench", "images", "--url", "%s"], ["import", "%s", "x.json"],
        ["run", "p.json", "images", "--threads", "%s"], ["doctor", "%s"], ["verify", "%s"], ["health", "--url", "%s"],
        ["send", "images", "--url", "%s"], ["%s"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_argument_is_repeated_without_its_control_sequences(folder, monkeypatch, capsys, arguments):
    monkeypatch.chdir(folder)
    with suppress(SystemExit):
        assert main([argument.replace("%s", "no\x1b[31m\x07\nok") for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "no\\x1b[31m\\x07\\nok" in err.replace("\\\\", "\\")


def test_building_an_onnx_file_prints_printable_lines(folder):
    shout = "\x1b[31m\x07\nok: no problem found"
    mean = numpy_helper.from_array(np.float32([0.45]), "mean")
    std = numpy_helper.from_array(np.float32([0.225]), "std")
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["a"], name=f"sub{shout}"),
        helper.make_node("Div", ["a", "std"], [f"b{shout}"]),
        helper.make_node("Relu", [f"b{shout}"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, 8, 8]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=[mean, std])
    path = folder / f"m{shout.replace('/', '')}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    pp.Pipeline([pp.decode(), pp.center_crop(8), pp.normalize(0.45, 0.225), pp.tensor()]).save(folder / "n.json")
    code, out, err = pixprep("build", "--pipeline", folder / "n.json", "--onnx", path, "--output", folder / "models")
    assert code == 0
    assert all(line.isprintable() for line in (out + err).split("\n"))
    assert 'Sub "sub\\x1b[31m\\x07\\nok: no problem found" and Div "b\\x1b[31m' in err
    assert "ok: no problem found" not in err.splitlines()


@pytest.mark.usefixtures("few_images")
def test_a_certificate_names_images_in_printable_lines(folder, capsys):
    for arguments in ([], ["--json"]):
        assert main(["verify", str(folder / "p.json"), "--images", str(folder / "images"), *arguments]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert all(line.isprintable() for line in out.split("\n"))
        assert out.count("red\\\\x1b[31m.jpg" if arguments else "red\\x1b[31m.jpg") == 1
    assert json.loads(out)["refused"][0]["what"] == "red\\x1b[31m.jpg"


def test_supervision_logs_printable_lines(capfd):
    program = (
        "import logging; from pixprep.cli.output import log_to_stderr; log_to_stderr(); "
        "logging.getLogger('pixprep').error('model %s is down', 'm\\x1b[31m\\nok')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert capfd.readouterr().err == "pixprep: model m\\x1b[31m\\nok is down\n"
