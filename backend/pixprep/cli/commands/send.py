"""The command ``pixprep send``."""

from __future__ import annotations

from pixprep.cli.arguments import Images, Json
from pixprep.serving.options import SendOptions

EXAMPLE = "send photos --protocol grpc --model ensemble --batch 8"


def run(paths: Images, request: SendOptions, *, as_json: Json = False) -> int:
    """Send image files, or folders of images, to a server.

    Args:
        as_json: Print one JSON object per line.
    """
    from pixprep.cli.files import numbers_of, say_skipped
    from pixprep.cli.output import print_answer
    from pixprep.progress import Progress
    from pixprep.serving.embedded import client

    failed = 0
    given = {**vars(request), "inputs": numbers_of(request.inputs)}
    say_skipped(paths)
    with Progress("images") as progress:
        for answer in client.send(paths, on_progress=progress.to, **given):
            failed += answer.error is not None
            with progress.hidden():
                print_answer(answer, as_json=as_json)
    return 1 if failed else 0
