"""Run mutation tests: change the code in one place at a time. At least one test that runs the changed code must fail.

    make mutants MODULES="placement.py decoders/*.py"       every mutant of these modules
    make mutants COUNT=300                                  300 random mutants of the whole package
    make mutants MODULES=sampling.py TESTS=tests/engine/test_video.py

The tests run once without a mutant, which records the functions that each test file calls. Each mutant is then written
to a copy of the working tree. The test files that call the mutated function run there, the fastest first, until one
fails. Calls in other processes are not recorded. The exit status is 1 if a mutant survives.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PACKAGE = Path("backend", "pixprep")
LIMIT_S = 300
PAIRS = "Lt LtE Gt GtE Eq NotEq Is IsNot In NotIn And Or Add Sub Mult Div FloorDiv Mod LShift RShift BitAnd BitOr"
KINDS = [getattr(ast, name) for name in PAIRS.split()]
SWAPS = {kind: KINDS[index ^ 1] for index, kind in enumerate(KINDS)}
TRACER = """
import functools, gc, json, sys, threading
from pathlib import Path
package, calls, took, file = f"{Path.cwd()}/backend/pixprep/", {}, {}, [""]
def trace(frame, event, argument):
    code = frame.f_code
    if code.co_filename.startswith(package):
        calls.setdefault(f"{code.co_filename[len(package):]}:{code.co_firstlineno}", set()).add(file[0])
def pytest_runtest_logstart(nodeid):
    if file[0] != (now := nodeid.partition("::")[0]):  # another test file may use results that this file has cached
        file[0] = now
        for each in gc.get_objects():
            if isinstance(each, functools._lru_cache_wrapper) and str(each.__module__).startswith("pixprep"):
                each.cache_clear()
    sys.settrace(trace)
def pytest_runtest_logreport(report):
    took[file[0]] = took.get(file[0], 0.0) + report.duration
def pytest_sessionfinish():
    sys.settrace(None)
    Path("calls.json").write_text(json.dumps({key: sorted(files, key=took.get) for key, files in calls.items()}))
threading.settrace(trace)
"""
Mutant = namedtuple("Mutant", "file line begin end new function")  # noqa: PYI024
"""A change to a file: ``new`` replaces the bytes ``begin`` to ``end``. The function starts at line ``function``."""


def mutants_of(file: Path, node: ast.AST, starts: list[int], function: int = 0) -> Iterator[Mutant]:
    """Yield the mutants of the functions in a syntax tree. Annotations, strings and assertions are not mutated."""
    if isinstance(node, ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.FunctionDef):
        function = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    if isinstance(node, ast.expr | ast.stmt) and function and (new := changed(node)):
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        yield Mutant(file, node.lineno, starts[node.lineno - 1] + node.col_offset, end, new, function)
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                yield from mutants_of(file, child, starts, function) if isinstance(child, ast.AST) else ()


def changed(node: ast.expr | ast.stmt) -> str:
    """Return the code that replaces a node. An empty string means that the node is not mutated."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            other.ops = [SWAPS[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            other.op = SWAPS[type(op)]()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            other = operand
        case ast.Constant(value=bool() | int() | float() as value):
            other.value = not value if isinstance(value, bool) else value + 1
        case ast.Raise() | ast.Expr(value=ast.Call()):
            other = ast.Pass()
        case _:
            return ""
    return f"({ast.unparse(other)})" if isinstance(other, ast.expr) else ast.unparse(other)


def copied(folder: Path) -> Path:
    """Return the files that git tracks or would add, and the compiled libraries next to the package's sources."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    for path in {*(ROOT / name for name in names if name), *(ROOT / PACKAGE).rglob("*.so")}:
        if path.is_file():
            (target := folder / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    return folder


def passed(folder: Path, *arguments: str, limit_s: int = LIMIT_S) -> bool:
    """Run tests in a copy of the working tree.

    Return False if a test fails or exceeds the time limit. A limit of 0 means no limit.
    """
    # Python compares the modification times of a .pyc and its source in whole seconds, so it could miss the change
    own = {"PYTHONPATH": f"{folder / 'backend'}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["timeout", str(limit_s), sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, check=False)
    return done.returncode == 0


def main() -> int:
    """Run the tests on each mutant, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "modules",
        nargs="*",
        default=["**/*.py"],
        help="mutate only these modules, such as engine/batch.py or engine/decoders/*.py",
    )
    parser.add_argument("--tests", nargs="*", default=["tests", "--ignore", "tests/serving/server"])
    parser.add_argument("--count", type=int, help="number of random mutants")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    mutants: list[Mutant] = []
    for path in sorted({path for name in chosen.modules for path in (ROOT / PACKAGE).glob(name)}):
        starts = list(accumulate(map(len, path.read_bytes().splitlines(keepends=True)), initial=0))
        mutants += mutants_of(path.relative_to(ROOT / PACKAGE), ast.parse(path.read_bytes()), starts)
    mutants = random.Random(chosen.seed).sample(mutants, min(chosen.count or len(mutants), len(mutants)))  # noqa: S311
    with TemporaryDirectory(prefix="pixprep-mutants-") as name, ThreadPoolExecutor(jobs := os.cpu_count() or 1) as pool:
        folders = [copied(Path(name, str(number))) for number in range(jobs)]
        (folders[0] / "tracer.py").write_text(TRACER)
        if not passed(folders[0], "-p", "tracer", *chosen.tests, limit_s=0):
            sys.exit("a test fails even without a mutant: fix it first")
        calls = json.loads((folders[0] / "calls.json").read_text())

        def outcome(mutant: Mutant) -> str:
            folder = folders.pop()
            path = folder / PACKAGE / mutant.file
            whole = path.read_bytes()
            path.write_bytes(whole[: mutant.begin] + mutant.new.encode() + whole[mutant.end :])
            tests = calls.get(f"{mutant.file}:{mutant.function}")
            word = "NOT CALLED" if not tests else "SURVIVES" if passed(folder, *tests) else "caught"
            path.write_bytes(whole)
            folders.append(folder)
            return word

        counts: Counter[str] = Counter()
        for mutant, word in zip(mutants, pool.map(outcome, mutants), strict=True):
            counts[word] += 1
            print(f"{word:<11}{mutant.file}:{mutant.line}: {mutant.new}", flush=True)  # noqa: T201
    print(", ".join(f"{count} {word}" for word, count in counts.items()))  # noqa: T201
    return 0 if set(counts) == {"caught"} else 1


if __name__ == "__main__":
    sys.exit(main())
