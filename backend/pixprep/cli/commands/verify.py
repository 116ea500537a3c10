"""The command ``pixprep verify``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pixprep.cli.arguments import ImporterOptions, Json, PipelineFile
from pixprep.options import Natural, Shell

EXAMPLE = "verify pipeline.json --images photos --output worst.png"


def run(
    pipeline: PipelineFile,
    *,
    images: Sequence[Path] = (),
    source: Annotated[str | None, Shell(metavar="SOURCE")] = None,
    option: ImporterOptions = (),
    training: bool = False,
    seed: Natural = 0,
    output: Path | None = None,
    as_json: Json = False,
) -> int:
    """Compare a pipeline, stage by stage, with the library whose pixels it claims to reproduce.

    Args:
        images: Images or folders of images to compare in addition to the built-in ones.
        source: SOURCE that was given to `pixprep import`; default: the file that the pipeline records as its origin, if
            it is in the folder of the pipeline.
        training: Compare the training side, with one set of random parameters per image; the libraries must be
            installed.
        seed: Seed of the random parameters.
        output: Write a PNG of the image that differs most: both results and the difference.
        as_json: Print the certificate as JSON.
    """
    from pixprep.cli.commands.import_ import source_of
    from pixprep.cli.files import check_picture, say_skipped, write_picture
    from pixprep.cli.output import print_text, say
    from pixprep.files import expand
    from pixprep.importers.verify import verify, verify_training
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.progress import Progress

    check_picture(output, images)
    paths = expand(images)
    say_skipped(images)
    loaded = Pipeline.load(pipeline)
    if not training and (left_out := loaded.for_serving().left_out):
        say(f"{pipeline}: {left_out}", file=sys.stderr)
    given = dict(option)
    keywords: dict[str, Any] = {"source": source_of(source, given), "options": given, "folder": pipeline.parent}
    with Progress("images") as progress:
        if training:
            certificate = verify_training(loaded, seed=seed, images=paths, on_progress=progress.to, **keywords)
        else:
            certificate = verify(loaded, images=paths, on_progress=progress.to, **keywords)
    print_text(certificate.to_json() if as_json else str(certificate))
    if output:
        from pixprep.show.worst import worst

        picture = worst(certificate)
        if picture:
            write_picture(output, picture)
        result = "shows the image that differs most" if picture else "not written, because no image differs"
        say(f"{output}: {result}", file=sys.stderr)
    return 0 if certificate.is_exact else 1
