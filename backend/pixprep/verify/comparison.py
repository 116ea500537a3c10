"""Each stage of a pipeline beside its original, image by image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep import ops
from pixprep.errors import ImageError, PipelineError, PixprepError, SetupError
from pixprep.pipeline import Output, Pipeline
from pixprep.pipeline_file import Source
from pixprep.verify import frozen
from pixprep.verify.frozen import Vectors
from pixprep.verify.images import generated, png
from pixprep.verify.libraries import absent
from pixprep.verify.originals import Original, Originals, geometry
from pixprep.verify.report import Absence, Certificate, Refusal, StageName, Tally, Tolerance
from pixprep.verify.stages import Stage, decoded, is_real, resizing

Array = npt.NDArray[Any]

EQUAL = Tolerance(0, 0, "the same arithmetic on the same values")
ONE_ULP = Tolerance(0, 1, "computed in float64, in another order, and rounded once")
REAL = Tolerance(0, 1, "equal with TensorFlow's x86 wheel; another build may fuse a product and a sum")
"""How near a resize is whose values are not rounded to levels."""
NEAR = Tolerance(1, 0, "DALI adds float32 values up in the order of its vector instructions")
"""How near a resize is that claims no exactness, in levels."""


def verify(
    pipeline: Pipeline,
    *,
    images: Sequence[Path] = (),
    frozen: bool | None = None,
    originals: Originals | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """Run a pipeline and the original libraries on generated images and on the user's, on the CPU, and compare.

    Args:
        pipeline: what to verify.
        images: files, beside the generated images.
        frozen: None: frozen vectors where the original library cannot be used; True: always; False: never.
        originals: what to compare with, in place of the installed libraries.
        on_progress: called with how many images are done, and how many there are.

    Raises:
        SetupError: the original library cannot be used, and frozen vectors may not be used or there are none.
        PipelineError: its decode has ``"scale": "auto"``.
        PixprepError: a file cannot be read, or the pipeline refuses every image.
    """
    subjects: list[tuple[str, bytes | Path]] = [*generated(), *((path.name, path) for path in images)]
    originals = originals or Originals(*([absent] if frozen else []))
    return compare(pipeline, subjects, originals, may_freeze=frozen is not False, on_progress=on_progress)


def compare(
    pipeline: Pipeline,
    subjects: Sequence[tuple[str, bytes | Path]],
    originals: Originals,
    *,
    may_freeze: bool = True,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """``verify`` of these images alone: their names, and their encoded bytes or where those are."""
    comparison = _Comparison(pipeline, originals, may_freeze=may_freeze)
    for index, (name, image) in enumerate(subjects):
        on_progress(index, len(subjects))
        comparison.add(name, image if isinstance(image, bytes) else _read(image))
    comparison.add_frozen()
    on_progress(len(subjects), len(subjects))
    return comparison.certificate()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PixprepError(f"{path}: cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class _Step:
    """A stage that has an original.

    Attributes:
        original: as the library does it; not to be run where there are ``vectors``.
        vectors: in its place.
        tally: of the stage.
    """

    original: Original
    vectors: Vectors | None
    tally: Tally

    @property
    def absence(self) -> Absence | None:
        """That the library was not compared with."""
        if self.vectors is None:
            return None
        library = self.original.library
        what = "its decoder" if self.tally.row.stage == "decode" else "its filter, and no geometry"
        instead = (
            f"compared is only {what}, with {len(self.vectors.outputs)} frozen results of {self.vectors.library}: "
            "nothing end to end"
        )
        return Absence(library.title, library.problem, library.remedy, instead)


def _step(
    output: str,
    stage: StageName,
    original: Original,
    vectors: Vectors | None,
    tolerance: Tolerance,
    *,
    may_freeze: bool,
) -> _Step:
    library = original.library
    if library.is_usable:
        return _Step(original, None, Tally(output, stage, [str(library)], tolerance))
    if vectors is None or not may_freeze:
        remedy = f": {library.remedy}" if library.remedy else ""
        instead = " (or let frozen vectors stand for it)" if vectors else ", and no frozen vectors stand for it"
        raise SetupError(f"{stage} cannot be compared with {library.title}: {library.problem}{instead}{remedy}")
    return _Step(original, vectors, Tally(output, stage, [vectors.library], tolerance, frozen=True))


class _Comparison:
    """A certificate while images are added to it."""

    def __init__(self, pipeline: Pipeline, originals: Originals, *, may_freeze: bool) -> None:
        decode = pipeline.ops[0]
        assert isinstance(decode, ops.Decode)
        if decode.scale == "auto":
            raise PipelineError(
                'decode: "scale": "auto" equals no library, and nothing can be verified of it: '
                'verify the pipeline with "scale": "full"; docs/decisions.md says what "auto" costs'
            )
        self._op = decode
        self._decode = _step(
            "", "decode", originals.decoder(decode), frozen.decoded(decode), EQUAL, may_freeze=may_freeze
        )
        self._refused: list[Refusal] = []
        self._outputs: list[_Output] = []
        for output in pipeline.outputs.values():
            if isinstance(output.chain[-1], ops.Tensor):
                source = None if self._outputs else pipeline.source
                self._outputs.append(_Output(output, self._decode, originals, source, may_freeze=may_freeze))

    def add(self, name: str, encoded: bytes) -> None:
        """Compare one image at every stage."""
        try:
            pixels = decoded(self._op, encoded)
        except ImageError as error:
            self._refused.append(Refusal(name, "pixprep", str(error)))
            return
        original: Array | None = None
        if self._decode.vectors is None:
            try:
                original = self._decode.original.run(encoded)
            except Exception as error:  # noqa: BLE001  (a foreign decoder, of which each raises what it likes)
                self._refused.append(Refusal(name, str(self._decode.original.library), str(error)))
                return
            self._decode.tally.add(name, pixels, original)
        for output in self._outputs:
            try:
                output.add(name, encoded, pixels, original)
            except ImageError as error:
                self._refused.append(Refusal(name, f'pixprep\'s output "{output.name}"', str(error)))

    def add_frozen(self) -> None:
        """Compare with the frozen vectors that stand for a library."""
        if self._decode.vectors is not None:
            op = ops.Decode(idct=self._op.idct, chroma=self._op.chroma)
            for (name, encoded), expected in zip(frozen.jpegs(), self._decode.vectors.outputs, strict=True):
                self._decode.tally.add(f"frozen {name}", decoded(op, encoded), expected)
        for output in self._outputs:
            output.add_frozen()

    def certificate(self) -> Certificate:
        """What has come together."""
        for output in self._outputs:
            if output.is_empty:
                raise PixprepError(f"no image was compared, of {len(self._refused)}; {self._refused[0]}")
        absences = [self._decode.absence, *(absence for output in self._outputs for absence in output.absences)]
        return Certificate(
            claim="exact" if all(output.is_exact for output in self._outputs) else "near",
            rows=tuple(tally.row for tally in (self._decode.tally, *(t for o in self._outputs for t in o.tallies))),
            absent=tuple(dict.fromkeys(absence for absence in absences if absence is not None)),
            refused=tuple(self._refused),
        )


def _claimed(op: ops.Resize | ops.Letterbox | None) -> Tolerance:
    if op is None:
        return EQUAL
    if op.like == "dali":
        return NEAR
    return REAL if is_real([op]) else EQUAL


def _carried(levels: Tolerance, normalizes: Sequence[ops.Normalize]) -> Tolerance:
    """What a difference of levels amounts to in the tensor, where both sides round at each of up to three steps."""
    gain = prod(max(abs(factor) for factor, _ in op.coefficients(3)) for op in normalizes)
    rounding = 4 * len(normalizes)  # in the middle of the arithmetic, where a value may be as large as a level
    largest = levels.largest + (levels.ulps + rounding) * float(np.spacing(np.float32(255)))
    return Tolerance(largest * gain, 2, levels.why)


class _Output:
    """One tensor of a pipeline."""

    def __init__(
        self, output: Output, decode: _Step, originals: Originals, source: Source | None, *, may_freeze: bool
    ) -> None:
        self.name = output.name
        self._chain = output.chain
        self._dtype = output.spec.dtype
        self._op = resizing(output.chain)
        self._geometry = Stage([op for op in output.chain[:-1] if not isinstance(op, ops.Normalize)])
        self._whole = Stage(output.chain)
        levels = _claimed(self._op)
        self.is_exact = levels != NEAR
        vectors = frozen.resized(self._op) if self._op else None
        self._resize = _step(self.name, "resize", originals.resizer(self._op), vectors, levels, may_freeze=may_freeze)
        normalizes = [op for op in output.chain if isinstance(op, ops.Normalize)]
        self._arithmetic = [(op, originals.normalizer(op, is_real=is_real(output.chain))) for op in normalizes]
        values = ONE_ULP if any(op.arithmetic == "float64" for op in normalizes) else EQUAL
        libraries = [str(original.library) for _, original in self._arithmetic]
        self._tensor = Tally(self.name, "tensor", libraries or [str(originals.formula.library)], values)
        self._end: Tally | None = None
        self._source: Tally | None = None
        self._transform: Original | None = None
        self._missing: list[Absence] = []
        if decode.vectors is None and self._resize.vectors is None:
            end = values if levels == EQUAL else _carried(levels, normalizes)
            steps = (decode.original, self._resize.original)
            self._end = Tally(self.name, "end to end", [*(str(step.library) for step in steps), *libraries], end)
            if source is not None:
                shape = output.spec.shape
                size = (shape[1], shape[2]) if output.spec.layout == "chw" else (shape[0], shape[1])
                self._find_source(originals.complete(source, size), source, end)

    def _find_source(self, transform: Original | None, source: Source, tolerance: Tolerance) -> None:
        """The whole transform of the library that the pipeline was imported from."""
        if transform is None:
            problem = f'has no transform by the name "{source.name}" alone'
            self._missing.append(Absence(source.library, problem, "", "compared op by op"))
        elif not transform.library.is_usable:
            library = transform.library
            instead = "compared op by op"
            self._missing.append(Absence(library.title, library.problem, library.remedy, instead))
        else:
            self._transform = transform
            self._source = Tally(self.name, "source", [f"{transform.library} {source.name}"], tolerance)

    def add(self, name: str, encoded: bytes, pixels: Array, original: Array | None) -> None:
        """Compare one image.

        Args:
            name: of the image.
            encoded: the image.
            pixels: as pixprep decodes it.
            original: as the original decoder does, if that was run.
        """
        resized, tensor = self._geometry.run(encoded), self._whole.run(encoded)
        self._tensor.add(name, tensor, self._values(resized))
        if self._resize.vectors is not None:
            return
        levels = geometry(self._chain, self._resize.original.run, pixels)
        self._resize.tally.add(name, resized, levels)
        if original is None or self._end is None:
            return
        if not np.array_equal(pixels, original):
            levels = geometry(self._chain, self._resize.original.run, original)
        self._end.add(name, tensor, self._values(levels))
        if self._source is not None and self._transform is not None:
            decode = self._chain[0]
            assert isinstance(decode, ops.Decode)
            rgb = original[:, :, ::-1] if decode.color == "bgr" else original
            self._source.add(name, tensor, self._transform.run(rgb).astype(self._dtype))

    def _values(self, levels: Array) -> Array:
        """The original arithmetic; what is float64 stays so until a float32 step or the tensor."""
        for op, original in self._arithmetic:
            if levels.dtype == np.float64 and op.arithmetic != "float64":
                levels = levels.astype(np.float32)
            levels = original.run(levels)
        return levels.astype(self._dtype)

    def add_frozen(self) -> None:
        """Compare the filter with its frozen vectors."""
        op, vectors = self._op, self._resize.vectors
        if op is None or vectors is None:
            return
        for index, ((size, resized), expected) in enumerate(zip(frozen.CASES, vectors.outputs, strict=True)):
            stretch = ops.Resize(
                height=resized[0],
                width=resized[1],
                filter=op.filter,
                antialias=op.antialias,
                like=op.like,
            )
            actual = Stage([ops.Decode(), stretch]).run(png(frozen.source(index)))
            what = f"frozen {size[0]}x{size[1]} to {resized[0]}x{resized[1]}"
            self._resize.tally.add(what, actual, expected)

    @property
    def tallies(self) -> list[Tally]:
        """Of the stages that are compared, in the order of the data."""
        return [tally for tally in (self._resize.tally, self._tensor, self._end, self._source) if tally is not None]

    @property
    def absences(self) -> list[Absence | None]:
        """What was not compared with."""
        formulas = [
            Absence(library.title, library.problem, library.remedy, "its arithmetic is compared with the formula")
            for library in (original.stands_for for _, original in self._arithmetic)
            if library is not None
        ]
        return [self._resize.absence, *formulas, *self._missing]

    @property
    def is_empty(self) -> bool:
        """Whether every image was refused."""
        return self._tensor.images == 0
