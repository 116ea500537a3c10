"""Regenerate the pinned pipeline files, defaults, JSON Schema and tensor digests after an intended change.

    .venv/bin/python tests/golden/remake.py [--accept-changed-pixels]

Review the diff before you commit it. The defaults of a format version never change: only lines and fields may be added.
Any other change needs a new version of the format. The tensors of a file do not change either: digests are added to the
lines of ``pixels.jsonl`` that have only ``ops``, and nothing is written if an existing list produces different tensors.
With ``--accept-changed-pixels``, changed tensors are also written. The changelog must then name the library whose
pixels changed, and explain why the new pixels are closer to that library.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine import frozen_pixels
from pixprep.pipeline import file
from support.canonical import CANONICAL, DEFAULTS, GOLDEN, SCHEMA, defaults

if moved := frozen_pixels.write(accepts_changes="--accept-changed-pixels" in sys.argv[1:]):
    sys.exit(f"{moved}\nNothing is written. Is it meant? --accept-changed-pixels writes it.")
for name, pipeline in CANONICAL.items():
    pipeline.save(GOLDEN / f"{name}.json")
SCHEMA.write_text(json.dumps(file.schema(), indent=2) + "\n", encoding="utf-8")
DEFAULTS.write_text(defaults(), encoding="utf-8")
