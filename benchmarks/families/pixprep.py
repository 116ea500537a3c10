"""pixprep: imported pipelines, recipes of docs/models.md, and ``apply`` on arrays."""

from __future__ import annotations

import importlib
from functools import partial
from itertools import count

from contenders import MEAN, STD, pixprep_full
from measure import ROOT

import pixprep as pp
from families import GRAPHS, PROCESSORS, ROWS, Run, of, on_arrays
from pixprep.importers import dali, keras, torchvision, transformers, ultralytics

PACKAGES = pixprep_full.PACKAGES
LINE = "## rapidocr, PaddleOCR: recognizer"


def _recipe(heading: str) -> pp.Pipeline:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    return pp.Pipeline.from_json(page.split(heading)[1].split("```json\n")[1].partition("```")[0])


def _weights() -> pp.Pipeline:
    importlib.import_module("contenders.torchvision")  # supports a torchvision without its C++ extension
    return torchvision.from_torchvision("ResNet50_Weights.IMAGENET1K_V1", input="tensor")


def _opencv(filter_name: str) -> pp.Pipeline:
    resize = pp.resize(256, filter=filter_name, like="opencv")
    normalize = pp.normalize(mean=MEAN, std=STD, arithmetic="divide")
    return pp.Pipeline([pp.decode(), resize, pp.center_crop(224), normalize, pp.tensor()])


def _graph(name: str) -> pp.Pipeline:
    return dali.from_dali(ROOT / "tests" / "parity" / "frozen" / "dali" / f"{name}.dali")


PIPELINES = {
    "yolo": lambda: ultralytics.from_ultralytics("detect", imgsz=640),
    "weights": _weights,
    "keras": lambda: keras.from_keras("ResNet50", loader="image_dataset"),
    **{row: partial(_graph, name) for row, name in GRAPHS.items()},
    "paddle": lambda: _recipe(LINE),
    **{row: partial(transformers.from_transformers, fields) for row, fields in PROCESSORS.items()},
    **{row: partial(_opencv, row.split()[1]) for row in ROWS if row.startswith("opencv")},
}
OPS = {
    "brightness": pp.brightness(factor=1.3, like="torchvision"),
    "contrast": pp.contrast(factor=1.3, like="torchvision"),
    "saturation": pp.saturation(factor=1.3, like="torchvision"),
    "hue": pp.hue(factor=0.1, like="torchvision"),
    "grayscale": pp.grayscale(like="torchvision"),
    "gamma": pp.gamma(gamma=1.3, like="torchvision"),
    "posterize": pp.posterize(bits=4),
    "solarize": pp.solarize(threshold=128),
    "invert": pp.invert(),
    "autocontrast": pp.autocontrast(like="torchvision"),
    "equalize": pp.equalize(),
    "flip": pp.flip(),
    "gaussian_blur": pp.gaussian_blur(kernel_size=5, sigma=1.0),
    "rotate": pp.rotate(angle=15, filter="bilinear", like="torchvision"),
    "elastic": pp.elastic(),
}


def running(pipeline: pp.Pipeline) -> Run:
    """Run the engine, and return only the tensors."""
    engine = pp.Engine(pipeline, threads=1)

    def run(photos: list[bytes]) -> object:
        batch = engine.run_batch(photos)
        assert not any(batch.errors), batch.errors
        return max(batch.outputs.values(), key=lambda output: output[0].nbytes)

    return run


def prepare(row: str, threads: int) -> Run:
    """See ``families``."""
    drawn = count()  # each image gets its own random parameters
    ops = {
        name: lambda op=op: on_arrays(lambda pixels: pp.apply(op, pixels, index=next(drawn)))
        for name, op in OPS.items()
    }
    pipelines = {name: lambda make=make: running(make()) for name, make in PIPELINES.items()}
    return of(pipelines | ops, row, threads)
