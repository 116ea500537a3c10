"""Runs code next to unreadable pages, in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGES = """
import ctypes, mmap, sys
import numpy as np

PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 6 * PAGE)
whole = np.frombuffer(memory, np.uint8)
for page in (0, 5):
    address = ctypes.c_void_p(whole.ctypes.data + page * PAGE)
    assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(PAGE), 0) == 0
inside = whole[PAGE : 5 * PAGE]
"""
"""``inside`` is uint8: four pages of memory between the two."""


def guarded(code):
    """Run code that uses ``inside`` and may import the tests. Return how its process ended."""
    paths = [os.environ.get("PYTHONPATH", ""), str(TESTS), str(TESTS / "engine")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-W", "error", "-c", PAGES + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
