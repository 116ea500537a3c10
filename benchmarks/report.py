"""docs/performance.md, its two plots and the README's table, made of one result of ``run.py`` and of nothing else.

python benchmarks/report.py                       of the newest full result
python benchmarks/report.py results/cpu-….json    of this one
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import measure

DOCS = measure.ROOT / "docs"
RESULTS = Path(__file__).parent / "results"
QUIET = 0.3  # load average
SIZES = tuple(measure.SIZES)
WHAT = {
    "pixprep_full": "pixprep",
    "pixprep_reduced": "pixprep, reduced decode",
    "dali": "DALI, idiomatic",
    "dali_region": "DALI, region decode",
    "pillow": "Pillow + NumPy",
    "torchvision": "torchvision (Triton's Python example)",
    "opencv": "OpenCV, the same filter (no antialias)",
    "opencv_area": "OpenCV, INTER_AREA",
    "nvimgcodec": "nvImageCodec's CPU decode + our kernel",
    "libjpeg_turbo": "libjpeg-turbo, decode alone",
}
COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#6a4c93", "#5f6b6d", "#00798c", "#a44a3f")
MARKS = re.compile(r"(<!-- benchmark -->\n).*?(<!-- /benchmark -->)", re.DOTALL)

Result = dict[str, Any]


def page(result: Result) -> str:
    """The text of docs/performance.md."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield "# Performance"
    yield ""
    yield "Made by `benchmarks/report.py` from `benchmarks/results/`; the command that measures is `benchmarks/run.py`."
    yield f"{result['date']}, commit `{result['commit']}`, {result['processor']}, {result['cores']} cores,"
    yield f"Python {result['python']}; {result['rounds']} rounds by turns, median. The ratios are of one run."
    if result["load_average"] >= QUIET:
        yield ""
        yield f"**The machine was not quiet: load average {result['load_average']:.2f} before the first round.**"
    yield ""
    yield "Task: JPEG to shorter side 256, centre 224, ImageNet mean and std, float32 planes."
    missing = dict(result["missing"])
    for cell in result["cells"]:
        for name, reason in cell["refused"].items():
            missing.setdefault(name, f"{cell['workload']}, {cell['filter']}: {reason}")
    if missing:
        yield ""
        yield "Not measured:"
        yield ""
        yield from (f"- {WHAT[name]}: {reason}" for name, reason in sorted(missing.items()))
    for filter_name in ("bilinear", "bicubic", "lanczos"):
        for threads in (1, 2):
            cells = [
                cell
                for cell in result["cells"]
                if (cell["filter"], cell["threads"]) == (filter_name, threads) and cell["workload"] in SIZES
            ]
            if cells:
                yield from ("", f"## {filter_name.capitalize()}, {_threads(threads)}", "")
                yield from speeds(cells)
    others = [cell for cell in result["cells"] if cell["workload"] not in SIZES]
    for threads in (1, 2):
        cells = [cell for cell in others if cell["threads"] == threads]
        if cells:
            yield from ("", f"## Other photos, {_threads(threads)}", "")
            yield from speeds(cells)
    main = [cell for cell in result["cells"] if cell["filter"] == "bilinear" and cell["workload"] in SIZES]
    if main:
        yield from ("", "## Cost and pixels", "")
        yield "CPU seconds for 1,000 photos and levels from the reference (largest / mean), one thread. Where the crop"
        yield "begins a pixel beside the reference's, the pixels are compared there."
        yield ""
        yield from costs([cell for cell in main if cell["threads"] == 1])
        yield from ("", "## Two threads over one", "")
        yield from scaling(main)
    if result["kernel"]:
        yield from ("", "## Decode and kernel", "")
        yield "Median ms of pixprep for one photo on one thread: until there are pixels, and from pixels to tensor. In"
        yield "brackets Pillow's resize of the whole photo, without crop and arithmetic."
        yield ""
        yield from kernels(result["kernel"])
    yield from ("", "## Where pixprep loses", "")
    yield from losses(result["cells"])
    if result["serving"]:
        yield from ("", "## Serving", "")
        yield from serving(result["serving"])
    if result["photos"]:
        yield from ("", "## The photos", "")
        keys = ("count", "batch", "subsampling", "progressive", "mean_bytes", "bits_per_pixel", "made_of")
        rows = [[name, *(str(kind[key]) for key in keys)] for name, kind in result["photos"].items()]
        yield from table(["", *(key.replace("_", " ") for key in keys)], rows)


def _threads(count: int) -> str:
    return {1: "one thread", 2: "two threads"}[count]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def speeds(cells: Sequence[Result]) -> Iterator[str]:
    """Images/s of every contender, and in brackets how many times idiomatic DALI."""
    yield from table(
        ["images/s (x DALI)", *(cell["workload"] for cell in cells)],
        [[text, *(_speed(cell["contenders"], name) for cell in cells)] for name, text in _present(cells)],
    )


def _present(cells: Sequence[Result]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in WHAT.items() if any(name in cell["contenders"] for cell in cells)]


def _speed(contenders: Result, name: str) -> str:
    if name not in contenders:
        return "-"
    rate = f"{contenders[name]['images_per_s']:.1f}"
    return f"{rate} ({measure.ratio(contenders[name], contenders['dali']):.2f})" if "dali" in contenders else rate


def costs(cells: Sequence[Result]) -> Iterator[str]:
    """CPU time and pixels of each size; memory at the largest; the time to import."""

    def cost(numbers: Result | None) -> str:
        if numbers is None:
            return "-"
        gap = numbers["difference"]
        return f"{numbers['cpu_s_per_1000']:.2f}" + (f", {gap['max']:g} / {gap['mean']:g}" if gap else "")

    rows = []
    for name, text in _present(cells):
        found = [cell["contenders"].get(name) for cell in cells]
        there = [numbers for numbers in found if numbers]
        memory = max(numbers["peak_mib"] for numbers in there)
        imports = sorted(numbers["import_ms"] for numbers in there)[len(there) // 2]
        rows.append([text, *map(cost, found), f"{memory:.0f} MiB", f"{imports:.0f} ms"])
    yield from table(["", *(cell["workload"] for cell in cells), "peak memory", "import"], rows)


def scaling(cells: Sequence[Result]) -> Iterator[str]:
    """Images/s on two threads over those on one."""
    pairs = [
        tuple(cell for threads in (1, 2) for cell in cells if (cell["workload"], cell["threads"]) == (size, threads))
        for size in SIZES
    ]
    whole = [pair for pair in pairs if len(pair) == 2]
    rows = []
    for name, text in _present(cells):
        both = [[cell["contenders"].get(name) for cell in pair] for pair in whole]
        rows.append(
            [text, *(f"{two['images_per_s'] / one['images_per_s']:.2f}" if one and two else "-" for one, two in both)]
        )
    yield from table(["", *(pair[0]["workload"] for pair in whole)], rows)


def kernels(sizes: Result) -> Iterator[str]:
    """Decode + kernel (Pillow's resize) of each size."""
    filters = zip(*sizes.values(), strict=True)
    yield from table(["", *sizes], [[found[0]["filter"], *map(_parts, found)] for found in filters])


def _parts(row: Result) -> str:
    return f"{row['decode_ms']:.2f} + {row['kernel_ms']:.2f} ({row['pillow_ms']:.2f})"


def losses(cells: Sequence[Result]) -> Iterator[str]:
    """Each contender that makes a tensor sooner than the pixprep that is beside it."""
    found = []
    for cell in cells:
        ours = cell["contenders"].get("pixprep_full")
        for name, theirs in cell["contenders"].items() if ours else ():
            if theirs["difference"] and not name.startswith("pixprep") and (ratio := measure.ratio(ours, theirs)) < 1:
                where = f"{cell['workload']}, {cell['filter']}, {_threads(cell['threads'])}"
                found.append(f"- {where}: {ratio:.2f} x {WHAT[name]}")
    yield from found or ["Nowhere in this run."]


def serving(result: Result) -> Iterator[str]:
    """What perf_analyzer saw, and what a request costs beside its image."""
    own = result["engine"]["images_per_s"]
    parts = result["overhead_ms"]
    cpu = result["engine_cpu_ms_per_image"]
    yield f"The engine alone, in the same run: {own:.1f} images/s, {cpu:.2f} ms of a core each. perf_analyzer shares"
    yield "the cores with the server, and a float32 tensor of 602 kB travels back to it, unless it is in shared memory."
    yield ""
    yield "![images/s against concurrency](performance-throughput.svg)"
    yield "![latency percentiles](performance-latency.svg)"
    yield ""
    columns = ("p50_ms", "p90_ms", "p99_ms", "mean_batch")
    processes = ("triton", "models", "client")
    head = ["model", "by", "images a request", "load", "images/s", "x engine", *columns]
    yield from table(
        [*head, "CPU ms an image: Triton + models + client"],
        [
            [
                row["model"],
                _way(row),
                *(str(row[key]) for key in ("batch", "load")),
                f"{row['images_per_s']:.1f}",
                f"{row['images_per_s'] / own:.2f}",
                *(str(row[key]) for key in columns),
                " + ".join(f"{row['cpu_ms_per_image'][name]:.2f}" for name in processes),
            ]
            for row in result["loads"]
        ],
    )
    yield ""
    yield f"One request after the other ({parts['requests']:g}, gRPC, one image each), the server's mean times in ms:"
    yield ""
    names = ("queue", "compute_input", "decode", "transform", "backend", "compute_output")
    yield from table(names, [[f"{parts[name]:.3f}" for name in names]])


def _way(row: Result) -> str:
    return "shared memory" if row["shared_memory"] else str(row["protocol"])


def readme(result: Result) -> str:
    """The README's table: images/s, bilinear, two threads."""
    cells = [c for c in result["cells"] if c["filter"] == "bilinear" and c["threads"] == 2 and c["workload"] in SIZES]
    return "\n".join(speeds(cells)) + "\n"


def plots(result: Result) -> dict[str, str]:
    """The plots by their file names."""
    if not result["serving"]:
        return {}
    own = result["serving"]["engine"]["images_per_s"]
    rates: dict[str, list[tuple[str, float]]] = {}
    latencies: dict[str, list[tuple[str, float]]] = {}
    for row in result["serving"]["loads"]:
        kind, level = row["load"].split()
        if kind == "concurrency":
            line = f"{row['model']}, {_way(row)}, {row['batch']} a request"
            rates.setdefault(line, []).append((level, row["images_per_s"]))
        elif row["batch"] == 1:
            shares = [(f"p{share}", row[f"p{share}_ms"]) for share in (50, 90, 95, 99)]
            latencies[f"{row['model']}, {row['protocol']}, {level}"] = shares
    levels = dict.fromkeys(level for line in rates.values() for level, _ in line)
    rates["the engine alone"] = [(level, own) for level in levels]
    return {
        "performance-throughput.svg": chart("Images/s against requests in flight", rates),
        "performance-latency.svg": chart("Latency under Poisson arrivals, ms, one image a request", latencies),
    }


def chart(title: str, lines: dict[str, list[tuple[str, float]]]) -> str:
    """Lines over named places, from 0 up, as SVG."""
    width, height, left, top, legend = 900, 400, 60, 40, 330
    places = list(dict.fromkeys(place for line in lines.values() for place, _ in line))
    most = max((value for line in lines.values() for _, value in line), default=1) * 1.05
    step = (width - left - legend) / max(1, len(places) - 1)

    def x(place: str) -> float:
        return left + places.index(place) * step

    def y(value: float) -> float:
        return height - 30 - (height - 30 - top) * value / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for tick in range(5):
        value = most * tick / 4
        parts.append(f'<path d="M{left} {y(value):.1f}H{x(places[-1]) if places else left:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    parts += [
        f'<text x="{x(place):.1f}" y="{height - 10}" text-anchor="middle">{escape(place)}</text>' for place in places
    ]
    for index, (name, line) in enumerate(lines.items()):
        colour, dash = COLOURS[index % len(COLOURS)], ("", ' stroke-dasharray="5 3"')[index // len(COLOURS) % 2]
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        row = top + 18 * index
        parts.append(f'<path d="M{width - legend + 20} {row}h25" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{width - legend + 52}" y="{row + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def newest() -> Path | None:
    """The newest full result, if there is one."""
    return max(RESULTS.glob("cpu-*-full.json"), default=None)


def files(result: Result, readme_text: str) -> dict[str, str]:
    """Every file that this program writes, by its path from the repository's root."""
    texts = {"docs/performance.md": page(result)}
    texts |= {f"docs/{name}": text for name, text in plots(result).items()}
    texts["README.md"] = MARKS.sub(lambda found: found[1] + readme(result) + found[2], readme_text)
    return texts


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("result", nargs="?", type=Path, default=newest())
    parser.add_argument("--out", type=Path, default=measure.ROOT, help="in place of the repository's root")
    arguments = parser.parse_args()
    if arguments.result is None:
        parser.error("no full result in benchmarks/results: python benchmarks/run.py --full")
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    for name, text in files(result, (measure.ROOT / "README.md").read_text(encoding="utf-8")).items():
        path = arguments.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
