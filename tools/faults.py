"""Run the cases of the fault table on a running server, and print the outcome of each request.

    PYTHONPATH=tests .venv/bin/python tools/faults.py [--rows 4 23 36] [--scale 5]

The exit status is 1 if a request was lost or got a wrong response.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from serving.fault_cases import CASES, NOT_HERE, Row, run
from support.serving import Oracle, Serve, write_repository


def main() -> int:
    """Run the selected cases of the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", choices=sorted(CASES), default=sorted(CASES), metavar="N")
    parser.add_argument(
        "--scale",
        type=int,
        default=5,
        metavar="N",
        help="send this many times as many requests as the tests (default: %(default)s)",
    )
    arguments = parser.parse_args()
    say, start = sys.stdout.write, time.monotonic()
    oracle = Oracle()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = write_repository(folder / "models", is_small=False)
        with Serve(models, triton_log=folder / "triton.log") as serve:
            say(f"{Row.HEAD}\n")
            for number in arguments.rows:
                rows.append(run(number, serve, oracle, folder, scale=arguments.scale))
                say(f"{rows[-1]}\n")
                sys.stdout.flush()
    oracle.close()
    sent, right, errors, lost, wrong = (
        sum(getattr(row, name) for row in rows) for name in ("sent", "right", "errors", "lost", "wrong")
    )
    say(f"\n{sent} requests: {right} right, {errors} clear errors, {lost} lost, {wrong} wrong")
    say(f"; {time.monotonic() - start:.0f} s\n\nnot here\n")
    for number, (fault, reason) in NOT_HERE.items():
        say(f"{number:>3}  {fault}: {reason}\n")
    return 1 if lost or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
