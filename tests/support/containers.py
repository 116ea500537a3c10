"""Builds and runs a Dockerfile without Docker: its instructions run in a folder, as root of this machine.

Only the instructions that our Dockerfiles contain are supported: FROM debian:12-slim (created with debootstrap), RUN,
COPY of files, ENV, USER, EXPOSE and CMD.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = ROOT / "build" / "debian-12"
FROM_OUTSIDE = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")


def instructions(path):
    """Return (keyword, arguments) of each instruction. A backslash at the end of a line continues the instruction on
    the next line.
    """
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def copied(path):
    """Return (sources, target) of each COPY instruction that copies from the checkout."""
    rests = [rest.split() for word, rest in instructions(path) if word == "COPY"]
    return [(sources, target) for *sources, target in rests if not sources[0].startswith("--from")]


def copy(sources, place):
    """Copy sources as COPY does. A file is copied into the target folder. The contents of a folder are copied without
    the folder itself.
    """
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)


def skip_unless_possible():
    """Skip a test if containers are not requested, chroot is not permitted, or Debian cannot be downloaded."""
    if not os.environ.get("PIXPREP_SCALE"):
        pytest.skip("SCALE: make scale")
    if os.geteuid() != 0 or not all(shutil.which(each) for each in ("debootstrap", "unshare", "setpriv")):
        pytest.skip("NO ROOT OR NO DEBOOTSTRAP: apt-get install debootstrap")


def debian():
    """Return the folder of a minimal Debian 12. It is created only once."""
    if not (BASE / "done").exists():
        shutil.rmtree(BASE, ignore_errors=True)
        BASE.mkdir(parents=True)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", BASE / "root"], check=True, capture_output=True)
        (BASE / "done").touch()
    return BASE / "root"


def compose_mounts():
    """Return the mount options of each tmpfs in deploy/compose.yaml by path, including those that Docker applies to
    every tmpfs.
    """
    text = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    (tmpfs,), (size,) = re.findall(r"tmpfs: (\[.*?\])", text), re.findall(r"shm_size: (\w+)", text)
    entries = [entry.partition(":") for entry in [*json.loads(tmpfs), f"/dev/shm:size={size}"]]
    return {path: ",".join(filter(None, ["noexec,nosuid,nodev,mode=1777", options])) for path, _, options in entries}


class Image:
    """Container image built from a Dockerfile.

    Attributes:
        command, environment, user: Values of CMD, ENV and USER.
    """

    def __init__(self, dockerfile, context, folder):
        """Build the image. ``context`` is the folder from which COPY reads; ``folder`` becomes the root of the
        image.
        """
        self._root = folder
        self.command, self.environment, self.user = [], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}, None
        for word, rest in instructions(dockerfile):
            if word == "FROM":
                assert rest == "debian:12-slim", rest
                subprocess.run(["cp", "--archive", debian(), self._root], check=True)
            elif word == "COPY":
                *sources, target = rest.split()
                copy([context / each for each in sources], self._root / target.lstrip("/"))
            elif word == "RUN":
                done = subprocess.run(self.inside(["sh", "-c", rest]), check=False, capture_output=True, text=True)
                assert done.returncode == 0, f"{rest}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            elif word == "ENV":
                name, _, value = rest.partition("=")
                self.environment[name] = value
            elif word == "USER":
                self.user = rest
            elif word == "CMD":
                self.command = json.loads(rest)
            else:
                assert word == "EXPOSE", word

    def inside(self, command, *, is_sealed=False):
        """Return a command line that runs ``command`` in the image.

        The restrictions are those of deploy/compose.yaml: a read-only root, an empty /tmp, no capabilities, and the
        image's user.
        """
        root = shlex.quote(str(self._root))
        words = {**self.environment}
        if is_sealed:
            mounts = [
                f"mount --bind {root} {root}",
                f"mount -o remount,bind,ro {root}",
                f"mount --rbind /dev {root}/dev",
                *(f"mount -t tmpfs -o {options} tmpfs {root}{path}" for path, options in compose_mounts().items()),
            ]
            user, _, group = self.user.partition(":")
            before = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs",
                      "--bounding-set=-all", "--inh-caps=-all"]  # fmt: skip
            words["HOME"] = "/"
        else:
            words |= {name: os.environ[name] for name in os.environ if name.startswith("PIP_CERT")}
            words["DEBIAN_FRONTEND"] = "noninteractive"
            mounts = [f"mount --rbind /dev {root}/dev"]
            for path in filter(os.path.exists, FROM_OUTSIDE):
                mounts.append(f"install -D {path} {root}{path}")
            before = []
        mounts.append(f"mount -t proc proc {root}/proc")
        environment = ["env", "-i", *(f"{name}={value}" for name, value in words.items())]
        script = " && ".join(
            [*mounts, f"exec {shlex.join(['chroot', str(self._root), *environment, *before, *command])}"]
        )
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
