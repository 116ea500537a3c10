"""The front's process: ``python -m pixprep.serving.front SOCKETS SETTINGS``. It ends when its standard input does."""

import sys

from pixprep.serving.front.relay import main

main(*sys.argv[1:])
