"""The command ``pixprep preview``."""

from __future__ import annotations

import sys
from pathlib import Path

from pixprep.cli.arguments import DataSet, DataSetOptions, PipelineFile
from pixprep.errors import PixprepError
from pixprep.options import Natural

EXAMPLE = "preview pipeline.json train --output sheet.png"


def run(
    pipeline: PipelineFile,
    source: DataSet,
    *,
    option: DataSetOptions = (),
    output: Path,
    count: int = 12,
    seed: Natural = 0,
    epoch: Natural = 0,
    serving: bool = False,
) -> int:
    """Draw a contact sheet of augmented training samples, with their boxes and random parameters.

    Args:
        output: The PNG file to write.
        count: Number of samples.
        seed: Seed of the sample order and of the random parameters.
        epoch: Epoch to show.
        serving: Show the same samples as the serving side processes them.
    """
    from pixprep.cli.files import check_picture, write_picture
    from pixprep.cli.output import quiet, say
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.show.contact_sheet import contact_sheet
    from pixprep.training.opening import open_source

    check_picture(output, [])
    if Path(source).is_dir() and output.resolve().is_relative_to(Path(source).resolve()):
        raise PixprepError(
            f"{output} is inside the data set, where it would become a sample: choose a file outside {source}"
        )
    loaded = Pipeline.load(pipeline)
    side = loaded.for_serving() if serving else loaded.for_training()
    with quiet():  # broken samples are marked in the contact sheet
        opened = open_source(source, dict(option))
        title = f"{pipeline.name}, {source}"
        sheet = contact_sheet(opened, side, count=count, seed=seed, epoch=epoch, title=title)
    write_picture(output, sheet)
    kind = "serving" if serving else "training"
    say(f"{output}: shows the samples after {kind} preprocessing", file=sys.stderr)
    return 0
