"""Entry point of the front: ``python -m pixprep.serving.front SOCKETS SETTINGS``.

The process exits when its stdin is closed.
"""

import sys

from pixprep.serving.front.relay import main

main(*sys.argv[1:])
