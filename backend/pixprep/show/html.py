"""Renders a pipeline, a batch or a certificate as HTML for notebooks, in which all text from files is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.errors import printable
from pixprep.importers.verify.report import Certificate
from pixprep.pipeline.ops import OutputOp, op_name
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.output_plans import TensorPlan
from pixprep.show.drawing import fitted, to_png, true_colours
from pixprep.show.words import op_words
from pixprep.show.worst import worst

THUMBNAILS = 8
ERRORS = 20
_SIDE = 128
_LEFT = 'style="text-align: left"'


def pipeline_html(pipeline: Pipeline) -> str:
    """Return an HTML table of a pipeline's ops. A row describes an op and the resulting image or output."""
    rows = []
    for op, image, words in zip(pipeline.side_ops, pipeline.images, op_words(pipeline), strict=True):
        name = op.name or op_name(op)
        after = pipeline.outputs[name].spec if isinstance(op, OutputOp) else image
        shown = op_name(op) if name == op_name(op) else f'{op_name(op)} "{name}"'
        taken = f', from "{op.from_}"' if op.from_ else ""
        rows.append((shown, f"{words}{taken}", after))
    origin = pipeline.origin
    source = f" of {origin.name}, {origin.library} {origin.version}" if origin else ""
    side = (
        f", in {pipeline.side}: {pipeline.left_out or 'the pipeline does not have another side'}"
        if pipeline.has_sides
        else ""
    )
    return paragraph(f"Pipeline{source}{side}") + table(("op", "description", "result"), rows)


def batch_html(batch: Batch) -> str:
    """Return an HTML view of a batch: shape and range of each output, the first tensors in true colors, and errors."""
    count, failed = len(batch.errors), sum(error is not None for error in batch.errors)
    whole = [index for index, error in enumerate(batch.errors) if error is None]
    parts = [paragraph(f"Batch of {count} image{'s' * (count != 1)}, {failed} failed")]
    arrays = {name: array.get() if hasattr(array, "get") else array for name, array in batch.outputs.items()}
    arrays = {name: batch.padded(name) if isinstance(array, list) else array for name, array in arrays.items()}
    specs = {name: plan.spec for name, plan in batch.plans.items()}
    numbers = {name: specs[name].floats(array) if name in specs else array for name, array in arrays.items()}
    rows = [
        (name, specs[name].dtype if name in specs else array.dtype, list(array.shape), _range(array, whole))
        for name, array in numbers.items()
    ]
    parts.append(table(("output", "dtype", "shape", "range"), rows))
    for name, plan in batch.plans.items():
        if isinstance(plan, TensorPlan) and name in arrays and arrays[name].ndim == 4:  # a clip has one more axis
            for index in whole[:THUMBNAILS]:
                colours = true_colours(plan, arrays[name][index], _SIDE)
                parts.append(picture(to_png(fitted(colours, _SIDE)), f"image {index}"))
    errors = [(index, error) for index, error in enumerate(batch.errors) if error is not None]
    if errors:
        parts.append(table(("image", "error"), errors[:ERRORS]))
        parts.append(paragraph(f"and {len(errors) - ERRORS} more") if len(errors) > ERRORS else "")
    return "".join(parts)


def certificate_html(certificate: Certificate) -> str:
    """Return an HTML view of a certificate: its table, its notes and its worst image."""
    head, *rows = certificate.table()
    image = worst(certificate)
    parts = [paragraph(certificate.summary), table(head, rows)]
    parts += map(paragraph, certificate.notes())
    return "".join([*parts, picture(to_png(image), "the worst image") if image else ""])


def _range(array: npt.NDArray[Any], whole: Sequence[int]) -> str:
    """Return the minimum and maximum over all images that did not fail, formatted as text."""
    if not whole or not array.size:
        return "-"
    rows = [array[index] for index in whole]
    return f"{min(float(row.min()) for row in rows):.4g} to {max(float(row.max()) for row in rows):.4g}"


# HTML


def paragraph(text: object) -> str:
    """Return an HTML paragraph with escaped text."""
    return f"<p>{_escaped(text)}</p>"


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return an HTML table with escaped cells."""
    body = "".join(f"<tr>{''.join(f'<td {_LEFT}>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th {_LEFT}>{_escaped(cell)}</th>' for cell in head)}</tr>{body}</table>"


def picture(png: bytes, title: str) -> str:
    """Return an HTML element for a picture, whose data is embedded in the page."""
    data = b64encode(png).decode()
    return f'<img src="data:image/png;base64,{data}" title="{_escaped(title)}" style="margin: 2px; display: inline">'


def _escaped(text: object) -> str:
    return escape(printable(text))
