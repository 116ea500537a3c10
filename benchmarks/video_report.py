"""The part of docs/video.md about speed, made of the newest result of ``video`` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import fill
from typing import Any

import measure
from train_report import LINE, newest
from video import ALONE, OURS

PAGE = measure.ROOT / "docs" / "video.md"
WHAT = {"pixprep": "pixprep", "torchcodec": "torchcodec", "decord": "decord", "opencv": "OpenCV"}
GOALS = {"torchcodec": 1.0, "decord": 1.0, "opencv": 1.5}
"""How many times as fast as these it is to be, with the first clip, by one thread and by two."""
THREADS = 1.8
"""How many clips two threads are to do in the time that one takes for one."""
_MARKS = re.compile(r"(?<=<!-- speed -->\n).*?(?=<!-- /speed -->)", re.DOTALL)


def page(result: dict[str, Any], before: str) -> str:
    """The page with this result in it, in place of the one before."""
    text = "\n\n".join(_paragraphs(result)) + "\n"
    return _MARKS.sub(lambda _: text, before, count=1)


def _paragraphs(result: dict[str, Any]) -> Iterator[str]:
    yield fill(
        "`make benchmark-video` measures, and `benchmarks/video_report.py` writes this part. A clip becomes 16 frames "
        "of 224 x 224 in float32, resized and normalized; clips are 10 s long and have a key frame every 250 frames, "
        f"or as it says. This run: {result['date']}, commit `{result['commit']}`, {result['processor']}, Python "
        f"{result['python']}. Each contender had as many cores as threads, and was stopped while others had their "
        "turn. Each peer has its best settings of those that were tried, in each row. Numbers are medians of "
        f"{result['rounds']} rounds; in brackets, how many times as fast pixprep is.",
        LINE,
    )
    if (load := result["load_average"]) >= measure.QUIET:
        yield f"**The machine was not quiet: load average {load:.2f} before the first round.**"
    rates = [cell for cell in result["cells"] if cell["threads"] == 1 or cell["clips"] > 1]
    single = [cell for cell in result["cells"] if cell not in rates]
    yield _table("clips/s", [(_title(result, cell), cell) for cell in rates], digits=2)
    if single:
        yield _table(
            "one clip, two cores, ms",
            [("its first frame" if cell["frames"] == 1 else "its 16 frames", cell) for cell in single],
            digits=0,
        )
    yield fill(" ".join((_goals(result), _faster(result), _cpu(result))), LINE)
    yield fill(_settings(result), LINE)
    if result["absent"]:
        reasons = (f"{WHAT[name]}: {why.partition('. ')[0]}" for name, why in result["absent"].items())
        yield fill(f"Not measured: {'; '.join(reasons)}.", LINE)


def _title(result: dict[str, Any], cell: dict[str, Any]) -> str:
    threads = "one thread" if cell["threads"] == 1 else f"{cell['threads']} threads"
    return f"{result['clips'][cell['clip']]['title']}, {threads}{', at the end' if cell['is_again'] else ''}"


def _table(unit: str, rows: list[tuple[str, dict[str, Any]]], *, digits: int) -> str:
    """Clips per second, or milliseconds of a batch of one."""
    lines = [f"| {unit} | {' | '.join(WHAT.values())} |", f"|---|{'--:|' * len(WHAT)}"]
    for title, cell in rows:
        values = []
        for name in WHAT:
            found = cell["contenders"].get(name)
            ratio = "" if name == OURS or not found else f" ({_ratio(cell, name):.2f} x)"
            value = 0 if not found else found["batch_ms"]["median"] if digits == 0 else found["images_per_s"]
            values.append(f"{value:.{digits}f}{ratio}" if found else "")
        lines.append(f"| {title} | {' | '.join(values)} |")
    return "\n".join(lines)


def _ratio(cell: dict[str, Any], name: str) -> float:
    return measure.ratio(cell["contenders"][OURS], cell["contenders"][name])


def _goals(result: dict[str, Any]) -> str:
    """What was to be reached with the first clip, and what was missed."""
    first = result["cells"][0]["clip"]
    cells = [cell for cell in result["cells"] if cell["clip"] == first and cell["clips"] > 1]
    missed = []
    for cell in cells:
        for name, goal in GOALS.items():
            if name in cell["contenders"] and round(_ratio(cell, name), 2) < goal:
                missed.append(f"{_ratio(cell, name):.2f} x {WHAT[name]} ({_title(result, cell)})")
        if ALONE in cell["contenders"] and round(_ratio(cell, ALONE), 2) < THREADS:
            missed.append(f"{_ratio(cell, ALONE):.2f} x one thread")
    scaling = [f"{_ratio(cell, ALONE):.2f} x" for cell in cells if ALONE in cell["contenders"]]
    goals = ", ".join(f"{goal:g} x {WHAT[name]}" for name, goal in GOALS.items())
    parts = [f"With the first clip pixprep was to be at least {goals}, and with two threads {THREADS:g} x one."]
    parts.append(f"Missed: {'; '.join(missed)}." if missed else "It is.")
    if scaling:
        parts.append(f"Two threads do {', '.join(scaling)} the clips of one.")
    return " ".join(parts)


def _faster(result: dict[str, Any]) -> str:
    """Where a peer is ahead."""
    ahead = []
    for cell in result["cells"]:
        rest = "" if cell["clips"] > 1 else ", one clip alone, " + ("1 frame" if cell["frames"] == 1 else "16 frames")
        ahead += [
            f"{WHAT[name]} ({_title(result, cell)}{rest}: {1 / _ratio(cell, name):.2f} x)"
            for name in GOALS
            if name in cell["contenders"] and round(_ratio(cell, name), 2) < 1
        ]
    return f"Faster than pixprep: {'; '.join(ahead)}." if ahead else "No peer is faster in any row."


def _cpu(result: dict[str, Any]) -> str:
    cell = result["cells"][0]
    times = (
        f"{WHAT[name]} {found['cpu_ms_per_clip']:.0f}" for name, found in cell["contenders"].items() if name in WHAT
    )
    return f"CPU time of a clip in the first row, in ms: {', '.join(times)}."


def _settings(result: dict[str, Any]) -> str:
    """The best settings of each peer, and in how many rows."""
    parts = []
    for name in GOALS:
        counts: dict[str, int] = {}
        for cell in result["cells"]:
            if name in cell["contenders"]:
                found = cell["contenders"][name]
                threads = found["ffmpeg_threads"]
                best = f"{found['setting']}, {threads} FFmpeg {'thread' if threads == 1 else 'threads'}"
                counts[best] = counts.get(best, 0) + 1
        if counts:
            parts.append(f"{WHAT[name]}: {'; '.join(f'{best} ({count})' for best, count in counts.items())}")
    return (
        "The best settings, and in how many rows. torchcodec's are its search, and who resizes (torchvision v2 or "
        "FFmpeg); OpenCV's, whether all frames are read, all are grabbed and the wanted ones converted, or each is "
        f"sought. {'. '.join(parts)}."
    )


if __name__ == "__main__":
    newest_of_all = newest("video")
    assert newest_of_all, "run video.py first"
    PAGE.write_text(page(newest_of_all, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
