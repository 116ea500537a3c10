"""The command-line program ``pixprep``."""

from pixprep.cli.parser import main

__all__ = ["main"]
