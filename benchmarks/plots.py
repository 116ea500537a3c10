"""Draw the charts of docs/performance.md as SVG for light and dark colour schemes.

Each chart consists of panels with at most five lines or bars. This module needs matplotlib (the extra ``plots``).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import matplotlib as mpl
from cells import CHART, Result, closed_loop, contender_cells, poisson
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GRID, PAPER = "#24292f", "#d1d7de", "#ffffff"
DARK = {INK: "#d1d7e0", GRID: "#3d444d", PAPER: "#0d1117"}
# legible on white and on black
BLUE, PURPLE, ORANGE, GREEN, GREY = "#2f81f7", "#a371f7", "#d9730d", "#2da44e", "#818b98"
CONTENDERS = {"pixprep_reduced": PURPLE, "pixprep_full": BLUE, "dali_region": GREEN, "dali": ORANGE, "pillow": GREY}
MODELS = {"engine alone": GREY, "preprocess": BLUE, "peer_dali": ORANGE, "peer_torchvision": GREEN}
APART = 0.085  # minimum distance between two labels, as a fraction of the axis
WIDTH, HEIGHT = 9.6, 2.8  # size in inches
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pixprep",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "ytick.left": False,
    **dict.fromkeys(("text.color", "axes.titlecolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), GRID),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAPER),
    **dict.fromkeys((f"axes.spines.{side}" for side in ("top", "right", "left")), False),
}

Line = list[tuple[str, float]]


def draw(result: Result, name: str) -> dict[str, str]:
    """Return the charts by file name.

    The metadata of each chart contains ``name``, the name of the result from which the chart was drawn.
    """
    with mpl.rc_context(STYLE):
        figures = {"engine": engine(result), "parts": parts(result)}
        if result["serving"]:
            figures |= {"serving": serving(result["serving"]), "latency": latency(result["serving"])}
        return {CHART.format(chart): svg(figure, name) for chart, figure in figures.items()}


def engine(result: Result) -> Figure:
    """Draw images/s relative to DALI, by photo size."""
    figure, panels = small_multiples("images/s, relative to DALI", 3)
    for axes, (filter_name, threads) in zip(panels, [("bilinear", 2), ("bilinear", 1), ("bicubic", 1)], strict=True):
        lines: dict[str, Line] = {}
        for cell in contender_cells(result, filter_name, threads):
            for name in CONTENDERS:
                if name in cell["contenders"] and "dali" in cell["contenders"]:
                    rate = cell["contenders"][name]["images_per_s"] / cell["contenders"]["dali"]["images_per_s"]
                    lines.setdefault(name, []).append((cell["workload"], rate))
        title = f"{filter_name}, {threads} thread{'s' * (threads > 1)}"
        labels = {"pixprep_reduced": "reduced", "pixprep_full": "pixprep", "dali_region": "region"}
        plot(axes, title, lines, CONTENDERS, labels | {"dali": "DALI", "pillow": "Pillow"})
    return figure


def parts(result: Result) -> Figure:
    """Draw the time of decoding and of the kernel per photo, compared with Pillow's resize alone."""
    figure, panels = small_multiples("ms per photo on one thread", len(result["kernel"]) or 1)
    for axes, (size, rows) in zip(panels, result["kernel"].items(), strict=False):
        places = range(len(rows))
        decode, kernel, pillow = ([row[f"{part}_ms"] for row in rows] for part in ("decode", "kernel", "pillow"))
        axes.bar([place - 0.2 for place in places], decode, 0.36, color=GREY)
        axes.bar([place - 0.2 for place in places], kernel, 0.36, bottom=decode, color=BLUE)
        axes.bar([place + 0.2 for place in places], pillow, 0.36, color=ORANGE)
        axes.set_xticks(places, [row["filter"] for row in rows])
        axes.set_title(size)
        axes.grid(axis="y")
    for place, (label, colour) in enumerate({"decode": GREY, "our kernel": BLUE, "Pillow's resize": ORANGE}.items()):
        figure.text(0.60 + 0.12 * place, 0.93, label, color=colour, weight="bold")
    return figure


def serving(result: Result) -> Figure:
    """Draw images/s by the number of requests in flight."""
    figure, panels = small_multiples("images/s, by number of requests in flight", 4)
    alone = result["engine"]["images_per_s"]
    highest = 1.1 * max([alone, *(row["images_per_s"] for row in result["loads"])])
    labels = {"preprocess": "pixprep", "peer_dali": "DALI", "peer_torchvision": "torchvision"}
    for axes, (shared, batch) in zip(panels, product((False, True), (1, 8)), strict=True):
        lines = {
            model: [(row["load"].split()[1], row["images_per_s"]) for row in found]
            for model in labels
            if (found := closed_loop(result, model, shared=shared, batch=batch))
        }
        lines["engine alone"] = [(place, alone) for place, _ in lines["preprocess"]]
        title = f"{'shared memory' if shared else 'gRPC'}, {batch} per request"
        plot(axes, title, lines, MODELS, labels, top=highest)
        if axes is not panels[0]:
            axes.set_yticklabels([])
    return figure


def latency(result: Result) -> Figure:
    """Draw latency percentiles for Poisson arrivals."""
    figure, panels = small_multiples("ms per photo, Poisson arrivals, one photo per request, gRPC", 2)
    for axes, model in zip(panels, ("preprocess", "ensemble"), strict=True):
        lines = {
            row["load"].split()[1]: [(f"p{share}", row[f"p{share}_ms"]) for share in (50, 90, 95, 99)]
            for row in poisson(result, model)
        }
        plot(axes, model, lines, dict(zip(lines, (BLUE, ORANGE), strict=False)), {})
    return figure


def small_multiples(title: str, count: int) -> tuple[Figure, Sequence[Axes]]:
    """Create a figure with panels side by side."""
    figure = Figure(figsize=(WIDTH, HEIGHT))
    panels = figure.subplots(1, count, squeeze=False)[0]
    figure.subplots_adjust(left=0.045, right=0.90, top=0.80, bottom=0.11, wspace={2: 0.35, 3: 0.6}.get(count, 0.75))
    figure.text(0.012, 0.93, title, size=10, weight="bold")
    return figure, panels


def plot(
    axes: Axes,
    title: str,
    lines: Mapping[str, Line],
    colours: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    top: float | None = None,
) -> None:
    """Draw lines over named positions. Each line is labelled at its end, and the vertical axis begins at 0."""
    assert len(lines) <= 5
    axes.set_title(title)
    axes.grid(axis="y")
    places = list(dict.fromkeys(place for line in lines.values() for place, _ in line))
    for name, line in lines.items():
        xs, ys = [places.index(place) for place, _ in line], [value for _, value in line]
        axes.plot(xs, ys, color=colours[name], marker="o", markersize=3)
    axes.set_xticks(range(len(places)), places)
    axes.set_ylim(0, top or 1.08 * max((value for line in lines.values() for _, value in line), default=1))
    ends = {name: line[-1][1] for name, line in lines.items()}
    for name, height in spread(ends, APART * axes.get_ylim()[1]).items():
        end = (len(places) - 1, ends[name])
        axes.annotate(
            labels.get(name, name),
            end,
            xytext=(1.03, height),
            textcoords=("axes fraction", "data"),
            color=colours[name],
            weight="bold",
            va="center",
            size=8,
        )


def spread(heights: Mapping[str, float], apart: float) -> dict[str, float]:
    """Move labels vertically until they are at least ``apart`` from each other.

    Return their heights, whose mean remains the same.
    """
    order = sorted(heights, key=heights.__getitem__)
    placed = {name: heights[name] for name in order}
    for _ in range(50):
        for low, high in pairwise(order):
            if (missing := apart - (placed[high] - placed[low])) > 0:
                placed[low] -= missing / 2
                placed[high] += missing / 2
    return placed


def svg(figure: Figure, name: str) -> str:
    """Return a figure as SVG that uses the reader's colour scheme."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Title": name, "Creator": "benchmarks/plots.py"})
    dark = "".join(
        f'[style*="{what}: {light}"]{{{what}:{colour}!important}}'
        for light, colour in DARK.items()
        for what in ("fill", "stroke")
    )
    style = f"<style>@media(prefers-color-scheme:dark){{{dark}}}</style>"
    return file.getvalue().replace(" <defs>", f" {style}\n <defs>", 1)
