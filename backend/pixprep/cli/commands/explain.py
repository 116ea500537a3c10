"""The command ``pixprep explain``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pixprep.cli.arguments import PipelineFile
from pixprep.errors import ImageError, PixprepError
from pixprep.options import Shell

EXAMPLE = "explain pipeline.json --image photo.jpg --output stages.png"
EITHER = ("size", "image")


def run(
    pipeline: PipelineFile,
    *,
    size: Annotated[tuple[int, int], Shell(kind="size", metavar="HxW")] = (480, 640),
    image: Path | None = None,
    output: Path | None = None,
) -> int:
    """Describe a pipeline: its ops, plan and shapes; --output draws one photo at every stage.

    Args:
        size: Height x width of the example image; default: 480x640.
        image: A photo to use as the example image.
        output: Write a PNG of the photo at every stage, with the crop, the tensor and its values.
    """
    from pixprep.cli.files import check_picture, read_photo, write_picture
    from pixprep.cli.output import print_text, say
    from pixprep.pipeline.pipeline import Pipeline
    from pixprep.show.preview import preview, still
    from pixprep.show.words import explain

    check_picture(output, [image] if image else [])
    loaded = Pipeline.load(pipeline)
    if not image and not output:
        height, width = size
        print_text(explain(loaded, height=height, width=width))
        return 0
    name, encoded = read_photo(image)
    try:
        encoded = bytes(still(loaded, encoded))
        found = preview(loaded, encoded)
        print_text(explain(loaded, height=found.height, width=found.width))
        for line in found.lines():
            say(line)
        if output:
            from pixprep.show.pictures import stages

            write_picture(output, stages(loaded, encoded, title=pipeline.name, name=Path(name).name))
            say(f"{output}: shows the stages of the pipeline", file=sys.stderr)
    except ImageError as error:
        raise PixprepError(f"{name}: {error}") from None
    return 0
