"""Tests that the OCR of docs/ocr.md on a real Triton server reads a page as rapidocr does (see ``make models``)."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from pixprep.cli.parser import main
from pixprep.serving.embedded.server import Server
from support.recipes import RECIPES
from support.serving import address

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "ocr.md").read_text(encoding="utf-8")
PYTHON = ROOT / ".venv-models" / "bin" / "python"
LINES = {
    "Invoice 2026-0417": 64,
    "Twelve apples, 3.40 a kilo": 40,
    "Total 1,284.50": 52,
    "due on the last Friday of May": 36,
}
THEIRS = """
import json, sys
from rapidocr import RapidOCR
found = RapidOCR()(sys.argv[1])
print(json.dumps([found.boxes.tolist(), found.scores, found.txts]))
"""

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not PYTHON.with_name("rapidocr").exists(), reason="run make models"),
]


def page():
    """Return a page with five lines of text in Pillow's default font. The last line is rotated by 7 degrees."""
    straight, turned = (Image.new("RGB", (900, 760), "white") for _ in range(2))
    for row, (line, size) in enumerate(LINES.items()):
        ImageDraw.Draw(straight).text((60, 50 + 120 * row), line, "black", ImageFont.load_default(size))
    ImageDraw.Draw(turned).text((60, 560), "Signed at an angle", (0, 0, 120), ImageFont.load_default(48))
    turned = turned.rotate(7, Image.Resampling.BICUBIC, center=(60, 600), fillcolor="white")
    return Image.fromarray(np.minimum(straight, turned))


def output_of(*command, cwd):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_page_is_read_like_rapidocr_reads_it(tmp_path):
    page().save(tmp_path / "page.png")
    Image.new("RGB", (640, 480), "white").save(tmp_path / "empty.png")
    (models,) = ROOT.glob(".venv-models/lib/python*/site-packages/rapidocr/models")
    for model in models.glob("PP-*.onnx"):
        (tmp_path / model.name).symlink_to(model)
    RECIPES["rapidocr, PaddleOCR: detector"].save(tmp_path / "detect.json")
    (lines,) = re.findall(r"^```json\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
    (tmp_path / "lines.json").write_text(lines)
    rows, program = re.findall(r"^```python\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
    (tmp_path / "quads.py").write_text(rows)
    for line in re.findall(r"^pixprep (build .*)$", DOC.replace("\\\n", ""), re.MULTILINE):
        words = [str(tmp_path / word) if "." in word or word == "models" else word for word in line.split()]
        assert main(words) == 0, line
    theirs = json.loads(output_of(PYTHON, "-c", THEIRS, "page.png", cwd=tmp_path).splitlines()[-1])
    with Server(tmp_path / "models", http_port=0, grpc_port=0, metrics_port=0, grace_s=0) as server:
        program = program.replace("localhost:8000", address(server))
        read, nothing = (
            output_of(sys.executable, "-c", program, "PP-OCRv6_rec_small.onnx", name, cwd=tmp_path)
            for name in ("page.png", "empty.png")
        )
    assert nothing == ""
    found = [line.split("\t") for line in read.splitlines()]
    ours = sorted((json.loads(quad), float(score), text) for quad, score, text in found)
    assert [text for *_, text in sorted(zip(*theirs, strict=True), key=top)] == [*LINES, "Signed at an angle"]
    for (quad, score, text), (its_quad, its_score, its_text) in zip(
        sorted(ours, key=top), sorted(zip(*theirs, strict=True), key=top), strict=True
    ):
        assert (text, quad) == (its_text, its_quad)
        assert abs(score - its_score) < 1e-3


def top(line):
    """Return the y coordinate of the line's upper left corner."""
    return line[0][0][1]
