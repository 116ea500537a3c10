"""``python -m pixprep`` is the command ``pixprep``."""

import sys

from pixprep.cli import main

sys.exit(main())
