"""Write requirements/*.txt: every package that `make demo` and `make test` install, with the hashes of its files.

    make lock

One file is for every Python that the package supports; markers say what differs.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
UV = [str(Path(sysconfig.get_path("scripts")) / "uv"), "pip", "compile", "--quiet", "--universal"]
OPTIONS = ["--python-version=3.10", "--generate-hashes", "--no-annotate", "--no-header", "--system-certs"]
BUILD = "hatchling\neditables\n"  # what an editable install of a checkout needs, without a network of its own
HEAD = "# Written by `make lock`: {what}.\n"


def resolved(requirements: str, *options: str) -> str:
    """The text of a lock file for requirements, beside those that the options name."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        command = [*UV, *OPTIONS, *options, "-", f"--output-file={output}"]
        subprocess.run(command, input=requirements, text=True, check=True, cwd=ROOT, env=os.environ)
        return output.read_text(encoding="utf-8")


def entries(text: str) -> dict[str, str]:
    """Each entry of a lock file, by its first line, which says name, version and marker."""
    found: dict[str, str] = {}
    for line in text.splitlines(keepends=True):
        if not line.startswith(" "):
            first = line
            found[first] = ""
        found[first] += line
    return found


def main() -> int:
    """Write the files."""
    (checkpoint,) = (
        line.partition("= ")[2]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith("CHECKPOINT :=")
    )
    demo = resolved(BUILD, "pyproject.toml", "--extra=demo")
    weights = resolved(checkpoint, "--no-deps")
    FOLDER.mkdir(exist_ok=True)
    (zig,) = re.findall(r'^ZIG = "(.*)"', (ROOT / "hatch_build.py").read_text(encoding="utf-8"), re.MULTILINE)
    what = "what compiles the kernels, unless PIXPREP_CC names another compiler"
    (FOLDER / "zig.txt").write_text(HEAD.format(what=what) + resolved(zig))
    path = FOLDER / "demo.txt"
    path.write_text(HEAD.format(what="for `make demo`, and all that `make test` shares with it") + demo + weights)
    dev = entries(resolved(BUILD, "pyproject.toml", "--extra=dev", f"--constraints={path}"))
    others = [text for first, text in dev.items() if first not in entries(demo)]
    (FOLDER / "dev.txt").write_text(HEAD.format(what="what `make test` needs beside demo.txt") + "".join(others))
    return 0


if __name__ == "__main__":
    sys.exit(main())
