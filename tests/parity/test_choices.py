"""Tests random choices of ops against torchvision v2. torchvision's own functions are applied to each sample in the
order that pixprep has sampled.
"""

import io

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.importers.torchvision import from_torchvision
from support.images import png, scene

torch = pytest.importorskip("torch", reason="NO PYTORCH: its choices were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its choices were not compared")

from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

torch.set_num_threads(1)
DRAWS = 300
RECIPE = v2.Compose(
    [
        v2.RandomChoice(
            [v2.RandomResizedCrop(32), v2.Compose([v2.Resize((40, 44)), v2.RandomCrop(32)]), v2.Resize((32, 32))],
            p=[1, 2, 1],
        ),
        v2.RandomApply([v2.RandomHorizontalFlip(1.0), v2.ColorJitter(0.3, 0.2)], p=0.5),
        v2.RandomApply([v2.RandomRotation(20)], p=0.4),
        v2.RandomOrder([v2.RandomSolarize(128, p=1), v2.RandomPosterize(4, p=0.5), v2.RandomAutocontrast(p=1)]),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
    ]
)


def expected(image, draws):
    """Apply torchvision's functions to one image, step by step according to the image's recorded parameters."""
    steps = {
        "random_resized_crop": lambda x, d: F.resized_crop(x, d["top"], d["left"], d["height"], d["width"], [32, 32]),
        "random_crop": lambda x, d: F.crop(x, d["top"], d["left"], d["height"], d["width"]),
        "random_flip": lambda x, d: F.horizontal_flip(x) if d["flip"] else x,
        "color_jitter": jittered,
        "random_rotate": lambda x, d: F.rotate(x, d["angle"]),
        "random_solarize": lambda x, d: F.solarize(x, 128) if d["apply"] else x,
        "random_posterize": lambda x, d: F.posterize(x, 4) if d["apply"] else x,
        "random_autocontrast": lambda x, d: F.autocontrast(x) if d["apply"] else x,
    }

    def done(image, key):
        return steps[key.split(".")[-1].split("#")[0]](image, draws[key])

    (choice,) = draws["random_choice#0"]["chosen"]
    if choice == 0:
        image = done(image, "random_choice#0.0.random_resized_crop#0")
    elif choice == 1:
        image = done(F.resize(image, [40, 44]), "random_choice#0.1.random_crop#0")
    else:
        image = F.resize(image, [32, 32])
    if draws["random_apply#0"]["chosen"]:
        for name in ("random_flip", "color_jitter"):
            image = done(image, f"random_apply#0.0.{name}#0")
    if draws["random_rotate#0.p"]["chosen"]:
        image = done(image, "random_rotate#0")
    for part in draws["random_order#0"]["chosen"]:
        name = ("random_solarize", "random_posterize", "random_autocontrast")[part]
        image = done(image, f"random_order#0.{part}.{name}#0")
    return F.to_dtype(F.to_image(image), torch.float32, scale=True).numpy()


def test_detrs_two_chains_equal_torchvisions_functions():
    """DETR chooses between a resize, and a resize followed by a crop of random size and another resize.

    The test includes the boxes and the mask.
    """
    sizes = (48, 56, 64)
    chains = [
        pp.random_shortest_size(sizes, 90),
        [pp.random_shortest_size((50, 60, 70)), pp.random_size_crop(38, 60), pp.random_shortest_size(sizes, 90)],
    ]
    ops = [pp.decode(), pp.random_flip(), pp.random_choice(chains), pp.boxes(min_size=0), pp.mask()]
    ops += [pp.tensor(dtype="uint8", layout="hwc", only="training")]
    photos = [scene(70 + 3 * i, 110 - 4 * i) for i in range(10)]
    boxes = np.array([[10, 12, 50, 40], [30, 20, 60, 60]], np.float32)
    source = [
        {
            "image": png(photos[index % 10]),
            "boxes": boxes,
            "labels": [1, 2],
            "mask": np.ascontiguousarray(photos[index % 10][:, :, 0]),
        }
        for index in range(DRAWS)
    ]
    with pp.Loader(source, pp.Pipeline(ops).for_training(), batch_size=DRAWS, seed=7) as loader:
        (batch,) = loader
    seen = set()
    for index, draws in enumerate(batch.draws):
        pair = [Image.fromarray(photos[index % 10]), tv_tensors.Mask(source[index]["mask"])]
        there = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=photos[index % 10].shape[:2])
        pair.append(there)
        if draws["random_flip#0"]["flip"]:
            pair = [F.horizontal_flip(each) for each in pair]
        (chosen,) = draws["random_choice#0"]["chosen"]
        seen.add(chosen)
        for key, words in list(draws.items())[2:]:
            if "size_crop" in key:
                pair = [F.crop(each, words["top"], words["left"], words["height"], words["width"]) for each in pair]
            else:
                height, width = F.get_size(pair[0])
                most = None if key == "random_choice#0.1.random_shortest_size#0" else 90
                scale = words["size"] / min(height, width)
                scale = scale if most is None else min(scale, most / max(height, width))
                pair = [F.resize(each, [int(height * scale), int(width * scale)]) for each in pair]
        assert np.array_equal(np.asarray(pair[0]), batch["tensor"][index]), draws
        assert np.array_equal(pair[1].numpy(), batch["mask"][index]), draws
        theirs = F.clamp_bounding_boxes(pair[2]).numpy()
        kept = ((theirs[:, 2:] - theirs[:, :2]) > 0).all(axis=1)
        assert np.abs(theirs[kept] - batch["boxes"][index]).max(initial=0) < 1e-3
    assert seen == {0, 1}


def jittered(image, draw):
    for kind, factor in draw.items():
        image = getattr(F, f"adjust_{kind}")(image, factor)
    return image


def test_an_imported_choice_equals_torchvision_with_the_same_parameters():
    pipeline = from_torchvision(training=RECIPE).for_training()
    photos = [png(scene(60 + i, 90 - i)) for i in range(10)]
    source = [{"image": photos[index % 10]} for index in range(DRAWS)]
    with pp.Loader(source, pipeline, batch_size=DRAWS, seed=4) as loader:
        (batch,) = loader
    wrong = 0
    for index, draws in enumerate(batch.draws):
        image = Image.open(io.BytesIO(photos[index % 10])).convert("RGB")
        assert np.array_equal(expected(image, draws), batch["tensor"][index]), draws
        turned = {**draws, "random_order#0": {"chosen": draws["random_order#0"]["chosen"][::-1]}}
        wrong += not np.array_equal(expected(image, turned), batch["tensor"][index])
    assert wrong > DRAWS * 0.9  # most results depend on the order
