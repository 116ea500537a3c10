"""The command line: ``pixprep``."""

from pixprep.cli.parser import main

__all__ = ["main"]
