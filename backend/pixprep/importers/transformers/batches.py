"""Batches of the image processors of transformers: how each class combines the images of a call.

Each class is a row of data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.importers.transformers.classes import DEFAULTS, DETRS, DPTS, FRAMES, PAIRS, PERSONS
from pixprep.importers.transformers.patches import PATCHED
from pixprep.importers.transformers.sizes import SIZED
from pixprep.plan.output_plans import NumbersPlan

Array = npt.NDArray[Any]
Sides = tuple[int, int]


class Processed(NamedTuple):
    """Result of a pipeline for the images of one call.

    Attributes:
        batch: Outputs of the pipeline.
        name: Name of the output with the pixel values.
        counts: Number of images of each sample.
        settings: Fields of the configuration.
    """

    batch: Batch
    name: str
    counts: Sequence[int]
    settings: Mapping[str, Any]

    @property
    def grids(self) -> list[Sides]:
        """Numbers of rows and columns of the tiles of each image."""
        tile = self.batch.plans[self.name].spec.shape[-1]
        sizes = (placed.placements[self.name].size for placed in self.batch.placed if placed)
        return [(height // tile, width // tile) for height, width in sizes]

    def per_sample(self, values: Sequence[Any]) -> list[list[Any]]:
        """Split a list with one value per image into one list per sample."""
        return [list(values[begin:end]) for begin, end in pairwise(accumulate(self.counts, initial=0))]


class Form(NamedTuple):
    """Form of the batch that a class returns.

    Attributes:
        combine: How the pixel values are combined. ``images``: one array per image. ``concatenated``: one array with
            the patches of all images. ``joined``: the same if tensors are requested, or else a list with one array per
            image. ``listed``: a list of the tiles of all images. ``tiles``: one array per image, with tiles of zeros at
            the end. ``samples``: one array (samples, tiles, channels, height, width). ``nested``: one array (samples,
            images, tiles, channels, height, width), and all other outputs per sample. ``clips``: a list with the frames
            of each sample. ``pairs``: one array (2, channels, height, width) per pair of images.
        stacks: Backends that return one array even without ``return_tensors``.
        pads: Whether the class always pads images to a common size. If false, the field ``do_pad`` controls it. None
            means that images are never padded to a common size: ``do_pad`` pads each image individually.
        counted: Result of ``get_number_of_image_patches``. ``count``: the number of patches or tiles. ``grid``: the
            numbers of rows and columns. ``all``: the number of patches or tiles, and the numbers of rows and columns.
            ``tiles``: the number of tiles in the last output of the pipeline, plus one for the whole image if the image
            is split. None means that the class does not have this method.
        required: Required values of fields. With other values, the batch would have a different form.
        is_single: Whether samples with several images are not supported.
        is_alone: Whether a call with several images is not supported, because the size of each image depends on
            the other images.
        is_bare: Whether the class returns the pixel values themselves instead of a ``BatchFeature``.
        is_array: Whether outputs with numbers are arrays even without ``return_tensors``, unless they are ``listed``.
        takes_boxes: Whether the class requires the boxes of each image, and returns one array per box.
        splits: Whether the class always returns the numbers of rows and columns of tiles, and a mask of the tiles.
        shared: Outputs whose value is the same in every batch. They are added to the outputs of the pipeline, and
            replace outputs with the same name.
        listed: Outputs that are lists even if ``return_tensors`` is set.
    """

    combine: Literal["images", "concatenated", "joined", "listed", "tiles", "samples", "nested", "clips", "pairs"] = (
        "images"
    )
    stacks: tuple[str, ...] = ()
    pads: bool | None = False
    counted: Literal["count", "grid", "all", "tiles"] | None = None
    required: Mapping[str, Any] = {}
    is_single: bool = False
    is_alone: bool = False
    is_bare: bool = False
    is_array: bool = False
    takes_boxes: bool = False
    splits: bool = False
    shared: Mapping[str, Any] = {}
    listed: tuple[str, ...] = ()


def combined(form: Form, processed: Processed, *, backend: str, is_list: bool) -> dict[str, Any]:
    """Return the outputs of a class by name, as arrays, lists of arrays, and numbers.

    Args:
        form: Row of the class.
        processed: Processed images.
        backend: Backend of the class.
        is_list: Whether the caller did not request tensors.

    Raises:
        ValueError: The class cannot combine images of different sizes.
    """
    batch, name = processed.batch, processed.name
    values: Any = batch.outputs[name]
    is_padded = form.pads is not None and (form.pads or bool(processed.settings.get("do_pad")))
    has_tiles, is_stacked = values[0].ndim == 4, False
    if form.combine == "samples":
        values = _samples(processed, name)
    elif form.combine == "nested":
        lists = {key: processed.per_sample(batch.packed(key)[:, 0].tolist()) for key in form.listed}
        return {key: lists.get(key) or _nested(processed, key) for key in batch.outputs}
    elif form.combine == "clips":
        clips: list[Any] = processed.per_sample(values)
        clips = [*map(np.stack, clips)] if backend in form.stacks or not is_list else clips
        return {"pixel_values" if name == "tensor" else name: clips if is_list else np.stack(clips)}
    elif form.combine == "pairs":
        values = _pairs(processed)
        values = [pair if backend == "torchvision" else list(pair) for pair in values] if is_list else values
    elif form.combine == "tiles" and is_padded:
        values = _first_rows(values, (max(map(len, values)), *values[0].shape[1:]), values[0].dtype)
        values = list(values) if is_list and not form.is_array else values
    elif form.combine == "joined":
        values = list(values) if is_list else batch.packed(name)
    elif form.combine == "concatenated" or (form.combine == "listed" and has_tiles):
        values = batch.packed(name)
        values = list(values) if is_list and form.combine == "listed" else values
    else:
        values = batch.padded(name) if is_padded else values
        is_stacked = isinstance(values, np.ndarray) and backend in form.stacks
        if isinstance(values, list) and backend in form.stacks and "do_pad" not in processed.settings:
            raise ValueError("the images have different sizes after the resize, and the class does not pad them")
        values = list(values) if is_list and not is_stacked else values
    outputs = {"pixel_values" if name == "tensor" else name: values}
    for key in [key for key in batch.outputs if key != name]:
        plan, found = batch.plans[key], batch.packed(key)
        if isinstance(plan, NumbersPlan) and plan.kind in ("pixel_mask", "tile_mask"):
            mask = _samples(processed, key) if form.combine == "samples" else found
            if form.combine == "tiles":  # the mask of missing tiles is 1
                mask = np.ones((*values.shape[:2], *found.shape[1:]), found.dtype)
                for row, tiles in zip(mask, batch.outputs[key], strict=True):
                    row[: len(tiles)] = tiles
            is_kept = is_stacked or form.is_array or form.combine == "samples"
            outputs[key] = list(mask) if is_list and not is_kept else mask
        elif plan.spec.patches is None or len(found):  # a class omits this output if it has no tiles
            is_kept = form.is_array and key != "num_img_tokens"
            outputs[key] = _converted(key, found, is_list=(is_list and not is_kept) or key in form.listed)
    if form.splits:
        counts = [sum(map(len, sample)) for sample in processed.per_sample(batch.outputs[name])]
        outputs["pixel_attention_mask"] = np.arange(max(counts)) < np.array(counts)[:, None]
        outputs |= {key: processed.per_sample([grid[axis] for grid in processed.grids]) for key, axis in SPLIT.items()}
    return {**outputs, **form.shared}


def _samples(processed: Processed, name: str) -> Array:
    """Return pixel values (samples, tiles, channels, height, width), or a mask (samples, tiles, height, width)."""
    rank = 4 if name == processed.name else 3
    images = [image if image.ndim == rank else image[None] for image in processed.batch.outputs[name]]
    samples = processed.per_sample(images)
    shape = [max(sides) for sides in zip(*(image.shape[1:] for image in images), strict=True)]
    arrays = np.zeros((len(samples), max(sum(map(len, sample)) for sample in samples), *shape), images[0].dtype)
    for row, sample in zip(arrays, samples, strict=True):
        tiles = [tile for image in sample for tile in image]
        row[: len(tiles)] = _first_rows(tiles, shape, arrays.dtype)
    return arrays


def _nested(processed: Processed, name: str) -> Array:
    """Return an output of each image of each sample, (samples, images, ...). Samples with fewer images are padded."""
    samples = processed.per_sample(processed.batch.packed(name) if name != processed.name else processed.batch[name])
    values = [np.stack(sample) if sample else np.zeros((0, *processed.batch[name][0].shape)) for sample in samples]
    values = [array[:, 0] if array.shape[1:] == (1,) else array for array in values]
    nested = _first_rows(values, (max(map(len, values)), *values[0].shape[1:]), values[0].dtype)
    if name == "aspect_ratio_mask":  # the class sets the mask of the first tile of missing images to 1
        nested[..., 0] = 1
    return nested


def _pairs(processed: Processed) -> Array:
    """Return the pairs of images, whose sizes are equal, as an array (pairs, 2, channels, height, width).

    Raises:
        ValueError: A sample is not a pair.
    """
    if {*processed.counts} != {2}:
        raise ValueError("each sample must be a pair of images: pass two images, or a list of pairs")
    values: Array = np.stack(list(processed.batch.outputs[processed.name]))
    return values.reshape(-1, 2, *values.shape[1:])


def _first_rows(arrays: Sequence[Array], shape: Sequence[int], dtype: Any) -> Array:
    """Pad arrays with zeros at the end of each axis to ``shape``, and stack them to (arrays, *shape)."""
    padded = np.zeros((len(arrays), *shape), dtype)
    for target, array in zip(padded, arrays, strict=True):
        target[tuple(map(slice, array.shape))] = array
    return padded


def _converted(key: str, values: Array, *, is_list: bool) -> Any:
    """Convert an output with numbers to the type that the classes with this output return."""
    if values.shape[1:] == (1,):
        values = values[:, 0]
    if is_list and (key in ("aspect_ratios", "pixel_attention_mask") or values.ndim == 4 or values.dtype == np.float32):
        return list(values)
    if is_list and key not in ("image_grid_hw", "image_grid_thw", "image_merge_sizes", "image_position_ids"):
        rows = values.tolist()
        return [*map(tuple, rows)] if key.endswith("_sizes") or key == "spatial_shapes" else rows
    return values


def _split(processed: Processed, axis: int) -> list[list[int]]:
    """Return the number of rows or columns of tiles of each image, or 0 for an image that is not divided."""
    return processed.per_sample([grid[axis] if grid != (1, 1) else 0 for grid in processed.grids])


_BOTH = ("torchvision", "pil")
_PATCHES = Form("concatenated", counted="count")
_DETR = Form(stacks=("torchvision",))
_IDEFICS = Form("samples", counted="all", required={"do_pad": True})

UNSUPPORTED = {
    "FuyuImageProcessor": "its batches also contain the scale factors of the images",
    "ImageGPTImageProcessor": "its batches contain the indices of colors",
    "UVDocImageProcessor": "its batches also contain the images before the resize",
}
"""Classes whose batches are not supported, with the reasons."""
FORMS: dict[str, Form] = {
    **dict.fromkeys((*DEFAULTS, *SIZED), Form()),
    **dict.fromkeys(PATCHED, _PATCHES),
    **dict.fromkeys(DETRS, _DETR),
    "AriaImageProcessor": Form(stacks=_BOTH, shared={"num_crops": 1}),
    "Cohere2VisionImageProcessor": Form("listed", counted="count"),
    "DeepseekOcr2ImageProcessor": Form(counted="tiles"),
    "EomtImageProcessor": Form(shared={"patch_offsets": []}, listed=("patch_offsets",)),
    "GraniteDoclingImageProcessor": Form("samples", counted="count", splits=True, listed=("rows", "cols")),
    "IdeficsImageProcessor": Form(is_bare=True),
    "InklingImageProcessor": Form("concatenated", is_array=True),
    "Inkling2ImageProcessor": _PATCHES._replace(counted=None),
    "Lfm2VlImageProcessor": _PATCHES._replace(is_array=True, counted=None),
    **dict.fromkeys(
        ("MiniCPMOcrImageProcessor", "MiniCPMV4_6ImageProcessor"),
        Form("concatenated", is_array=True, listed=("grids", "num_patches_per_image")),
    ),
    "MllamaImageProcessor": Form("nested", listed=("num_tiles",)),
    **dict.fromkeys(("PPOCRV5ServerRecImageProcessor", "PPOCRV6SmallRecImageProcessor"), Form(is_alone=True)),
    **dict.fromkeys(("TvpImageProcessor", *FRAMES), Form("clips")),
    "VideoMAEImageProcessor": Form("clips", stacks=("torchvision",)),
    "UnlimitedOcrImageProcessor": Form(counted="tiles", listed=("num_local_patches", "patches_grid")),
    "NemotronH_Omni_Reasoning_V3ImageProcessor": _PATCHES._replace(counted=None),
    "Emu3ImageProcessor": Form(stacks=_BOTH, pads=True),
    "Gemma4ImageProcessor": Form(stacks=_BOTH),
    "Gemma4UnifiedImageProcessor": Form(stacks=_BOTH),
    "GotOcr2ImageProcessor": Form("listed", counted="count"),
    "HunYuanVLImageProcessor": _PATCHES._replace(counted="grid"),
    "Idefics2ImageProcessor": _IDEFICS._replace(counted=None),
    "Idefics3ImageProcessor": _IDEFICS,
    "Llama4ImageProcessor": Form("joined"),
    "LlavaNextImageProcessor": Form("tiles"),
    "LlavaOnevisionImageProcessor": Form("tiles", is_single=True),
    **dict.fromkeys((*DPTS, "Swin2SRImageProcessor", "ZoeDepthImageProcessor"), Form(pads=None)),
    "Mask2FormerImageProcessor": Form(pads=True),
    "MaskFormerImageProcessor": Form(pads=True),
    "OneFormerImageProcessor": Form(pads=True, shared={"task_inputs": ["the task is panoptic"]}),
    "Ovis2ImageProcessor": Form("listed"),
    **dict.fromkeys(PAIRS, Form("pairs")),
    "Phi4MultimodalImageProcessor": Form("tiles", pads=True, is_array=True),
    PERSONS: Form(takes_boxes=True),
    "PixtralImageProcessor": Form(stacks=_BOTH),
    "RfDetrImageProcessor": _DETR,
    **dict.fromkeys(("Kosmos2_5ImageProcessor", "Pix2StructImageProcessor", "Siglip2ImageProcessor"), Form()),
    "SmolVLMImageProcessor": _IDEFICS,
    "UltraVBertImageProcessor": _IDEFICS,
}
"""Form of the batches of each supported class, except those in ``UNSUPPORTED``."""
SPLIT: dict[str, int] = {"rows": 0, "cols": 1}
"""Outputs of ``return_row_col_info``, and the axis along which each of them counts the tiles."""


def split_info(processed: Processed) -> dict[str, list[list[int]]]:
    """Return the numbers of rows and columns of tiles per sample, as with ``return_row_col_info``."""
    return {key: _split(processed, axis) for key, axis in SPLIT.items()}
