"""Runs code in a separate process, on memory that is surrounded by unreadable pages."""

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
"""``inside`` is a uint8 array: four pages of memory between two unreadable ones."""


def guarded(code):
    """Run code in a separate process and return the completed process. The code can use ``inside`` and import test
    modules.
    """
    paths = [os.environ.get("PYTHONPATH", ""), str(TESTS), str(TESTS / "engine")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-W", "error", "-c", PAGES + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
