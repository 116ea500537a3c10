"""The page's process: ``python -m pixprep.page SOCKET SETTINGS``. It ends when its standard input does."""

import sys

from pixprep.page.server import main

main(*sys.argv[1:])
