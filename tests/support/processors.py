"""Configurations of transformers image processors that produce small tensors, and unsupported outputs."""

from importlib import import_module

import numpy as np

from pixprep.importers.transformers.patches import PATCHED

LEFT_OUT = {
    "EomtImageProcessor": {"patch_offsets"},
    "FuyuImageProcessor": {"image_unpadded_heights", "image_unpadded_widths", "image_scale_factors"},
    "GraniteDoclingImageProcessor": {"pixel_attention_mask", "rows", "cols"},
    "OneFormerImageProcessor": {"task_inputs"},
    "UVDocImageProcessor": {"original_images"},
}
"""Outputs of each class that an imported pipeline does not return."""

BFLOAT16 = ("Llama4ImageProcessor",)
"""Classes with bfloat16 tensors, which cannot be converted to NumPy arrays."""


PERSON = [2.3, -1.7, 25.21, 40.9]
"""Left, top, width and height of the box that tests of all classes pass to ``VitPoseImageProcessor``."""


def boxes_for(processor, count=1):
    """Return the keyword argument ``boxes`` of a processor for ``count`` images, one box each; empty for others."""
    return (
        {"boxes": [[PERSON]] * count}
        if "VitPose" in (getattr(processor, "_name", "") or type(processor).__name__)
        else {}
    )


def inputs_for(pipeline, count):
    """Return the inputs of a pipeline for ``count`` images, one box each."""
    return {name: [[PERSON]] * count for name in pipeline.inputs}


def outputs_of(processor, images):
    """Return the outputs of a processor as NumPy arrays. The array of a bfloat16 tensor contains its bits."""
    if type(processor).__name__ not in BFLOAT16:
        return processor(images, return_tensors="np", **boxes_for(processor))
    found = processor(images, return_tensors="pt")
    torch = import_module("torch")
    bits = {name: each.view(torch.int16) for name, each in found.items() if each.dtype == torch.bfloat16}
    bits = {name: each.numpy().view("uint16") for name, each in bits.items()}
    return {name: bits[name] if name in bits else each.numpy() for name, each in found.items()}


def without_ties(processor, image, ours, theirs):
    """Return the color indices ``theirs`` of ImageGPT, with ``ours`` for pixels between two equally distant colors.

    PyTorch computes the distances in float32, with a rounding that depends on the processor and on the number of
    pixels. Two distances are equal if they differ by less than this rounding. Other outputs are returned unchanged.
    """
    is_ids = type(processor).__name__ == "ImageGPTImageProcessor" and ours.dtype == theirs.dtype == np.int64
    if not is_ids or ours.shape != theirs.shape:
        return theirs
    pixels = processor(image, do_color_quantize=False, return_tensors="np")["pixel_values"]
    pixels = pixels[0].reshape(3, -1).T.astype(np.float64)
    found, expected = (np.asarray(processor.clusters, np.float64)[ids] for ids in (ours, theirs))
    distances = [((pixels - each) ** 2).sum(axis=1) for each in (found, expected)]
    rounding = 2.0**-21 * ((pixels**2).sum(axis=1) + (expected**2).sum(axis=1))
    return np.where(np.abs(distances[0] - distances[1]) <= rounding, ours, theirs)


SQUARE = {"size": {"height": 48, "width": 48}}
SPLIT = {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 32}}
EDGES = {"size": {"shortest_edge": 40, "longest_edge": 60}}
SHORTER = {"size": {"shortest_edge": 64}}
GRIDS = {"image_grid_pinpoints": [[48, 96], [96, 48], [96, 96]]}
COLORS = np.random.default_rng(7).uniform(-1, 1, (300, 3)).astype(np.float32).tolist()
SMALL = {
    "ZoeDepthImageProcessor": {"size": {"height": 96, "width": 120}, "ensure_multiple_of": 8},
    "AriaImageProcessor": {"max_image_size": 490, "min_image_size": 100},
    "BridgeTowerImageProcessor": SHORTER | {"crop_size": {"shortest_edge": 64}},
    "Cohere2VisionImageProcessor": SQUARE | {"max_patches": 5},
    "DeepseekOcr2ImageProcessor": {"size": {"height": 64, "width": 64}, "tile_size": 48},
    "DeepseekVLHybridImageProcessor": SQUARE | {"high_res_size": {"height": 70, "width": 70}},
    "DeepseekVLImageProcessor": SQUARE,
    "DepthProImageProcessor": {"size": {"height": 70, "width": 60}},
    "DonutImageProcessor": {"size": {"height": 64, "width": 48}},
    "EomtImageProcessor": EDGES,
    "GotOcr2ImageProcessor": SQUARE | {"max_patches": 5},
    "GraniteDoclingImageProcessor": SQUARE | {"max_patches": 5},
    "ImageGPTImageProcessor": SQUARE | {"clusters": COLORS},
    "Idefics2ImageProcessor": EDGES,
    "Idefics3ImageProcessor": SPLIT,
    "JanusImageProcessor": SQUARE,
    "Llama4ImageProcessor": SQUARE | {"max_patches": 5},
    "LlavaNextImageProcessor": {"size": {"shortest_edge": 48}, "crop_size": SQUARE["size"]} | GRIDS,
    "LlavaOnevisionImageProcessor": SQUARE | GRIDS,
    "Mask2FormerImageProcessor": EDGES | {"size_divisor": 8},
    "MaskFormerImageProcessor": EDGES | {"size_divisor": 8},
    "MllamaImageProcessor": SQUARE | {"max_image_tiles": 5},
    "NougatImageProcessor": {"size": {"height": 64, "width": 48}},
    "OneFormerImageProcessor": EDGES,
    "Ovis2ImageProcessor": SQUARE | {"max_patches": 5},
    "PerceptionLMImageProcessor": SQUARE | {"tile_size": 48, "max_num_tiles": 5},
    "Phi4MultimodalImageProcessor": {"size": {"height": 70, "width": 70}, "patch_size": 7, "dynamic_hd": 5},
    "Owlv2ImageProcessor": SQUARE,
    "PixtralImageProcessor": {"size": {"longest_edge": 64}},
    "PPDocLayoutV2ImageProcessor": SQUARE,
    "PPFormulaNetImageProcessor": SQUARE,
    "PPDocLayoutV3ImageProcessor": SQUARE,
    "PPOCRV5ServerDetImageProcessor": {"limit_side_len": 96},
    "PPDocLayoutV4ImageProcessor": {"size": {"height": 70, "width": 60}},
    "RfDetrImageProcessor": {"size": {"shortest_edge": 70, "longest_edge": 101}},
    "SLANeXtImageProcessor": SQUARE | {"pad_size": {"height": 50, "width": 60}},
    "SmolVLMImageProcessor": SPLIT,
    "TvpImageProcessor": {"size": {"longest_edge": 48}, "crop_size": SQUARE["size"], "pad_size": SQUARE["size"]},
    "UltraVBertImageProcessor": SPLIT | {"max_image_tiles": 4},
    "VideoLlavaImageProcessor": {"size": {"shortest_edge": 40}, "crop_size": {"height": 36, "width": 40}},
    "UnlimitedOcrImageProcessor": {"size": {"height": 64, "width": 64}, "tile_size": 48},
    "UVDocImageProcessor": {"size": {"height": 70, "width": 60}},
    "TextNetImageProcessor": SHORTER,
    "ViltImageProcessor": SHORTER,
}
"""Fields that make the result of a class small, so that many configurations can be compared."""


def drawn(name, numbers):
    """Return a random configuration that the class accepts."""
    defaults = PATCHED[name].defaults
    fields = {"patch_size": int(numbers.integers(2, 24)), "resample": int(numbers.integers(0, 4))}
    if PATCHED[name].is_standardized:
        side = fields["patch_size"]
        fields["patch_size"] = {"height": side, "width": side}
        fields["max_patches"] = int(numbers.integers(1, 300))
        return fields | ({"do_normalize": numbers.random() < 0.8} if "is_vqa" in defaults else {})
    if name.startswith("Nemotron"):
        least = int(numbers.integers(1, 300))
        fields |= {"min_num_patches": least, "max_num_patches": least + int(numbers.integers(0, 400))}
        fields |= {"downsample_ratio": float(numbers.choice([1, 0.5, 0.3])), "resample": int(numbers.integers(2, 4))}
    elif "scale_resolution" in defaults:
        fields |= {"scale_resolution": int(numbers.integers(30, 200)), "max_slice_nums": int(numbers.integers(1, 12))}
        fields["downsample_mode"] = str(numbers.choice(["4x", "16x"]))
    elif "encoder_patch_size" in defaults:
        fields["encoder_patch_size"] = patch = fields.pop("patch_size")
        fields |= {"tile_size": patch * int(numbers.integers(1, 6)), "downsample_factor": int(numbers.integers(1, 4))}
        fields |= {"min_image_tokens": int(numbers.integers(1, 20)), "max_image_tokens": int(numbers.integers(20, 60))}
        fields |= {"max_pixels_tolerance": float(numbers.uniform(0.5, 3)), "use_thumbnail": numbers.random() < 0.7}
        fields |= {"min_tiles": int(numbers.integers(1, 4)), "max_tiles": int(numbers.integers(4, 12))}
        fields["do_image_splitting"] = bool(numbers.random() < 0.8)
    elif "max_num_patches" in defaults:
        fields["max_num_patches"] = int(numbers.integers(4, 300))
    elif "max_soft_tokens" in defaults:
        fields |= {
            "max_soft_tokens": int(numbers.choice([70, 140])),
            "pooling_kernel_size": int(numbers.integers(1, 4)),
        }
    elif "max_image_tokens" in defaults:
        fields |= {"max_image_tokens": int(numbers.integers(2, 200)), "merge_size": int(numbers.integers(1, 4))}
    elif "max_patches" in defaults:
        fields |= {"max_patches": int(numbers.integers(20, 500)), "merge_size": int(numbers.integers(1, 4))}
        fields["size"] = {"max_height": 40, "max_width": 40}
    elif "min_image_tokens" in defaults:
        least = int(numbers.integers(1, 40))
        fields |= {"min_image_tokens": least, "max_image_tokens": least + int(numbers.integers(0, 60))}
        fields |= {"merge_size": int(numbers.integers(1, 4)), "patch_expand_factor": int(numbers.integers(1, 3))}
        fields["temporal_patch_size"] = int(numbers.integers(1, 4))
    elif name == "Inkling2ImageProcessor":
        side = fields.pop("patch_size") + fields.pop("resample")
        fields["size"] = {"height": side, "width": side}
    elif name != "NeoMMEImageProcessor":
        factor = fields["patch_size"] * 4
        least = int(numbers.integers(1, 40 * factor))
        fields |= {"merge_size": int(numbers.integers(1, 5)), "temporal_patch_size": int(numbers.integers(1, 4))}
        fields["size"] = {"shortest_edge": least, "longest_edge": least + int(numbers.integers(1, 200_000))}
        if name == "Cosmos3EdgeImageProcessor":
            fields["temporal_patch_size"] = 1
        if PATCHED[name].overrides_size and numbers.random() < 0.3:
            fields["max_pixels"] = least + 77_777
    for flag in ("do_rescale", "do_normalize"):
        fields[flag] = bool(numbers.random() < 0.8)
    if numbers.random() < 0.5:
        fields |= {"image_mean": [0.1, 0.5, 0.7], "image_std": [0.3, 0.2, 0.6]}
    return fields
