"""Entry point of the ``pixprep`` command. Each command is a module in ``cli/commands``.

The exit code is 0 for success, 1 for failure, and 2 for wrong usage. Results are printed to stdout, and all other
output is printed to stderr.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from pixprep import __version__
from pixprep.cli.arguments import add_options, call
from pixprep.errors import PixprepError, printable
from pixprep.names import meant

COMMANDS = (
    *("demo", "build", "check", "import", "verify", "explain", "run", "data check", "preview", "batch"),
    *("serve", "send", "health", "bench", "doctor", "install-backend"),
)
"""Commands in the order of ``--help``. Each is a module in ``cli/commands``.

A module contains ``run``, the function of the command, whose docstring describes the command; ``EXAMPLE``, a command
line without ``pixprep``; and, if necessary, ``GROUPS`` and ``EITHER``, see ``add_options``.
"""
_OPTION_OF = {".onnx": "onnx", ".plan": "plan", ".json": "pipeline", "": "model-repository"}
"""Options whose name users often omit, by the suffix of the value."""
GROUPS = {"data": "Inspect training data."}
"""Descriptions of the first words of commands that consist of two words."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    parsed, unknown = command_line(words).parse_known_args(words)
    given = vars(parsed)
    parser, function = given.pop("parser"), given.pop("function")
    if unknown:  # report unknown arguments with the usage of this command, not with the usage of ``pixprep``
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant_by(unknown[0], parser)}")
    from pixprep.cli.output import forget_output, say

    try:
        code = call(function, given)
        sys.stdout.flush()  # a failed write raises here, not when Python exits
    except PixprepError as error:
        first, *more = error.args
        say(f"pixprep: {first}", *more, file=sys.stderr)
    except KeyboardInterrupt:
        say("pixprep: interrupted", file=sys.stderr)
    except OSError as error:  # usually something the user can fix: missing permission, full disk, folder for a file
        if not isinstance(error, BrokenPipeError):  # the process that reads the output has exited, as with ``| head``
            where = f"{error.filename}: " if error.filename else ""
            say(f"pixprep: {where}{error.strerror or error}", file=sys.stderr)
    except MemoryError as error:
        reason = f": {error}" if str(error) else ""
        say(
            f"pixprep: out of memory{reason}: raise the memory limit (ulimit -v, or that of the container)",
            file=sys.stderr,
        )
    else:
        return code
    forget_output()
    return 1


def _meant_by(word: str, parser: argparse.ArgumentParser) -> str:
    """Return the suggestion that ends the message about an unknown argument, or an empty string."""
    options = {each.lstrip("-"): each for action in parser._actions for each in action.option_strings}  # noqa: SLF001
    if word.startswith("-"):
        near = options.get(meant(word.lstrip("-").partition("=")[0], options), "")
    else:
        name = _OPTION_OF.get(Path(word).suffix, "")
        near = f"{options[name]} {word}" if name in options else ""
    return f"; did you mean {near}?" if near else ""


class _Parser(argparse.ArgumentParser):
    """Argument parser that escapes control characters in error messages, because the messages quote arguments."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def command_line(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the argument parser.

    Args:
        words: Words of the command line. If the first word is a command, the parser does not contain any other command.
            If it is not, only commands among the words have their options, so that ``--help`` is fast. Default: all
            commands have their options.
    """
    parser = _Parser(prog="pixprep", description="Image preprocessing for Triton Inference Server.")
    parser.add_argument("--version", action="version", version=f"pixprep {__version__}")
    parsers = {"": parser.add_subparsers(required=True, metavar="COMMAND")}
    first = words[0] if words else ""
    is_known = first in {each.partition(" ")[0] for each in COMMANDS}
    for each in COMMANDS:
        group, _, name = each.rpartition(" ")
        if is_known and first != (group or name):
            continue
        if group not in parsers:
            text = GROUPS[group]
            sub = parsers[""].add_parser(group, help=text, description=text)
            parsers[group] = sub.add_subparsers(required=True, metavar="WHAT")
        module = each.replace(" ", "_").replace("-", "_")
        command = import_module(f"pixprep.cli.commands.{'import_' if module == 'import' else module}")
        text = inspect.cleandoc(command.run.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        sub = parsers[group].add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  pixprep {command.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if words is None or (group or name) in words:
            add_options(sub, command.run, getattr(command, "GROUPS", {}), getattr(command, "EITHER", ()))
        sub.set_defaults(parser=sub, function=command.run)
    return parser
