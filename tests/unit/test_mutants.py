"""The table of tools/mutants.py keeps up with the product: each mistake can be made, and the test for it is there.

`make mutants` makes them.
"""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = runpy.run_path(ROOT / "tools" / "mutants.py")["MUTANTS"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mistake_can_be_made_and_its_test_is_there(mutant):
    assert (ROOT / "backend" / "pixprep" / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old
    file, _, name = mutant.test.partition("::")
    names = re.findall(r"^def (test_\w+)", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert not name or name.partition("[")[0] in names  # of some, the whole file is to notice
