"""Entry point of the page: ``python -m pixprep.serving.page SOCKET SETTINGS``.

The process exits when its stdin is closed.
"""

import sys

from pixprep.serving.page.handler import main

main(*sys.argv[1:])
