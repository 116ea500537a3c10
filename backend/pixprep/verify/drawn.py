"""The training side: of each image one draw, as the fixed ops that it comes to, beside the original libraries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import atan, degrees
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pixprep import ops
from pixprep.draws.philox import Words
from pixprep.engine import Engine
from pixprep.errors import PipelineError, PixprepError, printable
from pixprep.pipeline import Pipeline
from pixprep.verify.comparison import EQUAL, read, refuse_what_no_library_has, verify
from pixprep.verify.images import generated
from pixprep.verify.originals import Originals
from pixprep.verify.report import Certificate, Omission, Row, StageName

_JITTER: Mapping[str, type[ops.Brightness | ops.Contrast | ops.Saturation | ops.Hue]] = {
    "brightness": ops.Brightness,
    "contrast": ops.Contrast,
    "saturation": ops.Saturation,
    "hue": ops.Hue,
}
_SOMETIMES: Mapping[type[ops.Op], type[ops.Op]] = {
    ops.RandomGray: ops.Grayscale,
    ops.RandomPosterize: ops.Posterize,
    ops.RandomSolarize: ops.Solarize,
    ops.RandomAutocontrast: ops.Autocontrast,
    ops.RandomEqualize: ops.Equalize,
    ops.RandomInvert: ops.Invert,
    ops.RandomSharpness: ops.Sharpness,
}
"""Of each random op the one that is done to an image, or not."""


def verify_training(
    pipeline: Pipeline,
    *,
    seed: int = 0,
    images: Sequence[Path | tuple[str, bytes]] = (),
    generate: bool = True,
    originals: Originals | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Certificate:
    """As ``verify``, of the training side: each image with the numbers that a Loader of this seed draws for it.

    The row ``draw`` compares the tensor that training makes with that of a pipeline whose ops are fixed to what was
    drawn; the other rows compare that pipeline with the original libraries, which must be installed. What
    ``random_erasing`` fills after ``normalize`` is left out on both sides.

    Args:
        pipeline: what to verify.
        seed: of the draws; the first image is sample 0 of epoch 0.
        images: as of ``verify``.
        generate: as of ``verify``.
        originals: as of ``verify``.
        on_progress: as of ``verify``.

    Raises:
        SetupError: an original library cannot be used.
        PipelineError: there is no training side, it has branches, or an op has no fixed form.
        PixprepError: a file cannot be read, or no image was compared.
    """
    training = pipeline.for_training().for_photos()
    refuse_what_no_library_has(training)
    if any(op.from_ for op in training.ops):
        raise PipelineError('"from": a training side with branches is not verified: verify one branch at a time')
    tensors = [name for name, output in training.outputs.items() if isinstance(output.chain[-1], ops.Tensor)]
    rows = {name: Row(output=name, stage="draw", original="its fixed ops", tolerance=EQUAL) for name in tensors}
    whole, plan = Certificate(list(rows.values())), training.plan
    subjects = [*(generated() if generate else ()), *images]
    with Engine(training, threads=1) as engine:
        for index, subject in enumerate(subjects):
            on_progress(index, len(subjects))
            name, encoded = (printable(subject.name), read(subject)) if isinstance(subject, Path) else subject
            (numbers,) = plan.draw(seed=seed, epoch=0, indices=[index])
            batch = engine.run_batch([encoded], places=[plan.placing(numbers)])
            if batch.errors[0] is not None:
                whole.refused.append(Omission(name, f"pixprep refuses it: {batch.errors[0]}", "not compared"))
                continue
            draws = _unerased(training, batch.placed[0].draws)  # type: ignore[union-attr]  # no error: it is placed
            fixed = settled(training, draws)
            ours = engine.run_batch([encoded], places=[plan.replaying(draws)])
            with Engine(fixed, threads=1, odd_range=True) as other:
                theirs = other.run_batch([encoded])
            for tensor, row in rows.items():
                is_chw = training.outputs[tensor].spec.layout == "chw"
                pair = [x[tensor][0].transpose(1, 2, 0) if is_chw else x[tensor][0] for x in (ours, theirs)]
                row.add(name, *pair)
            one = [(name, encoded)]
            _add(whole, verify(fixed, images=one, generate=False, frozen=False, originals=originals))
    on_progress(len(subjects), len(subjects))
    if not all(row.images for row in whole.rows):
        raise PixprepError(f"no image was compared, of {len(subjects)}; {whole.refused[0]}")
    order = get_args(StageName)
    whole.rows.sort(key=lambda row: (["", *tensors].index(row.output), order.index(row.stage)))
    return whole


def settled(training: Pipeline, draws: Mapping[str, Words]) -> Pipeline:
    """The pipeline of fixed ops that makes of every image what the training side made of one.

    Args:
        training: a pipeline at its training side, without branches.
        draws: of the image, as they came back with it.

    Raises:
        PipelineError: a random op has no fixed form.
    """
    made: list[ops.Op] = []
    for key, op in _keyed(training):
        if not isinstance(op, ops.Boxes | ops.Points | ops.RandomErasing):
            made += [ops.changed(op, only=None)] if op.home is None else _fixed(op, draws[key])
    return Pipeline(made, operators=training.operators)


def _keyed(training: Pipeline) -> Iterator[tuple[str, ops.AnyOp]]:
    """The ops, each with the key of its draw."""
    counts: Counter[str] = Counter()
    for op in training.ops:
        kind = ops.op_name(op)
        yield op.name or f"{kind}#{counts[kind]}", op
        counts[kind] += op.name is None


def _unerased(training: Pipeline, draws: Mapping[str, Words]) -> dict[str, Words]:
    """The draws with no rectangle."""
    erasing = {key for key, op in _keyed(training) if isinstance(op, ops.RandomErasing)}
    return {key: {"rectangles": []} if key in erasing else words for key, words in draws.items()}


def _fixed(op: ops.AnyOp, words: Words) -> list[ops.Op]:
    """What one random op comes to."""
    match op:
        case ops.RandomResizedCrop():
            how = {field: getattr(op, field) for field in ("height", "width", "filter", "antialias", "like")}
            return [ops.Crop(**words), ops.Resize(**how)]
        case ops.RandomCrop() if not any(op.margins) and not op.pad_if_needed:
            return [ops.Crop(**words)]
        case ops.RandomFlip():
            return [ops.Flip(op.axis)] if words["flip"] else []
        case ops.ColorJitter():
            return [_JITTER[kind](factor=factor, like=op.like) for kind, factor in words.items()]
        case ops.RandomRotate():
            return [ops.Rotate(angle=words["angle"], expand=op.expand, **_look(op))]
        case ops.RandomAffine():
            moved: dict[str, Any] = {"translate": tuple(words["translate"]), "shear": tuple(words["shear"])}
            return [ops.Affine(angle=words["angle"], scale=words["scale"], **moved, **_look(op))]
        case ops.RandomGaussianBlur():
            return [ops.GaussianBlur(op.kernel_size, words["sigma"][0])] if words["sigma"] else []
        case ops.RandAugment() | ops.TrivialAugment():
            return [made for each in words["ops"] for made in _of_policy(op, each["op"], each.get("magnitude", 0.0))]
    if type(op) in _SOMETIMES:
        kind = _SOMETIMES[type(op)]
        own = [field for field in kind.__struct_fields__ if field not in ops.Op.__struct_fields__]
        return [kind(**{field: getattr(op, field) for field in own})] if words["apply"] else []
    raise PipelineError(f"{ops.op_name(op)}: no fixed op has such margins or boxes: verify the pipeline without it")


def _look(op: ops.RandomRotate | ops.RandomAffine) -> dict[str, Any]:
    return {field: getattr(op, field) for field in ("filter", "center", "fill", "like")}


def _of_policy(op: ops.PolicyOp, name: str, magnitude: float) -> list[ops.Op]:
    """A step of a policy, by torchvision's rules: see ``policies.Policy``."""
    look: dict[str, Any] = {"filter": op.filter, "fill": 0 if op.fill is None else op.fill, "like": op.like}
    moves = name.startswith(("Shear", "Translate", "Rotate"))
    if moves and op.fill is None and (op.like, op.filter) == ("torchvision", "bilinear"):
        raise PipelineError(f'{ops.op_name(op)}: a "fill" that is null is of no fixed op: verify it with 0')
    is_x = name.endswith("X")
    match name:
        case "Identity":
            return []
        case "ShearX" | "ShearY":
            angle = degrees(atan(magnitude))
            return [ops.Affine(shear=(angle, 0.0) if is_x else (0.0, angle), center=(0.0, 0.0), **look)]
        case "TranslateX" | "TranslateY":
            pixels = float(int(magnitude))
            return [ops.Affine(translate=(pixels, 0.0) if is_x else (0.0, pixels), **look)]
        case "Rotate":
            return [ops.Rotate(angle=magnitude, **look)]
        case "Posterize":
            return [ops.Posterize(int(magnitude))]
        case "Solarize":
            threshold = 255 * magnitude
            return [ops.Solarize(float(np.float32(threshold)) if op.like == "torchvision" else threshold)]
        case "AutoContrast":
            return [ops.Autocontrast(like=op.like)]
        case "Equalize":
            return [ops.Equalize()]
    factors = {
        "Brightness": ops.Brightness,
        "Color": ops.Saturation,
        "Contrast": ops.Contrast,
        "Sharpness": ops.Sharpness,
    }
    return [factors[name](factor=1.0 + magnitude, like=op.like)]


def _add(whole: Certificate, found: Certificate) -> None:
    """The rows of one image's certificate to those of all."""
    for row in found.rows:
        place = row.output, row.stage, row.tolerance
        same = next((each for each in whole.rows if (each.output, each.stage, each.tolerance) == place), None)
        if same is None:
            whole.rows.append(row)
        else:
            same.join(row)
    whole.absent += [omission for omission in found.absent if omission not in whole.absent]
    whole.refused += found.refused
