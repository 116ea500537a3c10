"""Tests that the documentation matches the behaviour of the code."""

import importlib
import io
import json
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.cli import main
from pixprep.errors import REASONS
from pixprep.pipeline.ops import OPS
from pixprep.plan.steps.operators import GROUP
from pixprep.serving.triton import config as model_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATORS = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKDOWN = [*DOCS, ROOT / "CHANGELOG.md", *sorted((ROOT / "client_examples").rglob("*.md"))]
LINE = 120
TABLE_LINE = 210  # rows of tables cannot wrap; link targets do not count


INSTALL_COMMANDS = re.compile(r"""\bpip3? install(?:\s+|[^\n`;]*?(?<!of)[ ])["']?pixprep(?![\w-]|\.\w)|\bpixprep\[\w""")


def test_no_page_tells_users_to_install_pixprep_from_a_package_index():
    """A third party could register the name there.

    ``pyproject.toml`` is exempt, because its extras refer to the package in order to include each other. pip resolves
    these references locally.
    """
    for wrong in ("pip install {}", 'pip install "{}"', "pip install numpy {}", '"{}[video]"', "pip install\n    {}"):
        assert INSTALL_COMMANDS.search(wrong.format("pixprep")), wrong
    for right in ("pip install .[video] in a checkout of pixprep", "pip install pixprep-0.1.0-py3-none-any.whl"):
        assert not INSTALL_COMMANDS.search(right), right
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("NO GIT: which files are tracked")
    for name in set(tracked.stdout.split("\0")) - {"", "pyproject.toml"}:
        text = (ROOT / name).read_bytes().decode(errors="replace")
        assert not (found := INSTALL_COMMANDS.search(text)), f"{name}: {found[0]}"


def each(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.name)


def text_of(path):
    return path.read_text(encoding="utf-8")


def blocks(text, language=r"\w*"):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def inline_code(text):
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_blocks(text))]


def commands_in(text):
    """Return the command lines in the text's code blocks and inline code, without continuations and comments."""
    shown = "".join(blocks(text)).replace("\\\n", " ")
    return [line.partition("#")[0] for line in shown.splitlines()] + inline_code(text)


@cache
def help_of(*command):
    with redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit, match=r"^0$"):
        main([*command, "--help"])
    return shown.getvalue()


@cache
def commands():
    return set(re.findall(r"^    (\w\S*)(?: |$)", help_of(), re.MULTILINE))


@each(MARKDOWN)
def test_markdown_wraps(path):
    text = re.sub(r"\]\([^)]*\)", "]", text_of(path))
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if len(line) > LINE]
    assert [number for number, line in lines if not line.startswith("|") or len(line) > TABLE_LINE] == []


def test_the_pages_of_operators_and_schema_match_the_code():
    generator = runpy.run_path(ROOT / "tools" / "operators.py")
    assert generator["operators"]() == OPERATORS
    assert text_of(ROOT / "docs" / "pipeline.schema.json") == generator["schema"]()


def test_the_picture_of_explain_matches_the_output_of_explain():
    drawn = runpy.run_path(ROOT / "tools" / "explain_picture.py")["drawn"]()
    file = ROOT / "docs" / "explain.png"
    assert file.stat().st_size < 200_000
    with Image.open(file) as shown:
        assert shown.size == drawn.size
        difference = np.abs(np.asarray(shown.convert("RGB"), np.int16) - np.asarray(drawn))
    assert difference.mean() < 2  # the stored picture has only 256 colours
    assert np.mean(difference.max(axis=2) > 48) < 0.001


def accepts(cls, name, value):
    """Return whether an op has a field of this name in its file, and whether the value has the field's type."""
    kinds = [each.type for each in msgspec.structs.fields(cls) if each.encode_name == name]
    try:
        return [msgspec.convert(value, kind) for kind in kinds] != []
    except msgspec.ValidationError:
        return False


ELSEWHERE = ("tritonclient", "albumentations", "timm", "nibabel", "sahi")
"""Libraries of programs that tests/serving/server and tests/parity run."""
RUN = [
    "pipeline-file.md",
    "training.md",
    "levels.md",
    "detection.md",
    "own-operators.md",
    "frames.md",
    "vision-language.md",
]
"""Pages whose programs need one photo. tests/training/frameworks runs those that need more."""
PROGRAMS = """
import contextlib, io, json
shown = []
for program in json.load(open("programs.json")):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {"__name__": "__main__"})
    shown.append(out.getvalue())
print(json.dumps(shown))
"""
"""Program that runs other programs in sequence, each with its own variables."""


@each(DOCS)
def test_every_pipeline_in_the_docs_loads(path):
    for text in blocks(text_of(path), "json"):
        if path.name == "operators.md":  # each line contains one op
            entry = json.loads(text)
            op = entry.pop("op")
            assert OPS[op](**entry) is not None, text
        else:
            assert pp.Pipeline.from_json(text).outputs


@each(DOCS)
def test_every_op_and_every_field_with_a_value_in_the_docs_is_valid(path):
    for code in inline_code(text_of(path)):
        if code.startswith('{"op": '):
            entry = json.loads(code)
            assert isinstance(msgspec.convert(entry, OPS[entry["op"]]), OPS[entry["op"]]), code
        elif (field := re.fullmatch(r'"(\w+)": (\S.*)', code)) and field[1] not in ("origin", "format"):
            assert any(accepts(cls, field[1], json.loads(field[2])) for cls in OPS.values()), code


def test_the_readmes_pipeline_is_that_of_the_demo():
    (shown,) = blocks(README, "json")
    assert shown == text_of(ROOT / "model_repository" / "preprocess" / "1" / "pipeline.json")


@pytest.mark.parametrize("page", RUN)
def test_python_code_in_the_docs_runs_and_prints_the_shown_output(page, tmp_path):
    shutil.copy(ROOT / "client_examples" / "images" / "china.jpg", tmp_path / "photo.jpg")
    text = text_of(ROOT / "docs" / page)
    programs = re.findall(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL)
    programs = [each for each in programs if not re.search(rf"(import|from) ({'|'.join(ELSEWHERE)})", each[0])]
    assert programs
    (tmp_path / "programs.json").write_text(json.dumps([program for program, _ in programs]))
    done = subprocess.run([sys.executable, "-c", PROGRAMS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [shown for _, shown in programs]


def test_the_probes_on_the_page_match_the_chart():
    (shown,) = (block for block in blocks(text_of(ROOT / "docs" / "deploy.md"), "yaml") if "readinessProbe" in block)
    chart = text_of(ROOT / "deploy" / "chart" / "pixprep" / "templates" / "deployment.yaml")
    # the values have the same names as their defaults
    probes = re.sub(r"\{\{ \.Values\.probes\.(\w+) \}\}", r"\1", chart)
    assert textwrap.indent(shown, " " * 10) in probes


def test_every_command_is_in_the_docs_and_every_command_in_the_docs_exists():
    shown = [line for path in DOCS for line in commands_in(text_of(path))]
    found = [use for line in shown for use in re.findall(r"(?:^|bin/|\$ |\[)pixprep,? ([a-z][a-z-]+)(.*)", line)]
    assert {command for command, _ in found} == commands()
    for command, rest in found:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest):
            words = [command, *(rest.split()[:1] if command == "data" else [])]
            assert option in help_of(*words), f"pixprep {command}{rest}"


@each(DOCS)
def test_every_make_target_module_and_file_in_the_docs_exists(path):
    text = text_of(path)
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    for line in commands_in(text):
        for target in re.findall(r"(?:^|\$ )make ([a-z-]+)", line):
            assert target in targets, line
    for code in inline_code(text):
        is_path = re.fullmatch(r"(backend|benchmarks|client_examples|docs|model_repository|tests|tools)/[\w./-]*", code)
        if is_path and "NAME" not in code:
            assert (ROOT / code).exists(), code
        is_name = re.fullmatch(r"(pixprep|pp)(\.\w+)+", code) and not code.endswith(".dev")
        if is_name and code != GROUP:  # this name is a group of entry points, not a module
            exists(code.replace("pp.", "pixprep.", 1) if code.startswith("pp.") else code)


def test_the_six_functions_exist():
    table = re.findall(r"^\| \d \| `([\w.]+)` \|", text_of(ROOT / "docs" / "architecture.md"), re.MULTILINE)
    assert len(table) == 6
    for function in table:
        path = ROOT / "backend" / "pixprep" / f"{function.split('.Triton')[0].replace('.', '/')}.py"
        if "Triton" in function:  # this module can be imported only in Triton's process
            assert "    def execute(" in text_of(path)
        else:
            exists(f"pixprep.{function}")


def exists(dotted):
    """Raise an error unless a module has this dotted name, or contains an object with this name."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return
    raise ModuleNotFoundError(dotted)


def anchors(text):
    """Return the ids that GitHub assigns to headings."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each(MARKDOWN)
def test_every_link_and_picture_has_a_target(path):
    text = text_of(path)
    targets = re.findall(r"\]\(([^):]+)\)", text) + re.findall(r'(?:src|srcset)="([^":]+)"', text)
    for target in targets:
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(text_of(there)), target


def test_every_page_is_in_the_index_and_every_reason_on_the_page_of_errors():
    index = set(re.findall(r"^\| \[([\w-]+\.md)\]\(\1\) \|", text_of(ROOT / "docs" / "index.md"), re.MULTILINE))
    assert index == {path.name for path in DOCS if path.parent.name == "docs"} - {"index.md"}
    rows = re.findall(r"^\| `([A-Z_]+)` \|", text_of(ROOT / "docs" / "errors.md"), re.MULTILINE)
    assert rows == list(REASONS)


def test_the_limits_in_the_docs_are_the_defaults():
    rows = dict(re.findall(r"^\| `(max_\w+)` \| ([\d,]+) \|", text_of(ROOT / "docs" / "security.md"), re.MULTILINE))
    options = model_config.options({})
    defaults = vars(options) | vars(options.engine.limits)
    assert {"max_image_bytes", "max_pixels", "max_side", "max_scans", "max_response_bytes"} <= set(rows)
    assert {name: int(value.replace(",", "")) for name, value in rows.items()}.items() <= defaults.items()
