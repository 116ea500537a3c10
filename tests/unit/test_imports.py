"""The doors of the package open one way only, and a heavy import happens in one file only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "backend" / "pixprep"

# A module may import those of an earlier row only. ``pipeline`` reads and writes its file, so the file comes first.
ROWS = [
    ["errors"],
    ["spec"],
    ["ops"],
    ["pipeline_file"],
    ["pipeline", "plan"],
    ["presets", "compiler", "decoders", "profiles.taps"],
    ["decoders.header", "profiles.pillow", "profiles.opencv", "profiles.tensorflow", "profiles.torch", "profiles.dali"],
    ["profiles.torchvision"],
    ["profiles"],
    ["kernels", "kernels.resample", "kernels.compiled"],
    ["kernels.launch"],
    ["decoders.cpu", "kernels.cpu", "kernels.gpu"],
    ["decoders.gpu"],  # what a GPU cannot decode, the CPU decoder does
    ["devices"],
    ["devices.cpu", "devices.gpu"],
    ["engine"],
    ["explain", "triton.config"],
    ["triton.metrics", "triton.pool", "triton.warm_up", "triton.watchdog"],
    ["triton.model"],
]
RANK = {module: rank for rank, row in enumerate(ROWS) for module in row}
ON_DEMAND = {
    ("devices", "devices.cpu"),
    ("devices", "devices.gpu"),
}

HOMES = {
    "cupy": {"devices.gpu", "kernels.gpu"},
    "nvidia": {"decoders.gpu", "devices.gpu"},
    "simplejpeg": {"decoders.cpu"},
    "llvmlite": {"kernels.compiled"},
    "PIL": {"decoders.cpu", "kernels.cpu"},
    "triton_python_backend_utils": {"triton.model"},
    "msgspec": {"ops", "pipeline_file"},
}


def modules():
    """Each module of the package by its name inside it, such as ``decoders.cpu``, and its parsed source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


SOURCES = dict(modules())


def imports(tree):
    """(module, whether it is imported on demand) of each import; ``from pixprep import x`` is ``pixprep.x``."""
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                yield name, id(node) not in top


def inside(name):
    """``pixprep.decoders.cpu.CpuDecoder`` -> ``decoders.cpu``; None for anything that is not ours."""
    parts = name.split(".")
    if parts[0] != "pixprep":
        return None
    while len(parts) > 1 and ".".join(parts[1:]) not in SOURCES:
        parts.pop()
    return ".".join(parts[1:])


@pytest.mark.parametrize("module", sorted(set(RANK) & set(SOURCES)))
def test_a_module_imports_only_what_stands_before_it(module):
    for name, is_on_demand in imports(SOURCES[module]):
        target = inside(name)
        if target is None or target == module:
            continue
        if is_on_demand and (module, target) in ON_DEMAND:
            continue
        assert target in RANK, f"{module} imports {target}, which stands above the library"
        assert RANK[target] < RANK[module], f"{module} imports {target}"


def test_every_module_of_the_library_has_a_place():
    placed = set(RANK) | {"__init__", "pixprep"}
    rooms = {"decoders", "kernels", "profiles"}
    for module in SOURCES:
        if module.split(".")[0] in rooms or module in ("errors", "spec", "ops", "plan", "engine"):
            assert module in placed, f"{module} has no row"


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_in_its_own_files_only(library):
    for module, tree in SOURCES.items():
        if any(name.split(".")[0] == library for name, _ in imports(tree)):
            is_above = module.split(".")[0] in ("demo", "cli", "triton", "verify")
            assert module in HOMES[library] or is_above, f"{module}: {library}"


def _python(code):
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return result.stdout.strip()


def test_importing_pixprep_loads_no_codec_and_no_server():
    loaded = _python("import sys, pixprep; print(*sys.modules)").split()
    assert not {
        "PIL",
        "simplejpeg",
        "llvmlite",
        "cupy",
        "nvidia",
        "tritonclient",
        "pytriton",
        "onnx",
    } & set(loaded)


def test_importing_pixprep_is_quick():
    code = "import numpy, time; start = time.process_time(); import pixprep; print(time.process_time() - start)"
    assert min(float(_python(code)) for _ in range(3)) < 0.1
