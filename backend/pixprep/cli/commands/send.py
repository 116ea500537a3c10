"""The command ``pixprep send``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pixprep.cli.arguments import Images, Json
from pixprep.options import Folder, Pictures, Shell
from pixprep.serving.options import SendOptions

EXAMPLE = "send photos --protocol grpc --model ensemble --table answers.csv"


def run(
    paths: Images,
    request: SendOptions,
    *,
    table: Path | None = None,
    output: Folder | None = None,
    pictures: Pictures = None,
    as_json: Json = False,
    is_listed: Annotated[bool, Shell(is_hidden=True)] = False,
) -> int:
    """Send image files, or folders of images, to a server.

    Args:
        table: Write one row per image to this .csv, .jsonl or .parquet file, and print only errors; if the command is
            interrupted, run it again to continue.
        output: Save the outputs that are pictures in this folder.
        as_json: Print one JSON object per line.
        is_listed: See ``client.send``.
    """
    import sys
    import time
    from contextlib import ExitStack

    from pixprep.cli.answers import print_answer
    from pixprep.cli.files import numbers_of, say_skipped
    from pixprep.cli.output import say
    from pixprep.errors import PixprepError
    from pixprep.files import expand
    from pixprep.progress import Progress
    from pixprep.serving.embedded import client
    from pixprep.serving.embedded.rows import row_of
    from pixprep.serving.embedded.table import WRITERS, Table
    from pixprep.serving.pictures import saving

    if pictures and not output:
        raise PixprepError("--picture needs --output DIR, the folder of the pictures")
    if output and output.suffix in WRITERS and not output.is_dir():
        raise PixprepError(f"--output is the folder of pictures: to write a table, pass --table {output}")
    inputs = numbers_of(request.inputs)
    more: dict[str, Any] = {}
    if output:
        more["finish"] = saving(output, dict(pictures or ()), paths if is_listed else expand(paths))
    origin = {"model": request.model, "top": request.classes, "inputs": inputs}
    origin |= {"pictures": sorted(map(str, pictures))} if pictures else {}
    began, sent, failed = time.monotonic(), 0, 0
    with ExitStack() as stack:
        rows = stack.enter_context(Table(table, origin)) if table else None
        say_skipped(paths)
        progress = stack.enter_context(Progress("images"))
        answered = rows.answered if rows else ()
        more |= {**vars(request), "inputs": inputs}
        try:
            for answer in client.send(paths, is_listed=is_listed, answered=answered, on_progress=progress.to, **more):
                sent, failed = sent + 1, failed + (answer.error is not None)
                if rows:
                    rows.add(row_of(answer))
                if answer.error or not rows:
                    with progress.hidden():
                        print_answer(answer, as_json=as_json)
        except BaseException:
            if rows and rows.rows:
                progress.close()
                say(f"{table}: {rows.rows} images are saved; to continue, run the same command again", file=sys.stderr)
            raise
    if rows:
        rate = f", {sent / (time.monotonic() - began):.1f} images/s" if sent else ""
        say(f"{table}: images {rows.rows}, failed {rows.failed}, sent now {sent}{rate}")
    return 1 if (rows.failed if rows else failed) else 0
