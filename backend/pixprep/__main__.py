"""``python -m pixprep`` is the command ``pixprep``."""

import sys

from pixprep.cli.parser import main

sys.exit(main())
