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
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError, SetupError, install
from pixprep.pipeline.ops import ImageSize, Letterbox, Pad
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.plan.output_plans import TensorPlan
from pixprep.serving.repository.fit import OPS_OF_INPUTS, compatible
from pixprep.serving.repository.free_dims import freed_model
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import FROM_ONNX, Classifier, declared
from pixprep.serving.repository.trial import LIMIT_S, MAX_ONNX_BYTES, example_tensors, run_onnx
from pixprep.spec import DType

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

_PIPELINE_TYPES: dict[DType, str] = {
    "float32": "FLOAT",
    "float16": "FLOAT16",
    "uint8": "UINT8",
    "int32": "INT32",
    "int64": "INT64",
}
_REALS = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")
_INTEGERS = tuple(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_AXES_AS_INPUT = 13
"""First opset in which Squeeze and Unsqueeze receive their axes as an input instead of an attribute."""
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
    """Converts one ONNX file.

    Args:
        model: The ``onnx.ModelProto``, which is modified.
        classifier: Declared inputs and outputs of the model.
        pipelines: Serving sides of the pipelines, by the name of the input that they feed. A single pipeline has the
            name "".
        folder: Folder of the user's file, which contains the files with external weights.
        constants: Values of inputs that the user has set.
    """

    model: Any
    classifier: Classifier
    pipelines: Mapping[str, Pipeline]
    folder: Path
    constants: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list, init=False)
    passed: list[str] = field(default_factory=list, init=False)
    lists: list[str] = field(default_factory=list, init=False)
    one_image: str = field(default="", init=False)
    is_joined: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Find the pipeline output that each input receives."""
        self._fed: dict[str, tuple[Pipeline, Output]] = _fed(self.classifier, self.pipelines)
        self._graph = self.model.graph
        self._at = 0
        for name in self.constants:
            if name not in {tensor.name for tensor in self.classifier.inputs}:
                raise self._refused(f'--constant: the model has no input "{name}"')

    def convert_inputs(self) -> Classifier:
        """Add nodes before the network, and return the inputs and outputs of the converted model.

        Raises:
            PipelineError: A conversion would change values, or a constant does not match its input.
        """
        for tensor in self.classifier.inputs:
            if tensor.name in self._fed:
                self._feed(tensor, *self._fed[tensor.name])
        for tensor in self.classifier.inputs:
            if tensor.name not in self._fed:
                self._complete(tensor)
        for tensor in self.classifier.outputs:
            if tensor.data_type == "TYPE_BF16":  # neither NumPy nor most clients support bfloat16
                self._put_after(tensor.name, tensor.shape, [("Cast", "FLOAT")], kind="FLOAT")
        return self.classifier

    def free(self) -> None:
        """Make the batch dimension dynamic, and give the inputs the size of the pipeline's tensors.

        Raises:
            PipelineError: ONNX Runtime cannot run the changed model, or its outputs for an image depend on the batch.
            SetupError: ONNX Runtime is not installed.
        """
        if find_spec("onnxruntime") is None:
            raise SetupError(f"--free-dims requires ONNX Runtime to test the model: {install('classifier')}")
        if any(each.name not in (*self._fed, *self.passed) for each in self.classifier.inputs):
            return  # ``pair`` reports these inputs
        shapes = {name: output.spec.shape for name, (_, output) in self._fed.items()}
        shapes |= {each.name: (each.shape or ())[1:] for each in self.classifier.inputs if each.name in self.passed}
        self.model = freed_model(
            self.model,
            self.classifier.source,
            shapes=shapes,
            feeds=self._feeds()[:2],
            run=self._run_model,
            folder=self.folder,
        )
        self.classifier = replace(declared(self.model, self.classifier.source), labels=self.classifier.labels)
        self._graph, self.one_image = self.model.graph, ""
        self.notes.append(f"{self.classifier.source}: the batch dimension is dynamic")

    def convert_outputs(self, *, is_of_rows: bool = False) -> Adapted:
        """Add nodes after the network, and run the converted model in ONNX Runtime to test it.

        Args:
            is_of_rows: Whether the batch consists of the regions of one photo, instead of several photos.

        Raises:
            PipelineError: ONNX Runtime rejects the converted model.
        """
        is_fed = all(each.name in self._fed or each.name in self.passed for each in self.classifier.inputs)
        if is_fed and self._fed and self._is_doubtful():
            self._try(is_of_rows=is_of_rows)
        rest = tuple(tensor for tensor in self.classifier.inputs if tensor.name not in self.passed)
        passed = tuple(tensor for tensor in self.classifier.inputs if tensor.name in self.passed)
        classifier, lists = replace(self.classifier, inputs=rest), tuple(self.lists)
        return Adapted(classifier, passed, lists, self.one_image, self.is_joined, bool(self.notes), tuple(self.notes))

    # Inputs

    def _feed(self, tensor: Tensor, pipeline: Pipeline, output: Output) -> None:
        """Convert the tensor of a pipeline to the type and the dimensions of an input."""
        spec, shape = output.spec, tensor.shape
        steps: list[tuple[str, Any]] = []
        ours: Shape | None = None
        is_feedable = "1" not in spec.lengths and not spec.patches and ("t" not in spec.lengths or "n" in spec.lengths)
        if shape is not None and is_feedable:
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
            elif shape[0] == 1 and spec.layout:
                self._take_one(f'the batch size of input "{tensor.name}" is fixed at 1')
        wanted, has = self._type_of(tensor.name), _PIPELINE_TYPES[spec.dtype]
        able = ("FLOAT",) if spec.layout else ("FLOAT", "INT32", "INT64")  # the pipeline can return these types
        is_cast = wanted != has and wanted not in able
        if is_cast and spec.layout is None:
            is_cast = has in _INTEGERS and wanted in (*_INTEGERS, "DOUBLE")
        elif is_cast and wanted in _INTEGERS:
            is_cast = self._are_whole(tensor.name, pipeline, output, wanted)
        elif is_cast:
            is_cast = has in _REALS and wanted in _REALS
        steps += [("Cast", wanted)] * is_cast
        if steps:
            self._put_before(tensor.name, has if is_cast else wanted, ours or shape or (), steps)

    def _are_whole(self, name: str, pipeline: Pipeline, output: Output, wanted: str) -> bool:
        """Return whether all values of a pipeline's tensor are integers that an integer type can represent.

        Raises:
            PipelineError: The tensor contains other values, which a Cast would change.
        """
        plan = pipeline.plan.outputs[output.name]
        if not isinstance(plan, TensorPlan) or plan.calls:
            return False
        levels = np.tile(np.arange(256, dtype=np.float32), (len(plan.channels), 1))
        if plan.resized_values is not None:
            levels = plan.resized_values[list(plan.channels)]
        values = plan.values(levels).astype(np.float64)
        limits = np.iinfo(wanted.lower())
        if (values == values.round()).all() and limits.min <= values.min() <= values.max() <= limits.max:
            return True
        if wanted == "UINT8":  # the pipeline can return this type
            return False
        usual = "normalize with mean 128, std 1 and scale 1" if wanted == "INT8" else "tensor dtype uint8"
        raise self._refused(
            f'input "{name}" is {wanted.lower()}, but the pipeline returns values from {values.min():.4g} to '
            f"{values.max():.4g}, which a Cast would change: return the integers that the model was trained or "
            f"quantized with, for example with {usual}"
        )

    def _complete(self, tensor: Tensor) -> None:
        """Provide an input that no pipeline returns: a constant, a mask, or a value that clients send."""
        shape, name = tensor.shape, tensor.name
        if prod(map(abs, shape or ())) > _MAX_VALUES:
            return  # ``pair`` rejects this input
        if name in self.constants:
            self._fill(tensor, self.constants[name])
        elif shape is None or name in OPS_OF_INPUTS or not self._fed:
            return
        elif mask := self._masked(tensor):
            self._mask(tensor, *mask)
        elif name.lower() in CONSTANTS and len(shape) <= 2 and set(shape[1:]) <= {1}:
            self._fill(tensor, CONSTANTS[name.lower()])
        elif len(shape) <= _MAX_PASSED and (tensor.data_type or "TYPE_STRING") not in ("TYPE_STRING", "TYPE_BF16"):
            if len(shape) < 2 and shape != (-1,):
                self._put_before(name, self._type_of(name), (1, *(shape or (1,))), [("Squeeze", 0)] * (2 - len(shape)))
                self._take_one(f'input "{name}" has no batch dimension')
            elif shape[0] == 1:
                self._take_one(f'the batch size of input "{name}" is fixed at 1')
            self.passed.append(name)
            (now,) = [each for each in self.classifier.inputs if each.name == name]
            self.notes.append(
                f'{self.classifier.source}: clients must send "{name}", '
                f"{now.data_type.removeprefix('TYPE_')} {list((now.shape or ())[1:])}, with each image"
            )

    def _fill(self, tensor: Tensor, value: Any) -> None:
        """Replace an input by a constant, which is repeated for each image if the input has a batch dimension."""
        import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

        name, shape = tensor.name, tensor.shape or ()
        kind = self._type_of(name)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(kind))
        is_batched, length = shape[:1] == (-1,), [1 if side == -1 else side for side in shape]
        try:
            array = np.broadcast_to(np.asarray(value), length).astype(dtype)
        except (TypeError, ValueError):
            raise self._refused(
                f"--constant {name}: the value must have the shape {length} of the input, or be one number"
            ) from None
        if is_batched:
            one, rest = (self._constant(each) for each in (array, np.array(length[1:], np.int64)))
            batch = self._node("Gather", [self._image_shape(), self._constant(np.array([0]))])
            self._node("Expand", [one, self._node("Concat", [batch, rest], axis=0)], name)
        else:
            self._constant(array, name)
        self._drop_input(name)
        self.notes.append(f'{self.classifier.source}: input "{name}" is the constant {np.asarray(value).tolist()}')

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
        source, kind = self.classifier.source, self._type_of(name)
        axes = [(spec.layout or "").index(side) + 1 for side in "hw"]
        places = [index for index, op in enumerate(output.chain) if isinstance(op, Pad | Letterbox)]
        if not places and spec.padding.size(1, 1) == (1, 1):
            lengths = [0, *axes] if -1 in shape[1:] else [0]
            whole = self._node("Gather", [self._image_shape(), self._constant(np.array(lengths))])
            if -1 not in shape[1:]:  # a mask of a fixed size
                whole = self._node("Concat", [whole, self._constant(np.array(shape[1:]))], axis=0)
            self._cast(self._node("Expand", [self._constant(np.ones((1, 1, 1), np.float32)), whole]), kind, name)
            self._drop_input(name)
            self.notes.append(f'{source}: input "{name}" is a mask of ones, because the pipeline does not pad')
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
            self._graph.input.add().name = size.name
            added = Tensor(size.name, "", (-1, 2))
            self.classifier = replace(self.classifier, inputs=(*self.classifier.inputs, added))
            self._declare(size.name, (-1, 2), _PIPELINE_TYPES[size.spec.dtype])
            self._fed[size.name] = pipeline, size
        sides, inside = self._cast(size.name, "INT64"), []
        for index, axis in enumerate(axes):
            length = self._node("Gather", [self._image_shape(), self._constant(np.array(axis))])
            counted = self._node("Range", [self._constant(np.array(0)), length, self._constant(np.array(1))])
            side = self._node("Gather", [sides, self._constant(np.array([index]))], axis=1)
            inside.append(self._squeeze("Unsqueeze", self._node("Less", [counted, side]), 2 - index))
        self._cast(self._node("And", inside), kind, name)
        self._drop_input(name)
        self.notes.append(f'{source}: input "{name}" is computed from "{size.name}": 1 for the photo, 0 for padding')

    # Outputs

    def _is_doubtful(self) -> bool:
        """Return whether the model was changed, or an output might not begin with the batch dimension."""
        images = [tensor for tensor in self.classifier.inputs if tensor.name in self._fed]
        names = {tensor.dim_names[:1] for tensor in images if tensor.dim_names}
        lengths = {tensor.shape[:1] for tensor in images if tensor.shape}
        for output in self.classifier.outputs:
            shape = output.shape
            if shape is None or len(shape) < 2 or (shape[:1] == (-1,) and output.dim_names[:1] not in names):
                return True
            if shape[0] != -1 and shape[:1] not in lengths:
                return True
        return bool(self.notes)

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
                if self.notes:
                    raise self._refused(f"{why}; build added nodes: {'; '.join(self.notes)}")
        if why:
            self.notes += [f"{self.classifier.source}: not tried: {why}"] * bool(self.notes)
        pair = runs[3] if len(runs) > 3 else ""
        if isinstance(pair, str) and pair and not why:
            self._take_one(f"it does not run with two images ({pair})")
        changed = False
        for index, tensor in enumerate(self.classifier.outputs):
            seen = [run[index].shape for run in runs[:3] if not isinstance(run, str)]
            if why and (shape := tensor.shape) is not None:
                # a dynamic first dimension is the batch, unless the image input has a fixed batch size
                seen = [(1, *shape[1:]) if shape[:1] == (-1,) and not self.one_image else shape]
            if seen:
                two = None if isinstance(pair, str) else pair[index].shape
                changed |= self._give(tensor, seen, two, is_of_rows=is_of_rows)
        if changed and feeds and isinstance(tried := self._run(feeds[:1])[0], str):
            raise self._refused(f"{tried}; build added nodes: {'; '.join(self.notes)}")

    def _obstacle(self) -> str:
        """Return the reason why the model cannot be tried, or an empty string."""
        if find_spec("onnxruntime") is None:
            return "ONNX Runtime is not installed"
        size = self.model.ByteSize() + sum((self.folder / file).stat().st_size for file in self.classifier.data_files)
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
                self._declare(name, (-1 if both else 1, *rest))
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
        self._put_after(name, (batch, *rest), steps)
        return True

    def _feeds(self) -> list[dict[str, Array]]:
        """Return the model's inputs for three photos: noise, black and white."""
        feeds: list[dict[str, Array]] = []
        for kind in ("noise", "black", "white"):
            tensors = {id(p): example_tensors(p, kind) for p, _ in self._fed.values()}
            feed = {}
            for tensor in self.classifier.inputs:
                if tensor.name in self._fed:
                    pipeline, output = self._fed[tensor.name]
                    feed[tensor.name] = tensors[id(pipeline)][output.name]
                else:
                    dtype = tensor.data_type.removeprefix("TYPE_").lower().replace("fp", "float")
                    feed[tensor.name] = np.zeros([abs(side) for side in tensor.shape or ()], dtype)
            feeds.append(feed)
        return feeds

    def _run(self, feeds: Sequence[Mapping[str, Array]]) -> list[list[Array] | str]:
        return self._run_model(self.model, feeds)

    def _run_model(self, model: Any, feeds: Sequence[Mapping[str, Array]]) -> list[list[Array] | str]:
        """Run a model in ONNX Runtime, in a folder that also contains its external weights."""
        with tempfile.TemporaryDirectory(prefix="pixprep-adapted-") as folder:
            path = Path(folder, self.classifier.source)
            path.write_bytes(model.SerializeToString())
            for file in self.classifier.data_files:
                try:
                    os.link(self.folder / file, Path(folder, file))
                except OSError:  # a different file system
                    shutil.copyfile(self.folder / file, Path(folder, file))
            return run_onnx(path, feeds, LIMIT_S)[0]

    # Nodes

    def _put_before(self, name: str, kind: str, shape: Shape, steps: Sequence[tuple[str, Any]]) -> None:
        """Insert nodes between an input, whose type and shape change, and the network."""
        inner = f"{name}/network"
        _rename(self._graph, name, inner, is_input=True)
        self._chain(name, steps, inner)
        self._declare(name, shape, kind)
        self._say(steps, f'before input "{name}"')

    def _put_after(self, name: str, shape: Shape | None, steps: Sequence[tuple[str, Any]], *, kind: str = "") -> None:
        """Insert nodes between the network and an output, whose type or shape changes."""
        inner = f"{name}/network"
        _rename(self._graph, name, inner)
        self._at = len(self._graph.node)
        self._chain(inner, steps, name)
        self._declare(name, shape, kind)
        self._say(steps, f'after output "{name}"')

    def _say(self, steps: Sequence[tuple[str, Any]], where: str) -> None:
        words = {"Cast": "Cast to {}", "Squeeze": "Squeeze of axis {}", "Unsqueeze": "Unsqueeze of axis {}"}
        done = ", ".join(words.get(kind, f"{kind} {{}}").format(str(value).lower()) for kind, value in steps)
        self.notes.append(f"{self.classifier.source}: {done} {where}")

    def _chain(self, source: str, steps: Sequence[tuple[str, Any]], target: str) -> None:
        for number, (kind, value) in enumerate(steps):
            end = target if number == len(steps) - 1 else f"{target}/{number}"
            if kind == "Cast":
                source = self._cast(source, value, end)
            elif kind == "Transpose":
                source = self._node(kind, [source], end, perm=value)
            else:
                source = self._squeeze(kind, source, value, end)

    def _squeeze(self, kind: str, source: str, axis: int, target: str = "") -> str:
        opset = next((each.version for each in self.model.opset_import if each.domain in ("", "ai.onnx")), 1)
        if opset < _AXES_AS_INPUT:
            return self._node(kind, [source], target, axes=[axis])
        return self._node(kind, [source, self._constant(np.array([axis]))], target)

    def _cast(self, source: str, kind: str, target: str = "") -> str:
        import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

        return self._node("Cast", [source], target, to=onnx.TensorProto.DataType.Value(kind))

    def _constant(self, array: Array, name: str = "") -> str:
        """Add a Constant node. In files of old versions, an initializer would also have to be listed as an input."""
        import onnx  # noqa: PLC0415  (as above)

        if array.dtype == np.int_:
            array = array.astype(np.int64)
        return self._node("Constant", [], name, value=onnx.numpy_helper.from_array(np.ascontiguousarray(array)))

    def _node(self, kind: str, inputs: Sequence[str], name: str = "", **fields: Any) -> str:
        """Insert a node with one output before the network, or after the network if it converts an output."""
        import onnx  # noqa: PLC0415  (as above)

        name = name or f"pixprep/{len(self._graph.node)}"
        self._graph.node.insert(self._at, onnx.helper.make_node(kind, inputs, [name], **fields))
        self._at += 1
        return name

    def _image_shape(self) -> str:
        """Return the name of the ONNX value that contains the shape of the image tensor."""
        port = next(name for name, (_, output) in self._fed.items() if output.spec.layout)
        return self._node("Shape", [port])

    def _drop_input(self, name: str) -> None:
        (value,) = [each for each in self._graph.input if each.name == name]
        self._graph.input.remove(value)
        kept = tuple(each for each in self.classifier.inputs if each.name != name)
        self.classifier = replace(self.classifier, inputs=kept)

    def _type_of(self, name: str) -> str:
        import onnx  # noqa: PLC0415  (as above)

        (value,) = [each for each in self._graph.input if each.name == name]
        return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))

    def _declare(self, name: str, shape: Shape | None, kind: str = "") -> None:
        """Set the type and the shape of an input or output, in the file and in its description."""
        import onnx  # noqa: PLC0415  (as above)

        for value in (*self._graph.input, *self._graph.output):
            if value.name == name:
                kind = kind or onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
                sides = (
                    None
                    if shape is None
                    else [
                        side if side >= 0 else f"{name}_{axis}" if axis else "batch" for axis, side in enumerate(shape)
                    ]
                )
                value.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(kind), sides))

        def changed(tensor: Tensor) -> Tensor:
            type_ = FROM_ONNX.get(kind, "")
            return replace(tensor, shape=shape, data_type=type_, dim_names=()) if tensor.name == name else tensor

        self.classifier = replace(
            self.classifier,
            inputs=tuple(map(changed, self.classifier.inputs)),
            outputs=tuple(map(changed, self.classifier.outputs)),
        )

    def _take_one(self, why: str) -> None:
        self.one_image = self.one_image or why

    def _refused(self, what: str) -> PipelineError:
        return PipelineError(f"{self.classifier.source}: {what}")


def _fed(classifier: Classifier, pipelines: Mapping[str, Pipeline]) -> dict[str, tuple[Pipeline, Output]]:
    """Return, for each input of a model, the pipeline and the pipeline output that provide it.

    Inputs that no output provides are omitted.
    """
    fed: dict[str, tuple[Pipeline, Output]] = {}
    ranks = {tensor.name: len(tensor.shape or ()) for tensor in classifier.inputs}
    for port, pipeline in pipelines.items():
        outputs = pipeline.outputs
        named = {name: outputs[name] for name in ranks if name in outputs}
        tensors = [output for name, output in outputs.items() if output.spec.layout and name not in named]
        others = [name for name in ranks if name not in named]
        images = [name for name in others if ranks[name] > 2 and "mask" not in name.lower()]
        images = [name for name in images if ranks[name] > 3] or images
        open_ = [port] if port else others if len(others) == 1 else images
        if len(tensors) == len(open_) == 1:
            named[open_[0]] = tensors[0]
        fed |= {name: (pipeline, output) for name, output in named.items()}
    return fed


def _rename(graph: Any, old: str, new: str, *, is_input: bool = False) -> None:
    """Rename a value in all nodes of a graph and of its subgraphs.

    The names of the graph's inputs and outputs are not changed.
    """
    for node in graph.node:
        for names in (node.input,) if is_input else (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, old, new, is_input=is_input)
                for value in inner.output:  # a subgraph may return a value of the outer graph
                    if value.name == old:
                        value.name = new
