"""Triton's log, handed on line by line, and what pixprep logs, as objects."""

import json
import logging
import subprocess
import sys
from datetime import datetime, timezone

import pytest

from pixprep.serve.relay import Relay, hand_on

LINES = {
    "I1122 08:06:48.192163 11191 model_lifecycle.cc:839] \"successfully loaded 'classifier'\"": (
        "INFO",
        "successfully loaded 'classifier'",
        {"model": "classifier"},
    ),
    'I1122 08:06:45.631145 11191 model_lifecycle.cc:472] "loading: preprocess:1"': (
        "INFO",
        "loading: preprocess:1",
        {"model": "preprocess"},
    ),
    'I1122 08:06:52.794210 1 python_be.cc:2249] "TRITONBACKEND_ModelInstanceInitialize: pre_0_0_0 (CPU device 0)"': (
        "INFO",
        "TRITONBACKEND_ModelInstanceInitialize: pre_0_0_0 (CPU device 0)",
        {"model": "pre_0"},
    ),
    'E1122 08:06:57.022167 11191 main.cc:535] "failed to stop \\"it\\":\\n no"': (
        "ERROR",
        'failed to stop "it":\n no',
        {},
    ),
    'W1122 08:06:57.022167 11191 a.cc:5] "[request id: 4711] failed to send"': (
        "WARNING",
        "[request id: 4711] failed to send",
        {"request_id": "4711"},
    ),
    'W1122 08:06:57.022167 11191 a.cc:5] "[request id: <id_unknown>] failed to send"': (
        "WARNING",
        "[request id: <id_unknown>] failed to send",
        {},
    ),
    "Segmentation fault": ("WARNING", "Segmentation fault", {}),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_keeps_its_level_its_words_and_what_it_is_about(line, caplog):
    caplog.set_level(logging.INFO)
    hand_on(line)
    (record,) = caplog.records
    about = {name: getattr(record, name) for name in ("model", "request_id") if hasattr(record, name)}
    assert (record.levelname, record.getMessage(), about) == LINES[line]


def test_a_line_keeps_its_time(caplog):
    now = datetime.now(timezone.utc)
    hand_on(f'E{now:%m%d %H:%M:%S.%f} 11191 a.cc:1] "x"')
    assert caplog.records[0].created == pytest.approx(now.timestamp(), abs=1e-3)


@pytest.mark.parametrize(
    "line", ["", "+-----+---+", "| Model | Version |", "I1122 08:06:49.947148 11191 server.cc:604] "]
)
def test_tables_are_left_out(line, caplog):
    caplog.set_level(logging.INFO)
    hand_on(line)
    assert caplog.records == []


def test_every_line_is_handed_on_once_whenever_it_was_written(tmp_path, caplog):
    path = tmp_path / "log"
    path.write_text("before\n")
    with Relay() as relay, path.open("a") as log:
        relay.start(path)
        for index in range(100):
            log.write(f"line {index}\nhal")
            log.flush()
            log.write("f\n")
            log.flush()
        path.unlink()
        log.write("the last, without an end")
        log.flush()
    expected = ["before", *(text for index in range(100) for text in (f"line {index}", "half"))]
    assert [record.getMessage() for record in caplog.records] == [*expected, "the last, without an end"]


def test_what_is_logged_as_json_is_an_object_a_line():
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
