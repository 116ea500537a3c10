"""The command ``pixprep doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

from pixprep.cli.arguments import Json

EXAMPLE = "doctor"


def run(*, as_json: Json = False) -> int:
    """Check this machine for known problems, and print the fix for each.

    Args:
        as_json: Print a JSON list of objects with the keys name, ok, found and remedy.
    """
    from pixprep.cli.output import print_text, say
    from pixprep.serving.embedded import doctor

    checks = doctor.checks()
    if as_json:
        print_text(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        marks = {True: "ok  ", False: "FAIL", None: "note"}
        for check in checks:
            say(f"{marks[check.ok]}  {check.name}: {check.found}")
            if not check.ok and check.remedy:
                say(f"      {check.remedy}")
    return 1 if any(check.ok is False for check in checks) else 0
