"""The command ``pixprep bench``."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from pixprep.cli.arguments import Images, Json
from pixprep.serving.options import MeasureOptions

CONCURRENCY = (1, 4, 16)


EXAMPLE = "bench photos --protocol grpc --concurrency 1 4 16 --rate 50"
EITHER = ("print_command", "as_json")


def run(
    paths: Images,
    request: MeasureOptions,
    *,
    print_command: bool = False,
    as_json: Json = False,
) -> int:
    """Measure a server with perf_analyzer: throughput and latency.

    Args:
        print_command: Do not measure; print the command line of perf_analyzer instead.
        as_json: Print the table as JSON.
    """
    import shutil
    import tempfile

    from pixprep.cli.files import numbers_of, say_skipped
    from pixprep.cli.output import print_text, say
    from pixprep.files import expand, named
    from pixprep.progress import Progress
    from pixprep.serving.embedded import perf

    images = []
    say_skipped(paths)
    for path in expand(paths):
        with named(path, "cannot be read"):
            images.append(path.read_bytes())
    concurrency = request.concurrency or (() if request.rate else CONCURRENCY)
    given = {**vars(request), "inputs": numbers_of(request.inputs), "concurrency": concurrency}
    if print_command:
        folder = Path(tempfile.mkdtemp(prefix="pixprep-bench-"))
        try:
            say(*perf.command_lines(images, folder, **given))
        except BaseException:
            shutil.rmtree(folder)
            raise
        say(f"the command uses files in {folder}: remove that folder when you are done", file=sys.stderr)
        return 0
    loads = len(concurrency) + len(request.rate)
    done = count(1)
    with Progress("loads") as progress:
        progress.to(0, loads)
        rows = perf.measure(images, on_progress=lambda _: progress.to(next(done), loads), **given)
    print_text(perf.to_json(rows) if as_json else perf.to_table(rows))
    return 0
