"""Reads functions and classes from the source code of installed packages, without importing the packages."""

import ast
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest


def definitions(module, *names, **values):
    """Run the definitions of functions and classes of a module.

    Decorators are omitted, except for ``staticmethod`` and ``property``.

    Args:
        module: Path of the module below the folder of its package, such as ``mmseg/datasets/loading.py``. If the
            package is not installed, the test is skipped.
        names: Names of the functions and classes.
        values: Names that the definitions use, such as ``np``.

    Returns:
        Namespace with the functions and classes.
    """
    package, *_ = module.split("/")
    spec = find_spec(package)
    if spec is None:
        pytest.skip(f"NO {package.upper()}: its draws were not replayed: pip install --no-deps {package}")
    (folder,) = spec.submodule_search_locations
    tree = ast.parse(Path(folder).parent.joinpath(module).read_text(encoding="utf-8"))
    found = [node for node in tree.body if getattr(node, "name", None) in names]
    for node in ast.walk(ast.Module(found, [])):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = [
                each for each in node.decorator_list if ast.unparse(each) in ("staticmethod", "property")
            ]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for each in (*node.args.args, *node.args.kwonlyargs):
                each.annotation = None
    exec(compile(ast.Module(found, []), module, "exec"), values)  # noqa: S102  (the code of an installed library)
    return SimpleNamespace(**{name: values[name] for name in names})
