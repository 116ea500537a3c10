"""Prepare the photos, C kernels and wheels for the GPU machine, in groups that fit into one call.

    .venv/bin/python tools/gpu_hour/prepare_hour.py                  all groups, into build/gpu_hour
    .venv/bin/python tools/gpu_hour/prepare_hour.py engine video     only these groups

Requirements without a version get the version in requirements/*.txt. A wheel that is too large for one call is split.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TO = ROOT / "build" / "gpu_hour"
PYTHON = (3, 12)
LIMIT = 50_000_000
"""Maximum size of a group in bytes. A call transfers up to 64 MiB, including the working tree of about 7 MiB."""
GROUPS = {
    "engine": "nvidia-nvimgcodec-cu13>=0.9,<0.10 nvidia-nvjpeg>=13 msgspec pillow simplejpeg pytest pluggy iniconfig "
    "pygments hypothesis sortedcontainers",
    "pytriton": "nvidia-pytriton",
    "cupy13": "cupy-cuda13x<14 fastrlock",
    "client": "numpy<2 tritonclient protobuf grpcio python-rapidjson geventhttpclient>=2 gevent greenlet brotli "
    "zope-event zope-interface tqdm",
    "av": "av",
    "video": "PyNvVideoCodec>=2.2",
    "dali": "nvidia-dali-cuda130==2.4.0 astunparse gast six optree libcst nvtx makefun",
}
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)]
_OLDER = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")


def pinned(requirement: str) -> str:
    """Add the version that requirements/*.txt pins for that Python to a requirement, if there is one."""
    text = "".join((ROOT / "requirements" / f"{each}.txt").read_text(encoding="utf-8") for each in ("demo", "dev"))
    found = re.findall(rf"^{re.escape(requirement)}==(\S+)( ;.*)? \\", text, re.MULTILINE)
    fitting = [version for version, marker in found if "<" not in marker and "== '3.11" not in marker]
    return f"{requirement}=={fitting[-1]}" if fitting else requirement


def download(group: str) -> None:
    """Download the wheels of a group."""
    folder = TO / group
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--implementation", "cp"]
    options += ["--python-version", ".".join(map(str, PYTHON))]
    options += [word for platform in (*_PLATFORMS, *_OLDER) for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder)]
    for requirement in GROUPS[group].split():
        if subprocess.run([*command, pinned(requirement)], check=False).returncode:
            sys.exit(f"prepare_hour: there is no wheel of {pinned(requirement)} for Python {PYTHON}")


def cut(group: str) -> list[Path]:
    """Return the folders of a group.

    If a group is too large, its folders are NAME-1, NAME-2, …, each with one part of the largest wheel.
    """
    folder = TO / group
    for earlier in TO.glob(f"{group}-*"):
        shutil.rmtree(earlier)
    wheels = sorted(folder.glob("*.whl"), key=lambda path: path.stat().st_size)
    if sum(path.stat().st_size for path in wheels) <= LIMIT:
        return [folder]
    content = wheels[-1].read_bytes()
    parts = [content[begin : begin + LIMIT] for begin in range(0, len(content), LIMIT)]
    others = sum(path.stat().st_size for path in wheels[:-1])
    if len(parts[-1]) + others > LIMIT:
        parts.append(b"")
    folders = []
    for number, part in enumerate(parts, 1):
        folders.append(TO / f"{group}-{number}")
        folders[-1].mkdir()
        (folders[-1] / f"{wheels[-1].name}.{number}of{len(parts)}").write_bytes(part)
    for path in wheels[:-1]:
        shutil.move(path, folders[-1] / path.name)
    shutil.rmtree(folder)
    return folders


def photos() -> None:
    """Copy the real photos from which the photos of the benchmarks are derived."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import workloads  # noqa: PLC0415  (benchmarks/ is no package)

    shutil.rmtree(TO / "photos", ignore_errors=True)  # `real_photos` would return the copies of an earlier run
    (TO / "photos").mkdir(parents=True)
    for number, path in enumerate(workloads.real_photos()):
        shutil.copy(path, TO / "photos" / f"{number:02}-{path.name}")


def kernels() -> None:
    """Copy the compiled kernels: git ignores their folder, and the GPU machine does not have a compiler for them."""
    (TO / "kernels").mkdir(parents=True, exist_ok=True)
    for library in (ROOT / "backend" / "pixprep" / "engine" / "kernels").glob("*.so"):
        shutil.copy(library, TO / "kernels")


def sizes(folders: Sequence[Path]) -> Iterator[str]:
    """Yield one line per folder with its size."""
    for folder in folders:
        size = sum(path.stat().st_size for path in folder.iterdir())
        yield f"{size / 1e6:6.1f} MB  {folder.relative_to(ROOT)}{'  TOO LARGE' if size > LIMIT else ''}\n"


def main(groups: Sequence[str]) -> None:
    """Prepare the selected groups."""
    photos()
    kernels()
    folders = [TO / "photos", TO / "kernels"]
    for group in groups or GROUPS:
        download(group)
        folders += cut(group)
    sys.stdout.writelines(sizes(folders))


if __name__ == "__main__":
    main(sys.argv[1:])
