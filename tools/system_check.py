"""Check for system packages that pip cannot install, and print one line for each that is missing.

The Makefile runs this file with the system's Python before anything is installed, so it must support Python 3.6.
"""

import ctypes.util
import importlib.util
import platform
import sys
import sysconfig
from pathlib import Path


def missing():  # noqa: ANN201  (type hints of generators need imports that old versions lack)
    """Yield one message for each missing package, with the command that installs this package."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        yield (
            f"Python {version}: the embedded Triton needs NumPy 1, which is built for 3.10 to 3.12; "
            "install one of them and name it: make demo PYTHON=python3.11"
        )
        return
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        yield f"{platform.system()} {platform.machine()}: the embedded Triton runs on Linux x86_64 only"
    if not all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")):
        yield f"Python's venv is missing: apt-get install python{version}-venv"
    library = f"libpython{version}.so.1.0"
    library_path = Path(sysconfig.get_config_var("LIBDIR") or "/", library)
    if not library_path.exists() and not ctypes.util.find_library(f"python{version}"):
        yield f"{library}, which Triton's Python backend requires, is missing: apt-get install libpython{version}"


lines = list(missing())
for line in lines:
    sys.stderr.write(f"pixprep: {line}\n")
sys.exit(1 if lines else 0)
