"""Tests tools/gpu_hour without a GPU: each step runs to its end with a mocked CuPy, and the page is made from its rows.

The steps run in separate processes, in which the mock replaces the module ``cupy``. Their measurements have no meaning
here.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

import pixprep as pp
from gpu import cuda_shim
from support.canonical import smallest

ROOT = Path(__file__).parents[2]
FOLDERS = [str(ROOT / name) for name in ("backend", "tests", "benchmarks", "tools/gpu_hour")]
HOUR = ROOT / "tools" / "gpu_hour" / "hour.py"
REHEARSAL = """
import json, sys
from gpu import fake_cupy
fake_cupy.install({folder!r})
import gpu_speed, workloads
from gpu_page import forecasts
gpu_speed.COPIED, gpu_speed.ROTATED, gpu_speed.SAMPLES, workloads.COUNT = 1 << 16, 1 << 20, 2, 6
gpu_speed.MODELS = {{name: gpu_speed.MODELS[name] for name in ("SigLIP 2", "LLaVA-NeXT")}}
gpu_speed.CHECKED, gpu_speed.KERNELS, gpu_speed.THRESHOLDS = 1, (("bilinear", "float32", "jitter"),), (1, 1 << 30)
workloads.real_photos = lambda: sorted((workloads.ROOT / "client_examples" / "images").glob("*.jpg"))
small = dict(sizes=["500x375"], batches=[1, 3])
for step, options in {{
    "stream_order": dict(decodes=3),
    "facts": {{}},
    "speeds": small | dict(threads=[2, 1], decoders=["consistent"], rounds=1, seconds=0),
    "models": small | dict(threads=2, rounds=1, seconds=0),
    "thresholds": dict(sizes=["500x375"], batch=2, seconds=0),
    "kernels": small,
    "limits": dict(batch=3, seconds=0),
    "interpreter": dict(batch=2, rounds=1, seconds=0),
    "costs": dict(repeats=1, batch=2, size="500x375"),
    "handover": dict(shape=[2, 3, 8, 8]),
    "served": dict(count=1, device="cpu", batches=[1], concurrency=[1], seconds=0.5, images=4),
}}.items():
    add = lambda **row: print("row", json.dumps(dict(step=step, forecast=forecasts(row), **row)), flush=True)
    getattr(gpu_speed, step)(add, **options)
"""
TABLE = """
import sys
import pytest
from gpu import fake_cupy
fake_cupy.install({folder!r})
from support import sampled
from pixprep.gpu import samples
sampled.SAMPLINGS = sampled.SAMPLINGS[:3]
every = samples.samples()
played = sys.modules["nvidia.nvimgcodec"].Decoder
played.hardware, played.engines, played.padding = 4, 2, 0
played.changes = {{"single": lambda pixels: pixels ^ 1}}
NAMES = ("test_decode", "test_clips")
class Small:
    def pytest_collection_modifyitems(self, items):
        test_decode, test_clips = (next(each.module for each in items if name in str(each.path)) for name in NAMES)
        test_clips.SECONDS, test_clips.CLIP = 0, dict(count=20, height=160, width=192)
        kinds, test_decode.CALLS = test_decode.kinds, (1, 3)
        test_decode.kinds = lambda: {{name: each for name, each in kinds().items() if len(each) < 20000}}
words = [*(f"tests/gpu/hardware/{{name}}.py" for name in NAMES), "-q", "-p", "no:cacheprovider", "-m", "gpu"]
sys.exit(pytest.main([*words, "-k", "default or consistent or swapped or rates and h264"], plugins=[Small()]))
"""
REHEARSED = pytest.mark.slow(reason="every step of the hour: 12 s of computing")
pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytest.importorskip("av", reason="NO PYAV: clips cannot be encoded")
pytest.importorskip("pytriton", reason="NO PYTRITON: serving is not tested")


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(FOLDERS)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def module():
    """Return ``module(name)``, which imports a module of tools/gpu_hour."""
    sys.path.append(str(HOUR.parent))
    yield importlib.import_module
    sys.path.remove(str(HOUR.parent))


@pytest.fixture(scope="module")
def rows(folder, tmp_path_factory):
    if cuda_shim.COMPILER is None:
        pytest.skip("NO C++ COMPILER: the CUDA kernels do not run here")
    said = run("-c", REHEARSAL.format(folder=str(folder)))
    results = tmp_path_factory.mktemp("hour") / "call.jsonl"
    there = {"PIXPREP_REQUIRE_GPU": "1", "PIXPREP_GPU_RESULTS": str(results), "PIXPREP_GPU_STEP": "pixels"}
    run("-c", TABLE.format(folder=str(folder)), **there)
    lines = [line.removeprefix("row ") for line in said.splitlines() if line.startswith("row ")]
    return [json.loads(line) for line in [*lines, *results.read_text().splitlines()]]


def of(rows, step):
    found = [row for row in rows if row["step"] == step]
    assert found
    return found


@REHEARSED
def test_the_pixel_table_detects_that_a_batch_changes_pixels(rows):
    """Without the option, the mocked engine uses one decoding method for a single image and a different one for several
    images.
    """
    table = [row for row in of(rows, "pixels") if "kind" in row]
    default = [row for row in table if row["way"] == "default"]
    unsteady = {row["kind"] for row in default if row["distinct"] > 1}
    assert {"4:2:0", "4:4:4"} <= unsteady
    assert not [row for row in default if "progressive" in row["kind"] and row["distinct"] != 1]
    assert {row["max"] for row in default if row["kind"] in unsteady - {"RGB"}} == {1}
    ours = [row for row in table if row["way"] == "pixprep consistent"]
    assert {(row["distinct"], row["max"]) for row in ours} == {(1, 0)}
    taken = {row["kind"] for row in ours if row["fallbacks"]}
    assert [kind for kind in taken if kind.startswith("a scan each")]
    assert "4:2:0" not in taken


@REHEARSED
def test_every_contender_and_kernel_is_measured(rows):
    cells = [row for row in of(rows, "speeds") if "contenders" in row]
    assert [(row["threads"], row["batch"]) for row in cells] == [(2, 1), (2, 3), (1, 3)]
    assert all({"engine", "raw"} == set(row["contenders"]) for row in cells)
    *compared, last, _ = of(rows, "models")
    assert [(row["model"], row["differing"], row["by_the_cpu"]) for row in compared[:2]] == [
        ("SigLIP 2", 0, ""),
        ("LLaVA-NeXT", 0, ""),
    ]
    assert {"engine", "raw"} == set(last["contenders"])
    assert [row["batch"] for row in of(rows, "kernels") if "share_of_roof" in row] == [1, 3]
    assert set(of(rows, "costs")[0]["ms"]) >= {"engine", "trim", "batch after a trim"}
    assert set(of(rows, "thresholds")[0]["images_per_s"]) == {"1", str(1 << 30)}
    moved = [row for row in of(rows, "handover") if row["library"] == "cupy"]
    assert [row["non_blocking"] for row in moved] == [False, True]
    assert all(row["ms"].keys() == {"host, alone", "alone", "host, before a step", "before a step"} for row in moved)
    # the mocked decoders write immediately; here, the mock does not have a hardware engine
    hardware, cuda = of(rows, "stream_order")
    assert (hardware["order"], "early" in hardware) == ("hardware", False)
    assert (cuda["order"], cuda["early"], cuda["decodes"]) == ("CUDA", 3, 3)
    assert of(rows, "facts")[0]["gpu"] == "Fake GPU"
    copy, engines = of(rows, "limits")
    assert copy["forecast"] == {"copying JPEGs to the GPU alone, images/s": "250,000 to 500,000"}
    assert (engines["alone"], engines["forecast"]) == ("JPEG engines", {})  # the mock does not have a hardware engine
    python = of(rows, "interpreter")
    assert [row["sizes"] for row in python] == ["equal", "300 sizes"]
    assert all(row["images_per_s"] > 0 and [*row["forecast"].values()] == ["30,000 to 37,000"] for row in python)
    (load,) = of(rows, "served")
    assert (load["count"], load["images_per_s"] > 0) == (1, True)
    assert [row["fallbacks"] for row in rows if row.get("recorded") == "clips/s"] == [0]
    assert [row["outcome"] for row in rows if "outcome" in row] == ["passed"] * 4


@REHEARSED
def test_the_page_shows_measurements_and_failures(rows, module):
    page = module("gpu_page").page
    wrong = {"step": "memcheck", "ended": "time-out", "said": "== ERROR SUMMARY: 1 error\nlast | words"}
    text = page([*rows, wrong, {"step": "tests", "test": "test_x", "outcome": "failed", "why": "no"}])
    for part in ("| gpu | Fake GPU |", "| memcheck | time-out | ", "last / words |", "| tests | test_x | no |"):
        assert part in text
    assert "memcheck: == ERROR SUMMARY: 1 error\n" in text
    assert "| default | 4:2:0 | 2 |" in text
    assert "## Served" in text
    assert "contenders engine images_per_s" in text
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_the_page_shows_forecasts_beside_measurements(module):
    rates = {"engine": {"images_per_s": 9000.0}, "raw": {"images_per_s": 10_000.0}}
    cell = {"step": "speed", "size": "500x375", "decoder": "consistent", "contenders": rates}
    rows = [
        {"step": "stream order", "order": "hardware", "early": 19, "decodes": 20},
        *({**cell, "threads": threads, "batch": 128} for threads in (15, 4)),
        {"step": "kernels", "size": "500x375", "batch": 128, "levels": "kept", "device_ms": {"median": 0.08}},
        {"step": "limits", "alone": "JPEG engines", "images_per_s": 51_000},
        {"step": "limits", "alone": "copy", "why": "no"},
        {"step": "interpreter", "alone": "interpreter", "images_per_s": 33_000},
    ]
    lines = module("gpu_page").page(rows).splitlines()
    shown = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in lines if line.count(" | ") == 2}
    measured = {what: cells[1].removesuffix(" |") for what, cells in shown.items()}
    forecasts = [what for what, *_ in module("gpu_page").FORECASTS]
    assert [measured[what] for what in forecasts] == [
        "0.95",
        "not run",
        "10,000.0",
        "0.9",
        "not run",
        "not run",
        "1,600,000",
        "not run",
        "51,000",
        "33,000",
    ]
    assert shown[forecasts[2]][0] == "12,000 to 22,000"


def test_the_page_lists_the_ops_that_the_cpu_runs(module):
    checked, found = set(), set()
    for entry in (dict(each) for each in smallest()):
        name = entry.pop("op")
        with suppress(pp.PipelineError):  # the op cannot be combined with a resize and a tensor
            both = [pp.resize(height=99, width=99), getattr(pp, name)(**entry)]
            order = -1 if name == "trim" else 1  # trim must directly follow decode
            pipeline = pp.Pipeline([pp.decode(), *both[::order], pp.tensor()])
            plans = [pipeline.at(side).plan for side in pipeline.sides]
            checked.add(name)
            found |= {name} if any(plan.unsupported_by_cuda for plan in plans) else set()
    assert len(checked) > 60
    assert found == set(module("gpu_page").OPS_OF_CPU)


def test_the_page_matches_the_results(module):
    page = module("gpu_page")
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.read())
    assert "**Not run.**" in page.page([])


STEP = """
import json, os, subprocess, sys, time
with open(os.environ["PIXPREP_GPU_RESULTS"], "a") as file:
    file.write(json.dumps(dict(step=os.environ["PIXPREP_GPU_STEP"], number=1)) + chr(10))
{after}
"""
AFTER = {"fine": "", "red": "print('why'); sys.exit(3)", "slow": "subprocess.Popen(['sleep', '97']); time.sleep(97)"}


def test_a_failed_step_does_not_stop_the_next_and_rows_are_written_at_once(module, tmp_path, monkeypatch):
    hour = module("hour")
    monkeypatch.setattr(hour, "PLACE", tmp_path)
    steps = {name: hour.Step(60.0, [sys.executable, "-c", STEP.format(after=after)]) for name, after in AFTER.items()}
    steps |= {"slow": steps["slow"]._replace(seconds=3.0), "absent": hour.Step(9.0, [str(tmp_path / "no-such-tool")])}
    out = tmp_path / "call.jsonl"
    hour.run(["absent", "red", "slow"], steps, out, deadline=hour.monotonic() + 100)
    hour.run(["fine"], steps, out, deadline=hour.monotonic() + 100)
    hour.run(["fine"], steps, out, deadline=hour.monotonic())
    hour.write(out, step="limits", alone="JPEG engines", images_per_s=51_000)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert found.pop()["forecast"] == {"all hardware JPEG engines alone, images/s": "60,000"}
    assert sorted(row["step"] for row in found if "number" in row) == ["fine", "red", "slow"]
    ended = {row["step"]: row for row in found if "ended" in row and row["ended"] != 0}
    assert (ended["red"]["ended"], ended["red"]["said"]) == (3, "why\n")
    assert "no-such-tool" in ended["absent"]["ended"]
    assert ended["slow"]["ended"] == "time-out"
    assert ended["fine"]["ended"].startswith("not started")
    assert "why" in out.with_suffix(".log").read_text()


def test_every_step_of_every_call_exists_with_the_files_that_it_runs(module):
    """The step ``stream order`` runs first, because its result determines where the engine waits."""
    hour = module("hour")
    assert next(iter(hour.CALLS)) == "first"
    assert hour.CALLS["first"][0] == ("stream order",)
    assert {name for groups in hour.CALLS.values() for group in groups for name in group} == set(hour.STEPS)
    for groups in hour.CALLS.values():
        assert sum(max(hour.STEPS[name].seconds for name in group) for group in groups) <= 600
    speed, chosen = (HOUR.parent / "gpu_speed.py").read_text(encoding="utf-8"), []
    for step in hour.STEPS.values():
        if "pytest" not in step.words:
            assert f"def {step.words[2]}(" in speed
            continue
        (file,) = (word for word in step.words if word.startswith("tests/"))
        text = (ROOT / file).read_text(encoding="utf-8")
        words = step.words[step.words.index(file) + 2 :]
        chosen += [(file, words[0]) for words in [words] if words]
        for word in set("".join(words).replace("(", " ").replace(")", " ").split()) - {"not", "or", "and", "pixprep"}:
            assert re.search(word, text, re.IGNORECASE), (file, word)
    assert len(chosen) > 10


def test_wheels_are_unpacked_once_and_split_wheels_after_their_last_part(module, tmp_path, monkeypatch):
    hour, prepare = module("hour"), module("prepare_hour")
    monkeypatch.setattr(hour, "PLACE", tmp_path / "machine")
    monkeypatch.setattr(hour, "CARRIED", tmp_path / "carried")
    monkeypatch.setattr(prepare, "TO", tmp_path / "made")
    monkeypatch.setattr(prepare, "LIMIT", 400)
    for name, group in {"small": "dali", "large": "dali", "first": "engine"}.items():
        (tmp_path / "made" / group).mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(tmp_path / "made" / group / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"nvidia/{name}/__init__.py", "#" * (600 if name == "large" else 1))
            wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
            wheel.writestr(
                f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{name}-1.dist-info/RECORD", "")
    folders = prepare.cut("dali")
    assert len(folders) > 2
    (tmp_path / "carried").mkdir()
    for folder in [tmp_path / "made" / "engine", *folders]:
        assert not list((tmp_path / "machine").glob("site-*/nvidia/large"))
        folder.rename(tmp_path / "carried" / folder.name)
        hour.install()
    paths = hour._environment(is_served=False)["PYTHONPATH"]
    for name in ("small", "large", "first"):
        assert name in run("-c", f"import nvidia.{name} as found; print(found.__file__)", PYTHONPATH=paths)
    (tmp_path / "machine" / "site-client").mkdir()
    assert "site-client" not in hour._environment(is_served=False)["PYTHONPATH"]
    assert "site-client" in hour._environment(is_served=True)["PYTHONPATH"].partition(os.pathsep)[0]
