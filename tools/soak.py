"""Send requests to a server for a long time while it is reloaded and killed, and check for leaks.

    PYTHONPATH=tests .venv/bin/python tools/soak.py [--requests 12000] [--mixed 2000] [--reloads 15] [--kills 5]
        [--hang-ups 100] [--random-kills 60] [--drains 1]

The exit status is 1 if a request was lost or got a wrong response, or if the server leaks memory or other resources.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pixprep.serving.embedded.supervisor import GRACE_S
from pixprep.serving.triton.watchdog import IDLE_S
from support.endurance import CONCURRENCY, HUNDREDS, drain, endurance, growth
from support.serving import PROTOCOLS, Oracle

GROWTH = 0.02
OTHERS_GROWTH = 0.15  # Triton's memory use fluctuates by an eighth, and the classifier's grows in steps
TRITONS_MIB = 700  # limit after requests of up to 15 MB; glibc with its default settings keeps up to 1,200 MiB
IDLE_MIB = 8  # maximum growth of an idle model compared with its memory use before the load
SAMPLES = 12  # three samples per quarter, so that one of the three may be an outlier
HEALED_S = 15.0  # maximum time to recover after the last of ten random kills


def say(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run all phases, and print the resources that the server uses after each phase."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    defaults = {"warm-up": 3000, "requests": 12_000, "mixed": 2000, "reloads": 15, "kills": 5, "hang-ups": 100}
    for name, default in (defaults | {"random-kills": 60, "drains": 1}).items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    arguments, start = parser.parse_args(), time.monotonic()
    logging.basicConfig(format="pixprep: %(message)s", level=logging.WARNING)
    oracle = Oracle()
    problems = []
    with tempfile.TemporaryDirectory() as folder, endurance(Path(folder), oracle) as it:

        def phase(what: str, do: Callable[[int], Any], count: int) -> None:
            begin, before = time.monotonic(), it.clients.sent
            result = do(count) if count else None
            took_s, sent = time.monotonic() - begin, it.clients.sent - before
            slowest = f", the slowest {result:.1f} s" if result else ""
            held = it.held(idle_s=2 * IDLE_S + 1)  # one of two consecutive periods is completely idle

            sys.stdout.write(
                f"{count} {what}{slowest}: {sent} requests in {took_s:.0f} s\n    in use: {held}\n"
                f"    so far {dict(it.clients.counts)}, errors {dict(it.clients.codes)}\n"
            )
            sys.stdout.flush()

        phase(f"requests at concurrency {CONCURRENCY}, warm-up", it.steady, arguments.warm_up)
        before = it.held()
        samples = []
        for _ in range(SAMPLES if arguments.requests else 2):
            phase(f"requests at concurrency {CONCURRENCY}", it.steady, arguments.requests // SAMPLES)
            samples.append(it.held())
        for name in before.private_mib:
            grew = growth([sample.private_mib[name] for sample in samples])
            sys.stdout.write(f"    {name} grew by {grew:+.1%}\n")
            if grew > (GROWTH if name == "preprocess" else OTHERS_GROWTH):
                problems.append(f"{name} grew by {grew:.1%}")
        if (samples[-1].regions, samples[-1].files) != (before.regions, before.files):
            problems.append(f"memory regions or open files changed from {before} to {samples[-1]}")
        if arguments.mixed:
            with it.looked_after():  # the guard's health probes must not keep a model from becoming idle
                before_load = it.held()
                phase(f"requests of 5 kB to 15 MB at concurrency {HUNDREDS}", it.mixed, arguments.mixed)
                after_load, idle = it.held(), it.held(idle_s=2 * IDLE_S)
            sys.stdout.write(f"    after the load {after_load}\n    idle {idle}\n")
            if (held := idle.private_mib["tritonserver"]) > TRITONS_MIB:
                problems.append(f"Triton uses {held:.0f} MiB after requests of up to 15 MB")
            more = {name: held - before_load.private_mib[name] for name, held in idle.private_mib.items()}
            problems += [
                f"{name} is idle, but uses {mib:.0f} MiB more than before the load"
                for name, mib in more.items()
                if name != "tritonserver" and mib > IDLE_MIB
            ]
        phase("hang-ups", it.hang_up, arguments.hang_ups)
        phase("reloads", it.reload, arguments.reloads)
        settle_s = GRACE_S + 5 if arguments.kills else 0
        phase("kills", lambda times: it.kill(times, settle_s=settle_s), arguments.kills)
        last = it.held()
        if last.regions != before.regions:
            problems.append(f"{last.regions} memory regions instead of {before.regions}")
        counts = it.clients.counts.copy()
        problems += it.clients.notes[:10]
        if arguments.random_kills:
            healed_s, clients = it.kill_anything(arguments.random_kills, log=say)
            say(
                f"{arguments.random_kills} random kills, Triton and guard included: {clients.sent} requests, "
                f"recovered after {healed_s:.1f} s: {dict(clients.counts)}, errors {dict(clients.codes)}"
            )
            counts += clients.counts
            problems += clients.notes[:10]
            if healed_s > HEALED_S:
                problems.append(f"recovery took {healed_s:.1f} s")
    for protocol in PROTOCOLS:
        for _ in range(arguments.drains):
            with tempfile.TemporaryDirectory() as folder:
                in_flight, outcomes, took_s = drain(Path(folder), oracle, protocol)
            sys.stdout.write(
                f"drain over {protocol}: requests in flight {in_flight}, all requests {outcomes}, {took_s:.1f} s\n"
            )
            if in_flight.keys() - {"right", "error"} or "wrong" in outcomes:  # errors are allowed
                problems.append(f"drain over {protocol}: requests in flight {in_flight}, all requests {outcomes}")
    oracle.close()
    say(f"{dict(counts)} in {(time.monotonic() - start) / 60:.0f} minutes")
    sys.stdout.write("".join(f"PROBLEM: {problem}\n" for problem in problems))
    return 1 if problems or counts["lost"] or counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
