"""The command ``pixprep data check``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pixprep.cli.arguments import DataSet, DataSetOptions, Json

EXAMPLE = "data check coco:instances.json --option images=train2017"


def run(
    source: DataSet,
    *,
    option: DataSetOptions = (),
    pipeline: Path | None = None,
    threads: int | None = None,
    as_json: Json = False,
) -> int:
    """Decode every sample of a data set once, and list the broken ones.

    Args:
        pipeline: Also process each sample with the training side of this pipeline file; default: only decode it.
        threads: Number of threads; default: one for each core of this process.
        as_json: Print a JSON object with the keys samples, broken and notes.
    """
    from pixprep.cli.output import print_text, quiet, say
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.progress import Progress
    from pixprep.training.check import check
    from pixprep.training.opening import open_source

    def say_broken(broken: Any) -> None:
        if not as_json:
            with progress.hidden():
                say(broken.error)

    with quiet():  # the warnings are printed below
        opened = open_source(source, dict(option))
        through = Pipeline.load(pipeline).for_training() if pipeline else None
        with Progress("samples") as progress:
            found = check(opened, pipeline=through, threads=threads, on_broken=say_broken, on_progress=progress.to)
    if as_json:
        rows = [{"index": each.index, "reason": each.error.reason, "detail": each.error.detail} for each in found]
        print_text(json.dumps({"samples": len(opened), "broken": rows, "notes": opened.notes}, indent=2))
        return 1 if found else 0
    for note in opened.notes:
        say(f"note: {note}", file=sys.stderr)
    reasons = Counter(each.error.reason for each in found)
    listed = ", ".join(f"{reason} {number:,}" for reason, number in reasons.most_common())
    broken = f"{len(found):,} broken: {listed}" if found else "none broken"
    say(f"{source}: {len(opened):,} samples, {broken}")
    return 1 if found else 0
