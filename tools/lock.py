"""Write requirements/*.txt: the packages that `make demo`, `make test` and the images install, with hashes.

    make lock

The files are valid for every supported Python version. If versions need different packages, the entries have
environment markers.
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
BUILD = "hatchling\neditables\n"  # build requirements of an editable install, which must not need the network
HEAD = "# Written by `make lock`: {what}.\n"


def resolved(requirements: str, *options: str) -> str:
    """Resolve requirements with uv. Return the text of a lock file, including the packages that the options name."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        command = [*UV, *OPTIONS, *options, "-", f"--output-file={output}"]
        subprocess.run(command, input=requirements, text=True, check=True, cwd=ROOT, env=os.environ)
        return output.read_text(encoding="utf-8")


def entries(text: str) -> dict[str, str]:
    """Return the entries of a lock file by their first lines, which contain the name, the version and the marker."""
    found: dict[str, str] = {}
    for line in text.splitlines(keepends=True):
        if not line.startswith(" "):
            first = line
            found[first] = ""
        found[first] += line
    return found


def without(text: str, *paths: Path) -> str:
    """Return the text of a lock file without the entries of other lock files."""
    others = {first for path in paths for first in entries(path.read_text(encoding="utf-8"))}
    return "".join(entry for first, entry in entries(text).items() if first not in others)


def write(name: str, what: str, text: str) -> Path:
    """Write the lock file with a given name, and return its path."""
    path = FOLDER / f"{name}.txt"
    path.write_text(HEAD.format(what=what) + text, encoding="utf-8")
    return path


def main() -> int:
    """Write the lock files."""
    (checkpoint,) = (
        line.partition("= ")[2]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith("CHECKPOINT :=")
    )
    (zig,) = re.findall(r'^ZIG = "(.*)"', (ROOT / "hatch_build.py").read_text(encoding="utf-8"), re.MULTILINE)
    FOLDER.mkdir(exist_ok=True)
    write("zig", "the compiler of the C kernels, unless PIXPREP_CC selects a different one", resolved(zig))
    build = write(
        "build", "the build requirements of a wheel or an editable install, in addition to zig.txt", resolved(BUILD)
    )
    demo = resolved(BUILD, "pyproject.toml", "--extra=demo", f"--constraints={build}")
    text = without(demo, build) + resolved(checkpoint, "--no-deps")
    path = write(
        "demo", "the packages of `make demo` and deploy/Dockerfile.cpu, many of which `make test` also installs", text
    )
    dev = resolved(BUILD, "pyproject.toml", "--extra=dev", f"--constraints={build}", f"--constraints={path}")
    write("dev", "the packages of `make test`, in addition to build.txt and demo.txt", without(dev, build, path))
    for extra in ("gpu-cuda12", "gpu-cuda13"):
        what = "the packages of deploy/Dockerfile, at the same versions as in demo.txt"
        write(extra, what, resolved("", "pyproject.toml", f"--extra={extra}", f"--constraints={path}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
