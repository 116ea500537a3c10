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
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.cli import main
from pixprep.errors import REASONS
from pixprep.pipeline.file import FORMAT
from pixprep.pipeline.ops import OPS
from pixprep.plan.steps.finding import GROUP
from pixprep.serving.triton import config as model_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATORS = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKDOWN = [*DOCS, ROOT / "CHANGELOG.md", *sorted((ROOT / "client_examples").rglob("*.md"))]
LINE = 120
TABLE_LINE = 200  # rows of tables cannot wrap; link targets do not count


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


CHOICES = [
    (section.partition("\n")[0], field, json.loads(choice))
    for section in OPERATORS.split("\n### ")[1:]
    for field, words in re.findall(r"^- `(\w+)` \(([^();]+);\s", section, re.MULTILINE)
    for choice in (["true", "false"] if " ".join(words.split()) == "true or false" else re.findall(r"`([^`]+)`", words))
]
"""Choices that docs/operators.md offers: (op, field, value)."""
# Further fields that a field's value may require. The first combination that results in a valid pipeline is used.
REQUIRED = {
    "crop": {"top": 0, "left": 0, "height": 8, "width": 8},
    "random_crop": {"height": 8, "padding": 1},
    "tensor": {"multiple": 16},
    **{op: {"factor": 0.5} for op in ("brightness", "contrast", "saturation", "hue")},
    "gamma": {"gamma": 2.2},
    "rotate": {"angle": 10},
    **{op: {"degrees": 10} for op in ("random_rotate", "random_affine", "random_warp")},
    "warp": {"quad": "quads"},
    **{op: {"factor": 0.5} for op in ("sharpness", "random_sharpness")},
    "gaussian_blur": {"kernel_size": 3, "sigma": 1.0},
    "random_gaussian_blur": {"kernel_size": 3},
    "resize_to_pixels": {"multiple": 8, "max_pixels": 999},
    "patches": {"patch_size": 8},
    "patch_grid": {"patch_size": 8},
    "patch_mask": {"patch_size": 8, "max_patches": 9},
    "patch_positions": {"patch_size": 8, "max_patches": 9},
    "token_count": {"patch_size": 8},
    "resize_by_rule": {"rule": "shrink", "size": 32},
    "resize_to_tiles": {"tile_size": 16, "max_tiles": 4},
    "resize_to_patches": {"patch_size": 8, "max_patches": 9},
    "tiles": {"tile_size": 16, "thumbnail": "last"},
    "tile_count": {"tile_size": 16, "thumbnail": "last"},
}
SIZES = (
    *({}, {"height": 16, "width": 16}, {"size": 16}, {"size": 16, "mode": "scale"}, {"size": 16, "max_size": 32}),
    {"height": 1, "width": 1, "unit": "share"},
    {"size": 9, "max_size": 99, "mode": "scale"},
)
LIKES = ({}, *({"like": like} for op, field, like in CHOICES if (op, field) == ("resize", "like")))
ANTIALIAS = ({}, {"antialias": True}, {"antialias": False})


def accepted(op, **fields):
    """Return the op as part of the smallest valid pipeline that contains it. Return None if no pipeline accepts it."""
    for size, like, antialias in product(SIZES, LIKES, ANTIALIAS):
        entry = {"op": op, **REQUIRED.get(op, {}), **size, **like, **antialias, **fields}
        only = {"only": "training"} if OPS[op].home == "training" else {}
        geometry = {"op": "center_crop", "height": 8, "width": 8}
        match op:
            case "decode" | "pixels":
                ops = [entry, geometry, {"op": "tensor"}]
            case "decode_video":
                entry = {"op": op, "frames": 4, **fields}
                step = {"sample": {"step": 2}} if "start" in fields else {}
                drawn = {"only": "training"} if "random" in fields.values() else {}
                entry = entry | step | drawn
                other = [{"op": op, "frames": 4, "only": "serving"}] * bool(drawn)
                ops = [entry, *other, geometry, {"op": "tensor", "layout": "tchw"}]
            case "optical_flow":
                entry = {"op": op, **fields}
                ops = [{"op": "decode_video", "frames": 4}, {"op": "resize", "height": 32, "width": 32}, entry]
                ops += [{"op": "tensor", "layout": "tchw"}]
            case "tensor" if "t" in fields.get("layout", ""):
                entry = {"op": op, **fields}
                ops = [{"op": "decode_video", "frames": 4}, geometry, entry]
            case "tensor" if fields.get("channels") == 1:
                ops = [{"op": "decode"}, geometry, {"op": "grayscale"}, entry]
            case "normalize" | "tensor" | "boxes" | "points" | "mask" | "masks":
                ops = [{"op": "decode"}, geometry, entry, *([{"op": "tensor"}] if op != "tensor" else [])]
            case "tiles" | "tile_count":
                tile = entry["tile_size"]
                entry = {key: value for key, value in entry.items() if "max_tiles" not in fields or key != "thumbnail"}
                resize = {"op": "resize_to_tiles", "tile_size": tile, "max_tiles": 4}
                ops = [{"op": "decode"}, resize, entry, {"op": "tensor", "dtype": "uint8"}]
            case "tile_grid_id":
                resize = {"op": "resize_to_tiles", "tile_size": 16, "grids": [[1, 1], [1, 2]]}
                ops = [{"op": "decode"}, resize, entry, {"op": "tensor"}]
            case "resize_by_rule" if fields.get("rule") in ("multiple", "up"):
                entry = {"op": op, "multiple": 8, **fields}
                ops = [{"op": "decode"}, entry, {"op": "tensor", "max_size": 4096}]
            case "resize_to_patches":
                kimi = {"max_side": 9} if fields.get("rule") == "kimi" else {}
                entry = {"op": op, **REQUIRED[op], **kimi, **fields}
                ops = [{"op": "decode"}, entry, {"op": "tensor", "max_size": 4096}]
            case "patches" | "patch_grid" | "patch_mask" | "patch_positions" | "token_count":
                side = 2 * fields.get("patch_size", 8)
                ops = [{"op": "decode"}, {"op": "resize", "height": side, "width": side}, entry, {"op": "tensor"}]
            case "warp" if fields.get("like") == "dali" or "inverse_map" in fields:
                entry = {
                    "op": op,
                    "matrix": [[1, 0, 0], [0, 1, 0]],
                    "height": 16,
                    "width": 16,
                    "like": "dali",
                    **fields,
                }
                ops = [{"op": "decode"}, entry, geometry, {"op": "tensor"}]
            case "resize" if "roi_unit" in fields:
                entry = {"op": op, "size": 9, "like": "dali", "roi": [0, 0, 1, 1], **fields}
                ops = [{"op": "decode"}, entry, geometry, {"op": "tensor"}]
            case "random_erasing" if "value" in fields:
                ops = [{"op": "decode"}, geometry, {"op": "normalize"}, entry, {"op": "tensor"} | only]
            case _:
                ops = [{"op": "decode"}, entry, geometry, {"op": "tensor"} | only]
        try:
            pipeline = pp.Pipeline.from_json(json.dumps({"format": FORMAT, "ops": ops}))
        except pp.PipelineError:
            continue
        return pipeline.ops[ops.index(entry)]
    return None


@pytest.mark.parametrize(("op", "field", "choice"), CHOICES)
def test_every_choice_on_the_page_is_valid(op, field, choice):
    found = accepted(op, **{field: choice})
    assert found is not None
    assert getattr(found, field) == choice


ELSEWHERE = ("tritonclient", "albumentations", "timm")
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
            # no custom operators are installed here
            made = OPS[op](**entry) if op == "extern" else accepted(op, **entry)
            assert made is not None, text
        else:
            assert pp.Pipeline.from_json(text).outputs


@each(DOCS)
def test_every_op_and_every_field_with_a_value_in_the_docs_is_valid(path):
    for code in inline_code(text_of(path)):
        if code.startswith('{"op": '):
            entry = json.loads(code)
            assert accepted(entry.pop("op"), **entry) is not None, code
        elif (field := re.fullmatch(r'"(\w+)": (\S.*)', code)) and field[1] not in ("origin", "format"):
            value = {field[1]: json.loads(field[2])}
            having = [op for op, cls in OPS.items() if field[1] in cls.__struct_encode_fields__]
            assert any(accepted(op, **value) is not None for op in having), code


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
