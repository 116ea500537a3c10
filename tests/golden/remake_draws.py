"""Add the random parameters of new cases to tests/golden/draws.json.

Existing entries never change, because training runs would no longer be reproducible. For an intended change, such as a
bug fix, pass --change NAME for each case, and add a line to CHANGELOG.md.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from plan.frozen_draws import FROZEN, frozen, remade

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--change", action="append", default=[], metavar="NAME", help="a case, as the file names it")
made = remade(json.loads(FROZEN.read_text(encoding="utf-8")), frozen(), parser.parse_args().change)
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in made.items())
FROZEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
