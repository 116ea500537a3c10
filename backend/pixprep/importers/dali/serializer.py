"""Program that serializes one pipeline of a Python file by DALI: ``serializer.py FILE NAME OUTPUT``.

It runs in a process of its own, by a Python that has DALI and need not have pixprep.
"""

import importlib.util
import sys
from pathlib import Path

NO_DALI = 3
"""Exit code where DALI is not installed."""


def main(file: str, name: str, output: str) -> int:
    """Run the file, make its pipeline ``name``, and write its graph; a GPU is not needed."""
    sys.path[0] = str(Path(file).parent)  # as if Python ran the file; this program's folder has modules of its own
    try:
        import nvidia.dali  # noqa: F401, PLC0415  (its absence has an exit code)
    except ImportError:
        return NO_DALI
    spec = importlib.util.spec_from_file_location("pixprep_dali_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)
    if callable(made):  # a pipeline_def; these arguments change how it runs, and not the graph
        made = made(batch_size=1, num_threads=1, device_id=None)
    made.serialize(filename=output)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
