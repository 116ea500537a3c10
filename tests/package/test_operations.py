"""Tests that docs/operations.md lists every alert of the chart, and refers only to existing panels of the dashboard."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ROOT / "deploy" / "chart" / "pixprep" / "files"
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_alert_has_its_line_and_every_line_its_alert():
    alerts = re.findall(r"- alert: (\w+)", (FILES / "alerts.yaml").read_text(encoding="utf-8"))
    assert re.findall(r"^\| `(\w+)` \|.+\|.+\|$", PAGE.partition("| reason of")[0], re.MULTILINE) == alerts


def test_the_named_panels_exist():
    panels = {panel["title"] for panel in json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))["panels"]}
    (section,) = re.findall(r"^## The dashboard\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"\*\*(.+?)\*\*", section))
    assert len(named) > 4
    assert named <= panels
