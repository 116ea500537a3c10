"""Write the pinned pipeline files and the JSON Schema again, after a change that is meant: read the diff."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from canonical import CANONICAL, GOLDEN, SCHEMA
from pixprep import pipeline_file

for name, pipeline in CANONICAL.items():
    pipeline.save(GOLDEN / f"{name}.json")
SCHEMA.write_text(json.dumps(pipeline_file.schema(), indent=2) + "\n", encoding="utf-8")
