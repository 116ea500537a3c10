"""The page's process: ``python -m pixprep.serving.page SOCKET SETTINGS``. It ends when its standard input is closed."""

import sys

from pixprep.serving.page.handler import main

main(*sys.argv[1:])
