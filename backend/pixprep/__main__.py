"""``python -m pixprep`` is the command ``pixprep``."""

import sys

from pixprep.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
