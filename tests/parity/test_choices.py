"""Tests the random choice of DETR's recipe against torchvision v2, whose functions are applied with the parameters that
pixprep has sampled.

``test_import_torchvision`` compares the choices of imported transforms.
"""

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from support.images import png, scene

torch = pytest.importorskip("torch", reason="NO PYTORCH: its choices were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its choices were not compared")

from torchvision import tv_tensors  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

torch.set_num_threads(1)
DRAWS = 300


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
