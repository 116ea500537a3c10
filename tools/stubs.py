"""Write the two stub files that declare the ops for type checkers, because Python creates them at run time."""

import ast
from pathlib import Path

import pixprep
from pixprep.pipeline.ops import OPS

PACKAGE = Path(pixprep.__file__).parent
HEAD = "# Written by tools/stubs.py: run `make docs` after a new operator.\n"


def of_ops() -> str:
    """Return the text of ``pixprep/pipeline/ops/__init__.pyi``, which imports the classes."""
    source = (PACKAGE / "pipeline" / "ops" / "__init__.py").read_text(encoding="utf-8")
    classes = [_import(cls.__module__, cls.__name__, cls.__name__) for cls in OPS.values()]
    return _stub([*_imported(source, "pixprep"), *classes, "OPS: dict[str, type[Op]]"])


def of_package() -> str:
    """Return the text of ``pixprep/__init__.pyi``: all public names, including each op by its name in the file."""
    ops = [_import(cls.__module__, cls.__name__, name) for name, cls in OPS.items()]
    late = [_of_target(target, name) for name, target in pixprep.LATE.items()]
    return _stub([*late, *ops, "from pixprep.pipeline.ops import OPS as OPS", "__version__: str", "__all__: list[str]"])


def write() -> None:
    """Write both stub files."""
    (PACKAGE / "pipeline" / "ops" / "__init__.pyi").write_text(of_ops(), encoding="utf-8")
    (PACKAGE / "__init__.pyi").write_text(of_package(), encoding="utf-8")


def _imported(source: str, package: str) -> list[str]:
    """Return the imports of a module from its own package."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    return [
        _import(node.module, alias.name, alias.name)
        for node in found
        if node.module is not None and node.module.split(".")[0] == package
        for alias in node.names
    ]


def _of_target(target: str, name: str) -> str:
    """Return the stub line for a public name, which is a module or a member of a module."""
    module, _, attribute = target.partition(":")
    if "." in attribute:
        return f"{name} = {attribute}"
    return _import(module, attribute, name) if attribute else _import(*module.rpartition(".")[::2], name)


def _import(module: str, name: str, known_as: str) -> str:
    return f"from {module} import {name} as {known_as}"


def _stub(lines: list[str]) -> str:
    imports = sorted(line for line in lines if line.startswith("from "))
    return "\n".join([HEAD, *imports, "", *(line for line in lines if line not in imports)]) + "\n"


if __name__ == "__main__":
    write()
