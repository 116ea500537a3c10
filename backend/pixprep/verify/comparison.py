"""Each stage of a pipeline beside its original, image by image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import numpy as np

from pixprep import ops
from pixprep.errors import ImageError, PipelineError, PixprepError, SetupError, printable
from pixprep.pipeline import Output, Pipeline
from pixprep.pipeline_file import Origin
from pixprep.profiles import PROFILES
from pixprep.verify import frozen as vectors
from pixprep.verify.frozen import Op
from pixprep.verify.images import generated
from pixprep.verify.libraries import Library, absent, find
from pixprep.verify.originals import FORMULA, Original, Originals, geometry
from pixprep.verify.report import Array, Certificate, Omission, Row, StageName, Tolerance
from pixprep.verify.stages import Resizing, Stage, decoded, is_real, resizing

EQUAL = Tolerance(0, 0, "the same arithmetic on the same values")
ONE_ULP = Tolerance(0, 1, "computed in float64, in another order, and rounded once")


def verify(
    pipeline: Pipeline,
    *,
    images: Sequence[Path | tuple[str, bytes]] = (),
    generate: bool = True,
    frozen: bool | None = None,
    originals: Originals | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """Run a pipeline and the original libraries on images, on the CPU, and compare.

    A pipeline that takes pixels is verified as the one that decodes in its place.

    Args:
        pipeline: what to verify.
        images: files, or names and encoded bytes.
        generate: compare with the generated images too.
        frozen: None: frozen vectors where the original library cannot be used; True: always; False: never.
        originals: what to compare with, in place of the installed libraries.
        on_progress: called with how many images are done, and how many there are.

    Raises:
        SetupError: the original library cannot be used, and frozen vectors may not be used or there are none.
        PipelineError: its decode has ``"reduced": true``.
        PixprepError: a file cannot be read, or no image was compared.
    """
    pipeline = pipeline.for_serving().for_files()
    decode = pipeline.ops[0]
    assert isinstance(decode, ops.Decode)
    if decode.reduced:
        raise PipelineError(
            'decode: "reduced": true equals no library, and nothing can be verified of it: '
            'verify the pipeline without "reduced"; docs/decisions.md says what it costs'
        )
    subjects = [*(generated() if generate else ()), *images]
    originals = originals or Originals(absent if frozen else find)
    comparison = _Comparison(originals, may_freeze=frozen is not False)
    refused = comparison.certificate.refused
    decoder = originals.decoder(decode)
    row = comparison.row("", "decode", [decoder], EQUAL, decode)
    tensors: list[_Tensor] = []
    for output in pipeline.outputs.values():
        if isinstance(output.chain[-1], ops.Tensor):
            origin = None if tensors else pipeline.origin
            tensors.append(_Tensor(comparison, output, None if row.frozen else decoder, origin))
    for index, subject in enumerate(subjects):
        on_progress(index, len(subjects))
        name, encoded = (printable(subject.name), _read(subject)) if isinstance(subject, Path) else subject
        try:
            original = pixels = decoded(decode, encoded)
        except ImageError as error:
            refused.append(Omission(name, f"pixprep refuses it: {error}", "not compared"))
            continue
        if not row.frozen:
            try:
                original = decoder.run(encoded)
            except Exception as error:  # noqa: BLE001  (each foreign decoder raises errors of its own)
                refused.append(Omission(name, f"{decoder} refuses it: {printable(error)}", "not compared"))
                continue
            row.add(name, pixels, original)
        for tensor in tensors:
            try:
                tensor.add(name, encoded, pixels, original)
            except ImageError as error:
                refused.append(Omission(name, f'pixprep\'s output "{tensor.name}" refuses it: {error}', "not compared"))
    on_progress(len(subjects), len(subjects))
    if not all(row.images for row in comparison.certificate.rows):
        raise PixprepError(f"no image was compared, of {len(subjects)}; {refused[0]}")
    return comparison.certificate


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PixprepError(f"{path}: cannot be read: {error.strerror}") from None


class _Comparison:
    """A certificate while rows are added to it."""

    def __init__(self, originals: Originals, *, may_freeze: bool) -> None:
        self.certificate = Certificate()
        self.originals = originals
        self._may_freeze = may_freeze

    def row(
        self, output: str, stage: StageName, found: Sequence[Original], tolerance: Tolerance, op: Op | None = None
    ) -> Row:
        """A new row, against these originals together.

        Where the library of ``op`` cannot be used, its frozen vectors are compared with, and the row is complete.
        """
        row = Row(output=output, stage=stage, original=", ".join(dict.fromkeys(map(str, found))), tolerance=tolerance)
        self.certificate.rows.append(row)
        for original in found:
            if original.stands_for:
                self.omit(original.stands_for, "its arithmetic is compared with the formula")
        if op is not None and not found[0].library.version:
            self._freeze(row, found[0].library, op)
        return row

    def _freeze(self, row: Row, library: Library, op: Op) -> None:
        found = vectors.outputs(op)
        if found is None or not self._may_freeze:
            remedy = f": {library.remedy}" if library.remedy else ""
            instead = " (frozen vectors could stand for it)" if found else ", and no frozen vectors stand for it"
            raise SetupError(f"{row.stage} cannot be compared with {library.title}: {library.problem}{instead}{remedy}")
        row.original, row.frozen = found[0], True
        for case, expected in zip(vectors.cases(op), found[1], strict=True):
            if isinstance(case.op, ops.Decode):
                actual = decoded(case.op, case.encoded)
            else:
                actual = Stage([ops.Decode(), case.op]).run(case.encoded)
            row.add(f"frozen {case.name}", actual, expected)
        what = "its decoder" if row.stage == "decode" else "its filter alone, without the geometry,"
        how = f"is compared with {row.images} frozen results of {row.original}; nothing is compared end to end"
        self.omit(library, f"{what} {how}")

    def omit(self, library: Library, instead: str) -> None:
        """Say that a library was not compared with."""
        omission = Omission(library.title, library.problem, instead, library.remedy)
        if omission not in self.certificate.absent:
            self.certificate.absent.append(omission)


class _Tensor:
    """One tensor of a pipeline, and its rows.

    Args:
        comparison: gets the rows.
        output: the tensor.
        decoder: the original; None where it cannot be used.
        origin: of the pipeline.
    """

    def __init__(
        self, comparison: _Comparison, output: Output, decoder: Original | None, origin: Origin | None
    ) -> None:
        chain, originals, op = output.chain, comparison.originals, resizing(output.chain)
        normalizes = [x for x in chain if isinstance(x, ops.Normalize)]
        self.name, self._chain, self._dtype = output.name, chain, output.spec.dtype
        self._geometry = Stage([x for x in chain[:-1] if not isinstance(x, ops.Normalize)])
        self._whole = Stage(chain)
        self._resizer = originals.resizer(op)
        self._arithmetic = [originals.normalizer(x, is_real=is_real(op)) for x in normalizes]
        levels = _claimed(op)
        values = ONE_ULP if any(x.arithmetic == "float64" for x in normalizes) else EQUAL
        resize = comparison.row(self.name, "resize", [self._resizer], levels, op)
        self._rows = [] if resize.frozen else [resize]
        self._rows.append(comparison.row(self.name, "tensor", self._arithmetic or [FORMULA], values))
        if decoder is None or resize.frozen:
            return
        end = values if levels == EQUAL else _carried(levels, normalizes)
        libraries = [decoder, self._resizer, *self._arithmetic]
        self._rows.append(comparison.row(self.name, "end to end", libraries, end))
        if origin is None:
            return
        height, width = output.spec.shape[1:] if output.spec.layout == "chw" else output.spec.shape[:2]
        self._transform = originals.complete(origin, (height, width))
        if self._transform.library.version:
            self._rows.append(comparison.row(self.name, "origin", [self._resizer, self._transform], end))
        else:
            comparison.omit(self._transform.library, "compared op by op")

    def add(self, name: str, encoded: bytes, pixels: Array, original: Array) -> None:
        """Compare one image, as pixprep decodes it and as the original does."""
        resized, tensor = self._geometry.run(encoded), self._whole.run(encoded)
        expected: dict[StageName, Callable[[], Array]] = {
            "resize": lambda: self._levels(pixels),
            "tensor": lambda: self._values(resized),
            "end to end": lambda: self._values(self._levels(original)),
            "origin": lambda: self._transform.run(_rgb(original, self._chain)).astype(self._dtype),
        }
        for row in self._rows:
            row.add(name, resized if row.stage == "resize" else tensor, expected[row.stage]())

    def _levels(self, pixels: Array) -> Array:
        return geometry(self._chain, self._resizer.run, pixels)

    def _values(self, levels: Array) -> Array:
        """The original arithmetic; float64 values stay so until a float32 op or the tensor."""
        for original in self._arithmetic:
            levels = original.run(levels)
        return levels.astype(self._dtype)


def _rgb(pixels: Array, chain: Sequence[ops.AnyOp]) -> Array:
    return pixels[:, :, ::-1] if isinstance(chain[0], ops.Decode) and chain[0].color == "bgr" else pixels


def _claimed(op: Resizing | None) -> Tolerance:
    if op is None:
        return EQUAL
    profile = PROFILES[op.like]
    if op.filter in profile.near:
        return Tolerance(1, 0, f"{profile.title} adds float32 values up in the order of its vector instructions")
    if op.filter in profile.real:
        return Tolerance(
            0, 1, f"nothing rounds these float32 values: another build of {profile.title} may fuse two steps"
        )
    return EQUAL


def _carried(levels: Tolerance, normalizes: Sequence[ops.Normalize]) -> Tolerance:
    """What a difference of levels amounts to in the tensor, where both sides round at each of up to three steps."""
    gain = prod(max(abs(factor) for factor, _ in op.coefficients(3)) for op in normalizes)
    rounding = 4 * len(normalizes)  # in the middle of the arithmetic, where a value may be as large as a level
    largest = levels.largest + (levels.ulps + rounding) * float(np.spacing(np.float32(255)))
    return Tolerance(largest * gain, 2, levels.why)
