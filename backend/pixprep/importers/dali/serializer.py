"""Program that serializes a DALI pipeline of a Python file: ``serializer.py FILE NAME OUTPUT``.

It is executed in a separate process, by a Python interpreter in which DALI is installed but pixprep need not be.
"""

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

NO_DALI = 3
"""Exit code if DALI is not installed."""
NOT_ONE = 4
"""Exit code if the requested pipeline is missing, or if no name is given and the pipeline is missing or ambiguous."""


def main(file: str, name: str, output: str) -> int:
    """Execute a Python file, and write the serialized graph of one of its pipelines. A GPU is not required.

    Args:
        file: Path of the Python file.
        name: Name of the pipeline. If it is empty, the function with ``@autoserialize`` is serialized. A file without
            such a function must define exactly one pipeline.
        output: Path of the serialized graph. If the exit code is ``NOT_ONE``, the file contains the names of the
            pipelines as a JSON list.

    Returns:
        The exit code: 0, ``NO_DALI`` or ``NOT_ONE``.
    """
    sys.path.pop(0)  # the folder of this program, which may contain a package "nvidia"
    try:
        from nvidia.dali import Pipeline  # noqa: PLC0415  (a missing package has an exit code)
    except ImportError:
        return NO_DALI
    sys.path.insert(0, str(Path(file).parent))  # as if Python executed the file
    _build_without_gpu(Pipeline)
    spec = importlib.util.spec_from_file_location("pixprep_dali_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # ``pipeline_def`` and ``autoserialize`` of DALI set these attributes
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Pipeline) or getattr(value, "_is_pipeline_def", False)
    }
    marked = [key for key, value in found.items() if getattr(value, "_is_autoserialize", False)]
    names = [name] * hasattr(module, name) if name else marked or [*found]
    if len(names) != 1:
        Path(output).write_text(json.dumps([*found]))
        return NOT_ONE
    pipeline = getattr(module, names[0])
    if callable(pipeline):  # a function with @pipeline_def
        pipeline = pipeline()
    pipeline.serialize(filename=output)
    return 0


def _build_without_gpu(cls: Any) -> None:
    """Patch the class ``Pipeline`` so that pipelines can be built without a GPU and without a batch size.

    The serialized graph does not change.
    """
    original = cls.__init__
    signature = inspect.signature(original)

    def patched(*arguments: Any, **options: Any) -> None:
        bound = signature.bind(*arguments, **options)
        defaults = {name: bound.arguments.get(name) or 1 for name in ("batch_size", "num_threads")}
        bound.arguments.update(defaults, device_id=None)
        original(*bound.args, **bound.kwargs)

    patched.__signature__ = signature  # type: ignore[attr-defined]  # pipeline_def inspects the arguments
    cls.__init__ = patched


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
