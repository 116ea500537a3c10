"""Follows a tutorial page as a reader does: saves its files, runs its commands, and compares their output.

A file is a block of Python or JSON after a line that ends with "`NAME`:". A command is a line of a block that begins
with ``$ ``, or with ``(pytorch) $ `` if it runs in the environment that has PyTorch. The lines after a command are its
expected output, in which the line ``...`` matches any number of lines. A block of JSON after a line that begins with
"`NAME` contains" is the expected content of that file. A block after ``<!-- not run: REASON -->`` is not run.
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(
    r"(?P<not_run><!-- not run: [^\n]*-->\n)?(?:(?P<above>[^\n]+)\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROMPT = re.compile(r"^(?:\((\w+)\) )?\$ (.*)$")
FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]\d+)?")
VOLATILE = ((r"\b[\d.]+ (ms|s|images/s)\b", r"# \1"), (r"(127\.0\.0\.1|localhost):\d+", r"\1:#"))
"""Patterns of text that differs from run to run, and their replacements."""


def commands(block):
    """Yield (environment, command, expected lines) for each command in a block with prompts."""
    current = None
    for line in block.replace("\\\n", " ").splitlines():
        if found := PROMPT.match(line):
            if current:
                yield current
            current = (found[1], found[2], [])
        elif current:
            current[2].append(line)
    if current:
        yield current


def words_of(text):
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text.split()


def is_same_word(shown, printed, tolerance):
    """Return whether two words are equal. Numbers in them may differ by at most the tolerance."""
    if FLOAT.sub("#", shown) != FLOAT.sub("#", printed):
        return False
    numbers = zip(FLOAT.findall(shown), FLOAT.findall(printed), strict=True)
    return all(abs(float(one) - float(other)) <= tolerance for one, other in numbers)


def is_same(shown, printed, tolerance=0.02):
    """Return whether the output of a command matches the text on the page. Lines may be wrapped at any position."""
    first, *others = (words_of(part) for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE))
    words = words_of(printed)

    def is_at(start, part):
        those = words[start : start + len(part)]
        return len(those) == len(part) and all(map(is_same_word, part, those, [tolerance] * len(part)))

    if not others:
        return len(words) == len(first) and is_at(0, first)
    if not is_at(0, first):
        return False
    end = len(first)
    for part in others[:-1]:
        found = next((start for start in range(end, len(words)) if is_at(start, part)), None)
        if found is None:
            return False
        end = found + len(part)
    start = len(words) - len(others[-1])
    return start >= end and is_at(start, others[-1])


class Walkthrough:
    """One run of a page, in a folder with the files of a checkout that the page uses.

    Args:
        page: Name of the page in ``docs/``.
        folder: Folder that takes the place of the checkout.
        paths: Folder of the programs of each environment. None means the environment of this process.
        tolerance: Maximum difference between a number on the page and the corresponding number in the output.
    """

    def __init__(self, page, folder, paths, tolerance=0.02):
        self.text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        self.folder, self.paths, self.server, self.addresses = folder, paths, None, {}
        self.tolerance, self.wrong = tolerance, []

    def run(self):
        """Follow the page to its end, or to a command whose environment does not exist. Return the number of commands
        that were run.
        """
        try:
            return self.follow()
        finally:
            self.stop()
            assert not self.wrong, "these commands print something else:\n" + "\n".join(self.wrong)

    def follow(self):
        count = 0
        for found in BLOCK.finditer(self.text):
            if found["not_run"]:
                continue
            name = re.search(r"`([\w-]+[./][\w./-]+)`:$", found["above"] or "")
            if found["language"] and name:
                path = self.folder / name[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.local(found["text"]))
            elif contained := re.match(r"`([\w./-]+)` contains ", found["above"] or ""):
                assert json.loads((self.folder / contained[1]).read_text()) == json.loads(found["text"]), contained[1]
            for command in commands(found["text"]):
                if command[0] not in self.paths:
                    return count
                self.one(*command)
                count += 1
        return count

    def local(self, text):
        """Replace a server's default addresses in a text with those of the running server."""
        for default, address in self.addresses.items():
            text = text.replace(default, address)
        return text

    def one(self, environment, command, shown):
        if command.startswith("cd "):
            self.folder = (self.folder / command.removeprefix("cd ")).resolve()
            return
        if command.startswith("pixprep serve"):
            printed = self.serve(command)
        else:
            done = subprocess.run(
                ["/bin/sh", "-c", self.addressed(command)], cwd=self.folder, env=self.environment(environment),
                capture_output=True, text=True, check=False, timeout=300,
            )  # fmt: skip
            printed = done.stdout + done.stderr
            if done.returncode:
                assert shown, f"{command}\n{printed}"  # a command may fail only if the page shows its output
        if shown and not is_same("\n".join(shown), printed, self.tolerance):
            self.wrong.append(f"$ {command}\n{printed}")

    def environment(self, name):
        path = f"{self.paths[name]}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore", "COLUMNS": "200"}

    def addressed(self, command):
        """Return the command with the addresses of this run's server."""
        command = self.local(command)
        if self.server:
            command = re.sub(
                r"^pixprep (?:send|bench|health)\b", rf"\g<0> --url {self.addresses['localhost:8000']}", command
            )
        return command

    def serve(self, command):
        """Start a server on free ports, and return the output line that contains its addresses."""
        self.stop()
        ports = " ".join(f"--{name}-port 0" for name in ("http", "grpc", "metrics"))
        self.server = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command} {ports}"], cwd=self.folder, env=self.environment(None),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        ready = self.server.stdout.readline()
        found = re.search(r"http://(\S+) +grpc (\S+)", ready)
        assert found, ready
        self.addresses = {"localhost:8000": found[1], "localhost:8001": found[2]}
        for path in self.folder.glob("*.py"):  # programs that were saved before the server was started
            path.write_text(self.local(path.read_text()))
        return ready

    def stop(self):
        if self.server:
            self.server.send_signal(signal.SIGTERM)
            self.server.communicate(timeout=120)
            self.server = None


PRELUDE = """\
import runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = ""
try:
    import torch
except (ImportError, OSError):
    pass
else:  # the registry's torchvision for the CPU does not have its C++ extension, which defines these two
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
if sys.argv[0] == "pixprep":
    from pixprep.cli import main
    sys.exit(main())
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def environment(folder, name, *libraries):
    """Return a folder with the programs ``python`` and ``pixprep`` of the environment ROOT/NAME. Return None if a
    library is missing.
    """
    python = ROOT / name / "bin" / "python"
    for library in libraries:
        found = f"import importlib.util as util, {libraries[0]}; assert util.find_spec({library!r})"
        if not python.exists() or subprocess.run([python, "-c", found], capture_output=True, check=False).returncode:
            return None
    programs = folder / f"programs-{name}"
    programs.mkdir()
    (programs / "prelude.py").write_text(PRELUDE)
    for program, words in (("python", '"$@"'), ("pixprep", 'pixprep "$@"')):
        (programs / program).write_text(f"#!/bin/sh\nexec {python} {programs}/prelude.py {words}\n")
        (programs / program).chmod(0o755)
    return programs
