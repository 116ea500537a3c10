"""Tests that the reference pages match the code: pictures of ops, settings, metrics and versions."""

import re
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, get_args

import numpy as np
import pytest

from pixprep.plan.steps.operators import Place
from pixprep.serving.triton.metrics import IMAGES, SECONDS, Metrics

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\bPIXPREP_[A-Z0-9_]*[A-Z0-9]\b")
PARAMETER = "PIXPREP_BUILD_CHECKSUM"
"""Name of a parameter in config.pbtxt. It matches ``VARIABLE``, but is not an environment variable."""


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_op_on_images_has_a_picture_that_shows_a_change():
    drawer = runpy.run_path(str(ROOT / "tools" / "site" / "pictures.py"))
    pictures = list(drawer["pictures"]())
    assert [picture.op for picture in pictures] == drawer["drawn_ops"]()
    assert len(pictures) > 50
    for op, _, (before, *after) in pictures:
        assert any(not np.array_equal(before, each) for each in after), op
    assert len(drawer["encoded"](pictures[0])) < 100_000


def test_the_page_of_settings_matches_the_code():
    generator = runpy.run_path(str(ROOT / "tools" / "settings.py"))
    assert generator["settings"]() == text_of("docs/settings.md")


def test_the_page_of_compatibility_lists_the_versions_of_the_project():
    pytest.importorskip("tomllib", reason="PYTHON: reading pyproject.toml needs Python 3.11")
    generator = runpy.run_path(str(ROOT / "tools" / "compatibility.py"))
    assert generator["compatibility"]() == text_of("docs/compatibility.md")


def test_the_page_of_settings_lists_every_environment_variable():
    page = text_of("docs/settings.md")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("NO GIT: which files are tracked")
    files = {name for name in tracked.stdout.split("\0") if name and not name.startswith("docs/")}
    used = {variable for name in files for variable in VARIABLE.findall((ROOT / name).read_bytes().decode("latin-1"))}
    assert used - {PARAMETER} == set(VARIABLE.findall(page))


def test_the_page_of_concepts_lists_every_module_that_is_an_alias():
    alias = re.compile(r'""".*"""\n\n(?:from pixprep\.[\w.]+ import \*  # noqa: F403\n)+')
    modules = {
        path.stem for path in (ROOT / "backend" / "pixprep").glob("*.py") if alias.fullmatch(path.read_text("utf-8"))
    }
    section = text_of("docs/concepts.md").partition("## Aliases")[2]
    assert modules == set(re.findall(r"^\| module `(\w+)` of", section, re.MULTILINE))


class FakeFamily:
    """Mock of Triton's ``MetricFamily`` that records the labels and the buckets of its metric."""

    COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
    made: ClassVar[dict[str, "FakeFamily"]] = {}

    def __init__(self, *, name, description, kind):
        self.description, self.kind = description, kind
        self.labels, self.buckets = {}, None
        self.made[name] = self

    def Metric(self, *, labels, buckets=None):
        self.labels, self.buckets = labels, buckets
        return SimpleNamespace(increment=lambda _: None, observe=lambda _: None, set=lambda _: None)


def test_the_page_of_metrics_lists_the_metrics_of_a_model(monkeypatch):
    monkeypatch.setattr(FakeFamily, "made", {})
    triton = SimpleNamespace(MetricFamily=FakeFamily, Logger=SimpleNamespace(log_warn=pytest.fail))
    metrics = Metrics(triton, model="preprocess", version="1", frames=8)
    batch = SimpleNamespace(errors=[None], decode_s=[0.1], transform_s=[0.1], fallbacks=0, recovered=0)
    metrics.record(3, batch, [0])
    metrics.close()
    page = text_of("docs/metrics.md")
    rows = re.findall(r"^\| `(pixprep_\w+)` \| (\w+) \| `?(\w*?)`? ?\| (\w+) \|", page, re.MULTILINE)
    assert {(name, kind, label) for name, kind, label, _ in rows} == {
        (name, family.kind, " ".join({*family.labels} - {"model", "version"}))
        for name, family in FakeFamily.made.items()
    }
    for name, _, _, unit in rows:
        assert unit in name.split("_") or unit == "images", name
    for buckets in (SECONDS, IMAGES):
        *numbers, last = (f"{number:g}" for number in buckets)
        assert f"{', '.join(numbers)} and {last} " in " ".join(page.split())


def test_terms_of_the_file_format_on_the_page_of_concepts_exist():
    section = text_of("docs/concepts.md").partition("## Words of the file format")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    words = [word for cell in cells for word in re.findall(r"`(\w+)`", cell)]
    schema = text_of("docs/pipeline.schema.json") + " ".join(f'"{word}"' for word in get_args(Place))
    assert len(words) > 9
    for word in words:
        assert f'"{word}"' in schema or f'_{word}"' in schema, word
