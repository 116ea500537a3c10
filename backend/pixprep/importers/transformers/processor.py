"""Provides image processors that replace those of Hugging Face transformers and return the same outputs.

>>> from pixprep.importers.transformers.processor import ImageProcessor
>>> processor = ImageProcessor({"image_processor_type": "Qwen2VLImageProcessor"})
>>> processor.merge_size
2
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pixprep.bfloat16 import Exported
from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Decoded, Encoded, Kept
from pixprep.engine.decoders.pillow import array_of
from pixprep.engine.decoders.pixels import host_array
from pixprep.engine.engine import Engine
from pixprep.engine.options import Limits
from pixprep.errors import ImageError, PipelineError, needing, printable
from pixprep.importers.transformers import CLASSES, Backend, from_transformers, processor_of, read_processor
from pixprep.importers.transformers.batches import FORMS, UNSUPPORTED, Form, Processed, combined, split_info
from pixprep.importers.transformers.classes import ONLY_PIL, ZERO_RESAMPLE
from pixprep.pipeline.ops import Warp, changed
from pixprep.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)

Array = npt.NDArray[Any]
MAX_CACHED = 4
"""Maximum number of pipelines and engines that are kept for calls with other keyword arguments."""
_GENERAL: dict[str, Any] = dict.fromkeys(
    (
        *("crop_size", "data_format", "device", "disable_grouping", "do_center_crop", "do_pad", "do_reduce_labels"),
        *("image_seq_length", "input_data_format", "pad_size", "return_tensors", "size"),
    )
)
"""Fields that every class has, and that are not set by default."""
_HARMLESS = ("disable_grouping", "input_data_format")
"""Keyword arguments that do not change a result, or that change only how an array is read."""
_DEFAULT_CHOICES = (("device", "cpu"), ("data_format", "channels_first"))
"""Values of further keyword arguments that do not change a result."""
_LIMITS = Limits(max_boxes=1 << 20, max_box_pixels=1 << 50)
"""Limits for the images of a call. The caller chooses the boxes, so these limits are too high to be reached."""
_SINGLE, _DOUBLE = {"float32", "torch.float32"}, {"float", "int", "float64", "int32", "int64", "torch.float64"}
"""Types of a box's numbers for which VitPose computes the region in float32, and those for which it uses float64."""
_NEEDS_TRANSFORMERS = "an ImageProcessor returns objects of transformers ({error}): pip install transformers"
_NEEDS_TORCH = 'the torchvision backend returns tensors of PyTorch ({error}): pip install torch, or pass backend="pil"'


class ImageProcessor:
    """Image processor that returns what a class of transformers returns for the same images, computed by pixprep.

    It also accepts encoded images and the paths of files, which it decodes as ``load_image`` of transformers does. All
    methods may be called by several threads. The images of concurrent calls are then processed call by call. An object
    can be pickled, and used by the worker processes of a ``DataLoader``.

    Args:
        config: Configuration of the class; see ``from_transformers``.
        backend: Backend whose arithmetic and types the results have: ``torchvision`` or ``pil``.
        original: Image processor of transformers that is called for keyword arguments that pixprep does not support,
            such as ``annotations``, and if the configuration is not supported. Its methods, such as
            ``post_process_object_detection``, become methods of this object.
        threads: Number of threads. Default: the number of cores available to this process.

    Raises:
        PipelineError: The configuration is not supported, and ``original`` is None.
    """

    def __new__(cls, *_arguments: Any, **_options: Any) -> ImageProcessor:  # noqa: PYI034
        """Create an object that ``ProcessorMixin.save_pretrained`` of transformers can save."""
        return object.__new__(_savable() if cls is ImageProcessor else cls)

    def __init__(
        self,
        config: Mapping[str, Any] | str | Path,
        *,
        backend: Backend = "torchvision",
        original: Any = None,
        threads: int | None = None,
    ) -> None:
        values, where, _ = read_processor(config)
        self._where, self._backend, self._original, self._threads = where, backend, original, threads
        self._by_process: dict[int, _Engines] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._form: Form | None = None
        self._settings: dict[str, Any] = {}
        try:
            self._name = processor_of(values, where)
            self._backend = "pil" if self._name in ONLY_PIL else backend
            self._form = _form(self._name, where)
            self._config = _config(self._name, values)
            defaults = {key: _plain(key, value) for key, value in (_GENERAL | CLASSES[self._name]).items()}
            self._settings = defaults | {key: value for key, value in self._config.items() if value is not None}
            self._check({})
        except PipelineError as error:
            if original is None:
                raise
            log.warning("%s; all images are processed by the original image processor", error)
            self._name, self._form, self._settings = type(original).__name__, None, {}

    @classmethod
    def from_pretrained(cls, folder: str | Path, **options: Any) -> ImageProcessor:
        """Return the image processor that a ``preprocessor_config.json`` describes.

        Args:
            folder: Path of the file, or of its folder. Models are not downloaded.
            options: Keyword arguments of the class.
        """
        return cls(folder, **options)

    def __call__(self, images: Any, *arguments: Any, return_tensors: Any = None, **options: Any) -> Any:
        """Return the outputs for one or more images as a ``BatchFeature``.

        Args:
            images: An image or a list of images; lists of lists for several samples. An image is a Pillow image, a
                NumPy array or PyTorch tensor of uint8 with 1 or 3 channels, first or last, the bytes of a file, or the
                path of a file.
            arguments: Further positional arguments, such as ``segmentation_maps``, with which ``original`` is called.
                VitPose requires ``boxes``, as a positional or a keyword argument: for each image, a list or an array
                (n, 4) with the left, top, width and height of each person in pixels.
            return_tensors: ``"pt"`` for PyTorch tensors, ``"np"`` for NumPy arrays, or None for lists as the class
                returns them.
            options: Fields of the configuration, with values for this call. If another keyword argument is passed,
                ``original`` is called.

        Raises:
            ImageError: An image is invalid. The message contains its number.
            PipelineError: A keyword argument is not supported, and ``original`` is None.
            SetupError: transformers or PyTorch is not installed.
        """
        samples = _samples(images)
        is_nested = isinstance(images, list | tuple) and all(isinstance(each, list | tuple) for each in images)
        has_several = is_nested and any(len(sample) > 1 for sample in samples)
        fields, more, boxes = dict(options), [*arguments], None
        try:
            if self._form is not None and self._form.takes_boxes:
                given = fields.pop("boxes") if "boxes" in fields else more.pop(0) if more else None
                boxes = self._boxes(given, sum(map(len, samples)))
            changes = self._changes(fields)
            if more:
                raise self._unsupported("further positional arguments")
            if has_several and self._form is not None and self._form.is_single:
                raise self._unsupported("samples with several images")
            if self._form is not None and self._form.is_alone and sum(map(len, samples)) > 1:
                raise self._unsupported("several images, whose sizes depend on each other in this class")
        except PipelineError:
            if self._original is None:
                raise
            return self._original(images, *arguments, return_tensors=return_tensors, **options)
        assert self._form is not None
        batch, name = self._run(samples, changes, options.get("input_data_format"), boxes)
        settings = self._settings | changes
        has_samples = self._form.combine in ("samples", "nested", "clips", "pairs") or is_nested
        counts = [len(sample) for sample in samples] if has_samples else [1] * len(batch)
        processed = Processed(batch, name, counts, settings)
        data = combined(self._form, processed, backend=self._backend, is_list=return_tensors is None)
        for key, value in data.items():
            is_tensor = return_tensors != "np" or isinstance(value, list)
            is_bfloat16 = key in batch.plans and batch.plans[key].spec.dtype == "bfloat16"
            if is_bfloat16 and return_tensors == "np":
                raise ValueError(f'NumPy does not have bfloat16, the dtype of {key}: pass return_tensors="pt"')
            if return_tensors == "pt" or (self._backend == "torchvision" and is_tensor):
                data[key] = _tensors(value, is_bfloat16=is_bfloat16)
        with needing(_NEEDS_TRANSFORMERS):
            feature = import_module("transformers.image_processing_base").BatchFeature(
                data, tensor_type=return_tensors, skip_tensor_conversion=[*self._form.listed]
            )
        if settings.get("return_row_col_info"):
            feature.update(split_info(processed))
        return feature["pixel_values"] if self._form.is_bare else feature

    def preprocess(self, images: Any, *arguments: Any, **options: Any) -> Any:
        """See ``__call__``."""
        return self(images, *arguments, **options)

    def fetch_images(self, images: Any) -> Any:
        """Return the images.

        Encoded images and files are decoded to Pillow images, and all other images remain unchanged.

        A processor of transformers, which combines an image processor and a tokenizer, calls this method first.

        Raises:
            ImageError: An image is invalid. The message contains its number.
        """
        leaves = _leaves(images)
        encoded = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Encoded | str | Path)]
        if not encoded:
            return images

        def keep(index: int, decoded: Decoded) -> None:
            leaves[encoded[index]] = Image.fromarray(np.ascontiguousarray(decoded.pixels[:, :, :3]))

        files = [_numbered(leaves[index], index, len(leaves), is_rgb=True, layout=None) for index in encoded]
        with self._engines as engines:
            engine = engines.engine(self._pipeline({}), self._threads)
            rows = {name: [spec.example] * len(files) for name, spec in engine.plan.inputs.items()}
            batch = engine.run_batch(files, outputs=[], inputs=rows, keep=keep)
        _raise_first(batch, encoded, len(leaves))
        return _replaced(images, iter(leaves))

    def get_number_of_image_patches(
        self, height: int, width: int, images_kwargs: Mapping[str, Any] | None = None
    ) -> int | tuple[int, ...]:
        """Return the number of patches or tiles of an image of this size, as the method of the class does.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            images_kwargs: Fields of the configuration with other values. Unknown fields are ignored.

        Raises:
            AttributeError: The class does not have this method.
            ImageError: The class rejects images of this size.
        """
        if self._form is None or self._form.counted is None:
            raise AttributeError(f"{self._name} does not have the method get_number_of_image_patches")
        changes = self._changes({key: value for key, value in (images_kwargs or {}).items() if key in self._settings})
        plan = self._pipeline(changes).plan
        name = [*plan.tensors][-1 if self._form.counted == "tiles" else 0]
        spec, (rows, columns) = plan.outputs[name].spec, plan.place(height, width).placements[name].size
        count = spec.shape_of(rows, columns)[0] if spec.patches is not None else 1
        if self._form.counted == "tiles":
            return count + (spec.patches is not None)
        if self._form.counted == "count":
            return count
        side = self._settings["patch_size"] if self._form.counted == "grid" else spec.shape[-1]
        grid = rows // side, columns // side
        if self._form.counted == "grid":
            return grid
        return (0, 0, 0) if grid == (1, 1) else (count, *grid)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration with the defaults of the class, without fields that are not set."""
        values = {key: value for key, value in self._settings.items() if value is not None}
        return {**values, "image_processor_type": self._name}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._settings.get(name)
        if value is not None:
            return _attribute(name, value)
        if self._original is not None and hasattr(self._original, name):
            return getattr(self._original, name)
        cls = _class(self._name)
        value = getattr(cls, name, None)
        is_known = value is not None or name in self._settings or name in _fields(cls)
        if not is_known or isinstance(value, FunctionType | property):
            raise AttributeError(f"the ImageProcessor of {self._name} does not have the attribute {name!r}")
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageProcessor.__new__, (ImageProcessor,), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_by_process": {}, "_pipelines": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<ImageProcessor: {self._name}, backend {self._backend}>"

    def _changes(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that differ from the configuration.

        Raises:
            PipelineError: Only the original image processor supports one of the keyword arguments, or its value.
        """
        changes = {}
        is_square = bool(self._settings.get("default_to_square"))
        for key, value in options.items():
            given = _plain(key, value, is_square=is_square)
            is_same = key in self._settings and given == self._settings[key]
            is_replaced = key == "resample" and given == 0 and self._backend == "pil" and self._name in ZERO_RESAMPLE
            if is_same or is_replaced or key in _HARMLESS or (key, str(given)) in _DEFAULT_CHOICES:
                continue
            if self._form is None or key not in CLASSES[self._name] or given is None:
                raise self._unsupported(f"{key}={value!r}")
            changes[key] = given
        self._check(changes)
        return changes

    def _unsupported(self, what: str) -> PipelineError:
        return PipelineError(f"{self._name}: {what}: not supported by pixprep; pass original= to the ImageProcessor")

    def _boxes(self, boxes: Any, count: int) -> list[Array]:
        """Return the boxes of each image, (n, 4), in the dtype in which the class computes: float32 or float64 for all.

        Raises:
            PipelineError: The boxes are missing or invalid, or only the original image processor supports them.
        """
        form = (
            f"{self._name}: boxes must contain, for each of the {count} images, a list of boxes with left, top, width "
            "and height"
        )
        try:
            given = len(boxes)
        except TypeError:
            raise PipelineError(f"{form}, not {boxes}") from None
        if given != count:
            raise PipelineError(f"{form}, not {given} lists")
        try:
            rows = [[[float(number) for number in box[:4]] for box in each] for each in boxes]
        except (TypeError, ValueError, IndexError) as error:
            raise PipelineError(f"{form}: {error}") from None
        if short := [row for each in rows for row in each if len(row) != 4]:
            raise PipelineError(f"{form}, not {short[0]}")
        dtypes = _dtypes([*boxes])
        if not (dtypes <= _SINGLE or dtypes <= _DOUBLE):
            raise self._unsupported(f"boxes with values of type {' and '.join(sorted(dtypes))}")
        dtype = np.float32 if dtypes and dtypes <= _SINGLE else np.float64
        return [np.array(each, dtype).reshape(-1, 4) for each in rows]

    def _check(self, changes: dict[str, Any]) -> None:
        """Raise PipelineError if a field has a value that is not supported."""
        if self._form is None:
            raise self._unsupported("its configuration")
        settings = self._settings | changes
        for field, value in self._form.required.items():
            if settings.get(field) != value:
                raise PipelineError(f'{self._where}: "{field}": must be {str(value).lower()} for {self._name}')
        self._pipeline(changes)

    def _pipeline(self, changes: Mapping[str, Any], *, has_single_boxes: bool = False) -> Pipeline:
        """Return the pipeline of the configuration after some fields are replaced.

        If ``has_single_boxes`` is true, its boxes are float32 instead of float64.
        """
        key = repr((sorted(changes.items()), has_single_boxes))
        found = self._pipelines.get(key)
        if found is None:
            values = {**self._config, **changes, "return_row_col_info": None}
            found = from_transformers({**values, "image_processor_type": self._name}, backend=self._backend)
            if has_single_boxes:
                ops = [changed(op, box_format="xywh") if isinstance(op, Warp) else op for op in found.ops]
                found = Pipeline(ops, origin=found.origin)
            for oldest in [*self._pipelines][: -MAX_CACHED + 1]:
                self._pipelines.pop(oldest, None)  # another thread may remove the same pipeline
            self._pipelines[key] = found
        return found

    @property
    def _engines(self) -> _Engines:
        """Engines of this process. A forked process creates its own engines, because it does not inherit threads."""
        return self._by_process.setdefault(os.getpid(), _Engines())

    def _run(
        self, samples: Sequence[Sequence[Any]], changes: dict[str, Any], layout: Any, boxes: Sequence[Array] | None
    ) -> tuple[Batch, str]:
        """Process the images of a call. Return the batch and the name of its tensor."""
        leaves = [leaf for sample in samples for leaf in sample]
        if not leaves:
            raise PipelineError(f"{self._name}: the list of images is empty: pass at least one image")
        is_rgb = bool((self._settings | changes).get("do_convert_rgb"))
        encoded = [_numbered(leaf, at, len(leaves), is_rgb=is_rgb, layout=layout) for at, leaf in enumerate(leaves)]
        kept, inputs = [*range(len(leaves))], None
        if boxes is not None:
            kept = [index for index in kept if len(boxes[index])]
            if not kept:
                raise PipelineError(f"{self._name}: the images have no boxes: pass at least one box")
            inputs = {"boxes": [boxes[index] for index in kept]}
        pipeline = self._pipeline(changes, has_single_boxes=boxes is not None and boxes[0].dtype == np.float32)
        with self._engines as engines:
            engine = engines.engine(pipeline, self._threads)
            batch = engine.run_batch([encoded[index] for index in kept], inputs=inputs)
        images = [index for place, index in enumerate(kept) for _ in batch.rows_of(place)]
        _raise_first(batch, images, len(leaves))
        return batch, engine.tensors[0]


@lru_cache(1)
def _savable() -> type[ImageProcessor]:
    """Return a subclass with the base class that ``ProcessorMixin.save_pretrained`` of transformers requires.

    Without transformers, the class is returned unchanged.
    """
    try:
        mixin = import_module("transformers.utils").PushToHubMixin
    except ImportError:
        return ImageProcessor
    return type("ImageProcessor", (ImageProcessor, mixin), {"__module__": __name__, "_auto_class": None})


class _Engines:
    """Creates the engines of one process when they are needed. Only one thread at a time may use the engines."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._engines: dict[int, Engine] = {}

    def __enter__(self) -> _Engines:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def engine(self, pipeline: Pipeline, threads: int | None) -> Engine:
        """Return the engine of a pipeline. Only the engines of the most recent pipelines are kept."""
        found = self._engines.pop(id(pipeline), None)
        if found is None:
            found = Engine(pipeline, threads=threads, limits=_LIMITS, odd_range=True)
            if len(self._engines) >= MAX_CACHED:
                self._engines.pop(next(iter(self._engines))).close()
        self._engines[id(pipeline)] = found  # the engine refers to the pipeline, so that its id is not reused
        return found


def _form(name: str, where: str) -> Form:
    """Return the row of a class.

    Raises:
        PipelineError: The batches of the class are not supported.
    """
    if name in FORMS and name not in UNSUPPORTED:
        return FORMS[name]
    why = UNSUPPORTED.get(name, "it is not an image processor")
    raise PipelineError(
        f"{where}: {name} is not supported by ImageProcessor, because {why}: use from_transformers, or pass original="
    )


def _config(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration after moving ``min_pixels`` and ``max_pixels`` to the size."""
    defaults = CLASSES[name]
    is_square = bool(values.get("default_to_square", defaults.get("default_to_square", True)))
    config = {key: _plain(key, value, is_square=is_square) for key, value in values.items()}
    for field, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        if field in defaults and config.get(field) is not None:
            config["size"] = {**(config.get("size") or defaults["size"]), edge: config.pop(field)}
    return config


def _plain(name: str, value: Any, *, is_square: bool = True) -> Any:
    """Return the value of a field as in JSON: a size is a dictionary, and tuples are lists."""
    if name in ("size", "crop_size", "pad_size"):
        if type(value) is int:
            is_side = is_square or name != "size"
            return {"height": value, "width": value} if is_side else {"shortest_edge": value}
        if isinstance(value, list | tuple) and len(value) == 2:
            return {"height": value[0], "width": value[1]}
        return value if value is None else {key: side for key, side in dict(value).items() if side is not None}
    if isinstance(value, list | tuple):
        return [_plain("", each) for each in value]
    return value


def _attribute(name: str, value: Any) -> Any:
    """Return a field as the attribute of the class. A size is a ``SizeDict``, and several numbers are a tuple."""
    if name in ("size", "crop_size", "pad_size") and value is not None:
        with needing(_NEEDS_TRANSFORMERS):
            return import_module("transformers.image_utils").SizeDict(**value)
    return tuple(value) if name.endswith(("_mean", "_std")) and isinstance(value, list) else value


def _class(name: str) -> Any:
    """Return the class of transformers, or None if it cannot be imported."""
    try:
        return getattr(import_module("transformers"), name, None)
    except ImportError:  # transformers or torchvision is missing
        return None


def _fields(cls: Any) -> Collection[str]:
    """Return the names of the fields of a class."""
    return getattr(getattr(cls, "valid_kwargs", None), "__annotations__", ())


def _samples(images: Any) -> list[list[Any]]:
    """Return the images of each sample. A list of images, or an array (n, height, width, 3), is one sample."""
    if not isinstance(images, list | tuple):
        return [list(images) if getattr(images, "ndim", 3) == 4 else [images]]
    if all(isinstance(each, list | tuple) for each in images):
        return [list(each) for each in images]
    if any(getattr(each, "ndim", 3) == 4 for each in images):
        return [list(each) if getattr(each, "ndim", 3) == 4 else [each] for each in images]
    return [list(images)]


def _leaves(images: Any) -> list[Any]:
    """Return the images of nested lists."""
    return [leaf for each in images for leaf in _leaves(each)] if isinstance(images, list | tuple) else [images]


def _replaced(images: Any, leaves: Iterator[Any]) -> Any:
    """Return nested lists of the same structure with other images."""
    return [_replaced(each, leaves) for each in images] if isinstance(images, list | tuple) else next(leaves)


def _numbered(image: Any, index: int, count: int, *, is_rgb: bool, layout: Any) -> Encoded | Kept:
    """Return an image as the engine accepts it; see ``_accepted``. The message of an error contains its number."""
    try:
        return _accepted(image, is_rgb=is_rgb, layout=layout)
    except ImageError as error:
        raise ImageError(error.reason, f"image {index + 1} of {count}: {error.detail}") from None


def _dtypes(numbers: Any) -> set[str]:
    """Return the names of the types of the numbers in nested lists and arrays."""
    if isinstance(numbers, list | tuple):
        return set().union(*map(_dtypes, numbers))
    return {str(getattr(numbers, "dtype", type(numbers).__name__))}


def _accepted(image: Any, *, is_rgb: bool, layout: Any) -> Encoded | Kept:
    """Return an image as the engine accepts it: bytes, or an array (height, width, 3 or 4).

    Args:
        image: Image in any form; see ``ImageProcessor.__call__``.
        is_rgb: Whether the class converts images to RGB (``do_convert_rgb``).
        layout: Position of the channels of an array: ``channels_first``, ``channels_last``, or None to infer it.

    Raises:
        ImageError: The file cannot be read, or the pixels are not uint8 with 1 or 3 channels.
    """
    if isinstance(image, bytes | bytearray | memoryview):
        return image
    if isinstance(image, str | Path):
        try:
            return Path(image).read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ImageError("UNREADABLE", f"{printable(image)} cannot be read: {reason}") from None
    if isinstance(image, Image.Image):
        if not is_rgb and image.mode != "RGB":
            raise ImageError("UNSUPPORTED", f'the mode {image.mode} is not RGB: pass image.convert("RGB")')
        try:  # a copy of an image has no format, for which ``array_of`` has an exception
            return Kept(
                array_of(
                    image if image.mode == "RGB" else image.copy(), is_gray=False, alpha="white" if is_rgb else "drop"
                )
            )
        except (OSError, SyntaxError, ValueError) as error:
            raise ImageError("CORRUPT", f"Pillow cannot decode it: {printable(error)}") from None
    try:
        pixels = host_array(image)
    except TypeError as error:
        raise ImageError("UNSUPPORTED", f"{type(image).__name__} {error}") from None
    if pixels.dtype != np.uint8:
        raise ImageError("UNSUPPORTED", f"pixels of {pixels.dtype} are not supported: pass uint8, 0 to 255")
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    shape = pixels.shape
    is_first = pixels.ndim == 3 and (shape[0] in (1, 3, 4) if layout is None else "first" in str(layout).lower())
    pixels = pixels.transpose(1, 2, 0) if is_first else pixels
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or 0 in shape:
        raise ImageError("UNSUPPORTED", f"pixels of the shape {shape} are not supported: pass 1 or 3 channels")
    if pixels.shape[2] == 1 and not is_rgb:
        raise ImageError("UNSUPPORTED", "it has one channel, and the class does not convert it to RGB: pass 3 channels")
    return Kept(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _raise_first(batch: Batch, indices: Sequence[int], count: int) -> None:
    """Raise the first error of a batch, whose images have these indices among ``count`` images."""
    for index, error in zip(indices, batch.errors, strict=True):
        if error is not None:
            raise ImageError(error.reason, f"image {index + 1} of {count}: {error.detail}")


def _tensors(value: Any, *, is_bfloat16: bool = False) -> Any:
    """Return arrays, and lists of arrays, as tensors of PyTorch that share their memory."""
    if isinstance(value, np.ndarray):
        with needing(_NEEDS_TORCH):
            return import_module("torch").from_dlpack(Exported(value) if is_bfloat16 else value)
    return [_tensors(each, is_bfloat16=is_bfloat16) for each in value] if isinstance(value, list) else value
