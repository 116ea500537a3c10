"""Program that serializes one pipeline of a Python file with DALI: ``serializer.py FILE NAME OUTPUT``.

It runs in a separate process, in a Python that has DALI and does not need pixprep.
"""

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

NO_DALI = 3
"""Exit code if DALI is not installed."""


def main(file: str, name: str, output: str) -> int:
    """Execute the file, build its pipeline ``name``, and write the pipeline's graph. A GPU is not needed.

    DALI is not imported from the folders of this program and of the file, because either may contain a package
    ``nvidia``.
    """
    sys.path.pop(0)
    try:
        from nvidia.dali import Pipeline  # noqa: PLC0415  (its absence has an exit code)
    except ImportError:
        return NO_DALI
    sys.path.insert(0, str(Path(file).parent))  # as if Python ran the file
    _leave_out_gpus(Pipeline)
    spec = importlib.util.spec_from_file_location("pixprep_dali_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)
    if callable(made):  # a pipeline_def
        made = made()
    made.serialize(filename=output)
    return 0


def _leave_out_gpus(pipeline: Any) -> None:
    """Allow every pipeline of the file to be built without a GPU and without a batch size.

    The graph does not change.
    """
    make = pipeline.__init__
    signature = inspect.signature(make)

    def made(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options)
        usual = {name: given.arguments.get(name) or 1 for name in ("batch_size", "num_threads")}
        given.arguments.update(usual, device_id=None)
        make(*given.args, **given.kwargs)

    made.__signature__ = signature  # type: ignore[attr-defined]  # pipeline_def asks for the arguments
    pipeline.__init__ = made


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
