"""What the documentation shows is what happens."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pixprep as pp
from pixprep.ops import OPS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = sorted((ROOT / "docs").glob("*.md"))


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("operators", ROOT / "tools" / "operators.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_operators_and_schema_are_what_the_code_says(generator):
    assert (ROOT / "docs" / "operators.md").read_text(encoding="utf-8") == generator.operators()
    assert (ROOT / "docs" / "pipeline.schema.json").read_text(encoding="utf-8") == generator.schema()


def test_the_readmes_pipeline_is_the_demos():
    (shown,) = blocks(README, "json")
    assert shown == (ROOT / "model_repository" / "preprocess" / "1" / "pipeline.json").read_text()


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCS], ids=lambda path: path.name)
def test_every_pipeline_in_the_docs_loads(path):
    for text in blocks(path.read_text(encoding="utf-8"), "json"):
        assert pp.Pipeline.from_json(text).outputs


def test_the_readmes_python_prints_what_it_shows(tmp_path):
    (program,) = [block for block in blocks(README, "python") if "import pixprep" in block]
    shutil.copy(ROOT / "client_examples" / "images" / "china.jpg", tmp_path / "photo.jpg")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"```\n{done.stdout}```" in README


def test_the_docs_python_runs(tmp_path):
    for program in blocks((ROOT / "docs" / "pipeline-file.md").read_text(), "python"):
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_the_readmes_mistake_is_the_real_message(tmp_path):
    (tmp_path / "pipeline.json").write_text('{"format": "pixprep/1", "ops": [{"op": "decode"}, {"op": "rezise"}]}')
    with pytest.raises(pp.PipelineError) as caught:
        pp.load(tmp_path / "pipeline.json")
    assert f"check pipeline.json\n{caught.value}\n" in README


def test_every_operator_and_command_is_in_the_readme():
    (listed,) = re.findall(r"lists the operators: (.*?)\.", README)
    assert re.split(r"[,;] ", listed) == [
        *("decode", "resize", "center_crop", "crop", "pad", "letterbox", "flip", "normalize"),
        *("tensor", "original_size", "transform"),
    ]
    assert set(re.split(r"[,;] ", listed)) == set(OPS)
    text = README + "".join(path.read_text(encoding="utf-8") for path in DOCS)
    commands = re.findall(r"^    (\S+)( |$)", help_of(), re.MULTILINE)
    assert len(commands) >= 9
    assert [command for command, _ in commands if f"pixprep {command}" not in text] == []


def help_of():
    command = [str(Path(sys.executable).parent / "pixprep"), "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCS], ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_decode_limits_in_the_readme_are_the_defaults():
    limits = pp.Limits()
    assert f"{limits.max_image_bytes >> 20} MiB and {limits.max_pixels // 1_000_000} megapixels" in README
    assert f"{limits.max_side:,} pixels a side" in README


def test_the_schema_is_a_schema_of_the_demos_file():
    schema = json.loads((ROOT / "docs" / "pipeline.schema.json").read_text())
    ops = [definition["properties"] for name, definition in schema["$defs"].items() if name != "Source"]
    named = {properties["op"]["enum"][0] for properties in ops}
    assert named == set(OPS)
