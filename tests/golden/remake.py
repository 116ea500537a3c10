"""Write the pinned pipeline files, defaults and JSON Schema again, after a change that is meant: read the diff.

The defaults of a format's version never change: only lines and fields may be added. Else a new version of the format is
needed.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from canonical import CANONICAL, DEFAULTS, GOLDEN, SCHEMA, defaults
from pixprep.pipeline import file

for name, pipeline in CANONICAL.items():
    pipeline.save(GOLDEN / f"{name}.json")
SCHEMA.write_text(json.dumps(file.schema(), indent=2) + "\n", encoding="utf-8")
DEFAULTS.write_text(defaults(), encoding="utf-8")
