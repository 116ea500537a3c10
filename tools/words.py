"""Count the texts of the tree that show one of twelve habits which make a text hard to read.

    python tools/words.py                         the table of rooms
    python tools/words.py --show backend/pixprep/plan docs/training.md
    python tools/words.py --check                 exit status 1 if a room has more of them than tools/words.json allows
    python tools/words.py --update                write today's numbers into tools/words.json, where they are lower

A text is a docstring, a run of comment lines, an error message, the help of a command-line option, or a paragraph, a
list item or a table cell of a Markdown file. The patterns find about half of the texts over which a reader stumbles.
About one in eight of their finds reads well, so the aim is a small fraction and not zero.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = Path(__file__).with_suffix(".json")
_COUNTED = r"(?:value|number|row|byte|line|op|bit|level|word|object|index|millisecond|microsecond)s?"
_EACH = r"(?:image|row|channel|line|pixel|file|sample|box|batch|second|plane|request|column|clip|op|epoch|process)"
HABITS = {
    "begins with a preposition or a relative word": r"^(?:Of|By(?! default| hand)|That|Those|Whose|Behind|Beside) "
    r"|^What (?!to\b)",
    "'of ...' without its noun": r"[:;,] (?:(?:and|or) )?of (?!course\b|the same\b)\w|^of \w",
    "'those of which', 'to which'": r"\b(?:those|that) of (?:which|whose|whom|what)\b"
    r"|\b(?:those|that) (?:which|whose)\b|\b(?:of|to|behind|beside) (?:which|whom)\b",
    "'what is', 'what comes'": r"\bwhat (?:is|are|was|were|has|have|each|others?|of|no|would)\b"
    r"|\bwhat (?:comes?|came|lies|follows|gives)\b",
    "a negated noun in place of a negated verb": r"\b(?:is|are|was|be|gives?|takes?|holds?|makes?) no\b"
    r"|\b(?:is|are|has|have|gives?|takes?|holds?|makes?) (?:none|nothing|nobody)\b|: none\b",
    "code that says or tells": r"\b(?:says?|said|tells?|told)\b",
    "lies, stands, beside, behind, anew": r"\b(?:lies?|lay|stands?|behind|beside|anew|whoever)\b",
    "'a value an image' for 'per image'": rf"\b(?:{_COUNTED}|one) an? {_EACH}\b",
    "another for different, otherwise": r"\b(?:is|are|was|were) (?:an)?other\b|\botherwise\b"
    r"|\banother (?:size|order|value|type|shape|number|level|form|kind|way|rule|version|one)\b",
    "most and least for limits": r"\b(?:the|its|a|of) (?:most|least) "
    r"(?!recent|common|significant|likely|frequent|usual)\w",
    "', too', ', and so'": r", too\b|, and so\b(?! (?:is|are|does|do|has|was|were)\b)",
    "whole number, share": r"\bwhole numbers?\b|\b(?:in|a) shares?\b|\bshares? of\b",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in HABITS.items()}
CODE = re.compile(r"``.*?``|`[^`]*`|\{[^{}]*\}|https?://\S+|\]\([^)]*\)|\"[^\"\n]{1,60}\"")
COMMENT = re.compile(r"(?:^\s*|  )(#.*)")
DIRECTIVE = re.compile(r"(?:noqa|type:|ruff|fmt:|mypy|pragma|SPDX|!)")
RAISED = re.compile(r"(?:Error|Warning)$|^(?:warn|warning|error|fail|refuse|refused|exit)$")
Text = tuple[int, str]
"""Line number where a text begins, and the text."""


def string_of(node: ast.expr | None) -> str:
    """Return the text of a literal, an f-string or a sum of these, with ``{}`` for each formatted value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(string_of(value) or "{}" for value in values)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return (string_of(left) or "{}") + (string_of(right) or "{}")
    return ""


def texts_of_python(source: str) -> Iterator[Text]:
    """Yield the docstrings split into entries, the error messages, the help texts and the comments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from paragraphs(text, node.lineno)
            case ast.Call(func=called):
                name = getattr(called, "attr", getattr(called, "id", ""))
                found = [string_of(given.value) for given in node.keywords if given.arg in ("help", "description")]
                if RAISED.search(name):
                    found += [string_of(given) for given in node.args[:3]]
                yield from ((node.lineno, text) for text in found)
    lines = ((number, COMMENT.search(line)) for number, line in enumerate(source.split("\n"), 1) if "#" in line)
    yield from comments(((number, found[1]) for number, found in lines if found), "#")


def comments(lines: Iterator[Text], sign: str) -> Iterator[Text]:
    """Join the comments on consecutive lines."""
    first, last, joined = 0, -1, ""
    for number, line in lines:
        text = line.lstrip(sign).strip()
        if DIRECTIVE.match(text):
            continue
        if number == last + 1:
            joined += f" {text}"
        else:
            yield first, joined
            first, joined = number, text
        last = number
    yield first, joined


def texts_of_c(source: str) -> Iterator[Text]:
    """Yield the comments of a C, CUDA or JavaScript file."""
    lines = ((number, line) for number, line in enumerate(source.split("\n"), 1) if "//" in line)
    found = ((number, match[1]) for number, line in lines if (match := re.search(r"(?<!:)//(.*)", line)))
    yield from comments(found, "/")
    for match in re.finditer(r"/\*(.*?)\*/", source, re.DOTALL):
        yield source.count("\n", 0, match.start()) + 1, re.sub(r"\n\s*\*", "\n", match[1])


def paragraphs(source: str, line: int = 1) -> Iterator[Text]:
    """Yield the paragraphs, list items, table cells and ``Args:`` entries of a text, without code blocks."""
    first, joined, in_code = line, "", False
    for number, raw in enumerate([*source.split("\n"), ""], line):
        text = raw.strip()
        if text.startswith("```"):
            in_code = not in_code
            text = ""
        entry = re.match(r"[-*] |\d+\. |#+ |\*{0,2}\w[\w, ]{0,40}: ", text)
        if joined and (not text or entry or text.startswith("|") or in_code):
            yield first, joined
            joined = ""
        if in_code or not text:
            continue
        if text.startswith("|"):
            yield from ((number, cell) for cell in text.strip("|").split("|"))
        else:
            first = first if joined else number
            joined = f"{joined} {text[entry.end() :] if entry and not joined else text}".strip()


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the texts of a file that have at least three words."""
    source = path.read_text("utf-8")
    match path.suffix:
        case ".py":
            found = texts_of_python(source)
        case ".md":
            found = paragraphs(source)
        case ".c" | ".h" | ".cu" | ".js":
            found = texts_of_c(source)
        case _:
            lines = ((number, line.strip()) for number, line in enumerate(source.split("\n"), 1))
            found = comments((each for each in lines if each[1].startswith("#")), "#")
    for line, text in found:
        plain = " ".join(text.split())
        if len(plain.split()) > 2:
            yield line, plain


def habits_of(text: str) -> list[str]:
    """Return the names of the habits that a text shows. Quoted code is ignored."""
    prose = CODE.sub("X", text)
    return [name for name, pattern in PATTERNS.items() if pattern.search(prose)]


def room_of(name: str) -> str:
    """Return the folder to which the count of a file is added."""
    parts = name.split("/")[:-1]
    return "/".join(parts[: 3 if parts[:1] == ["backend"] else 1]) or "(top level)"


def files() -> list[str]:
    """Return the files that git tracks and that contain prose."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    suffixes = {".py", ".md", ".c", ".h", ".cu", ".js", ".sh", ".toml", ".yaml", ".yml"}
    return [name for name in tracked if Path(name).suffix in suffixes or Path(name).name == "Makefile"]


def main() -> int:
    """Print the table of rooms, or the texts of the given paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", nargs="+", default=[], metavar="PATH", help="print the texts below these paths")
    parser.add_argument("--check", action="store_true", help="compare the counts with tools/words.json")
    parser.add_argument("--update", action="store_true", help="lower the counts in tools/words.json to those of today")
    arguments = parser.parse_args()
    totals: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    by_habit: Counter[str] = Counter()
    for name in files():
        for line, text in texts_of(ROOT / name):
            totals[room_of(name)] += 1
            habits = habits_of(text)
            flagged[room_of(name)] += bool(habits)
            by_habit.update(habits)
            if habits and name.startswith(tuple(arguments.show) or "\0"):
                sys.stdout.write(f"{name}:{line}: [{'; '.join(habits)}] {text}\n")
    allowed = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if arguments.update:
        kept = {room: min(flagged[room], allowed.get(room, flagged[room])) for room in sorted(totals)}
        LIMITS.write_text(json.dumps(kept, indent=2) + "\n")
    elif arguments.check:
        more = {room: count for room, count in flagged.items() if count > allowed.get(room, 0)}
        for room, count in more.items():
            sys.stderr.write(
                f"{room}: {count} texts show a habit of tools/words.py, and {allowed.get(room, 0)} are allowed: "
                f"see them with `python tools/words.py --show {room}` and rewrite those that are new\n"
            )
        return bool(more)
    elif not arguments.show:
        for room in sorted(totals):
            sys.stdout.write(f"{room:40} {totals[room]:6} {flagged[room]:6} {flagged[room] / totals[room]:7.1%}\n")
        sys.stdout.write(
            f"{'all':40} {totals.total():6} {flagged.total():6} {flagged.total() / totals.total():7.1%}\n\n"
        )
        sys.stdout.writelines(f"{count:6} {habit}\n" for habit, count in by_habit.most_common())
    return 0


if __name__ == "__main__":
    sys.exit(main())
