"""A long mixed load on the embedded server: every answer is compared, and what it holds must not grow.

    PYTHONPATH=tests .venv/bin/python tools/soak.py                     30,000 requests, and every disturbance
    PYTHONPATH=tests .venv/bin/python tools/soak.py --requests 2000 --reloads 3 --kills 1 --disconnects 20

Prints one JSON object, and fails where an answer was lost or wrong, memory grew by 2 % or more after the first sixth,
or something was left. Memory goes up and down with the batches that happen to come together, and what the C library
keeps of them for the next ones; so its floors are compared, of the first third and the last: a leak raises the floor.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from pixprep.triton.server import Server
from pixprep.triton.supervisor import GRACE_S, stubs, watch
from pixprep.triton.wheel import SHARED_MEMORY
from serving import GOOD, MIXED, MODELS, RAW, Clients, Oracle, write_repository

CONCURRENCY = 16
CHUNK = 250
GROWTH = 0.02
CALM_S = 5
SETTLE_S = 3  # Triton looks once a second whether connections have ended
FILES_SLACK = 8
"""Connections that Triton has not closed yet."""


@dataclass(frozen=True)
class Held:
    """What a server holds: resident memory, shared memory regions, open files; of Triton and its stubs together.

    Memory that two of them share is counted once (proportional set size).
    """

    memory_bytes: int
    regions: int
    files: int


def held(served: Served) -> Held:
    """Now."""
    processes = [served.triton, *served.triton.children(recursive=True)]
    living = [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]
    return Held(
        sum(process.memory_full_info().pss for process in living),
        len(list(SHARED_MEMORY.glob(f"{served.prefix}*"))),
        sum(process.num_fds() for process in living),
    )


def ask(clients: Clients, count: int, *, seed: int) -> None:
    """So many requests, ``CONCURRENCY`` at once: models, protocols, sizes and damage in turn."""

    def one(number: int) -> None:
        images = [MIXED[(number * 7 + at) % len(MIXED)] for at in range(1 + number % 5 // 4 * 3)]
        clients.ask(images, model=MODELS[number % 2], protocol=("http", "grpc")[number // 2 % 2])

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(one, range(seed, seed + count)))


def disconnect(served: Served, count: int) -> None:
    """Send a whole request and hang up before its answer, or half of one."""
    host, _, port = served.address.rpartition(":")
    head = "\r\n".join(["POST /v2/models/preprocess/infer HTTP/1.1", "Host: x", *map(": ".join, RAW.items())])
    body = GOOD[2]
    for number in range(count):
        part = body if number % 2 else body[: len(body) // 2]
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + part)


def reload(served: Served, clients: Clients, count: int) -> None:
    """Unload and load the model under load."""
    with clients.load(4):
        for _ in range(count):
            for action in ("unload", "load"):
                status, text = served.server.control(f"models/preprocess/{action}")
                assert status == 200, text
            served.server.control("models/ensemble/load")
    clients.recover()


def kill(served: Served, clients: Clients, count: int) -> list[float]:
    """End the model's process under load; for each time the seconds until it answers rightly again."""
    stopping = threading.Event()
    supervisor = threading.Thread(target=watch, args=(served.server, ["preprocess"], stopping))
    supervisor.start()
    try:
        with clients.load(4):
            recovery_s = [killed(served, clients) for _ in range(count)]
        time.sleep(GRACE_S + SETTLE_S)  # then the supervisor takes away what Triton kept of the dead
        return recovery_s
    finally:
        stopping.set()
        supervisor.join()


def killed(served: Served, clients: Clients) -> float:
    """Once."""
    start = time.monotonic()
    for stub in stubs(served.triton.pid):
        if stub.model == "preprocess":
            os.kill(stub.pid, signal.SIGKILL)
    clients.recover(within_s=120)
    recovery_s = time.monotonic() - start
    time.sleep(CALM_S if recovery_s > 10 else 1)
    return recovery_s


class Served:
    """A server of this process, as ``Clients`` wants it."""

    def __init__(self, repository: Path) -> None:
        self.server = Server(repository, http_port=0, grpc_port=0, metrics_port=0)
        self.server.start()
        self.address, self.grpc = self.server.http_url.removeprefix("http://"), self.server.grpc_url
        self.triton = psutil.Process(self.server.pid)
        self.prefix = next(iter(stubs(self.server.pid))).region.name[: len("pixprep_") + 12]


def main() -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--disconnects", type=int, default=200)
    parser.add_argument("--reloads", type=int, default=50)
    parser.add_argument("--kills", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        served, oracle = Served(write_repository(Path(folder) / "models")), Oracle()
        try:
            report = soak(served, oracle, arguments)
        finally:
            served.server.stop()
            oracle.close()
        report["left"] = [str(path) for path in SHARED_MEMORY.glob(f"{served.prefix}*")]
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if holds(report) else 1


def soak(served: Served, oracle: Oracle, arguments: argparse.Namespace) -> dict[str, Any]:
    """Every phase, and what was seen."""
    first = arguments.requests // 6
    with Clients(served, oracle) as clients, Clients(served, oracle) as disturbed:
        start = time.monotonic()
        ask(clients, first, seed=0)
        before = held(served)
        memory = []
        for seed in range(first, arguments.requests, CHUNK):
            ask(clients, CHUNK, seed=seed)
            memory.append(held(served).memory_bytes)
        third = max(1, len(memory) // 3)
        seconds = time.monotonic() - start
        with disturbed.load(4):
            disconnect(served, arguments.disconnects)
        reload(served, disturbed, arguments.reloads)
        recovery_s = kill(served, disturbed, arguments.kills)
    time.sleep(SETTLE_S)
    with Clients(served, oracle) as again:
        ask(again, 200, seed=0)
    time.sleep(SETTLE_S)
    clients.counts += again.counts
    return {
        "seconds": round(seconds, 1),
        "requests": dict(clients.counts),
        "disturbed": dict(disturbed.counts),
        "codes": {str(code): count for code, count in (clients.codes + disturbed.codes).items()},
        "notes": [*clients.notes, *disturbed.notes][:20],
        "recovery_s": [round(s, 1) for s in recovery_s],
        "before": asdict(before),
        "end": asdict(held(served)),
        "memory_bytes": {"least": min(memory), "median": int(median(memory)), "most": max(memory)},
        "growth": round(min(memory[-third:]) / min(memory[:third]) - 1, 4),
    }


def holds(report: dict[str, Any]) -> bool:
    """Whether nothing was lost, wrong, left, or grew."""
    counts = [report["requests"], report["disturbed"]]
    is_whole = not any(count.get(outcome) for count in counts for outcome in ("lost", "wrong"))
    is_flat = report["growth"] < GROWTH and report["end"]["files"] <= report["before"]["files"] + FILES_SLACK
    same = report["end"]["regions"] == report["before"]["regions"]
    return is_whole and is_flat and same and not report["left"] and not report["requests"].get("error")


if __name__ == "__main__":
    sys.exit(main())
