"""Write the part of docs/video.md about speed, from the newest result of ``video``."""

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
PEERS = tuple(WHAT)[1:]
_MARKS = re.compile(r"(?<=<!-- speed -->\n).*?(?=<!-- /speed -->)", re.DOTALL)


def page(result: dict[str, Any], before: str) -> str:
    """Return the page with the given result instead of the previous one."""
    text = "\n\n".join(_paragraphs(result)) + "\n"
    return _MARKS.sub(lambda _: text, before, count=1)


def _paragraphs(result: dict[str, Any]) -> Iterator[str]:
    yield fill(
        "`make benchmark-video` measures, and `benchmarks/video_report.py` generates this part. The task is to convert "
        "a clip to 16 frames of 224 x 224 in float32, resized and normalized. Clips are 10 s long and have a key frame "
        "every 250 frames, unless the row states otherwise. "
        f"This run: {result['date']}, commit `{result['commit']}`, {result['processor']}, Python "
        f"{result['python']}. Each contender had as many cores as threads, and was paused while others ran. In "
        "each row, each peer has the fastest of the settings that were tried. Numbers are medians of "
        f"{result['rounds']} rounds; the numbers in parentheses are medians of pixprep's speed-up in each round.",
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
    yield fill(f"{_scaling(result)}{_faster(result)} {_cpu(result)}", LINE)
    if result["absent"]:
        reasons = (f"{WHAT[name]}: {why.partition('. ')[0]}" for name, why in result["absent"].items())
        yield fill(f"Not measured: {'; '.join(reasons)}.", LINE)


def _title(result: dict[str, Any], cell: dict[str, Any]) -> str:
    threads = "one thread" if cell["threads"] == 1 else f"{cell['threads']} threads"
    return f"{result['clips'][cell['clip']]['title']}, {threads}{', at the end' if cell['is_again'] else ''}"


def _table(unit: str, rows: list[tuple[str, dict[str, Any]]], *, digits: int) -> str:
    """Return a table of clips per second, or of milliseconds for a batch of one clip."""
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


def _scaling(result: dict[str, Any]) -> str:
    """Return a sentence with the speed-up of two threads over one thread."""
    ratios = [_ratio(cell, ALONE) for cell in result["cells"] if cell["clips"] > 1 and ALONE in cell["contenders"]]
    factors = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return (
        f"In rounds of their own, two threads processed {factors} times as many clips as one thread. " if ratios else ""
    )


def _faster(result: dict[str, Any]) -> str:
    """Return the rows in which another library is faster than pixprep."""
    ahead = []
    for cell in result["cells"]:
        rest = "" if cell["clips"] > 1 else ", one clip alone, " + ("1 frame" if cell["frames"] == 1 else "16 frames")
        ahead += [
            f"{WHAT[name]} ({_title(result, cell)}{rest}: {1 / _ratio(cell, name):.2f} x)"
            for name in PEERS
            if name in cell["contenders"] and round(_ratio(cell, name), 2) < 1
        ]
    return f"Faster than pixprep: {'; '.join(ahead)}." if ahead else "No peer is faster in any row."


def _cpu(result: dict[str, Any]) -> str:
    cell = result["cells"][0]
    times = (
        f"{WHAT[name]} {found['cpu_ms_per_clip']:.0f}" for name, found in cell["contenders"].items() if name in WHAT
    )
    return f"CPU time per clip in the first row, in ms: {', '.join(times)}."


if __name__ == "__main__":
    newest_of_all = newest("video")
    assert newest_of_all, "run video.py first"
    PAGE.write_text(page(newest_of_all, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
