"""Tests that an ``ImageProcessor`` returns the same batch as the class of transformers, bit for bit, for every kind of
image.
"""

import copy
import pickle
from importlib.util import find_spec
from threading import Thread
from types import MethodType

import numpy as np
import pytest

from pixprep import ImageError, PipelineError
from pixprep.importers.transformers import CLASSES
from pixprep.importers.transformers.batches import FORMS, UNSUPPORTED
from pixprep.importers.transformers.classes import FIXED, WITHOUT_TORCHVISION, ZERO_RESAMPLE
from pixprep.importers.transformers.processor import ImageProcessor
from support.hub_configs import TILED
from support.images import jpeg, noise, png, read, scene
from support.processors import boxes_for

if find_spec("transformers") is None or find_spec("torchvision") is None:
    pytest.skip("NO TRANSFORMERS: its batches were not compared", allow_module_level=True)

import tokenizers
import torch
import transformers
from PIL import Image

BACKENDS = ("torchvision", "pil")
SIZES = ((70, 101), (120, 61), (70, 101), (40, 160), (33, 37))
SMALLER = {
    "DonutImageProcessor": {"size": {"height": 64, "width": 48}},
    "LlavaNextImageProcessor": {"size": {"shortest_edge": 40}, "crop_size": {"height": 40, "width": 40}}
    | {"image_grid_pinpoints": [[40, 80], [80, 40], [80, 80], [40, 40]]},
    "NougatImageProcessor": {"size": {"height": 48, "width": 64}},
    "PPFormulaNetImageProcessor": {"size": {"height": 64, "width": 64}},
    "SamImageProcessor": {"size": {"longest_edge": 128}, "pad_size": {"height": 128, "width": 128}},
}
"""Fields that make a class faster, or that its default configuration lacks in order to be valid."""
CASES = {
    name: {field: value for field, value in FIXED.get(name, {}).items() if field != "return_row_col_info"}
    | SMALLER.get(name, {})
    for name in CLASSES
    if name not in UNSUPPORTED
} | {hub: {**fields} for hub, fields in TILED.items() if fields["image_processor_type"] not in UNSUPPORTED}
FAILS = {"ViltImageProcessor": "torchvision"}
"""Class of transformers that fails without ``return_tensors="pt"`` because of a variable that is never set, and the
backend with which it fails."""
QWEN = {"image_processor_type": "Qwen2VLImageProcessor"}
SMALL_CLIP = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}
LLAVA = SMALLER["LlavaNextImageProcessor"]


def images(count=5):
    """Return images of different sizes, of which two have the same size."""
    return [Image.fromarray(scene(*size, seed=seed)) for seed, size in enumerate(SIZES[:count])]


def pair(name, backend="torchvision", **fields):
    """Return the class of transformers and the ImageProcessor with the same configuration."""
    if backend == "torchvision" and name in WITHOUT_TORCHVISION:
        pytest.skip(f"NO {name} WITH TORCHVISION: {WITHOUT_TORCHVISION[name]}")
    cls = getattr(transformers, name + ("Pil" if backend == "pil" else ""), None)
    if cls is None:
        pytest.skip(f"NO {name}Pil: transformers has no such class")
    ours = ImageProcessor({"image_processor_type": name, **fields}, backend=backend, threads=1)
    return cls(**fields), ours


def difference(ours, theirs, where=""):
    """Return the first difference in type, shape, dtype or value of two results, or None."""
    if torch.is_tensor(theirs) or isinstance(theirs, np.ndarray):
        kinds = [(torch.is_tensor(each), str(getattr(each, "dtype", "")), np.shape(each)) for each in (ours, theirs)]
        equal = torch.equal if torch.is_tensor(theirs) else np.array_equal
        is_equal = kinds[0] == kinds[1] and equal(ours, theirs)
        return None if is_equal else f"{where}: {kinds[0]}, not {kinds[1]}"
    if hasattr(theirs, "keys"):
        pairs = {key: (ours.get(key), value) for key, value in theirs.items()}
        extra = {*ours} - {*theirs}
        found = [difference(*both, f"{where}.{key}") for key, both in pairs.items()]
        return next(filter(None, found), f"{where}: {extra} is added" if extra else None)
    if isinstance(theirs, list | tuple):
        if not isinstance(ours, list | tuple) or len(ours) != len(theirs):
            return f"{where}: {ours!r}, not {theirs!r}"[:200]
        found = [difference(*both, f"{where}[{index}]") for index, both in enumerate(zip(ours, theirs, strict=True))]
        return next(filter(None, found), None)
    return None if ours == theirs else f"{where}: {ours!r}, not {theirs!r}"


def result(processor, *arguments, **options):
    """Return the result of a call, or the exception that it raises."""
    try:
        return processor(*arguments, **options)
    except (ValueError, RuntimeError, UnboundLocalError) as error:  # torch.stack raises a RuntimeError
        return error


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_a_batch_equals_that_of_the_class(case, backend):
    fields = {**CASES[case]}
    name = fields.pop("image_processor_type", case)
    own, ours = pair(name, backend, **fields)
    compared = 0
    for count in (1,) if FORMS[name].is_alone else (1, 2, 5):
        for form in (None, "np", "pt"):
            boxes = boxes_for(own, count)
            expected = result(own, images(count), return_tensors=form, **boxes)
            if isinstance(expected, UnboundLocalError):
                assert FAILS[name] == backend
                continue
            actual = result(ours, images(count), return_tensors=form, **boxes)
            if isinstance(expected, Exception):
                assert isinstance(actual, ValueError), (count, form, expected)
                continue
            compared += 1
            assert difference(actual, expected) is None, (count, form)
    assert compared >= 3
    assert ours.model_input_names == own.model_input_names


@pytest.mark.parametrize("backend", BACKENDS)
def test_pairs_of_gray_and_colored_images_equal_those_of_the_class(backend):
    own, ours = pair("LightGlueImageProcessor", backend)
    colored, gray = images(2), Image.fromarray(np.repeat(scene(50, 60)[:, :, :1], 3, 2))
    for samples in ([[colored[0], gray], colored], [[gray, gray]], [gray, colored[1]]):
        for form in (None, "np", "pt"):
            assert difference(ours(samples, return_tensors=form), own(samples, return_tensors=form)) is None
    with pytest.raises(ValueError, match="each sample must be a pair"):
        ours([colored[0]])


@pytest.mark.parametrize(
    "name",
    [name for name, form in FORMS.items() if form.counted and name != "MuseGlimmerImageProcessor"],
)
def test_the_number_of_patches_equals_the_method_of_the_class(name):
    own, ours = pair(name, **CASES[name])
    for size in ((480, 640), (70, 101), (301, 259), (1000, 300)):
        expected = own.get_number_of_image_patches(*size)
        assert ours.get_number_of_image_patches(*size) == expected


def test_attributes_equal_those_of_the_class():
    for name in ("CLIPImageProcessor", "Qwen2VLImageProcessor", "SmolVLMImageProcessor", "PixtralImageProcessor"):
        own, ours = pair(name)
        for field in own.valid_kwargs.__annotations__:
            assert getattr(ours, field) == getattr(own, field, None), field
    assert ours.valid_kwargs is own.valid_kwargs
    assert not hasattr(ours, "a_field_that_no_class_has")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "F"])
def test_pillow_images_of_every_mode_are_converted_as_in_the_class(mode):
    own, ours = pair("CLIPImageProcessor", **SMALL_CLIP)
    rgb = Image.fromarray(np.dstack([scene(60, 80), noise(60, 80)[:, :, :1]]))
    image = rgb.convert("L").convert("I;16") if mode == "I;16" else rgb.convert("RGB" if mode == "CMYK" else "RGBA")
    image = image if mode == "I;16" else image.convert("L").convert(mode) if mode in "1LF" else image.convert(mode)
    image.info["transparency"] = 3 if mode == "P" else None
    assert difference(ours(image, return_tensors="pt"), own(image, return_tensors="pt")) is None


def test_arrays_and_tensors_of_either_layout_equal_the_class():
    own, ours = pair("CLIPImageProcessor", **SMALL_CLIP)
    pixels = scene(60, 80)
    tensor, stack = torch.from_numpy(pixels), np.stack([pixels, pixels[::-1]])
    last = {"input_data_format": "channels_last"}
    for given, copied, options in (
        *((each, each, {}) for each in (pixels, pixels.transpose(2, 0, 1), pixels[:, :, :1], tensor, stack)),
        (tensor.permute(2, 0, 1), tensor, {}),
        (pixels[:3], pixels[:3], last),  # three rows, which could also be channels
        (pixels[:, :, 0], pixels[:, :, :1], {}),
        (pixels[::-1, ::-2], np.ascontiguousarray(pixels[::-1, ::-2]), {}),  # PyTorch does not have negative strides
    ):
        expected = own(copied, return_tensors="pt", **options)
        assert difference(ours(given, return_tensors="pt", **options), expected) is None


def test_a_list_with_files_and_pixels_equals_the_class(tmp_path):
    own, ours = pair("Qwen2VLImageProcessor")
    encoded = [png(scene(70, 101)), jpeg(scene(99, 60)), png(noise(50, 60))]
    (tmp_path / "photo.png").write_bytes(encoded[2])
    mixed = [encoded[0], np.asarray(read(encoded[1]).convert("RGB")), tmp_path / "photo.png", read(encoded[0])]
    expected = own([read(each).convert("RGB") for each in (*encoded, encoded[0])], return_tensors="pt")
    assert difference(ours(mixed, return_tensors="pt"), expected) is None
    fetched = ours.fetch_images([mixed[0], [mixed[1], mixed[2]]])
    assert isinstance(fetched[0], Image.Image)
    assert fetched[1][0] is mixed[1]
    assert np.array_equal(np.asarray(fetched[1][1]), noise(50, 60))


SEVERAL = ("SmolVLMImageProcessor", "Idefics2ImageProcessor", "LlavaOnevisionImageProcessor", "MllamaImageProcessor")
SEVERAL += ("GraniteDoclingImageProcessor", "Lfm2VlImageProcessor", "MiniCPMV4_6ImageProcessor")


@pytest.mark.parametrize("name", SEVERAL)
def test_samples_with_several_images_equal_the_class(name):
    own, ours = pair(name)
    nested = [images()[:1], images()[1:2]] if name.startswith("Llava") else [images()[:2], images()[2:]]
    options = {"return_row_col_info": True} if name.startswith("Smol") else {}
    expected = own(nested, return_tensors="pt", **options)
    assert difference(ours(nested, return_tensors="pt", **options), expected) is None


@pytest.mark.filterwarnings("ignore:Passing `min_pixels`")
def test_keyword_arguments_of_a_call_equal_the_class():
    own, ours = pair("Qwen2VLImageProcessor")
    for options in (
        *({"max_pixels": 28 * 28 * 8}, {"size": {"shortest_edge": 1, "longest_edge": 9999}}, {"do_resize": True}),
        *({"do_normalize": False}, {"image_mean": [0.5, 0.4, 0.3]}, {"resample": 2}, {"disable_grouping": True}),
        *({"merge_size": 1}, {"device": "cpu"}, {"do_rescale": False, "do_normalize": False}),
    ):
        given = {"return_tensors": "pt", **options}
        assert difference(ours(images(2), **given), own(images(2), **given)) is None, options
    for name in ZERO_RESAMPLE:
        own, ours = pair(name, "pil", resample=2)
        expected = own(images(1), return_tensors="np", resample=0)
        assert difference(ours(images(1), return_tensors="np", resample=0), expected) is None, name
    own, ours = pair("CLIPImageProcessor", **SMALL_CLIP)
    for options in ({"size": 50}, {"crop_size": 20}, {"size": {"height": 20, "width": 30}}):
        expected = result(own, images(1), return_tensors="pt", **options)
        assert difference(ours(images(1), return_tensors="pt", **options), expected) is None, options


def test_other_keyword_arguments_are_refused_or_passed_to_the_original():
    own, ours = pair("DetrImageProcessor", size={"shortest_edge": 40, "longest_edge": 60})
    boxes = {"image_id": 1, "annotations": [{"bbox": [1, 2, 30, 40], "category_id": 3, "area": 9, "iscrowd": 0}]}
    with pytest.raises(PipelineError, match=r"annotations=.*: not supported by pixprep; pass original="):
        ours(images(1), annotations=[boxes], return_tensors="pt")
    assert not hasattr(ours, "post_process_object_detection")
    both = ImageProcessor(own.to_dict(), original=own)
    expected = own(images(1), annotations=[boxes], return_tensors="pt")
    assert difference(both(images(1), annotations=[boxes], return_tensors="pt"), expected) is None
    with pytest.raises(PipelineError, match="pass original="):
        ours(images(1), None, boxes)
    for options in ({"do_resize": False}, {"do_resize": False, "do_pad": False}):
        expected = own(images(1), return_tensors="pt", **options)
        for each in (ours, both):
            assert difference(each(images(1), return_tensors="pt", **options), expected) is None, options
    assert both.post_process_object_detection == own.post_process_object_detection


def test_a_bad_image_raises_with_its_number():
    ours = ImageProcessor(QWEN)
    for bad in (b"text", "no such file.png", np.zeros((9, 9, 3), np.float32), np.zeros((9, 9, 4), np.uint8), object()):
        with pytest.raises(ImageError, match="image 2 of 3"):
            ours([images(1)[0], bad, png(scene(30, 40))])
    with pytest.raises(ImageError, match="image 1 of 1"):
        ours.fetch_images(b"text")
    with pytest.raises(PipelineError, match="pass at least one image"):
        ours([])


def test_threads_and_pickled_copies_return_the_same():
    ours = ImageProcessor(QWEN, threads=2)
    expected = ours(images(), return_tensors="pt")
    copy = pickle.loads(pickle.dumps(ours))  # noqa: S301  (its own bytes)
    assert difference(copy(images(), return_tensors="pt"), expected) is None
    found = []
    threads = [Thread(target=lambda: found.append(ours(images(), return_tensors="pt"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [difference(each, expected) for each in found] == [None] * 4


class Collator:
    """Function that a DataLoader calls to preprocess the images of a batch."""

    def __init__(self, processor):
        self.processor = processor

    def __call__(self, samples):
        return self.processor(samples, return_tensors="pt")


def test_the_workers_of_a_data_loader_return_the_same():
    ours = ImageProcessor({"image_processor_type": "CLIPImageProcessor", **SMALL_CLIP}, threads=2)
    # Computed before the fork, because a forked process does not inherit the threads that compute it.
    expected = ours(images(4), return_tensors="pt")["pixel_values"]
    loader = torch.utils.data.DataLoader(
        images(4), batch_size=2, num_workers=2, collate_fn=Collator(ours), multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat([batch["pixel_values"] for batch in loader]), expected)


SPECIAL = [
    *("<unk>", "<pad>", "<s>", "</s>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
    *("<image>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<end_of_utterance>", "<fake_token_around_image>"),
    *("<global-img>", *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))),
]


def tokenizer(**extra):
    """Return a word-level tokenizer that is created without files."""
    words = {word: number for number, word in enumerate([*SPECIAL, "what", "is", "in", "this"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, SPECIAL[0]))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIAL, strict=False))
    names |= {"additional_special_tokens": SPECIAL, "model_max_length": 10_000}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, **names, **extra)


IDEFICS = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
PROCESSORS = {
    "Qwen2VLProcessor": ("Qwen2VLImageProcessor", "<|image_pad|>", {}),
    "Qwen2_5_VLProcessor": ("Qwen2VLImageProcessor", "<|image_pad|>", {}),
    "LlavaNextProcessor": (
        "LlavaNextImageProcessor",
        "<image>",
        {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
    ),
    "Idefics3Processor": ("Idefics3ImageProcessor", "<image>", {"image_seq_len": 4}),
    "PixtralProcessor": ("PixtralImageProcessor", "[IMG]", {"patch_size": 16}),
    "CLIPProcessor": ("CLIPImageProcessor", "", {}),
}
"""Processors with a tokenizer: the image processor, the placeholder of an image, and further arguments."""


def check_uses_of_inference_engines(whole, own, folder):
    """Check the operations that vLLM and SGLang perform on a processor, according to their source code."""
    ours, sizes = whole.image_processor, [(100, 100), (300, 100), (500, 330)]
    if hasattr(whole, "_get_num_multimodal_tokens"):
        counts = whole._get_num_multimodal_tokens(image_sizes=sizes)
        whole.image_processor = own
        assert counts == whole._get_num_multimodal_tokens(image_sizes=sizes)
        whole.image_processor = ours
    for field in ("patch_size", "merge_size", "temporal_patch_size", "max_image_size", "max_patches", "do_pad"):
        assert getattr(ours, field, None) == getattr(own, field, None), field
    for edge in ("height", "width", "shortest_edge", "longest_edge"):
        assert getattr(ours.size, edge) == getattr(own.size, edge)
    assert not isinstance(ours, transformers.image_processing_utils.BaseImageProcessor)  # else SGLang passes ``device``
    saved = type(own)(**whole.to_dict()["image_processor"]).to_dict()
    assert {field: saved[field] for field in own.to_dict()} == own.to_dict()
    assert type(own).__name__ in repr(whole)
    whole.save_pretrained(folder)
    assert type(whole).from_pretrained(folder).image_processor.to_dict() == saved
    photo, expected = images(1), own(images(1), return_tensors="np")
    for copied in (copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):  # noqa: S301
        assert difference(copied.image_processor(photo, return_tensors="np"), expected) is None
    plain = copy.deepcopy(ours)
    plain.preprocess = MethodType(lambda _, *given, **options: {**ours.preprocess(*given, **options), "x": 1}, plain)
    assert plain.preprocess(photo, return_tensors="np")["x"] == 1  # vLLM replaces the method for Pixtral


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_whole_processor_returns_the_same_with_a_replaced_image_processor(name, tmp_path):
    image_processor, placeholder, arguments = PROCESSORS[name]
    own, ours = pair(image_processor, **CASES[image_processor])
    if name.startswith("Qwen"):
        arguments = {"video_processor": transformers.Qwen2VLVideoProcessor()}
    extra = {"extra_special_tokens": IDEFICS} if name.startswith("Idefics") else {}
    whole = getattr(transformers, name)(image_processor=own, tokenizer=tokenizer(**extra), **arguments)
    text = [f"{placeholder} what is in this", f"what {placeholder} is"]
    pictures = [images(1), images(2)[1:]] if name.startswith("Idefics") else images(2)
    given = {"text": text, "images": pictures, "return_tensors": "pt", "padding": True}
    expected = whole(**given)
    whole.image_processor = ours
    assert difference(whole(**given), expected) is None
    assert {"input_ids", "attention_mask", "pixel_values"} <= set(expected)
    assert (
        not placeholder or expected["input_ids"].shape[1] > 10
    )  # the sizes of the images define the number of placeholders
    check_uses_of_inference_engines(whole, own, tmp_path)
    encoded = [png(np.asarray(each)) for each in images(2)]
    given["images"] = encoded if isinstance(pictures[0], Image.Image) else [encoded[:1], encoded[1:]]
    assert difference(whole(**given), expected) is None
    wrong = {"image_processor_type": image_processor, "image_mean": [0.4, 0.5, 0.6]}
    whole.image_processor = ImageProcessor(CASES[image_processor] | wrong)
    assert difference(whole(**given), expected) is not None
