"""Compares each stage of a pipeline with its original, which is the library whose pixels the stage reproduces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pixprep.errors import ImageError, PipelineError, PixprepError, SetupError, printable
from pixprep.importers.source import NoSourceError, imported_again
from pixprep.importers.verify import frozen as vectors
from pixprep.importers.verify.frozen import Op
from pixprep.importers.verify.images import generated
from pixprep.importers.verify.libraries import Library, absent, find
from pixprep.importers.verify.originals import FORMULA, Original, Originals, geometry, size_of
from pixprep.importers.verify.report import Array, Certificate, Omission, Row, StageName, Tolerance
from pixprep.importers.verify.stages import Resizing, Stage, decoded, is_real, resizing
from pixprep.pipeline import ops
from pixprep.pipeline.differences import differences
from pixprep.pipeline.ops.sizes import BySize
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.plan.profiles import PROFILES

EQUAL = Tolerance(0, 0, "both use the same arithmetic for the same values")
ONE_ULP = Tolerance(0, 1, "both compute in float64, in a different order, and round once")


def verify(
    pipeline: Pipeline,
    *,
    images: Sequence[Path | tuple[str, bytes]] = (),
    generate: bool = True,
    frozen: bool | None = None,
    originals: Originals | None = None,
    source: Any = None,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """Verify a pipeline against its source and against the libraries whose pixels it reproduces.

    First, the source of the pipeline is imported again, and the ops of both are compared. Then pixprep and the
    libraries process the same images on the CPU, and their pixels are compared stage by stage. A pipeline whose input
    is pixels is verified as if it began with ``decode``.

    Args:
        pipeline: Pipeline to verify.
        images: Images to compare, as paths of files or as pairs of a name and the encoded bytes.
        generate: Whether to compare the generated test images, in addition to ``images``.
        frozen: Whether to compare with stored results of the libraries. True means that stored results are always used,
            False means that they are never used, and None means that they are used if a library is not available.
        originals: Functions of the libraries. Default: those of the installed libraries.
        source: Source of the pipeline. See ``imported_again``.
        options: Options of the importer, which take precedence over the recorded options.
        folder: Folder of the pipeline file, in which its source is searched for.
        on_progress: Function that is called with the number of completed images and the total number.

    Raises:
        NoSourceError: ``source`` cannot be imported.
        SetupError: A library cannot be used, and stored results are not allowed or do not exist.
        PipelineError: The op ``decode`` has ``"reduced": true``, or the pipeline has a custom operator or further
            inputs.
        PixprepError: A file cannot be read, or no image was compared.
    """
    certificate = Certificate()
    compare_with_source(certificate, pipeline, source=source, options=options, folder=folder)
    pipeline = pipeline.for_serving().for_photos()
    originals = originals or Originals(absent if frozen else find)
    try:
        reject_unverifiable(pipeline)
        comparison = Comparison(certificate, pipeline, originals, may_freeze=frozen is not False)
    except (PipelineError, SetupError) as error:
        if not certificate.differences:
            raise
        certificate.absent.append(Omission("pixels", str(error), "only the ops and their fields were compared"))
        return certificate
    for _, name, encoded in subjects(certificate, images, generate=generate, on_progress=on_progress):
        comparison.add(name, encoded)
    return certificate


def compare_with_source(
    certificate: Certificate,
    pipeline: Pipeline,
    *,
    source: Any,
    options: Mapping[str, Any] | None,
    folder: Path | None,
) -> None:
    """Compare the ops of a pipeline with those of its source, and record the result in the certificate.

    The arguments are those of ``verify``.
    """
    try:
        found, certificate.source = imported_again(pipeline, source=source, options=options, folder=folder)
    except NoSourceError as error:
        if source is not None:
            raise
        certificate.uncompared = str(error)
        certificate.is_imported = pipeline.origin is not None
    else:
        certificate.differences = differences(pipeline, found)


def subjects(
    certificate: Certificate,
    images: Sequence[Path | tuple[str, bytes]],
    *,
    generate: bool,
    on_progress: Callable[[int, int], None],
) -> Iterator[tuple[int, str, bytes]]:
    """Yield the number, the name and the encoded bytes of each image to compare.

    The arguments are those of ``verify``.

    Raises:
        PixprepError: A file cannot be read, or no image was compared in one of the rows.
    """
    selected = [*(generated() if generate else ()), *images]
    for index, subject in enumerate(selected):
        on_progress(index, len(selected))
        if isinstance(subject, Path):
            try:
                yield index, printable(subject.name), subject.read_bytes()
            except OSError as error:
                raise PixprepError(f"{subject}: cannot be read: {error.strerror}") from None
        else:
            yield index, *subject
    on_progress(len(selected), len(selected))
    if not all(row.images for row in certificate.rows):
        raise PixprepError(f"none of the {len(selected)} images was compared; {certificate.refused[0]}")


def reject_unverifiable(pipeline: Pipeline) -> None:
    """Raise PipelineError if the pipeline contains an op that cannot be compared with a library."""
    if any(isinstance(op, ops.Extern) for op in pipeline.side_ops):
        raise PipelineError(
            "extern: a custom operator cannot be verified, because no library contains it: verify the pipeline "
            "without it, and test the operator separately"
        )
    decode = pipeline.side_ops[0]
    if isinstance(decode, ops.Decode) and decode.reduced:
        raise PipelineError(
            'decode: "reduced": true cannot be verified, because no library decodes to the same pixels: '
            'verify the pipeline without "reduced"; docs/decisions-decoding.md describes the differences'
        )
    if isinstance(decode, ops.Decode) and decode.alpha == "keep":
        raise PipelineError(
            'decode: a pipeline with "alpha": "keep" cannot be verified; compare its tensors with those of the library'
        )
    if by_rule := next((op for op in pipeline.side_ops if isinstance(op, BySize)), None):
        raise PipelineError(
            f"{ops.op_name(by_rule)}: an op that computes its size by a rule cannot be verified: replace it by resize "
            "with the height and width of its result for one image, and verify that pipeline"
        )
    likes = (op.like for op in pipeline.side_ops if isinstance(op, ops.Resize))
    if like := next((like for like in likes if PROFILES[like].takes_real), None):
        raise PipelineError(
            f'resize: "like": "{like}" cannot be verified, because normalize may precede it: compare the tensors with '
            "those of the training code"
        )
    if pipeline.inputs:
        name = next(iter(pipeline.inputs))
        raise PipelineError(
            f'"{name}" is an input of the pipeline, which cannot be verified: replace it by a constant crop, flip or '
            "colour, which results in the same pixels, and verify that pipeline"
        )


_ONLY_STORED: dict[StageName, str] = {
    "decode": "only its decoder was",
    "resize": "only its filter, without the geometry, was",
    "levels": "only its ops on pixel values were",
}
"""Beginning of the message that a stage was compared only with stored results, by the name of the stage."""


class Comparison:
    """Comparison of a pipeline with the libraries, whose results are added to a certificate.

    Args:
        certificate: Certificate that receives the results. Rows that it already contains are extended.
        pipeline: Pipeline that begins with ``decode``.
        originals: Functions of the libraries.
        may_freeze: Whether stored results may be used if a library is not installed.
    """

    def __init__(self, certificate: Certificate, pipeline: Pipeline, originals: Originals, *, may_freeze: bool) -> None:
        self.certificate = certificate
        self.originals = originals
        self._may_freeze = may_freeze
        decode = pipeline.side_ops[0]
        assert isinstance(decode, ops.Decode)
        self._decode, self._decoder = decode, originals.decoder(decode)
        self._row = self.row("", "decode", [self._decoder], EQUAL, decode)
        decoder = None if self._row.frozen else self._decoder
        outputs = [each for each in pipeline.outputs.values() if isinstance(each.chain[-1], ops.Tensor)]
        self._tensors = [
            _Tensor(self, output, decoder, pipeline.origin.library if pipeline.origin else "") for output in outputs
        ]

    def add(self, name: str, encoded: bytes) -> None:
        """Compare one image, or record the reason why it cannot be compared."""
        refused = self.certificate.refused
        try:
            original = pixels = decoded(self._decode, encoded)
        except ImageError as error:
            refused.append(Omission(name, f"pixprep rejects it: {error}", "not compared"))
            return
        if not self._row.frozen:
            try:
                original = self._decoder.run(encoded)
            except Exception as error:  # noqa: BLE001  (each decoder raises different exceptions)
                refused.append(Omission(name, f"{self._decoder} rejects it: {printable(error)}", "not compared"))
                return
            self._row.add(name, pixels, original)
        for tensor in self._tensors:
            try:
                tensor.add(name, encoded, pixels, original)
            except ImageError as error:
                refused.append(Omission(name, f'pixprep\'s output "{tensor.name}" rejects it: {error}', "not compared"))

    def row(self, output: str, stage: StageName, found: Sequence[Original], tolerance: Tolerance, *frozen: Op) -> Row:
        """Return the row of the certificate for a stage, which is created if it does not exist.

        Args:
            output: Name of the output, or an empty string for ``decode``.
            stage: Stage of the pipeline.
            found: Originals that compute the stage.
            tolerance: Tolerance of the stage.
            frozen: Ops of the stage, in the order of their originals. If a library cannot be used, all of them are
                compared with stored results, and the images are not compared in this row.

        Raises:
            SetupError: A library cannot be used, and stored results are not allowed or do not exist.
        """
        rows, key = self.certificate.rows, (output, stage, tolerance)
        row = next((row for row in rows if (row.output, row.stage, row.tolerance) == key), None)
        if row is None:
            row = Row(output=output, stage=stage, original="", tolerance=tolerance)
            rows.append(row)
        names = [*filter(None, row.original.split(", ")), *map(str, found)]
        row.original = ", ".join(dict.fromkeys(names))
        for original in found:
            if original.stands_for:
                self.omit(original.stands_for, "its arithmetic was compared with the formula")
        missing = [original.library for original in found[: len(frozen)] if not original.library.version]
        if missing:
            names = [self._freeze(row, missing[0], op) for op in frozen]
            row.original, row.frozen = ", ".join(dict.fromkeys(names)), True
            what = _ONLY_STORED[row.stage]
            how = f"compared with {row.images} frozen results of {row.original}; nothing was compared end to end"
            self.omit(missing[0], f"{what} {how}")
        return row

    def _freeze(self, row: Row, library: Library, op: Op) -> str:
        """Compare an op with stored results, and return the name and version of the library that computed them."""
        found = vectors.outputs(op)
        if found is None or not self._may_freeze:
            hint = f": {library.remedy}" if library.remedy else ""
            instead = " (frozen vectors exist, but are not allowed)" if found else ", and no frozen vectors exist"
            raise SetupError(f"{row.stage} cannot be compared with {library.title}: {library.problem}{instead}{hint}")
        for case, expected in zip(vectors.cases(op), found[1], strict=True):
            if isinstance(case.op, ops.Decode):
                actual = decoded(case.op, case.encoded)
            else:
                actual = Stage(case.chain).run(case.encoded)
            row.add(f"frozen {case.name}", actual, expected)
        return found[0]

    def omit(self, library: Library, instead: str) -> None:
        """Record in the certificate that a library was not used, with the comparison that replaces it."""
        omission = Omission(library.title, library.problem, instead, library.remedy)
        if omission not in self.certificate.absent:
            self.certificate.absent.append(omission)


class _Tensor:
    """Comparison of one tensor of a pipeline.

    Args:
        comparison: Comparison of the pipeline.
        output: Tensor to compare.
        decoder: Decoder of the original library. None if it cannot be used.
        library: Library that the pipeline was imported from, or an empty string.
    """

    def __init__(self, comparison: Comparison, output: Output, decoder: Original | None, library: str) -> None:
        chain, originals, op = output.chain, comparison.originals, resizing(output.chain)
        normalizes = [x for x in chain if isinstance(x, ops.Normalize)]
        self.name, self._chain, self._dtype = output.name, chain, output.spec.dtype
        self._padding = output.spec.padding
        (self._tensor,) = (x for x in chain if isinstance(x, ops.Tensor))
        moves = [x for x in chain[:-1] if not isinstance(x, ops.Normalize)]
        colours = [x for x in moves if isinstance(x, ops.SteadyOp)]
        first = moves.index(colours[0]) if colours else len(moves)
        self._before, self._after = moves[:first], [moves[0], *moves[first:]]
        self._without_colours = [x for x in moves if x not in colours]
        changes_size = any(isinstance(x, ops.Rotate) and x.expand for x in colours)
        self._geometry = None if changes_size else Stage(self._without_colours)
        self._before_normalize = Stage(moves)
        self._all_stages = Stage(chain)
        self._op, self._resizer, self._color_original = op, originals.resizer(op), originals.colourist
        self._arithmetic = [originals.normalizer(x, is_real=is_real(op), origin=library) for x in normalizes]
        levels = _resize_tolerance(op)
        values = ONE_ULP if any(x.arithmetic == "float64" for x in normalizes) else EQUAL
        resize = comparison.row(self.name, "resize", [self._resizer], levels, *([op] if op else []))
        self._rows = [] if resize.frozen else [resize]
        colourists, blurred = [originals.colourist(x) for x in colours], EQUAL
        is_frozen = resize.frozen
        if colours:
            if any(isinstance(x, ops.GaussianBlur) and x.like == "torchvision" for x in colours):
                blurred = Tolerance(1, 0, "PyTorch's convolution adds the products in a different order")
                levels = blurred if levels == EQUAL else levels
            row = comparison.row(self.name, "levels", colourists, blurred, *colours)
            self._rows += [] if row.frozen else [row]
            is_frozen |= row.frozen
        self._rows.append(comparison.row(self.name, "tensor", self._arithmetic or [FORMULA], values))
        if decoder is None or is_frozen:
            return
        end = values if levels == EQUAL else _tensor_tolerance(levels, normalizes)
        libraries = [decoder, self._resizer, *colourists, *self._arithmetic]
        self._rows.append(comparison.row(self.name, "end to end", libraries, end))

    def add(self, name: str, encoded: bytes, pixels: Array, original: Array) -> None:
        """Compare one image.

        Args:
            name: Name of the image.
            encoded: Encoded image.
            pixels: Pixels that pixprep decoded.
            original: Pixels that the original library decoded.
        """
        tensor, levels = self._all_stages.run(encoded), self._before_normalize.run(encoded)
        steps: dict[StageName, tuple[Callable[[], Array], Callable[[], Array]]] = {
            "resize": (
                lambda: self._geometry.run(encoded) if self._geometry else self._resized(encoded, pixels),
                lambda: self._levels(self._without_colours if self._geometry else self._before, pixels),
            ),
            "levels": (lambda: levels, lambda: self._levels(self._after, self._resized(encoded, pixels))),
            "tensor": (lambda: tensor, lambda: self._values(levels)),
            "end to end": (lambda: tensor, lambda: self._values(self._levels(self._chain, original))),
        }
        for row in self._rows:
            actual, expected = steps[row.stage]
            row.add(name, actual(), expected())

    def _resized(self, encoded: bytes, pixels: Array) -> Array:
        """Return pixprep's pixels before the first colour op, for an encoded image whose decoded pixels are given."""
        op = self._op

        def blank(pixels: Array) -> Array:
            assert op is not None
            return np.zeros((*size_of(op, pixels), pixels.shape[2]), np.uint8)

        height, width = geometry(self._before, blank, pixels).shape[:2]
        return Stage([*self._before, ops.Crop(top=0, left=0, height=height, width=width)]).run(encoded)

    def _levels(self, chain: Sequence[ops.Op], pixels: Array) -> Array:
        return geometry(chain, self._resizer.run, pixels, recolour=lambda op, x: self._color_original(op).run(x))

    def _values(self, levels: Array) -> Array:
        """Return the values of the tensor, computed from pixel values with the arithmetic of the original libraries.

        Float64 results are rounded to the dtype of the tensor only at the end.
        """
        if self._tensor.pad_level is not None:
            levels = self._padded(levels, self._tensor.pad_level)
        for original in self._arithmetic:
            levels = original.run(levels)
        values, padding = levels.astype(self._dtype)[:, :, : self._tensor.channels], self._tensor.pad_value or 0
        if self._tensor.channels == 4:
            values = np.pad(values, ((0, 0), (0, 0), (0, 1)), constant_values=ops.as_tuple(padding)[-1])
        return self._padded(values, padding)

    def _padded(self, values: Array, value: ops.Reals) -> Array:
        height, width, channels = values.shape
        canvas = np.empty((*self._padding.size(height, width), channels), values.dtype)
        canvas[...] = value
        canvas[:height, :width] = values
        return canvas


def _resize_tolerance(op: Resizing | None) -> Tolerance:
    if op is None:
        return EQUAL
    profile = PROFILES[op.like]
    if op.filter in profile.real:
        return Tolerance(
            0,
            1,
            f"the float32 values are not rounded to integers, and a different build of {profile.title} can fuse a "
            "multiplication and an addition",
        )
    return EQUAL


def _tensor_tolerance(levels: Tolerance, normalizes: Sequence[ops.Normalize]) -> Tolerance:
    """Compute the tolerance of the tensor from the tolerance of the pixel values.

    The tolerance includes the rounding errors of the normalization, which rounds up to three times in both
    implementations.
    """
    gain = prod(max(abs(factor) for factor, _ in op.coefficients(3)) for op in normalizes)
    rounding = 4 * len(normalizes)  # in ulps of 255, the largest possible intermediate result
    largest = levels.largest + (levels.ulps + rounding) * float(np.spacing(np.float32(255)))
    return Tolerance(largest * gain, 2, levels.why)
