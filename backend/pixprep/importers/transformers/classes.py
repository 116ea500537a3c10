"""Data about the image and video processors of transformers 5: their fields, default values, and ignored fields."""

from __future__ import annotations

from typing import Any

from pixprep.pipeline.presets import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD

Sides = tuple[int, ...]

LANCZOS, BILINEAR, BICUBIC = 1, 2, 3

HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
ONE = ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
IMAGENET = (IMAGENET_MEAN, IMAGENET_STD)
CLIP = (CLIP_MEAN, CLIP_STD)


def class_fields(
    size: Sides,
    resample: int,
    mean_std: tuple[tuple[float, ...], tuple[float, ...]],
    crop: int | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the default fields of a class.

    Args:
        size: Size of the resize, (height, width) or (shorter side,).
        resample: Pillow's number of the filter.
        mean_std: Mean and standard deviation of each channel.
        crop: Height and width of the center crop. None means that the class does not crop.
        others: Default values of further fields, which may replace those above.
    """
    common = {
        "do_convert_rgb": None,
        "do_resize": True,
        "size": {"height": size[0], "width": size[1]} if len(size) > 1 else {"shortest_edge": size[0]},
        "default_to_square": len(size) > 1,
        "resample": resample,
        "do_center_crop": True if crop else None,
        "crop_size": {"height": crop, "width": crop} if crop else None,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean_std[0],
        "image_std": mean_std[1],
    }
    return common | others


DPT: dict[str, Any] = {"keep_aspect_ratio": False, "ensure_multiple_of": 1, "size_divisor": None}
DPTS = {
    "CHMv2ImageProcessor": class_fields(
        (384, 384), BICUBIC, ((0.420, 0.411, 0.296), (0.213, 0.156, 0.143)), do_pad=True, do_resize=False
    )
    | {"keep_aspect_ratio": True, "ensure_multiple_of": 16, "size_divisor": 16, "do_reduce_labels": None},
    "DPTImageProcessor": class_fields((384, 384), BICUBIC, HALF, do_pad=False, **DPT),
    "PromptDepthAnythingImageProcessor": class_fields(
        (384, 384), BICUBIC, HALF, do_pad=False, prompt_scale_to_meter=0.001, **DPT
    ),
}
"""Default fields of the classes that use DPT's resize and padding."""

DETR = class_fields((800,), BILINEAR, IMAGENET, max_size=None, do_pad=True) | {
    "size": {"shortest_edge": 800, "longest_edge": 1333}
}
DETRS: dict[str, dict[str, Any]] = {
    "ConditionalDetrImageProcessor": DETR,
    "DeformableDetrImageProcessor": DETR,
    "DetrImageProcessor": DETR,
    "GroundingDinoImageProcessor": DETR,
    "RTDetrImageProcessor": class_fields(
        (640, 640), BILINEAR, IMAGENET, default_to_square=False, do_normalize=False, do_pad=False
    ),
    "YolosImageProcessor": DETR,
}
"""Default fields of the classes that use DETR's resize and do not crop."""

SAM = class_fields((1024,), BILINEAR, IMAGENET, do_convert_rgb=True, do_pad=True, default_to_square=True) | {
    "size": {"longest_edge": 1024},
    "pad_size": {"height": 1024, "width": 1024},
    "mask_size": {"longest_edge": 256},
    "mask_pad_size": {"height": 256, "width": 256},
}

NONE: Any = (None, None)
TIPS = class_fields((448, 448), BILINEAR, NONE, do_convert_rgb=True, do_normalize=False)
OCR: dict[str, Any] = {"apply_ocr": True, "ocr_lang": None, "tesseract_config": ""}
CODEBOOK: dict[str, Any] = {
    "return_image_mask": False,
    "input_size_patches": 14,
    "total_mask_patches": 75,
    "mask_group_min_patches": 16,
    "mask_group_max_patches": None,
    "mask_group_min_aspect_ratio": 0.3,
    "mask_group_max_aspect_ratio": None,
    "return_codebook_pixels": False,
    "codebook_do_resize": True,
    "codebook_size": {"height": 112, "width": 112},
    "codebook_resample": LANCZOS,
    "codebook_do_center_crop": True,
    "codebook_crop_size": {"height": 112, "width": 112},
    "codebook_do_rescale": True,
    "codebook_rescale_factor": 1 / 255,
    "codebook_do_map_pixels": True,
    "codebook_do_normalize": True,
    "codebook_image_mean": (0.0, 0.0, 0.0),
    "codebook_image_std": (1.0, 1.0, 1.0),
}
TILES = {"crop_to_patches": False, "min_patches": 1, "max_patches": 12}

PERSONS = "VitPoseImageProcessor"
"""Class that receives boxes of persons with each image, and crops them with SciPy."""

FIXED: dict[str, dict[str, Any]] = {
    PERSONS: {"do_affine_transform": True, "normalize_factor": 200.0, "do_resize": False},
    "Qwen2VLVideoProcessor": {"cap_pixels_per_frame": False},
    "Qwen3VLVideoProcessor": {"cap_pixels_per_frame": False},
    "DonutImageProcessor": {"do_align_long_axis": False},
    "NougatImageProcessor": {"do_align_long_axis": False},
    "PPFormulaNetImageProcessor": {"do_align_long_axis": False},
    "EomtImageProcessor": {"do_split_image": False, "do_pad": False},
    "GraniteDoclingImageProcessor": {"dense_max_patches": 0, "fine_route": False},
    "Lfm2VlImageProcessor": {"return_row_col_info": False},
    "Idefics3ImageProcessor": {"do_image_splitting": True, "return_row_col_info": False},
    "UltraVBertImageProcessor": {"do_image_splitting": True, "return_row_col_info": False},
    "SmolVLMImageProcessor": {"do_image_splitting": True, "return_row_col_info": False},
    "FlavaImageProcessor": {"return_image_mask": False, "return_codebook_pixels": False},
    "IdeficsImageProcessor": {"image_size": None, "transform": None},
    "LayoutLMv2ImageProcessor": {"apply_ocr": False},
    "LayoutLMv3ImageProcessor": {"apply_ocr": False},
    "Sapiens2ImageProcessor": {"do_pad": False, "do_reduce_labels": False},
    "AriaImageProcessor": {"split_image": False},
    "Gemma3ImageProcessor": {"do_pan_and_scan": False},
    "Idefics2ImageProcessor": {"do_image_splitting": False},
    "SuperPointImageProcessor": {"do_grayscale": False},
    "Pix2StructImageProcessor": {"is_vqa": False},
}
"""Fields that are supported with only one value, and this value, by class."""

PAIRS = ("EfficientLoFTRImageProcessor", "LightGlueImageProcessor", "SuperGlueImageProcessor")
"""Classes that receive pairs of images. A pipeline processes each image of a pair."""

FRAMES = ("VideoMAEImageProcessor", "VivitImageProcessor")
"""Classes that receive lists of frames, and process each frame as an image."""

ONLY_PIL = ("Emu3ImageProcessor", "VideoLlavaImageProcessor", "VivitImageProcessor")
"""Classes that have only one implementation, which resizes with Pillow."""

ZERO_RESAMPLE = ("DeepseekVLHybridImageProcessor", "DeepseekVLImageProcessor", "JanusImageProcessor")
"""Classes whose PIL backend ignores ``resample=0`` in a call, and uses the filter of the configuration."""

WITHOUT_PIL = (
    *("DINOv3ViTImageProcessor", "PPOCRV5ServerDetImageProcessor", "PPOCRV5ServerRecImageProcessor"),
    *("Gemma4UnifiedImageProcessor", "NeoMMEImageProcessor", "UltraVBertImageProcessor"),
    *("Kimi_K25ImageProcessor", "MuseGlimmerImageProcessor", "PPLCNetImageProcessor", "PPOCRV6SmallRecImageProcessor"),
    *("CHMv2ImageProcessor", "Inkling2ImageProcessor", "InklingImageProcessor"),
    *("NemotronH_Omni_Reasoning_V3ImageProcessor", "DepthProImageProcessor", "PPDocLayoutV4ImageProcessor"),
    *("RfDetrImageProcessor", "SLANeXtImageProcessor", "Sapiens2ImageProcessor", "UVDocImageProcessor"),
    *("Llama4ImageProcessor", "Phi4MultimodalImageProcessor"),
    *("Lfm2VlImageProcessor", "MiniCPMOcrImageProcessor", "MiniMaxM3VLImageProcessor", "UnlimitedOcrImageProcessor"),
    *("Cohere2VisionImageProcessor", "PI0ImageProcessor", "PerceptionLMImageProcessor"),
    *("PPDocLayoutV2ImageProcessor", "PPDocLayoutV3ImageProcessor", "PPFormulaNetImageProcessor"),
    *("Sam2ImageProcessor", "Sam3ImageProcessor", "Tipsv2DptImageProcessor", "Tipsv2ImageProcessor"),
)
"""Classes that transformers implements only with torchvision."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "BeitImageProcessor": class_fields((224, 224), BICUBIC, HALF, 224, do_center_crop=False),
    "BitImageProcessor": class_fields((224,), BICUBIC, CLIP, 224, do_convert_rgb=True),
    "BlipImageProcessor": class_fields((384, 384), BICUBIC, CLIP, do_convert_rgb=True),
    "CLIPImageProcessor": class_fields((224,), BICUBIC, CLIP, 224, do_convert_rgb=True, use_square_size=None),
    "ChameleonImageProcessor": class_fields((512,), LANCZOS, ONE, 512, do_convert_rgb=True, rescale_factor=0.0078),
    "ChineseCLIPImageProcessor": class_fields((224,), BICUBIC, CLIP, 224, do_convert_rgb=True),
    "ConvNextImageProcessor": class_fields((384,), BICUBIC, HALF, crop_pct=224 / 256),
    "DeiTImageProcessor": class_fields((256, 256), BICUBIC, HALF, 224),
    "EfficientNetImageProcessor": class_fields(
        (346, 346), BICUBIC, HALF, 289, do_center_crop=False, rescale_offset=False, include_top=True
    ),
    "Gemma3ImageProcessor": class_fields((224, 224), BILINEAR, HALF, do_convert_rgb=True)
    | dict.fromkeys(
        (
            "do_pan_and_scan",
            "pan_and_scan_min_crop_size",
            "pan_and_scan_max_num_crops",
            "pan_and_scan_min_ratio_to_activate",
        )
    ),
    "FlavaImageProcessor": class_fields((224, 224), BICUBIC, CLIP, 224, **CODEBOOK),
    "IdeficsImageProcessor": class_fields(
        (224, 224), BICUBIC, CLIP, do_convert_rgb=True, transform=None, image_size=None, image_num_channels=3
    ),
    "LayoutLMv2ImageProcessor": class_fields((224, 224), BILINEAR, NONE)
    | {"do_rescale": None, "rescale_factor": None, "do_normalize": None, **OCR},
    "LayoutLMv3ImageProcessor": class_fields((224, 224), BILINEAR, HALF, **OCR),
    "LevitImageProcessor": class_fields((224,), BICUBIC, IMAGENET, 224),
    "LlavaImageProcessor": class_fields((224,), BICUBIC, CLIP, 224, do_convert_rgb=True, do_pad=False),
    "MobileNetV1ImageProcessor": class_fields((256,), BILINEAR, HALF, 224),
    "MobileNetV2ImageProcessor": class_fields((256,), BILINEAR, HALF, 224),
    "MobileViTImageProcessor": class_fields((224,), BICUBIC, HALF, 256, do_normalize=None, do_flip_channel_order=True),
    "OwlViTImageProcessor": class_fields((768, 768), BICUBIC, CLIP, 768, do_center_crop=False, do_convert_rgb=True),
    "PPChart2TableImageProcessor": class_fields((1024, 1024), BICUBIC, CLIP),
    "PoolFormerImageProcessor": class_fields((224,), BICUBIC, IMAGENET, 224, crop_pct=0.9),
    "PvtImageProcessor": class_fields((224, 224), BICUBIC, IMAGENET),
    "SamImageProcessor": SAM,
    "Sam2ImageProcessor": class_fields((1024, 1024), BILINEAR, IMAGENET, do_convert_rgb=True)
    | {"mask_size": {"height": 256, "width": 256}},
    "Sam3ImageProcessor": class_fields((1008, 1008), BILINEAR, HALF, do_convert_rgb=True)
    | {"mask_size": {"height": 288, "width": 288}},
    "Sapiens2ImageProcessor": class_fields((1024, 768), BILINEAR, IMAGENET, 224, do_center_crop=False, do_pad=False)
    | {"do_reduce_labels": False, "keypoint_heatmap_downscale_factor": 4, "keypoint_heatmap_sigma": 6.0},
    "SegGptImageProcessor": class_fields((448, 448), BICUBIC, IMAGENET, do_convert_rgb=True, num_labels=None),
    "SegformerImageProcessor": class_fields((512, 512), BILINEAR, IMAGENET),
    "SiglipImageProcessor": class_fields((224, 224), BICUBIC, HALF, do_convert_rgb=True, default_to_square=False),
    "SuperPointImageProcessor": class_fields(
        (480, 640), BILINEAR, NONE, default_to_square=False, do_normalize=None, do_grayscale=False
    ),
    "Tipsv2DptImageProcessor": TIPS,
    "Tipsv2ImageProcessor": TIPS,
    "VideoMAEImageProcessor": class_fields((224,), BILINEAR, HALF, 224),
    "ViTImageProcessor": class_fields((224, 224), BILINEAR, HALF),
    PERSONS: class_fields((256, 192), BILINEAR, IMAGENET, do_resize=None)
    | {"resample": None, "do_affine_transform": True, "normalize_factor": 200.0},
    **DETRS,
    **DPTS,
}
"""Supported image processors, with the default values of all fields that a configuration may omit."""


VIDEO: dict[str, Any] = {"do_convert_rgb": True, "do_sample_frames": False, "num_frames": None, "fps": None}
"""Default values of the fields that all video processors have."""


def _video(*fields: Any, **others: Any) -> dict[str, Any]:
    """Return the default fields of a video processor. The arguments are those of ``class_fields``."""
    return class_fields(*fields, **(VIDEO | others))


VIDEO_DEFAULTS: dict[str, dict[str, Any]] = {
    "InstructBlipVideoVideoProcessor": _video((384, 384), BICUBIC, CLIP),
    "InternVLVideoProcessor": _video((384, 384), BICUBIC, CLIP, initial_shift=True),
    "LlavaNextVideoVideoProcessor": _video((224,), BICUBIC, CLIP, 224),
    "LlavaOnevisionVideoProcessor": _video((384, 384), BICUBIC, CLIP, default_to_square=False),
    "PerceptionLMVideoProcessor": _video((448, 448), BICUBIC, HALF, do_center_crop=False, do_sample_frames=None),
    "Sam2VideoVideoProcessor": _video((1024, 1024), BILINEAR, IMAGENET, do_sample_frames=None),
    "TimesformerVideoProcessor": _video((224,), BILINEAR, IMAGENET, 224),
    "VJEPA2VideoProcessor": _video(
        (292,), BILINEAR, IMAGENET, 256, default_to_square=True, do_convert_rgb=None, do_sample_frames=None
    ),
    "VideoLlavaVideoProcessor": _video((224,), BICUBIC, CLIP, 224),
    "VideoMAEVideoProcessor": _video((224,), BILINEAR, HALF, 224),
    "VideomtVideoProcessor": _video((640, 640), BILINEAR, IMAGENET, do_center_crop=False),
    "VivitVideoProcessor": _video((256,), BILINEAR, HALF, 224, rescale_factor=1 / 127.5),
}
"""Default values of the fields of supported video processors, in the form of ``DEFAULTS``. Processors that divide
frames into patches or resize them by a formula are in ``VIDEO_PATCHED`` and ``VIDEO_SIZED``."""

VIDEO_OUTPUTS: dict[str, str | None] = {
    **dict.fromkeys(("InstructBlipVideoVideoProcessor", "SmolVLMVideoProcessor"), "pixel_values"),
    **dict.fromkeys(("TimesformerVideoProcessor", "VideoMAEVideoProcessor", "VivitVideoProcessor")),
}
"""Names of the output of video processors. None: the default of the op. All others return ``pixel_values_videos``."""

UNUSED = {
    "SegGptImageProcessor": ("do_center_crop", "crop_size", "do_convert_rgb"),
    "LayoutLMv2ImageProcessor": (
        "do_center_crop",
        "crop_size",
        "do_rescale",
        "rescale_factor",
        "do_normalize",
        "image_mean",
        "image_std",
    ),
    **dict.fromkeys(DETRS, ("do_center_crop", "crop_size")),
    **dict.fromkeys(("Gemma3ImageProcessor", "SuperPointImageProcessor"), ("do_center_crop", "crop_size")),
    "LlavaImageProcessor": ("pad_size",),
    "Owlv2ImageProcessor": ("do_center_crop", "crop_size"),
    "PromptDepthAnythingImageProcessor": ("do_center_crop", "crop_size", "do_convert_rgb"),
    "MobileViTImageProcessor": ("do_normalize", "image_mean", "image_std"),
    PERSONS: ("do_center_crop", "crop_size"),
    "Sam2ImageProcessor": ("mask_size",),
    "Sam3ImageProcessor": ("mask_size",),
    "SamImageProcessor": ("mask_size", "mask_pad_size"),
    "SegformerImageProcessor": ("do_center_crop", "crop_size"),
}
"""Fields that each class accepts but ignores."""

WITHOUT_TORCHVISION = {
    **dict.fromkeys(
        ("Kosmos2_5ImageProcessor", "Pix2StructImageProcessor"),
        "it normalizes each image by its own mean, and the mean that PyTorch computes in float32 depends on the number "
        "of threads",
    ),
    "Owlv2ImageProcessor": "it blurs an image with weights that depend on the CPU, because PyTorch computes different "
    "weights with AVX2 and with AVX-512 for 22 % of the lengths from 961 to 8000 pixels",
}
"""Classes whose torchvision backend is not supported, with the reasons. Their PIL backend is supported."""

REASONS = {
    "VitMatteImageProcessor": "it requires a second image, the trimap, but a pipeline receives one image",
    "Step3p7ImageProcessor": "it divides an image into tiles whose size depends on the image, and "
    "resizes each tile again; no op computes such tiles",
    "Molmo2ImageProcessor": "it cuts an image into overlapping crops, and its image_token_pooling contains indices of "
    "patches that depend on the other images of the request: call transformers in a Python model instead",
}
"""Classes that are not supported, with the reasons."""

NEEDED = {
    "crop_size": "do_center_crop",
    "rescale_factor": "do_rescale",
    "image_mean": "do_normalize",
    "image_std": "do_normalize",
}
"""Fields that must be set if a flag is true, and the flag. If such a field is missing, transformers raises an error,
even for a class that ignores both the field and the flag."""

COMMON = ("data_format", "do_pad", "pad_size")
"""Fields that every class supports, and that are not set by default."""

FLIPPED = ("PPLCNetImageProcessor", "PPOCRV5ServerDetImageProcessor", "UVDocImageProcessor")
"""Classes that reverse the channel order of the normalized tensor to BGR."""
BGR = ("LayoutLMv2ImageProcessor", "PPOCRV6SmallRecImageProcessor", *FLIPPED)
"""Classes that reverse the channel order of the tensor to BGR."""

HARMLESS = (
    *(
        "image_processor_type",
        "video_processor_type",
        "feature_extractor_type",
        "processor_class",
        "auto_map",
        "transformers_version",
    ),
    *("model_input_names", "use_fast", "return_tensors", "input_data_format", "device", "disable_grouping"),
    *("format", "do_convert_annotations", "pad_and_return_pixel_mask"),
    *("image_seq_length", "do_reduce_labels", "reduce_labels", "do_resize_and_center_crop"),
    *("_valid_processor_keys", "_valid_kwargs_names", "return_metadata"),
)
"""Fields that do not change the pixels of an image in any class. They affect segmentation maps or annotations, or have
no effect."""
