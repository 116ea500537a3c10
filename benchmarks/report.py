"""Write docs/performance.md, its charts, and the tables of README.md and docs/scale.md from one full result.

    python benchmarks/report.py                       uses the newest full result
    python benchmarks/report.py results/cpu-….json    uses this result

``run.py --full`` writes the result. The newest result of ``run.py --families`` is also included.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from textwrap import fill

import measure
from cells import CHART, Result, closed_loop, contender_cells, poisson
from families import COLOURS, ROWS
from workloads import MIXED, SIZES

RESULTS = Path(__file__).parent / "results"
WHAT = {
    "pixprep_full": "pixprep",
    "pixprep_reduced": "pixprep, reduced decode",
    "dali": "DALI",
    "dali_region": "DALI, region decode",
    "torchvision": "torchvision",
    "pillow": "Pillow + NumPy",
    "opencv": "OpenCV, no antialias",
    "opencv_area": "OpenCV, INTER_AREA",
    "libjpeg_turbo": "libjpeg-turbo, decode alone",
}
LIBRARIES = {
    "pixprep": "pixprep",
    "opencv": "OpenCV",
    "torchvision": "torchvision",
    "tensorflow": "TensorFlow",
    "dali": "DALI",
    "albumentations": "albumentations",
    "transformers": "transformers",
    "transformers_pil": "transformers, Pillow's backend",
}
FEATURED = (("500x375 by 8", "yolo"), ("500x375", "weights"), ("500x375", "dali"))
README = ("pixprep_full", "dali", "dali_region", "torchvision", "pillow")
MODELS = {"preprocess": "pixprep", "peer_dali": "DALI", "peer_torchvision": "torchvision", "ensemble": "ensemble"}
FILTERS = ("bilinear", "bicubic", "lanczos")
THREADS = {1: "one thread", 2: "two threads"}
OURS = "preprocess"
LINE = 120
OWN = "the library's own code"
MARKS = re.compile(r"(<!-- benchmark -->\n).*?(<!-- /benchmark -->)", re.DOTALL)
MARKED = ("README.md", "docs/scale.md")


def page(result: Result, families: Result | None = None) -> str:
    """Return the text of docs/performance.md. Without ``families``, omit the comparison with libraries' own code."""
    return "\n\n".join(_paragraphs(result, families)) + "\n"


def _paragraphs(result: Result, families: Result | None) -> Iterator[str]:
    """Yield headings, tables and wrapped paragraphs."""
    yield "# Performance"
    yield fill(
        "This page is for engineers who choose a preprocessing library. It compares pixprep with other libraries on a "
        "CPU, and lists the cases in which pixprep is slower. `make benchmark` runs the measurements, and "
        "`benchmarks/report.py` generates this page from `benchmarks/results/`.",
        LINE,
    )
    yield fill(
        "The task is to decode a JPEG, resize its shorter side to 256, crop the central 224 x 224 pixels, normalize "
        "with ImageNet's mean and std, and write float32 planes. The photos are derived from real photos. "
        f"The benchmark ran on {result['date']} with commit `{result['commit']}`, on {result['processor']} with "
        f"{result['cores']} cores, and with Python {result['python']}. The libraries ran alternately, and each "
        f"number is "
        f"the median of {result['rounds']} rounds. Performance on a GPU has not been measured.",
        LINE,
    )
    if (load := result["load_average"]) >= measure.QUIET:
        yield f"**The machine was not quiet: load average {load:.2f} before the first round.**"
    for what, text, chart in answers(result):
        yield fill(f"**{what}.** {text}", LINE)
        yield f"![{what}]({CHART.format(chart)})"
    if families:
        yield from library_sections(families)
    for filter_name, (threads, words) in product(FILTERS, THREADS.items()):
        if cells := contender_cells(result, filter_name, threads):
            yield f"## {filter_name.capitalize()}, {words}"
            yield speeds(cells)
    if cells := [cell for cell in result["cells"] if cell["workload"] not in SIZES]:
        yield "## Other photos"
        yield others(cells)
    if cells := contender_cells(result, "bilinear", 1):
        yield "## Cost and pixels"
        yield fill(
            "The columns of sizes contain the CPU time in seconds for 1,000 photos, and the difference from the "
            "reference in 8-bit pixel values (maximum / mean). They apply to bilinear with one thread. If a "
            "contender's crop is shifted by one pixel, it is compared with the "
            "reference at the shifted position.",
            LINE,
        )
        yield costs(cells)
    yield "## Cases in which pixprep is slower"
    every = [*result["cells"], *(families["cells"] if families else ())]
    yield "\n".join(losses(every)) or "None in this run."
    if result["serving"]:
        yield "## Serving"
        yield fill(
            "The table contains the images per second for each number of requests in flight. perf_analyzer runs on the "
            "same cores as the server. Each response contains a float32 tensor of 602 kB, by gRPC or in shared "
            "memory. DALI and torchvision run as "
            "Python models. The JSON result contains the percentiles of every load.",
            LINE,
        )
        yield serving(result["serving"])
    if missing := {**absent(result), **absent(families or {})}:
        yield "## Not measured"
        yield "\n".join(f"- {name}: {reason}" for name, reason in sorted(missing.items()))
    if path := newest("host-2*.json"):
        yield from host_ceiling(json.loads(path.read_text(encoding="utf-8")))


def absent(result: Result) -> dict[str, str]:
    """Return the contenders that were not measured, each with the reason."""
    missing = dict(result.get("missing", {}))
    for cell in result.get("cells", ()):
        missing |= {name: f"{cell['workload']}, {cell['filter']}: {why}" for name, why in cell["refused"].items()}
    return {_who(name, families=result.get("benchmark") == "families"): why for name, why in missing.items()}


def _who(name: str, *, families: bool) -> str:
    return (LIBRARIES if families else WHAT).get(name, name)


def library_sections(families: Result) -> Iterator[str]:
    """Yield a heading, a paragraph and two tables that compare the code of each library with pixprep's pipeline."""
    yield "## Compared with your library's own code"
    yield fill(
        "This table compares code that users of a library typically write with the pipeline that pixprep imports from "
        f"this code. Both run alternately, with one thread, for {families['rounds']} rounds. Each cell contains "
        f"the time "
        "per image in milliseconds, the factor by which pixprep is faster (in parentheses), and the difference in "
        "8-bit "
        "pixel values (maximum / mean). Pillow decodes the images for torchvision. For PaddleOCR, the benchmark "
        "contains "
        "a copy of `resize_norm_img`. "
        f"This part was measured on {families['date']} with commit `{families['commit']}`, on {families['processor']}.",
        LINE,
    )
    if (load := families["load_average"]) >= measure.QUIET:
        yield f"**The machine was not quiet: load average {load:.2f} before the first round.**"
    rows = [
        [ROWS[cell["filter"]].name, cell["workload"], _milliseconds(ours), f"{LIBRARIES[name]}: {_times(ours, theirs)}"]
        for cell in families["cells"]
        for ours, name, theirs in rivals(cell)
        if cell["filter"] not in COLOURS
    ]
    yield table(["", "photos", "pixprep", OWN], rows)
    cells = {cell["filter"]: cell["contenders"] for cell in families["cells"] if cell["filter"] in COLOURS}
    if cells:
        yield fill(
            "The next table compares single ops on arrays of 500x375: `apply`, functions of torchvision v2 on uint8 "
            "tensors, and transforms of albumentations. `elastic` uses different noise in each library. A call of "
            "`apply` also validates the ops, looks up their plan and allocates the result; this overhead is the same "
            "for every image size. `grayscale` also converts the pixels to four bytes per pixel, and back.",
            LINE,
        )
        peers = ROWS[next(iter(cells))].libraries
        rows = [
            [
                f"`{name}`",
                _milliseconds(ours := found["pixprep"]),
                *(_times(ours, found[peer]) if peer in found else "-" for peer in peers),
            ]
            for name, found in cells.items()
            if "pixprep" in found
        ]
        yield table(["", "pixprep", *(LIBRARIES[peer] for peer in peers)], rows)


def rivals(cell: Result) -> Iterator[tuple[Result, str, Result]]:
    """Yield (pixprep's numbers, library, its numbers) for each library that produces the same tensor in a cell."""
    found = cell["contenders"]
    if ours := found.get("pixprep_full", found.get("pixprep")):
        for name, theirs in found.items():
            if theirs["difference"] and not name.startswith("pixprep"):
                yield ours, name, theirs


def _milliseconds(numbers: Result) -> str:
    milliseconds = 1000 / numbers["images_per_s"]
    return f"{milliseconds:.2f}" if milliseconds < 10 else f"{milliseconds:.1f}"


def _times(ours: Result, theirs: Result) -> str:
    gap = theirs["difference"]
    apart = f"{gap['max']:.3g} / {gap['mean']:.2g}"
    return f"{_milliseconds(theirs)} ({measure.ratio(ours, theirs):.2f} x), {apart}"


def answers(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the summary at the beginning of the page: a topic, a sentence with numbers, and the name of a chart."""
    if cells := [cell for cell in contender_cells(result, "bilinear", 2) if "dali" in cell["contenders"]]:
        ours = [cell["contenders"]["pixprep_full"] for cell in cells]
        dali, pillow = (
            _range(measure.ratio(our, cell["contenders"][rival]) for our, cell in zip(ours, cells, strict=True))
            for rival in ("dali", "pillow")
        )
        text = (
            f"With two threads and a bilinear resize, pixprep produces {dali} times as many tensors per second as "
            "DALI, and"
        )
        yield "Engine", f"{text} {pillow} times as many as Pillow and NumPy, whose pixels it reproduces.", "engine"
    if rows := [row for rows in result["kernel"].values() for row in rows if row["filter"] == "bilinear"]:
        share = _range((100 * row["kernel_ms"] / (row["kernel_ms"] + row["decode_ms"]) for row in rows), digits=0)
        pillow = _range(row["pillow_ms"] / row["kernel_ms"] for row in rows)
        text = f"Bilinear resize, crop and normalization take {share} % of the time per photo; decoding takes the rest."
        yield (
            "Decode and kernel",
            f"{text} Pillow's resize alone takes {pillow} times as long as pixprep's kernel.",
            "parts",
        )
    if result["serving"]:
        own = result["serving"]["engine"]["images_per_s"]
        shared, grpc = (
            max(row["images_per_s"] / own for row in closed_loop(result["serving"], OURS, batch=8, shared=way))
            for way in (True, False)
        )
        text = f"Triton reaches {shared:.0%} of the engine's images/s if tensors are in shared memory, and {grpc:.0%}"
        yield "Serving", f"{text} if tensors are sent by gRPC.", "serving"
        for row in poisson(result["serving"], OURS)[:1]:
            text = (
                f"If {row['load'].split()[1].removesuffix('/s')} photos per second arrive at random, the median latency"
            )
            text += f" is {row['p50_ms']:.1f} ms, and the 99th percentile is {row['p99_ms']:.0f} ms."
            yield "Latency", text, "latency"


def _range(values: Iterable[float], *, digits: int = 1) -> str:
    least, *_, most = [f"{value:.{digits}f}" for value in sorted([*values] * 2)]
    return least if least == most else f"{least} to {most}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def speeds(cells: Sequence[Result]) -> str:
    """Return a table of images/s of every contender, with the ratio to DALI in parentheses."""
    contenders = [cell["contenders"] for cell in cells]
    rows = [[text, *(_speed(found, name) for found in contenders)] for name, text in _present(contenders)]
    return table(["images/s (x DALI)", *(cell["workload"] for cell in cells)], rows)


def others(cells: Sequence[Result]) -> str:
    """Return the table of ``speeds`` for the contenders in the README and for libjpeg-turbo, one row per workload."""
    names = (*README, "libjpeg_turbo")
    rows = [
        [f"{cell['workload']}, {THREADS[cell['threads']]}", *(_speed(cell["contenders"], name) for name in names)]
        for cell in cells
    ]
    return table(["images/s (x DALI)", *(WHAT[name] for name in names)], rows)


def _present(found: Sequence[Result]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in WHAT.items() if any(name in contenders for contenders in found)]


def _speed(contenders: Result, name: str) -> str:
    if name not in contenders:
        return "-"
    rate = _rate(contenders[name])
    return f"{rate} ({measure.ratio(contenders[name], contenders['dali']):.2f})" if "dali" in contenders else rate


def _rate(numbers: Result) -> str:
    rate = numbers["images_per_s"]
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def costs(cells: Sequence[Result]) -> str:
    """Return a table of the CPU time and the pixel difference by photo size, the peak memory, and the import time."""

    def cost(numbers: Result | None) -> str:
        if numbers is None:
            return "-"
        gap = numbers["difference"]
        return f"{numbers['cpu_s_per_1000']:.2f}" + (f", {gap['max']:g} / {gap['mean']:.2g}" if gap else "")

    rows = []
    for name, text in _present([cell["contenders"] for cell in cells]):
        found = [cell["contenders"].get(name) for cell in cells]
        there = [numbers for numbers in found if numbers]
        memory = max(numbers["peak_mib"] for numbers in there)
        imports = sorted(numbers["import_ms"] for numbers in there)[len(there) // 2]
        rows.append([text, *map(cost, found), f"{memory:.0f} MiB", f"{imports:.0f} ms"])
    return table(["", *(cell["workload"] for cell in cells), "peak memory", "import"], rows)


def losses(cells: Sequence[Result]) -> Iterator[str]:
    """Yield a list item for each contender that is faster than pixprep in the same cell."""
    for cell in cells:
        row = ROWS.get(cell["filter"])
        for ours, name, theirs in rivals(cell):
            if (ratio := measure.ratio(ours, theirs)) < 1:
                where = f"{cell['workload']}, {row.name if row else cell['filter']}, {THREADS[cell['threads']]}"
                yield f"- {where}: {ratio:.2f} x the speed of {_who(name, families=row is not None)}"


def serving(result: Result) -> str:
    """Return a table of images/s of every model by requests in flight, and of the engine alone."""
    rows, levels = [], ("1", "4", "16")
    for (model, text), batch, shared in product(MODELS.items(), (1, 8), (False, True)):
        loads = {row["load"].split()[1]: row for row in closed_loop(result, model, shared=shared, batch=batch)}
        if loads:
            spent = sum(loads["1"]["cpu_ms_per_image"].values())
            rates = [f"{loads[level]['images_per_s']:.0f}" if level in loads else "-" for level in levels]
            rows.append([text, "shared memory" if shared else "gRPC", str(batch), *rates, f"{spent:.1f}"])
    own, cpu = result["engine"]["images_per_s"], result["engine_cpu_ms_per_image"]
    head = ["", "tensors by", "photos per request", *(f"{level} in flight" for level in levels), "CPU ms per photo"]
    return table(head, [*rows, ["the engine alone", "-", "8", f"{own:.0f}", "-", "-", f"{cpu:.1f}"]])


def readme(result: Result, families: Result | None = None) -> str:
    """Return the tables of the README: images/s with bilinear and two threads, and the code of three libraries."""
    cells = {cell["workload"]: cell for cell in result["cells"] if (cell["filter"], cell["threads"]) == ("bilinear", 2)}
    rows = [
        [name, *(_rate(found[who]) if who in found else "-" for who in README)]
        for name in (*SIZES, MIXED)
        if (found := cells.get(name, {}).get("contenders"))
    ]
    speeds_of_peers = table(["images/s", *(WHAT[name] for name in README)], rows) + "\n"
    return speeds_of_peers + (_featured(families) if families else "")


def _featured(families: Result) -> str:
    cells = {(cell["workload"], cell["filter"]): cell for cell in families["cells"]}
    rows = [
        [
            ROWS[where[1]].name,
            _milliseconds(ours),
            f"{LIBRARIES[name]}: {_milliseconds(theirs)} ({measure.ratio(ours, theirs):.1f} x)",
        ]
        for where in FEATURED
        for ours, name, theirs in rivals(cells.get(where, {"contenders": {}}))
    ]
    return "\n" + table(["ms per image of 500x375, one thread", "pixprep", OWN], rows) + "\n"


def host_ceiling(result: Result) -> Iterator[str]:
    """Yield a heading, text and tables about the rate at which the host can supply an infinitely fast GPU."""
    yield "## The host's ceiling"
    yield fill(
        "This section estimates how many images per second the host can supply to a GPU. No GPU is measured: "
        "nvImageCodec's decoder, CuPy and the kernels are mocked, and return immediately. The remaining time is that "
        "of the engine and the Triton backend, with one photo per request. It consists of interpreter time, which "
        "only one thread at a time can use, and of native code that computes the filter windows and can run in "
        'parallel. The columns up to "machine code" contain microseconds per image. The ceiling is 1 s divided by the '
        "first of them. The measured rate is that of the best round of the best column, and includes the mocked calls. "
        "A lane is a thread with its own stream. "
        f"Times are minimums of {result['rounds']} rounds; decoder `{result['decoder']}`; "
        f"{result['date']}, commit `{result['commit']}`, {result['processor']}, load average "
        f"{result['load_average']:.1f}: other programs ran.",
        LINE,
    )
    cells: dict[tuple[str, int], dict[tuple[int, int], Result]] = {}
    for cell in result["cells"]:
        cells.setdefault((cell["sizes"], cell["batch"]), {})[cell["cores"], cell["lanes"]] = cell
    ways = {(1, 1): "1 core, 1 lane", (1, 2): "1 core, 2 lanes", (2, 1): "2 cores, 1 lane", (2, 2): "2 cores, 2 lanes"}
    rows = []
    for (sizes, batch), found in cells.items():
        alone = found[1, 1]
        words = [f"{found[way]['interpreter_us']:.0f}" for way in ways]
        measured = max(cell["measured_images_per_s"] for cell in found.values())
        rate = f"{alone['ceiling_images_per_s']:,}"
        rows.append([sizes, str(batch), *words, f"{alone['machine_code_us']:.0f}", rate, f"{measured:,}"])
    head = ["sizes", "batch", *ways.values(), "machine code", "ceiling, images/s", "measured, images/s"]
    yield table([f"{head[0]}; us per image", *head[1:]], rows)
    if "CuPy" in (objects := result.get("objects_us", {})):
        yield fill(
            "The real objects, measured without a GPU, add to this time: nvImageCodec's image takes "
            f"{objects['nvImageCodec']:.1f} us, and CuPy's array {objects['CuPy']:.1f} us.",
            LINE,
        )


def newest(pattern: str = "cpu-*-full.json") -> Path | None:
    """Return the newest result that matches the pattern, or None."""
    return max(RESULTS.glob(pattern), default=None)


def scale(result: Result) -> str:
    """Return the table of docs/scale.md: CPU milliseconds per photo, and the size of the file."""
    spent = poisson(result["serving"], OURS)[0]["cpu_ms_per_image"]
    serving_ms = spent["triton"] + spent["models"] - result["serving"]["engine_cpu_ms_per_image"]
    rows = []
    for cell in contender_cells(result, "bilinear", 1):
        name = cell["workload"]
        full, reduced = (cell["contenders"][who]["cpu_s_per_1000"] for who in ("pixprep_full", "pixprep_reduced"))
        size = f"{result['photos'][name]['mean_bytes'] / 1000:,.0f} kB"
        rows.append([name, size, *(f"{ms:.1f} ms" for ms in (full, reduced, full + serving_ms))])
    return table(["photo", "file", "engine", "engine, `reduced`", "engine and Triton"], rows) + "\n"


def texts(result: Result, marked: Mapping[str, str]) -> dict[str, str]:
    """Return the generated Markdown by relative path. ``marked`` contains the current texts of ``MARKED``."""
    path = newest("families-2*.json")
    families = json.loads(path.read_text(encoding="utf-8")) if path else None
    tables = {"README.md": readme(result, families), "docs/scale.md": scale(result)}
    pages = {
        name: MARKS.sub(lambda found, new=tables[name]: found[1] + new + found[2], text)
        for name, text in marked.items()
    }
    return {"docs/performance.md": page(result, families), **pages}


def main() -> None:
    """Write the pages and the charts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("result", nargs="?", type=Path, default=newest())
    parser.add_argument(
        "--out",
        type=Path,
        default=measure.ROOT,
        help="write the files below this folder instead of the repository's root",
    )
    arguments = parser.parse_args()
    if arguments.result is None:
        parser.error("there is no full result in benchmarks/results: run python benchmarks/run.py --full")
    try:
        plots = importlib.import_module("plots")
    except ImportError:
        sys.exit("report: MATPLOTLIB IS MISSING, so no charts were drawn: pip install 'matplotlib>=3.9'")
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    files = texts(result, {name: (measure.ROOT / name).read_text(encoding="utf-8") for name in MARKED})
    files |= {f"docs/{name}": text for name, text in plots.draw(result, arguments.result.name).items()}
    for name, text in files.items():
        path = arguments.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
