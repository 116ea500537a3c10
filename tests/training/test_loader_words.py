"""Tests the statistics, traces, progress bars and warnings of a Loader."""

import fcntl
import json
import os
import struct
import termios
import time

import pytest

import pixprep as pp
from support.loading import loader, run, samples


def test_stats_report_who_waited_for_whom():
    with loader() as ours:
        assert str(ours.stats()) == "no batch has been delivered yet"
        batches = iter(ours)
        next(batches)
        begun_s = ours.stats().total_s
        list(batches)
        stats = ours.stats()
        assert 0 < begun_s < stats.total_s == ours.stats().total_s
    assert (stats.batches, stats.samples, stats.threads, stats.broken) == (5, 40, 2, 0)
    assert 0 < stats.starved_s <= stats.total_s
    assert 0 < stats.reading_s + stats.working_s + stats.blocked_s <= stats.total_s
    assert stats.decode_s > 0 < stats.transform_s
    assert str(stats).startswith(f"5 batches, 40 samples in {stats.total_s:.1f} s: ")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"starved_s": 0.5}, "for 5% of the time: the Loader keeps up"),
        ({"starved_s": 5, "reading_s": 5, "working_s": 4}, "for 50% of the time: reading is the bottleneck"),
        (
            {"starved_s": 5, "reading_s": 1, "working_s": 8},
            "for 50% of the time: decoding and resizing are the bottleneck",
        ),
        ({"decode_s": 3, "transform_s": 1}, "75% of the computing time on decoding, and 25% on resizing"),
    ],
)
def test_stats_recommend_an_action(times, words):
    from pixprep.training.timeline import Stats  # noqa: PLC0415

    zeros = dict.fromkeys(("starved_s", "reading_s", "working_s", "blocked_s", "decode_s", "transform_s"), 0.0)
    stats = Stats(batches=1, samples=8, broken=0, cached=0, threads=2, total_s=10.0, **zeros | times)
    assert words in str(stats)


def test_a_trace_has_a_track_for_each_thread(tmp_path):
    with loader() as ours:
        list(ours)
        ours.trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert "pixprep-loader" in tracks
    assert any(track.startswith("pixprep-read") for track in tracks)
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(event["args"]["samples"] for event in spans if event["name"] == "read") == 40
    assert len([event for event in spans if event["name"] == "decode and transform"]) == 5
    assert {event["name"] for event in spans} >= {"epoch", "wait for a batch", "wait for files", "wait for room"}
    assert all(event["dur"] > 0 for event in spans)


def test_a_slow_source_gets_more_threads(tmp_path):
    class Slow(list):
        delay_s = 0.005

        def __getitem__(self, index):
            time.sleep(self.delay_s)
            return super().__getitem__(index)

    source = Slow(samples(96))
    shares, deadline = {4}, time.monotonic() + 60  # samples per read: at first, two threads share a batch
    with loader(source, batch_size=8) as ours:
        while min(shares) > 1 and time.monotonic() < deadline:
            list(ours)
            ours.trace(tmp_path / "t.json")
            events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
            shares = {event["args"]["samples"] for event in events if event["name"] == "read"}
            source.delay_s *= 2  # until the source is slower than this machine decodes
    assert (min(shares), max(shares)) == (1, 4)


def test_a_progress_bar_is_shown_if_stderr_is_a_terminal():
    code = "shown = pp.Loader(samples(), PLAIN, batch_size=8, progress=True)\nfor _ in range(2): list(shown)\n"
    assert run(code).stderr == ""
    ours, theirs = os.openpty()
    # without a size, tqdm finds no space for its bar
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    result = run(code, stderr=theirs)
    assert result.returncode == 0
    os.set_blocking(ours, False)
    assert os.read(ours, 1 << 16).decode().count("0/5 [") == 2
    os.close(ours)
    os.close(theirs)


def test_a_progress_bar_is_shown_in_a_notebook_in_one_line(tmp_path):
    code = (
        "import sys; sys.modules['ipykernel'] = sys\nlist(pp.Loader(samples(), PLAIN, batch_size=8, progress=True))\n"
    )
    with (tmp_path / "shown").open("wb") as file:
        run(code, stderr=file)
    shown = (tmp_path / "shown").read_bytes()
    assert b"0/5 [" in shown
    assert b"\n" not in shown  # a notebook draws text after a \r over the previous text


def test_a_closed_loader_reports_that_it_is_closed():
    ours = loader()
    ours.close()
    for use in (ours.__iter__, ours.example, lambda: ours.replay(0, 0)):
        with pytest.raises(pp.SetupError, match="this Loader is closed: create a new one"):
            use()
    ours.close()


@pytest.mark.parametrize("index", [-1, 40])
def test_replaying_a_missing_sample_is_rejected(index):
    with loader() as ours, pytest.raises(IndexError, match=f"index must be from 0 to 39, not {index}"):
        ours.replay(0, index)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("sides", [True, False])
def test_training_with_the_serving_ops_is_reported(shuffle, sides, caplog):
    only = {"only": "serving"} if sides else {}
    flips = [pp.random_flip()] if sides else []
    pipeline = pp.Pipeline([pp.decode(), *flips, pp.resize(height=8, width=8), pp.center_crop(8, **only), pp.tensor()])
    loader(pipeline=pipeline.at("serving"), shuffle=shuffle).close()
    words = 'the Loader shuffles, but serving omits ops[1] "random_flip": use pipeline.for_training() to apply'
    assert (words in caplog.text) == (shuffle and sides)
    caplog.clear()
    loader(pipeline=pipeline.at("serving"), mix=[pp.MixUp()]).close()
    assert (words.replace("shuffles", "applies a chain") in caplog.text) == sides
    caplog.clear()
    loader(pipeline=pipeline.for_training(), shuffle=True).close()
    assert caplog.text == ""


def test_a_field_hidden_by_an_attribute_of_the_batch_is_reported_once(caplog):
    source = [{**sample, "index": 7, "tensor": 7} for sample in samples(16)]
    with loader(source) as ours:
        for batch in ours:
            assert batch["tensor"].ndim == 4
            assert len(set(batch["index"].tolist())) == len(batch)
    for name in ("index", "tensor"):
        assert caplog.text.count(f'batch["{name}"] hides the samples\' field "{name}": rename the field') == 1


def test_several_processes_without_a_shard_are_rejected(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(pp.PipelineError, match="WORLD_SIZE is 2, but shard is not set"):
        loader()
    with loader(shard=(0, 1)) as ours:
        assert len(list(ours)) == 5
