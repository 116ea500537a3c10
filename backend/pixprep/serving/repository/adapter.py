"""Adds nodes around the network of an ONNX file, so that Triton can batch it and a pipeline can feed it.

An existing ONNX model may lack a batch dimension, expect an input type that no pipeline returns, require inputs besides
the image, or return one list of rows for all images. The added nodes convert between the model and the form that the
ensemble requires, in which the first dimension of every input and output is the batch dimension. The user's file is not
changed: ``build`` writes the converted model. ``Adapter`` runs this model in ONNX Runtime, because the shapes that many
files declare are wrong.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pixprep.errors import ImageError, PipelineError, SetupError, install
from pixprep.pipeline.ops import ImageSize, Letterbox, Pad
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.plan.output_plans import TensorPlan
from pixprep.serving.repository.fit import OPS_OF_INPUTS, check_packed, compatible
from pixprep.serving.repository.free_dims import freed_model
from pixprep.serving.repository.models import Tensor, suggest
from pixprep.serving.repository.onnx_edit import Array, Edit, Shape
from pixprep.serving.repository.ports import FROM_ONNX, Classifier, declared
from pixprep.serving.repository.quantization import Quantization, given_quantization, quantization_of
from pixprep.serving.repository.trial import LIMIT_S, MAX_ONNX_BYTES, example_tensors, run_onnx
from pixprep.serving.triton.config import triton_type
from pixprep.spec import TensorSpec

_ELEMENT_TYPES = {kind: name for name, kind in FROM_ONNX.items()}
"""ONNX's element types by Triton's data type."""
_REALS = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")
_INTEGERS = tuple(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_SCORE, _OVERLAP, _MOST = 0.25, 0.45, 100
CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("conf", "conf_thres", "conf_threshold", "confidence_threshold", "score_threshold"), _SCORE),
    **dict.fromkeys(("iou", "iou_thres", "iou_threshold", "nms_threshold"), _OVERLAP),
    **dict.fromkeys(("max_det", "max_detections", "max_output_boxes_per_class", "topk"), _MOST),
    **dict.fromkeys(("training", "is_training", "training_mode", "phase_train", "keras_learning_phase"), False),
    "keep_prob": 1.0,
}
"""Values of inputs that usually have the same value in serving, by the name of the input. The thresholds are the
defaults of ``pixprep.detections``."""
_MAX_VALUES = 1 << 20
"""Maximum number of values in an input other than the image. A limit is needed because a file may declare any
length."""
_MAX_PASSED = 3
"""Maximum number of dimensions of an input that clients send, including its batch dimension."""


@dataclass(frozen=True)
class Adapted:
    """A classifier with a batch dimension, and what it needs from the ensemble.

    Attributes:
        classifier: Inputs and outputs after the conversion, without the inputs in ``passed``.
        passed: Inputs that clients send with each image.
        lists: Names of the outputs that are lists of rows. The length of such a list depends on the image.
        one_image: Reason why a request has only one image, or an empty string.
        is_joined: Whether the model receives all regions of a photo as one row of the batch, and returns one row for
            all of them.
        is_changed: Whether the ONNX file differs from the user's file.
        notes: Notes for the user about each change.
    """

    classifier: Classifier
    passed: tuple[Tensor, ...] = ()
    lists: tuple[str, ...] = ()
    one_image: str = ""
    is_joined: bool = False
    is_changed: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class Adapter:
    """Adapts one ONNX file to the tensors of the pipelines.

    Args:
        edit: The file and its declared inputs and outputs.
        pipelines: Serving sides of the pipelines, by the name of the input that they feed. A single pipeline has the
            name "".
        folder: Folder of the user's file, which contains the files with external weights.
        constants: Values that the user has set for inputs.
        quantizations: Scale and zero point that the user has set for integer inputs.
    """

    edit: Edit
    pipelines: Mapping[str, Pipeline]
    folder: Path
    constants: Mapping[str, Any] = field(default_factory=dict)
    quantizations: Mapping[str, Any] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list, init=False)
    lists: list[str] = field(default_factory=list, init=False)
    one_image: str = field(default="", init=False)
    is_joined: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Find the pipeline output that each input receives."""
        self._fed: dict[str, tuple[Pipeline, Output]] = _fed(self.edit.classifier, self.pipelines)
        for option, names in (("constant", self.constants), ("quantization", self.quantizations)):
            for name in names:
                if name not in (known := [tensor.name for tensor in self.edit.classifier.inputs]):
                    raise self._refused(f'--{option}: the model has no input "{name}"; {suggest(name, known)}')
        for name in self.constants:
            if name in self._fed:
                raise self._refused(f"--constant {name}: the pipeline provides this input: remove the option")

    @property
    def _is_packed(self) -> bool:
        return any(pipeline.plan.is_packed for pipeline in self.pipelines.values())

    def convert_inputs(self) -> Classifier:
        """Add nodes before the network, and return the inputs and outputs of the converted model.

        Raises:
            PipelineError: A conversion would change values, or a constant does not match its input.
        """
        for tensor in self.edit.classifier.inputs:
            if tensor.name in self._fed:
                self._feed(tensor, *self._fed[tensor.name])
        for tensor in self.edit.classifier.inputs:
            if tensor.name not in self._fed:
                self._complete(tensor)
        for tensor in self.edit.classifier.outputs:
            if tensor.data_type == "TYPE_BF16":  # neither NumPy nor most clients support bfloat16
                self.edit.put_after(tensor.name, tensor.shape, [("Cast", "FLOAT")], kind="FLOAT")
        return self.edit.classifier

    def free(self) -> None:
        """Make the batch dimension dynamic, and give the inputs the size of the pipeline's tensors.

        Raises:
            PipelineError: ONNX Runtime cannot run the changed model, or its outputs for an image depend on the batch.
            SetupError: ONNX Runtime is not installed.
        """
        if find_spec("onnxruntime") is None:
            raise SetupError(f"--free-dims requires ONNX Runtime to test the model: {install('classifier')}")
        inputs = self.edit.classifier.inputs
        if any(each.name not in (*self._fed, *self.passed) for each in inputs):
            return  # ``pair`` reports these inputs
        shapes = {name: output.spec.shape for name, (_, output) in self._fed.items()}
        shapes |= {each.name: (each.shape or ())[1:] for each in inputs if each.name in self.passed}
        self.edit.model = freed_model(
            self.edit.model,
            self.edit.classifier.source,
            shapes=shapes,
            feeds=self._feeds()[:2],
            run=self._run_model,
            folder=self.folder,
        )
        self._declare_again()
        self.one_image = ""
        self.edit.note("the batch dimension is dynamic")

    def convert_outputs(self, *, is_of_rows: bool = False) -> Adapted:
        """Add nodes after the network, and run the converted model in ONNX Runtime to test it.

        Args:
            is_of_rows: Whether the batch consists of the regions of one photo, instead of several photos.

        Raises:
            PipelineError: ONNX Runtime rejects the converted model.
        """
        is_fed = all(each.name in self._fed or each.name in self.passed for each in self.edit.classifier.inputs)
        if is_fed and self._fed and self._is_doubtful():
            self._try(is_of_rows=is_of_rows)
        inputs, notes = self.edit.classifier.inputs, tuple(self.edit.notes)
        rest = tuple(tensor for tensor in inputs if tensor.name not in self.passed)
        passed = tuple(tensor for tensor in inputs if tensor.name in self.passed)
        classifier, lists = replace(self.edit.classifier, inputs=rest), tuple(self.lists)
        return Adapted(classifier, passed, lists, self.one_image, self.is_joined, bool(notes), notes)

    def of_patches(self) -> Adapted:
        """Return the model adapted to a pipeline with patches or tiles. A changed model is tested in ONNX Runtime.

        Raises:
            PipelineError: The shape of an input does not match, or ONNX Runtime rejects the converted model.
        """
        for tensor in self.edit.classifier.inputs:
            try:
                if tensor.name in self._fed:
                    check_packed(tensor, self._fed[tensor.name][1])
            except PipelineError as error:
                raise self._refused(str(error)) from None
        if self.edit.notes:
            self._declare_again()
        if self.edit.notes and not self._obstacle():
            for tried in self._run(self._feeds()):
                if isinstance(tried, str):
                    raise self._refused(f"{tried}; build added nodes: {'; '.join(self.edit.notes)}")
        if self.one_image:
            self.edit.note(f"a request has one image, because {self.one_image}")
        notes = tuple(self.edit.notes)
        return Adapted(self.edit.classifier, is_changed=bool(notes), notes=notes)

    # Inputs

    def _feed(self, tensor: Tensor, pipeline: Pipeline, output: Output) -> None:
        """Convert the tensor of a pipeline to the type and the dimensions of an input."""
        spec, shape = output.spec, tensor.shape
        steps: list[tuple[str, Any]] = []
        ours: Shape | None = None
        if pipeline.plan.is_packed:
            is_tiles = spec.patches is not None and not spec.patches.is_flat  # false for outputs with numbers per image
            if is_tiles and shape is not None and len(shape) == len(spec.shape) + 1 and shape[0] in (-1, 1):
                steps, ours = [("Unsqueeze", 0)], shape[1:]
                self._take_one(f'input "{tensor.name}" contains the tiles of one image')
        elif shape is not None and "1" not in spec.lengths and ("t" not in spec.lengths or "n" in spec.lengths):
            rank = len(spec.shape)
            channel = (spec.layout or "").find("c")
            flat = tuple(side for axis, side in enumerate(spec.shape) if axis != channel)
            if len(shape) == rank > 1 and shape[0] == -1 and spec.channels == 1 and compatible(flat, shape[1:]):
                steps, ours = [("Squeeze", channel + 1)], (-1, *spec.shape)
            elif len(shape) == rank:
                steps, ours = [("Squeeze", 0)], (1, *shape)
                self._take_one(f'input "{tensor.name}" has no batch dimension')
            elif len(shape) == rank + 2 and pipeline.plan.takes_boxes and shape[0] == 1:
                steps, ours, self.is_joined = [("Unsqueeze", 0)], (-1, *shape[2:]), True
            elif len(shape) == rank + 2 and shape[0] in (-1, 1) and shape[1] in (-1, 1):
                if compatible(spec.shape, shape[2:]):
                    steps, ours = [("Unsqueeze", 1)], (shape[0], *shape[2:])
                if shape[0] == 1:
                    self._take_one(f'the batch size of input "{tensor.name}" is fixed at 1')
            elif shape[0] == 1 and _is_image(spec):
                self._take_one(f'the batch size of input "{tensor.name}" is fixed at 1')
        wanted, has = self.edit.type_of(tensor.name), _ELEMENT_TYPES[triton_type(spec.dtype)]
        steps += self._conversion(tensor.name, pipeline, output, has, wanted)
        if steps:
            is_converted = steps[-1][0] in ("Cast", "QuantizeLinear")
            self.edit.put_before(tensor.name, has if is_converted else wanted, ours or shape or (), steps)

    def _conversion(
        self, name: str, pipeline: Pipeline, output: Output, has: str, wanted: str
    ) -> list[tuple[str, Any]]:
        """Return the nodes that convert the values of a pipeline's tensor to the type of an input.

        Raises:
            PipelineError: The values are not integers, and the quantization of the input is not known or does not
                match the values; or the user has set the quantization of an input that is not an integer type.
        """
        is_image = _is_image(output.spec)
        able = ("FLOAT",) if is_image else ("FLOAT", "INT32", "INT64")  # the pipeline can return these types
        quantization: Quantization | None = None
        if name in self.quantizations:
            quantization = given_quantization(name, self.quantizations[name], wanted, self.edit)
        elif wanted == has or wanted in able:
            return []
        elif not is_image:
            return [("Cast", wanted)] * (has in _INTEGERS and wanted in (*_INTEGERS, "DOUBLE"))
        elif wanted not in _INTEGERS:
            return [("Cast", wanted)] * (has in _REALS and wanted in _REALS)
        values = _values(pipeline, output)
        if values is None:
            return []
        limits = np.iinfo(wanted.lower())
        low, high = values.min(), values.max()
        are_whole = bool((values == values.round()).all() and limits.min <= low <= high <= limits.max)
        if quantization is None and are_whole:
            return [("Cast", wanted)]
        quantization = quantization or quantization_of(self.edit, name, wanted)
        if quantization is not None:
            if mismatch := quantization.mismatch(values, wanted):
                raise self._refused(f'input "{name}" is {wanted.lower()} with {mismatch}')
            return [*[("Cast", "FLOAT")] * (has != "FLOAT"), ("QuantizeLinear", quantization)]
        if wanted == "UINT8":  # the pipeline can return this type
            return []
        usual = "normalize with mean 128, std 1 and scale 1" if wanted == "INT8" else "tensor dtype uint8"
        given = f", or pass --quantization {name}=[SCALE,ZERO_POINT] of the model" * (wanted == "INT8")
        raise self._refused(
            f'input "{name}" is {wanted.lower()}, but the pipeline returns values from {low:.4g} to {high:.4g}, '
            "which a Cast would change: return the integers that the model was trained or "
            f"quantized with, for example with {usual}{given}"
        )

    def _complete(self, tensor: Tensor) -> None:
        """Provide an input that no pipeline returns: a constant, a mask, or a value that clients send."""
        shape, name = tensor.shape, tensor.name
        if prod(map(abs, shape or ())) > _MAX_VALUES:
            return  # ``pair`` rejects this input
        if name in self.constants:
            self._fill(tensor, self.constants[name])
        elif shape is None or name in OPS_OF_INPUTS or not self._fed or self._is_packed:
            return
        elif mask := self._masked(tensor):
            self._mask(tensor, *mask)
        elif name.lower() in CONSTANTS and len(shape) <= 2 and set(shape[1:]) <= {1}:
            self._fill(tensor, CONSTANTS[name.lower()])
        elif len(shape) <= _MAX_PASSED and (tensor.data_type or "TYPE_STRING") not in ("TYPE_STRING", "TYPE_BF16"):
            if len(shape) < 2 and shape != (-1,):
                squeezes = [("Squeeze", 0)] * (2 - len(shape))
                self.edit.put_before(name, self.edit.type_of(name), (1, *(shape or (1,))), squeezes)
                self._take_one(f'input "{name}" has no batch dimension')
            elif shape[0] == 1:
                self._take_one(f'the batch size of input "{name}" is fixed at 1')
            self.passed.append(name)
            (now,) = [each for each in self.edit.classifier.inputs if each.name == name]
            self.edit.note(
                f'clients must send "{name}", '
                f"{now.data_type.removeprefix('TYPE_')} {list((now.shape or ())[1:])}, with each image"
            )

    def _fill(self, tensor: Tensor, value: Any) -> None:
        """Replace an input by a constant, which is repeated for each image if the input has a batch dimension."""
        import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

        name, shape = tensor.name, tensor.shape or ()
        kind = self.edit.type_of(name)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(kind))
        is_batched, length = shape[:1] == (-1,), [1 if side == -1 else side for side in shape]
        try:
            array = np.broadcast_to(np.asarray(value), length).astype(dtype)
        except (TypeError, ValueError):
            raise self._refused(
                f"--constant {name}: the value must have the shape {length} of the input, or be one number"
            ) from None
        if is_batched:
            one, rest = (self.edit.constant(each) for each in (array, np.array(length[1:], np.int64)))
            batch = self.edit.node("Gather", [self._image_shape(), self.edit.constant(np.array([0]))])
            self.edit.node("Expand", [one, self.edit.node("Concat", [batch, rest], axis=0)], name)
        else:
            self.edit.constant(array, name)
        self.edit.drop_input(name)
        self.edit.note(f'input "{name}" is the constant {np.asarray(value).tolist()}')

    def _masked(self, tensor: Tensor) -> tuple[Pipeline, Output] | None:
        """Return the image that a pixel mask describes, or None if the input is not a pixel mask."""
        images = [each for each in self._fed.values() if "h" in (each[1].spec.layout or "")]
        is_mask = "mask" in tensor.name.lower() and len(images) == 1 and len(tensor.shape or ()) == 3
        return images[0] if is_mask else None

    def _mask(self, tensor: Tensor, pipeline: Pipeline, output: Output) -> None:
        """Compute a mask that is 1 where the tensor shows the photo, and 0 in the padding below and on the right.

        Raises:
            PipelineError: The pipeline pads the image, but does not return its size in the tensor.
        """
        name, shape, spec = tensor.name, tensor.shape or (), output.spec
        kind = self.edit.type_of(name)
        axes = [(spec.layout or "").index(side) + 1 for side in "hw"]
        places = [index for index, op in enumerate(output.chain) if isinstance(op, Pad | Letterbox)]
        if not places and spec.padding.size(1, 1) == (1, 1):
            lengths = [0, *axes] if -1 in shape[1:] else [0]
            whole = self.edit.node("Gather", [self._image_shape(), self.edit.constant(np.array(lengths))])
            if -1 not in shape[1:]:  # a mask of a fixed size
                whole = self.edit.node("Concat", [whole, self.edit.constant(np.array(shape[1:]))], axis=0)
            self.edit.cast(
                self.edit.node("Expand", [self.edit.constant(np.ones((1, 1, 1), np.float32)), whole]), kind, name
            )
            self.edit.drop_input(name)
            self.edit.note(f'input "{name}" is a mask of ones, because the pipeline does not pad')
            return
        first = places[0] if places else len(output.chain)
        is_below = all(getattr(output.chain[index], "anchor", "") == "top_left" for index in places)
        sizes = [
            each
            for each in pipeline.outputs.values()
            if isinstance(op := each.chain[-1], ImageSize) and op.order == "hw" and len(each.chain) - 1 <= first
        ]
        if not sizes or not is_below or sizes[0].spec.dtype == "float32" or -1 not in shape[1:]:
            raise self._refused(
                f'input "{name}" is a mask, and the pipeline pads the image: add {{"op": "image_size"}} before the '
                "padding, which must be below and on the right (anchor top_left)"
            )
        (size, *_) = sizes
        if size.name not in self._fed:
            self.edit.graph.input.add().name = size.name
            added = Tensor(size.name, "", (-1, 2))
            self.edit.classifier = replace(self.edit.classifier, inputs=(*self.edit.classifier.inputs, added))
            self.edit.declare(size.name, (-1, 2), _ELEMENT_TYPES[triton_type(size.spec.dtype)])
            self._fed[size.name] = pipeline, size
        sides, inside = self.edit.cast(size.name, "INT64"), []
        for index, axis in enumerate(axes):
            length = self.edit.node("Gather", [self._image_shape(), self.edit.constant(np.array(axis))])
            counted = self.edit.node(
                "Range", [self.edit.constant(np.array(0)), length, self.edit.constant(np.array(1))]
            )
            side = self.edit.node("Gather", [sides, self.edit.constant(np.array([index]))], axis=1)
            inside.append(self.edit.squeeze("Unsqueeze", self.edit.node("Less", [counted, side]), 2 - index))
        self.edit.cast(self.edit.node("And", inside), kind, name)
        self.edit.drop_input(name)
        self.edit.note(f'input "{name}" is computed from "{size.name}": 1 for the photo, 0 for padding')

    # Outputs

    def _is_doubtful(self) -> bool:
        """Return whether the model was changed, or an output might not begin with the batch dimension."""
        images = [tensor for tensor in self.edit.classifier.inputs if tensor.name in self._fed]
        names = {tensor.dim_names[:1] for tensor in images if tensor.dim_names}
        lengths = {tensor.shape[:1] for tensor in images if tensor.shape}
        for output in self.edit.classifier.outputs:
            shape = output.shape
            if shape is None or len(shape) < 2 or (shape[:1] == (-1,) and output.dim_names[:1] not in names):
                return True
            if shape[0] != -1 and shape[:1] not in lengths:
                return True
        return bool(self.edit.notes)

    def _try(self, *, is_of_rows: bool) -> None:
        """Run the model on three single photos and on a batch of two photos, and convert its outputs.

        Raises:
            PipelineError: The converted model does not run.
        """
        feeds: list[dict[str, Array]] = []
        runs: list[list[Array] | str] = []
        why = self._obstacle()
        try:
            feeds = [] if why else self._feeds()
        except ImageError as error:
            why = f"the pipeline rejects the example: {error}"
        if feeds:
            both = {name: np.concatenate([feed[name] for feed in feeds[:2]]) for name in feeds[0]}
            runs = self._run([*feeds, *([] if self.one_image or is_of_rows else [both])])
            if isinstance(runs[0], str):
                why = runs[0]
                if self.edit.notes:
                    raise self._refused(f"{why}; build added nodes: {'; '.join(self.edit.notes)}")
        if why:
            self.edit.notes += [f"{self.edit.classifier.source}: not tried: {why}"] * bool(self.edit.notes)
        pair = runs[3] if len(runs) > 3 else ""
        if isinstance(pair, str) and pair and not why:
            self._take_one(f"it does not run with two images ({pair})")
        changed = False
        for index, tensor in enumerate(self.edit.classifier.outputs):
            seen = [run[index].shape for run in runs[:3] if not isinstance(run, str)]
            if why and (shape := tensor.shape) is not None:
                # a dynamic first dimension is the batch, unless the image input has a fixed batch size
                seen = [(1, *shape[1:]) if shape[:1] == (-1,) and not self.one_image else shape]
            if seen:
                two = None if isinstance(pair, str) else pair[index].shape
                changed |= self._give(tensor, seen, two, is_of_rows=is_of_rows)
        if changed and feeds and isinstance(tried := self._run(feeds[:1])[0], str):
            raise self._refused(f"{tried}; build added nodes: {'; '.join(self.edit.notes)}")

    def _obstacle(self) -> str:
        """Return the reason why the model cannot be tried, or an empty string."""
        if find_spec("onnxruntime") is None:
            return "ONNX Runtime is not installed"
        size = self.edit.model.ByteSize() + sum(
            (self.folder / file).stat().st_size for file in self.edit.classifier.data_files
        )
        return f"the file exceeds {MAX_ONNX_BYTES >> 30} GiB" if size > MAX_ONNX_BYTES else ""

    def _give(self, tensor: Tensor, seen: Sequence[Shape], both: Shape | None, *, is_of_rows: bool) -> bool:
        """Convert an output so that its first dimension is the batch dimension.

        Args:
            tensor: The declared output.
            seen: Shapes of the output for single photos, or the declared shape if the model was not run.
            both: Shape for a batch of two photos, or None.
            is_of_rows: Whether the batch consists of the regions of one photo.
        """
        shape = seen[0]
        rank, firsts = len(shape), {each[0] if each else 0 for each in seen}
        declared = tensor.shape or tuple(
            side if len({each[axis] for each in seen}) == 1 else -1 for axis, side in enumerate(shape)
        )
        name = tensor.name
        steps: list[tuple[str, Any]] = []
        rest = declared[1:]
        is_each = firsts == {1} and (both is None or both[0] == 2)
        if rank > 1 and is_each:
            if tensor.shape is None:
                self.edit.declare(name, (-1 if both else 1, *rest))
            return False
        if rank == 1 and is_each:
            steps, rest = [("Unsqueeze", 1)], (1,)
        elif rank > 2 and both and shape[1] == 1 and both == (shape[0], 2, *shape[2:]):
            steps, rest = [("Transpose", [1, 0, *range(2, rank)])], (declared[0], *declared[2:])
        elif not is_of_rows:
            steps, rest = [("Unsqueeze", 0)] * (1 if rank else 2), declared if rank else (1,)
            self._take_one(f'output "{name}" is one list for all images' if rank else f'output "{name}" is one number')
            self.lists += [name] * (len(firsts) > 1 or declared[:1] == (-1,))
        if not steps:
            return False
        batch = 1 if self.one_image else -1
        self.edit.put_after(name, (batch, *rest), steps)
        return True

    def _feeds(self) -> list[dict[str, Array]]:
        """Return the model's inputs for three photos: noise, black and white."""
        feeds: list[dict[str, Array]] = []
        for kind in ("noise", "black", "white"):
            tensors = {id(p): example_tensors(p, kind) for p, _ in self._fed.values()}
            feed = {}
            for tensor in self.edit.classifier.inputs:
                if tensor.name in self._fed:
                    pipeline, output = self._fed[tensor.name]
                    feed[tensor.name] = tensors[id(pipeline)][output.name]
                else:
                    dtype = tensor.data_type.removeprefix("TYPE_").lower().replace("fp", "float")
                    feed[tensor.name] = np.zeros([abs(side) for side in tensor.shape or ()], dtype)
            feeds.append(feed)
        return feeds

    def _declare_again(self) -> None:
        """Update the declared inputs and outputs, whose dimensions ONNX infers from the changed graph."""
        before = self.edit.classifier
        self.edit.classifier = replace(declared(self.edit.model, before.source), labels=before.labels)

    def _run(self, feeds: Sequence[Mapping[str, Array]]) -> list[list[Array] | str]:
        return self._run_model(self.edit.model, feeds)

    def _run_model(self, model: Any, feeds: Sequence[Mapping[str, Array]]) -> list[list[Array] | str]:
        """Run a model in ONNX Runtime, in a folder that also contains its external weights."""
        with tempfile.TemporaryDirectory(prefix="pixprep-adapted-") as folder:
            path = Path(folder, self.edit.classifier.source)
            path.write_bytes(model.SerializeToString())
            for file in self.edit.classifier.data_files:
                try:
                    os.link(self.folder / file, Path(folder, file))
                except OSError:  # a different file system
                    shutil.copyfile(self.folder / file, Path(folder, file))
            return run_onnx(path, feeds, LIMIT_S)

    def _image_shape(self) -> str:
        """Return the name of the ONNX value that contains the shape of the image tensor."""
        port = next(name for name, (_, output) in self._fed.items() if output.spec.layout)
        return self.edit.node("Shape", [port])

    def _take_one(self, why: str) -> None:
        self.one_image = self.one_image or why

    def _refused(self, what: str) -> PipelineError:
        return PipelineError(f"{self.edit.classifier.source}: {what}")


def _fed(classifier: Classifier, pipelines: Mapping[str, Pipeline]) -> dict[str, tuple[Pipeline, Output]]:
    """Return, for each input of a model, the pipeline and the pipeline output that provide it.

    Inputs that no output provides are omitted.
    """
    fed: dict[str, tuple[Pipeline, Output]] = {}
    ranks = {tensor.name: len(tensor.shape or ()) for tensor in classifier.inputs}
    for port, pipeline in pipelines.items():
        outputs = pipeline.outputs
        named = {name: outputs[name] for name in ranks if name in outputs}
        tensors = [output for name, output in outputs.items() if _is_image(output.spec) and name not in named]
        others = [name for name in ranks if name not in named]
        images = [name for name in others if ranks[name] > 2 and "mask" not in name.lower()]
        images = [name for name in images if ranks[name] > 3] or images
        open_ = [port] if port else others if len(others) == 1 else images
        if len(tensors) == len(open_) == 1:
            named[open_[0]] = tensors[0]
        fed |= {name: (pipeline, output) for name, output in named.items()}
    return fed


def _is_image(spec: TensorSpec) -> bool:
    """Return whether an output contains pixels: an image, or its patches or tiles."""
    return spec.layout is not None or spec.patches is not None


def _values(pipeline: Pipeline, output: Output) -> Array | None:
    """Return all values that a pipeline's tensor can have, as float64 (channels, 256).

    The result is None if the output is not an image, or if a custom operator computes its values.
    """
    plan = pipeline.plan.outputs[output.name]
    if not isinstance(plan, TensorPlan) or plan.calls:
        return None
    levels = np.tile(np.arange(256, dtype=np.float32), (len(plan.channels), 1))
    if plan.resized_values is not None:
        levels = plan.resized_values[list(plan.channels)]
    return plan.values(levels).astype(np.float64)
