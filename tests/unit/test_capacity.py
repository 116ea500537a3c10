"""`pixprep plan-capacity` computes with what the newest benchmark measured, and says what it assumes."""

import json
import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest

from pixprep.capacity import plan_capacity
from pixprep.cli.parser import main

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(ROOT / "tools" / "scale_tables.py")
TABLE = json.loads(TOOL["TABLE"].read_text(encoding="utf-8"))
HD = {"images_per_second": 5000, "size": (1080, 1920), "cores": 16}


def test_the_table_is_the_newest_benchmarks():
    assert TOOL["TABLE"].read_text(encoding="utf-8") == TOOL["text"](TOOL["newest"]()), "make docs"


def test_the_pages_tables_are_what_the_command_computes():
    page = TOOL["PAGE"].read_text(encoding="utf-8")
    assert TOOL["tables"](page) == page, "make docs"
    emptied = re.sub(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", r"\1\3", page, flags=re.DOTALL)
    assert emptied.count("<!-- /") == page.count("\n| --- ") >= 5
    assert TOOL["tables"](emptied) == page
    found = plan_capacity(**HD)
    assert f"| 1920x1080 | {found.core_ms:.2f} | " in page


def test_a_machines_cost_is_its_hours_times_its_price_and_a_gpu_has_none():
    page = TOOL["PAGE"].read_text(encoding="utf-8")
    (rows,) = re.findall(r"<!-- machines -->\n.*\n.*\n((?:\|.*\n)+)", page)
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.splitlines()]
    assert [(name, float(price)) for name, _, _, price, *_ in cells] == [(row[0], row[3]) for row in TOOL["MACHINES"]]
    *measured, gpu = cells
    for _, vcpus, cores, price, *found in measured:
        assert int(cores) in (int(vcpus), int(vcpus) / 2)
        for row, cell in zip(TABLE["baseline"], found, strict=True):
            hours = 1e9 * row["ms"] / 1000 / 3600 / int(cores)
            assert cell == f"{hours:,.0f} h, ${hours * float(price):,.0f}"
    assert gpu[4:] == ["not measured"] * 3


def test_the_tables_numbers_are_plausible():
    assert [(row["height"], row["width"]) for row in TABLE["baseline"]] == [(375, 500), (1080, 1920), (3024, 4032)]
    for rows in (TABLE["baseline"], TABLE["progressive"]):
        for less, more in pairwise(rows):
            assert 0 < less["ms"] < more["ms"]
            assert less["bytes"] < more["bytes"]
    assert 0 < TABLE["serving_ms"] < TABLE["demo_classifier_ms"]


def test_the_machines_are_those_of_the_formula():
    core_ms = TABLE["baseline"][1]["ms"] + TABLE["serving_ms"]
    found = plan_capacity(**HD, utilisation=0.5, spare=0)
    assert found.core_ms == pytest.approx(core_ms)
    assert found.busy_cores == pytest.approx(5 * core_ms)
    assert (found.machines - 1) * 8 < found.busy_cores <= found.machines * 8
    assert plan_capacity(**HD, utilisation=0.5, spare=2).machines == found.machines + 2
    assert found.images_per_second == 5000 / found.machines
    assert found.gigabits_per_second == pytest.approx(5000 * TABLE["baseline"][1]["bytes"] * 8e-9)
    assert (found.hours, found.cost_per_hour, found.cost) == (None, None, None)


def test_each_word_changes_what_it_should():
    plain = plan_capacity(**HD)
    assert plan_capacity(**HD, offline=True).core_ms == pytest.approx(plain.core_ms - TABLE["serving_ms"])
    assert plan_capacity(**HD, classifier_ms=3).core_ms == pytest.approx(plain.core_ms + 3)
    assert plan_capacity(**HD, progressive=True).core_ms > 2 * plain.core_ms
    assert plan_capacity(**HD, reduced=True).core_ms < plain.core_ms
    assert plan_capacity(**HD | {"size": (1920, 1080)}).core_ms == plain.core_ms
    paid = plan_capacity(**HD, images=10**9, price=0.5)
    assert paid.hours == pytest.approx(10**9 / 5000 / 3600)
    assert paid.cost == pytest.approx(paid.machines * 0.5 * paid.hours)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((1080, 1920), ": measured ("),
        ((100, 100), "as measured at 375 x 500, which is more"),
        ((1000, 1000), "between 375 x 500 and 1080 x 1920, by the pixels"),
        ((8000, 6000), "in proportion to the pixels, from 3024 x 4032"),
    ],
)
def test_a_size_that_was_not_measured_says_how_it_was_found(size, words):
    found = plan_capacity(**HD | {"size": size})
    assert words in found.assumed[0]


def test_the_time_grows_with_the_size():
    sides = (50, 400, 700, 1100, 2000, 3500, 5000)
    times = [plan_capacity(**HD | {"size": (side, side)}).core_ms for side in sides]
    assert times == sorted(times)


def test_the_command_prints_the_table_and_every_assumption(capsys):
    words = ["plan-capacity", "--images-per-second", "5000", "--size", "1080x1920", "--price", "0.5"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    found = plan_capacity(**HD, price=0.5)
    assert lines[0] == f"machines            {found.machines}"
    assert lines[-len(found.assumed) :] == [f"  - {text}" for text in found.assumed]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machines"] == found.machines


@pytest.mark.parametrize(
    ("option", "value"), [("--utilisation", "1.5"), ("--utilisation", "0"), ("--cores", "0"), ("--size", "1920")]
)
def test_what_makes_no_sense_is_wrong_usage(option, value, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan-capacity", "--images-per-second", "5000", "--size", "1080x1920", option, value])
    assert ended.value.code == 2
    assert f"argument {option}: '{value}' is not" in capsys.readouterr().err
