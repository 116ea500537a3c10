"""Write docs/dashboard.png: the results of the dashboard's queries for two servers under load.

Matplotlib draws the picture, because Grafana is not available as a Python package. Run

    PYTHONPATH=tests .venv-scale/bin/python tools/dashboard_picture.py
"""

import io
import re
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from scale.monitoring import Prometheus, load, panels
from support.serving import Serve, write_repository

PICTURE = Path(__file__).parents[1] / "docs" / "dashboard.png"
PARTS_S = 40  # seconds per phase: before, during and after a burst
UNITS = {"reqps": "requests/s", "s": "s", "percentunit": "share", "Bps": "bytes/s", "short": ""}
COLUMNS = 3


def measured(folder: Path) -> list[tuple[str, str, list[tuple[str, list[float], list[float]]]]]:
    """Return (title, unit, [(legend, seconds, values)]) for each panel of the dashboard."""
    repository = write_repository(folder / "models")
    with (
        Serve(repository, triton_log=folder / "a.log") as first,
        Serve(repository, triton_log=folder / "b.log") as second,
    ):
        servers = [first, second]
        prometheus = Prometheus(folder, [server.metrics for server in servers])
        try:
            with load(servers):
                for burst in (nullcontext(), load(3 * servers), nullcontext()):
                    with burst:
                        time.sleep(PARTS_S)
            end = time.time()
            return [(title, unit, _series(prometheus, targets, end)) for title, unit, targets in panels()]
        finally:
            prometheus.close()


def _series(
    prometheus: Prometheus, targets: list[tuple[str, str]], end: float
) -> list[tuple[str, list[float], list[float]]]:
    found = []
    for expression, legend in targets:
        start = end - 3 * PARTS_S + 10
        for each in prometheus.ask("query_range", query=expression, start=start, end=end, step=1)["result"]:
            name = re.sub(r"{{(\w+)}}", lambda match, each=each: each["metric"].get(match[1], ""), legend)
            times, values = zip(*((at - start, float(value)) for at, value in each["values"]), strict=True)
            found.append((name, list(times), list(values)))
    return found


def drawn(data: list[tuple[str, str, list[tuple[str, list[float], list[float]]]]]) -> Image.Image:
    """Draw the panels in rows of three, as in the dashboard."""
    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    rows = -(-len(data) // COLUMNS)
    figure = Figure(figsize=(12, 2.4 * rows), layout="constrained")
    for axes, (title, unit, series) in zip(figure.subplots(rows, COLUMNS).flat, data, strict=True):
        for name, times, values in series:
            axes.plot(times, values, label=name, linewidth=1.2)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_ylabel(UNITS[unit])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left", fontsize=7)
    figure.supxlabel(
        "seconds; the dashboard's queries on a real Prometheus server, drawn by Matplotlib instead of Grafana"
    )
    file = io.BytesIO()
    figure.savefig(file, dpi=100)
    return Image.open(file).convert("RGB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        drawn(measured(Path(folder))).quantize(64, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
