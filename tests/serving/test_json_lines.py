"""Tests that pixprep logs JSON objects, one per line."""

import json
import subprocess
import sys
from datetime import datetime, timezone


def test_each_json_log_line_is_an_object():
    code = """
import logging, warnings
from pixprep.cli.output import log_to_stderr
log_to_stderr(as_json=True)
log = logging.getLogger("pixprep.a")
log.info("two\\nlines \\x1b[2J of %s", "caf\\u00e9", extra={"model": "m", "other": "not shown"})
try: 1 / 0
except ZeroDivisionError: log.exception("failed")
warnings.warn("beware")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, third = map(json.loads, done.stderr.splitlines())
    time = datetime.fromisoformat(first.pop("time"))
    assert abs((datetime.now(timezone.utc) - time).total_seconds()) < 60
    assert first == {"level": "info", "logger": "pixprep.a", "message": "two\nlines \x1b[2J of café", "model": "m"}
    assert (second["level"], second["message"]) == ("error", "failed")
    assert second["traceback"].endswith("ZeroDivisionError: division by zero")
    assert (third["level"], "beware" in third["message"]) == ("warning", True)
    assert "\x1b" not in done.stderr
