"""Image processor configurations like those of well-known repositories on the Hugging Face hub, by repository name.

They were written from memory, and include old and new spellings of the fields. Files of transformers 3 contain
``feature_extractor_type``, and sizes as single numbers. Files of transformers 4 contain sizes as dictionaries, and
those of its fast processors contain all fields.
"""

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
RESIZE_NORMALIZE = {"do_normalize": True, "do_resize": True}
RESCALE = {"do_rescale": True, "rescale_factor": 0.00392156862745098}
FAST = {
    "crop_size": None,
    "data_format": "channels_first",
    "default_to_square": True,
    "device": None,
    "disable_grouping": None,
    "do_center_crop": None,
    "do_convert_rgb": None,
    "input_data_format": None,
    "return_tensors": None,
}


def square(side):
    return {"height": side, "width": side}


def vit(size, resample=2, mean_std=HALF):
    return {"feature_extractor_type": "ViTFeatureExtractor", "resample": resample, "size": size} | (
        RESIZE_NORMALIZE | mean_std
    )


def clip(size):
    """Return a configuration as transformers 4 writes it, with sizes as dictionaries."""
    return (
        {"image_processor_type": "CLIPImageProcessor", "resample": 3, "do_convert_rgb": True, "do_center_crop": True}
        | {"size": {"shortest_edge": size}, "crop_size": square(size)}
        | (RESIZE_NORMALIZE | RESCALE | CLIP)
    )


def bit(size, crop, mean_std=IMAGENET):
    return clip(crop) | {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": size}} | mean_std


def siglip(size):
    return (
        {"image_processor_type": "SiglipImageProcessor", "processor_class": "SiglipProcessor", "resample": 3}
        | {"size": square(size)}
        | (RESIZE_NORMALIZE | RESCALE | HALF)
    )


def convnext(size, **others):
    return (
        {"feature_extractor_type": "ConvNextFeatureExtractor", "crop_pct": 0.875, "resample": 3, "size": size}
        | (RESIZE_NORMALIZE | IMAGENET)
        | others
    )


def deit(**others):
    return (
        {"feature_extractor_type": "DeiTFeatureExtractor", "crop_size": 224, "do_center_crop": True}
        | {"resample": 3, "size": 256}
        | (RESIZE_NORMALIZE | IMAGENET)
        | others
    )


def mobilenet(version, size=256, crop=224):
    return (
        {"image_processor_type": f"MobileNet{version}ImageProcessor", "crop_size": square(crop), "do_center_crop": True}
        | {"resample": 2, "size": {"shortest_edge": size}}
        | (RESIZE_NORMALIZE | RESCALE | HALF)
    )


def efficientnet(size, crop, **others):
    return (
        {"image_processor_type": "EfficientNetImageProcessor", "crop_size": square(crop), "do_center_crop": False}
        | {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.47853944, 0.4732864, 0.47434163]}
        | {"include_top": True, "resample": 0, "rescale_offset": False, "size": square(size)}
        | (RESIZE_NORMALIZE | RESCALE)
        | others
    )


def beit(size=224, crop=224, mean_std=HALF, **others):
    return (
        {"feature_extractor_type": "BeitFeatureExtractor", "crop_size": crop, "do_center_crop": False, "size": size}
        | {"resample": 2, "reduce_labels": False}
        | (RESIZE_NORMALIZE | mean_std)
        | others
    )


def segformer(size):
    return (
        {"feature_extractor_type": "SegformerFeatureExtractor", "reduce_labels": True, "resample": 2, "size": size}
        | RESIZE_NORMALIZE
        | IMAGENET
    )


def mobilevit(size, crop):
    return (
        {"feature_extractor_type": "MobileViTFeatureExtractor", "crop_size": crop, "do_center_crop": True}
        | {"do_flip_channel_order": True, "do_resize": True, "resample": 2, "size": size}
        | RESCALE
    )


def blip(size):
    return (
        {"image_processor_type": "BlipImageProcessor", "do_pad": None, "size_divisor": None, "resample": 3}
        | {"do_convert_rgb": True, "size": square(size), "processor_class": "BlipProcessor"}
        | (RESIZE_NORMALIZE | RESCALE | CLIP)
    )


def detr(name, **sizes):
    return (
        {"feature_extractor_type": f"{name}FeatureExtractor", "format": "coco_detection"}
        | sizes
        | RESIZE_NORMALIZE
        | IMAGENET
    )


def rt_detr(**others):
    return (
        {"image_processor_type": "RTDetrImageProcessor", "format": "coco_detection", "do_convert_annotations": True}
        | {"do_normalize": False, "do_pad": False, "do_resize": True, "resample": 2, "size": square(640)}
        | (RESCALE | IMAGENET)
        | others
    )


EXACT = {
    "google/vit-base-patch16-224": {"image_processor_type": "ViTImageProcessor", "resample": 2, "size": square(224)}
    | (RESIZE_NORMALIZE | RESCALE | HALF),
    "google/vit-base-patch16-224-in21k": vit(224),
    "google/vit-large-patch32-384": vit(384),
    "facebook/dino-vitb16": vit(224, 2, IMAGENET),
    "facebook/vit-mae-base": {"feature_extractor_type": "ViTFeatureExtractor", "size": 224}
    | (RESIZE_NORMALIZE | IMAGENET),
    "microsoft/trocr-base-printed": vit(384),
    "microsoft/swin-tiny-patch4-window7-224": vit(224, 3, IMAGENET),
    "microsoft/swinv2-tiny-patch4-window8-256": vit(256, 3, IMAGENET),
    "facebook/ijepa_vith14_1k": {"image_processor_type": "ViTImageProcessorFast", "resample": 2, "size": square(224)}
    | (FAST | RESIZE_NORMALIZE | RESCALE | IMAGENET),
    "facebook/deit-base-distilled-patch16-224": deit(),
    "facebook/deit-base-distilled-patch16-384": deit(size=438, crop_size=384),
    "openai/clip-vit-base-patch32": {"feature_extractor_type": "CLIPFeatureExtractor", "resample": 3, "size": 224}
    | {"crop_size": 224, "do_center_crop": True}
    | (RESIZE_NORMALIZE | CLIP),
    "openai/clip-vit-large-patch14-336": {"feature_extractor_type": "CLIPFeatureExtractor", "resample": 3, "size": 336}
    | {"crop_size": 336, "do_center_crop": True}
    | (RESIZE_NORMALIZE | CLIP),
    "laion/CLIP-ViT-H-14-laion2B-s32B-b79K": clip(224),
    "llava-hf/llava-1.5-7b-hf": clip(336) | {"processor_class": "LlavaProcessor"},
    "xtuner/llava-phi-3-mini-hf": clip(336) | {"image_processor_type": "LlavaImageProcessor", "do_pad": True},
    "microsoft/kosmos-2-patch14-224": clip(224) | {"size": square(224), "use_square_size": True},
    "microsoft/Florence-2-base": clip(768)
    | {"size": square(768), "crop_size": square(768), "do_center_crop": False, "image_seq_length": 577}
    | {"auto_map": {"AutoProcessor": "processing_florence2.Florence2Processor"}, "_valid_processor_keys": ["images"]}
    | IMAGENET,
    "OFA-Sys/chinese-clip-vit-base-patch16": {"feature_extractor_type": "ChineseCLIPFeatureExtractor"}
    | {"do_center_crop": False, "crop_size": square(224), "resample": 3, "size": square(224)}
    | (RESIZE_NORMALIZE | CLIP),
    "google/siglip-base-patch16-224": siglip(224),
    "google/siglip-so400m-patch14-384": siglip(384),
    "google/siglip2-base-patch16-224": siglip(224) | FAST | {"image_processor_type": "SiglipImageProcessorFast"},
    "google/paligemma-3b-pt-224": siglip(224) | {"image_seq_length": 256, "do_convert_rgb": None},
    "facebook/dinov2-base": bit(256, 224),
    "facebook/dinov2-with-registers-small": bit(256, 224) | {"image_processor_type": "BitImageProcessorFast"},
    "google/bit-50": bit(448, 448, HALF) | {"resample": 2},
    "microsoft/focalnet-tiny": bit(256, 224) | {"do_convert_rgb": None},
    "facebook/hiera-tiny-224-hf": bit(256, 224),
    "facebook/convnext-tiny-224": convnext(224),
    "facebook/convnext-base-384": convnext(384),
    "facebook/convnextv2-tiny-1k-224": convnext({"shortest_edge": 224}, **RESCALE),
    "microsoft/resnet-50": convnext(224),
    "microsoft/cvt-13": convnext(224),
    "facebook/regnet-y-040": convnext(224),
    "google/efficientnet-b0": efficientnet(224, 289),
    "google/efficientnet-b3": efficientnet(300, 289),
    "kakaobrain/align-base": efficientnet(346, 289)
    | {"do_center_crop": True, "do_normalize": False, "include_top": False, "resample": 2}
    | {"rescale_factor": 0.00784313725490196, "rescale_offset": True}
    | HALF,
    "google/mobilenet_v1_1.0_224": mobilenet("V1"),
    "google/mobilenet_v1_0.75_192": mobilenet("V1", 219, 192),
    "google/mobilenet_v2_1.0_224": mobilenet("V2"),
    "google/deeplabv3_mobilenet_v2_1.0_513": mobilenet("V2", 513, 513),
    "apple/mobilevit-small": mobilevit(288, 256),
    "apple/mobilevitv2-1.0-imagenet1k-256": mobilevit({"shortest_edge": 288}, square(256))
    | {"image_processor_type": "MobileViTImageProcessor"},
    "facebook/levit-128S": {"feature_extractor_type": "LevitFeatureExtractor", "crop_size": square(224)}
    | {"do_center_crop": True, "resample": 3, "size": {"shortest_edge": 224}}
    | (RESIZE_NORMALIZE | IMAGENET),
    "sail/poolformer_s12": {"feature_extractor_type": "PoolFormerFeatureExtractor", "crop_pct": 0.9, "size": 224}
    | {"do_resize_and_center_crop": True, "do_center_crop": True, "crop_size": 224, "resample": 3}
    | (RESIZE_NORMALIZE | IMAGENET),
    "sail/poolformer_m36": {"image_processor_type": "PoolFormerImageProcessor", "crop_pct": 0.95}
    | {"do_center_crop": True, "crop_size": square(224), "resample": 3, "size": {"shortest_edge": 224}}
    | (RESIZE_NORMALIZE | RESCALE | IMAGENET),
    "microsoft/beit-base-patch16-224": beit(),
    "microsoft/beit-large-patch16-384": beit(384, 384),
    "microsoft/dit-base-finetuned-rvlcdip": beit(do_reduce_labels=False),
    "facebook/data2vec-vision-base-ft1k": beit(mean_std=IMAGENET, resample=3),
    "Salesforce/blip-image-captioning-base": blip(384),
    "Salesforce/blip2-opt-2.7b": blip(224),
    "nvidia/mit-b0": segformer(512),
    "Zetatech/pvt-tiny-224": {"image_processor_type": "PvtImageProcessor", "resample": 2, "size": square(224)}
    | (RESIZE_NORMALIZE | RESCALE | IMAGENET),
    "google/owlvit-base-patch32": {"feature_extractor_type": "OwlViTFeatureExtractor", "crop_size": 768}
    | {"do_center_crop": False, "resample": 3, "size": [768, 768]}
    | (RESIZE_NORMALIZE | CLIP),
    "facebook/detr-resnet-50": detr("Detr", max_size=1333, size=800),
    "microsoft/table-transformer-detection": detr("Detr", max_size=800, size=800),
    "microsoft/conditional-detr-resnet-50": detr("ConditionalDetr", size={"shortest_edge": 800, "longest_edge": 1333}),
    "SenseTime/deformable-detr": detr("DeformableDetr", max_size=1333, size=800),
    "hustvl/yolos-tiny": detr("Yolos", size={"shortest_edge": 512, "longest_edge": 1333}),
    "IDEA-Research/grounding-dino-tiny": detr("GroundingDino", size={"shortest_edge": 800, "longest_edge": 1333})
    | {"image_processor_type": "GroundingDinoImageProcessor", "do_pad": True, "pad_size": None},
    "PekingU/rtdetr_r50vd": rt_detr(),
    "PekingU/rtdetr_v2_r18vd": FAST
    | rt_detr(image_processor_type="RTDetrImageProcessorFast", default_to_square=False, pad_size=None),
    "facebook/chameleon-7b": {"image_processor_type": "ChameleonImageProcessor", "crop_size": square(512)}
    | {"do_center_crop": True, "resample": 1, "rescale_factor": 0.0078, "size": {"shortest_edge": 512}}
    | {"image_mean": [1.0, 1.0, 1.0], "image_std": [1.0, 1.0, 1.0], "do_rescale": True}
    | RESIZE_NORMALIZE,
    "Intel/dpt-large": {"feature_extractor_type": "DPTFeatureExtractor", "ensure_multiple_of": 1},
    "depth-anything/Depth-Anything-V2-Small-hf": {"image_processor_type": "DPTImageProcessor", "size": square(518)}
    | {"ensure_multiple_of": 14, "keep_aspect_ratio": True, "do_pad": False, "size_divisor": None, "resample": 3}
    | IMAGENET,
    "facebook/sam-vit-base": {"image_processor_type": "SamImageProcessor", "size": {"longest_edge": 1024}},
    "facebook/dinov3-vits16-pretrain-lvd1689m": {"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 2}
    | {"size": square(224)}
    | FAST
    | IMAGENET,
}
"""Configurations that must be imported, with pixels equal to the processor's."""

REFUSED = {
    "microsoft/Phi-3-vision-128k-instruct": {"auto_map": {"AutoImageProcessor": "image_processing_phi3_v.Phi3V"}}
    | CLIP,
}
"""Configurations that must be rejected, with the first unsupported field."""

GRID = {"image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]}
TILED = {
    "dandelin/vilt-b32-mlm": {"image_processor_type": "ViltImageProcessor", "size_divisor": 32},
    "deepmind/vision-perceiver-conv": {"image_processor_type": "PerceiverImageProcessor", "size": 224}
    | {"crop_size": 256}
    | IMAGENET,
    "llava-hf/llava-v1.6-mistral-7b-hf": {"image_processor_type": "LlavaNextImageProcessor"}
    | {"size": {"shortest_edge": 336}, "crop_size": square(336), "resample": 3}
    | GRID
    | CLIP,
    "llava-hf/llava-onevision-qwen2-0.5b-ov-hf": {"image_processor_type": "LlavaOnevisionImageProcessor"}
    | {"size": square(384), "resample": 3, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    "OpenGVLab/InternVL3-1B-hf": {"image_processor_type": "GotOcr2ImageProcessor", "size": square(448)}
    | {"crop_to_patches": True, "min_patches": 1, "max_patches": 12, "resample": 3}
    | IMAGENET,
    "thisisiron/Ovis2-1B-hf": {"image_processor_type": "Ovis2ImageProcessor", "size": square(448)}
    | {"crop_to_patches": True, "min_patches": 1, "max_patches": 9, "use_covering_area_grid": True, "resample": 3}
    | CLIP,
    "meta-llama/Llama-3.2-11B-Vision-Instruct": {"image_processor_type": "MllamaImageProcessor", "resample": 2}
    | {"size": square(560), "max_image_tiles": 4, "do_pad": True}
    | CLIP,
    "mistral-community/pixtral-12b": {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 1024}}
    | {"patch_size": square(16), "resample": 3}
    | CLIP,
    "HuggingFaceTB/SmolVLM2-500M-Video-Instruct": {"image_processor_type": "SmolVLMImageProcessor", "resample": 1}
    | {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}
    | {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    "HuggingFaceM4/idefics2-8b": {"image_processor_type": "Idefics2ImageProcessor", "resample": 2}
    | {"size": {"longest_edge": 980, "shortest_edge": 378}, "do_image_splitting": False},
    "deepseek-community/Janus-Pro-1B": {"image_processor_type": "JanusImageProcessor", "size": square(384)}
    | {"min_size": 14, "resample": 3, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
    "facebook/mask2former-swin-tiny-coco-instance": {"image_processor_type": "Mask2FormerImageProcessor"}
    | {"size": {"longest_edge": 1333, "shortest_edge": 800}, "size_divisor": 32, "ignore_index": 255, "resample": 2}
    | IMAGENET,
    "naver-clova-ix/donut-base": {"image_processor_type": "DonutImageProcessor", "do_align_long_axis": False}
    | {"size": {"height": 640, "width": 480}, "resample": 2},
    "Qwen/Qwen2.5-VL-3B-Instruct": {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136}
    | {"max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    | CLIP,
    "google/siglip2-base-patch16-naflex": {"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": 256}
    | {"patch_size": 16, "resample": 2},
}
"""Configurations of models with patches, tiles or a formula for the size, which must equal the processor."""
