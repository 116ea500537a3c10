"""Tests of the arguments passed to perf_analyzer and the parser for its reports."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pixprep.errors import PixprepError, SetupError
from pixprep.serving.embedded import perf
from pixprep.serving.embedded.request import ModelInput

GOLDEN = Path(__file__).parents[1] / "golden"
ROW = perf.Measurement(
    protocol="grpc", model="ensemble", load="poisson 50/s", batch=8, images_per_s=398.2, p50_ms=11.229, p90_ms=17.601,
    p95_ms=18.914, p99_ms=122.823, mean_batch=None, late_percent=2.81,
)  # fmt: skip


@pytest.mark.parametrize(
    ("load", "numbers"),
    [
        ("concurrency", (332.8, 11.229, 17.601, 18.914, 22.823)),
        ("poisson", (98.4, 369.519, 888.195, 971.645, 1065.396)),
    ],
)
def test_a_report_becomes_numbers_in_milliseconds(load, numbers):
    text = (GOLDEN / f"perf_analyzer_{load}.csv").read_text()
    names = ("images_per_s", "p50_ms", "p90_ms", "p95_ms", "p99_ms")
    assert perf.parse_report(text) == dict(zip(names, numbers, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n",
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n" + "1,2,3,4,5,6\n" * 2,
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency\n1,2,3,4,5\n",
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n1,2,3,4,5,n/a\n",
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n1,2,3,4,5\n",
    ],
    ids=["empty", "no row", "two rows", "a column less", "no number", "a short row"],
)
def test_a_report_of_an_unknown_format_is_an_error_and_not_a_measurement(text):
    with pytest.raises(PixprepError) as caught:
        perf.parse_report(text)
    assert str(caught.value) == (
        "perf_analyzer's report is not one row with Inferences/Second and "
        "p50 latency, p90 latency, p95 latency, p99 latency: use version 2.51"
    )


@pytest.mark.parametrize(
    ("datatype", "images", "written"),
    [("BYTES", [b"abcd", b""], [("BAAAAGFiY2Q=", [1]), ("AAAAAA==", [1])]), ("UINT8", [b"abcd"], [("YWJjZA==", [4])])],
)
def test_a_bytes_image_has_a_length_prefix_and_a_uint8_image_a_shape(tmp_path, datatype, images, written):
    results = ModelInput(names=("image",), datatype=datatype, max_batch_size=8)
    perf.write_input_json(images, tmp_path / "input.json", results)
    steps = [{"image": {"content": {"b64": b64}, "shape": shape}} for b64, shape in written]
    assert json.loads((tmp_path / "input.json").read_text()) == {"data": steps}


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            "error: failed to get model metadata: Request for unknown model: 'nope' is not found\n\n",
            "failed to get model metadata: Request for unknown model: 'nope' is not found",
        ),
        (
            "Failed to maintain requested inference load. Worker thread(s) failed to generate concurrent requests.\n"
            "Thread [0] had error: in ensemble 'ensemble', [EMPTY] image 1 of 1: the image is empty\n\n"
            "Thread [1] had error: something else\n\n",
            "in ensemble 'ensemble', [EMPTY] image 1 of 1: the image is empty",
        ),
        ("\n \n", "no error message"),
    ],
)
def test_the_reason_of_a_failure_is_found_in_the_output(printed, reason):
    assert perf.reason_in(printed) == reason


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'Thread [0] had error: [CORRUPT] image 1 of 1: no' >&2; exit 99",
            "perf_analyzer: [CORRUPT] image 1 of 1: no; a measurement ends at the first failed request: find the "
            "images that fail with `pixprep send`",
        ),
        ("exec sleep 60", "perf_analyzer did not finish within 0.2 s: check that the server still responds"),
    ],
)
def test_a_failed_measurement_is_an_error_with_the_reason(script, message):
    with pytest.raises(PixprepError) as caught:
        perf._run(["/bin/sh", "-c", script], {}, limit_s=0.2 if "sleep" in script else 10)
    assert str(caught.value) == message


NO_REQUEST = ("No valid requests recorded within time interval.", "failed to find the requested model version")


def command_with_minimum_window(ms, words):
    """Return a command that rejects measurement windows shorter than ``ms`` milliseconds. The caller appends "-p" and
    the window.
    """
    return ["/bin/sh", "-c", f"[ $1 -ge {ms} ] && echo $1 ms || {{ echo '{words}' >&2; exit 99; }}"]


@pytest.mark.parametrize("words", NO_REQUEST)
def test_windows_too_short_for_a_request_are_extended_twice(words):
    for ms, window in ((1, 100), (101, 400), (1600, 1600)):
        assert perf._run_for(0.36, command_with_minimum_window(ms, words), {}) == f"{window} ms\n"
    with pytest.raises(PixprepError, match=words.rstrip(".")):
        perf._run_for(0.36, command_with_minimum_window(1601, words), {})


def test_an_open_loop_does_not_wait_for_responses_and_a_closed_one_has_a_thread_per_request():
    assert perf._loads([32], [50]) == [
        ("concurrency 32", ["--concurrency-range", "32:32"]),
        ("poisson 50/s", ["--request-rate-range", "50", "--request-distribution", "poisson", "-a"]),
    ]


def test_a_client_that_falls_behind_its_schedule_is_noticed():
    warning = (
        "    [WARNING] Perf Analyzer was not able to keep up with the desired request rate. "
        "96.61% of the requests were delayed. \n"
    )
    assert perf._late_percent(warning) == 96.61
    assert perf._late_percent("    Throughput: 122.59 infer/sec\n") == 0.0


def test_the_windows_last_as_long_as_requested_in_total():
    assert perf._window_flags(3.6) == ["-p", "1000", "-r", "3", "-s", "1000000"]


def test_nothing_is_measured_without_images():
    with pytest.raises(PixprepError, match=r"^no images to send: pass at least one$"):
        perf.measure([], concurrency=[1])


def write_program(folder, script):
    program = folder / "perf_analyzer"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(folder)


def test_a_missing_perf_analyzer_is_named_with_the_fix(tmp_path):
    with pytest.raises(SetupError) as caught:
        perf.find_perf_analyzer(tmp_path, search=str(tmp_path))
    assert str(caught.value) == 'perf_analyzer is not installed: pip install ".[server]" in a checkout of pixprep'


MISSING_LIBRARY = "perf_analyzer: error while loading shared libraries: {}: cannot open shared object file"


@pytest.mark.parametrize(
    ("loader", "remedy"),
    [
        (MISSING_LIBRARY.format("libb64.so.0d"), 'pip install ".[server]" in a checkout of pixprep'),
        (MISSING_LIBRARY.format("libssl.so.3"), "apt-get install libssl3 libstdc++6 zlib1g"),
        (
            "perf_analyzer: /lib/libc.so.6: version `GLIBC_2.34 not found",
            "run bench on Debian 12, Ubuntu 22.04 or later; with --url, the server may be on another machine",
        ),
    ],
)
def test_a_perf_analyzer_that_does_not_start_is_reported_with_the_fix(tmp_path, loader, remedy):
    (tmp_path / "bin").mkdir()
    search = write_program(tmp_path / "bin", f"echo '{loader}' >&2; exit 127")
    with pytest.raises(SetupError) as caught:
        perf.find_perf_analyzer(tmp_path, search=search)
    assert str(caught.value) == f"perf_analyzer does not start: {loader}: {remedy}"


def test_perf_analyzer_starts_with_the_libraries_of_pytriton(tmp_path):
    program, environment = perf.find_perf_analyzer(tmp_path)
    assert sorted(link.name for link in tmp_path.iterdir()) == ["libb64.so.0d", "libcudart.so.12"]
    assert all(link.exists() for link in tmp_path.iterdir())
    version = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert version.stderr.startswith("Perf Analyzer Version 2.51.0")


def test_the_table_is_aligned_and_marks_unknown_values():
    assert perf.to_table([ROW]).splitlines() == [
        "protocol  model     load          batch  images per s  p50 ms  p90 ms  p95 ms  p99 ms"
        "  mean batch  late percent",
        "grpc      ensemble  poisson 50/s      8         398.2    11.2    17.6    18.9   122.8"
        "           -           2.8",
    ]


def test_for_clips_the_table_includes_frames():
    head, row = perf.to_table([replace(ROW, frames_per_s=16 * 398.2)]).splitlines()
    assert re.split(r"\s{2,}", head)[3:6] == ["batch", "clips per s", "frames per s"]
    assert row.split()[5:7] == ["398.2", "6371.2"]


def test_the_json_gives_the_same_measurement_back():
    (row,) = json.loads(perf.to_json([ROW]))
    assert perf.Measurement(**row) == ROW
