"""The page's process: ``python -m pixprep.serve.page SOCKET SETTINGS``. It ends when its standard input does."""

import sys

from pixprep.serve.page.handler import main

main(*sys.argv[1:])
