"""Tests that random crops and warps that depend on annotations equal those of other libraries for the same draws.

The random numbers of a Loader are passed to the deterministic functions of Albumentations, mmsegmentation, nnU-Net and
mmpose.
"""

import importlib.util
import warnings
from statistics import NormalDist

import numpy as np
import pytest

import pixprep as pp
from support.class_text import definitions

cv2 = pytest.importorskip("cv2", reason="NO OPENCV: draws were not replayed")

COUNT = 300
LOW = NormalDist().cdf(-1.0)


def samples(rng, *, least=40):
    """Yield photos with a mask, boxes and points. Every fourth mask contains only background."""
    for index in range(COUNT):
        height, width = rng.integers(least, 90, 2)
        mask = np.zeros((height, width), np.uint8)
        for label in (1, 2, 255) * (index % 4 > 0):
            top, left = rng.integers(0, height - 8), rng.integers(0, width - 8)
            mask[top : top + rng.integers(1, 30), left : left + rng.integers(1, 30)] = label
        corners = rng.uniform(0, 30, (2, 2))
        boxes = np.hstack([corners, corners + rng.uniform(4, 50, (2, 2))]).astype(np.float32)
        points = rng.uniform(0, 40, (2, 17, 2)).astype(np.float32)
        yield {
            "image": rng.integers(0, 256, (height, width, 3), np.uint8),
            "mask": mask,
            "boxes": boxes,
            "points": points,
            "visible": rng.integers(0, 5, (2, 17)) > 0,
        }


def replayed(op, *, before=(), least=40):
    """Yield each sample, its batch of one image, the op's random numbers (blocks, 4), and the op's draw."""
    source = list(samples(np.random.default_rng(7), least=least))
    pixels = pp.tensor(dtype="uint8", layout="hwc", only="training")
    pipeline = pp.Pipeline([pp.pixels(), *before, op, pp.boxes(min_size=0), pp.points(), pp.mask(), pixels])
    with pp.Loader(source, pipeline.for_training(), batch_size=1, seed=11, threads=1) as loader:
        for sample, batch in zip(source, loader, strict=True):
            plan = pipeline.for_training().plan
            (step,) = [each for each in plan.random_steps if each.op.sees]
            (numbers,) = plan.draw(seed=11, epoch=0, indices=batch["index"].tolist())
            yield sample, batch, numbers.blocks(step.key, 0, step.blocks), batch.draws[0][step.key]


class Random:
    """Replaces the random functions of a library. Each call computes its result from the next number in [0, 1)."""

    def __init__(self, *uniforms):
        self._left = list(uniforms)

    def randint(self, low, high):
        """Return an integer from ``low`` to ``high``, as Python's ``random`` does."""
        return low + int(self._left.pop(0) * (high - low + 1))

    def choice(self, values):
        """Return one of several values, or a non-negative integer below ``values``."""
        values = range(values) if isinstance(values, int | np.integer) else values
        return values[int(self._left.pop(0) * len(values))]

    def rand(self, *_):
        """Return the next number."""
        return self._left.pop(0)


class Exclusive(Random):
    """Replaces NumPy's random functions, which exclude the upper limit."""

    def randint(self, low, high):
        """Return an integer from ``low`` to ``high - 1``."""
        return super().randint(low, high - 1)


@pytest.mark.parametrize("ignored", [None, [1]])
def test_a_crop_around_the_mask_equals_albumentations(ignored):
    if importlib.util.find_spec("albumentations") is None:
        pytest.skip("NO ALBUMENTATIONS: its crops were not replayed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import would query PyPI for a newer version
        import albumentations as A  # noqa: N812, PLC0415
    transform = A.CropNonEmptyMaskIfExists(24, 32, ignore_values=ignored, p=1)
    guided = 0
    for sample, batch, blocks, words in replayed(pp.random_crop(24, 32, around="mask", ignore=ignored or ())):
        (top, left, *_), (which, row, column, _) = blocks.tolist()
        has_mask = bool((~np.isin(sample["mask"], (0, *(ignored or ())))).any())
        guided += has_mask
        transform.py_random = Random(*((which, column, row) if has_mask else (left, top)))
        x1, y1, x2, y2 = transform.get_params_dependent_on_data({}, {"mask": sample["mask"].copy()})["crop_coords"]
        assert (words["top"], words["left"]) == (y1, x1)
        assert np.array_equal(batch["tensor"][0], sample["image"][y1:y2, x1:x2])
        assert np.array_equal(batch["mask"][0], sample["mask"][y1:y2, x1:x2])
    assert COUNT // 3 < guided < COUNT


def test_a_crop_with_varied_labels_equals_mmsegmentation():
    blocks = Exclusive()
    numpy = type("np", (), {**{name: getattr(np, name) for name in ("unique", "max", "sum", "ndarray")}})
    library = definitions("mmseg/datasets/transforms/transforms.py", "RandomCrop", BaseTransform=object, np=numpy)
    crop = library.RandomCrop((24, 32), cat_max_ratio=0.6)
    again = 0
    for resized in (False, True):
        before = [pp.resize(height=50, width=60, like="opencv")] if resized else []
        for sample, batch, uniforms, words in replayed(pp.random_crop(24, 32, max_label=0.6), before=before):
            image, mask = sample["image"], sample["mask"]
            if resized:
                image, mask = cv2.resize(image, (60, 50)), cv2.resize(mask, (60, 50), interpolation=cv2.INTER_NEAREST)
            blocks._left = uniforms[:, :2].ravel().tolist()
            numpy.random = blocks
            y1, y2, x1, x2 = crop.crop_bbox({"img": image, "gt_seg_map": mask})
            again += len(blocks._left) < 20
            assert (words["top"], words["left"]) == (y1, x1)
            assert np.array_equal(batch["tensor"][0], image[y1:y2, x1:x2])
            assert np.array_equal(batch["mask"][0], mask[y1:y2, x1:x2])
    assert COUNT // 3 < again < 2 * COUNT


@pytest.mark.parametrize("padding", [0, 5])
def test_a_patch_around_a_label_equals_nnunet(padding):
    numpy = type("np", (), {"ndarray": np.ndarray, "where": np.where})
    library = definitions(
        "nnunetv2/training/dataloading/data_loader.py",
        "nnUNetDataLoader",
        DataLoader=object,
        np=numpy,
        warnings=warnings,
    )
    loader = object.__new__(library.nnUNetDataLoader)
    loader.patch_size, loader.need_to_pad = (32, 24), np.array([2 * padding] * 2)
    loader.has_ignore, loader.annotated_classes_key = False, (-1, 0, 1, 2)
    op = pp.random_crop(32, 24, padding, around="mask", around_p=0.33, by_label=True, centered=True, pad_if_needed=True)
    guided = 0
    for sample, batch, uniforms, words in replayed(op):
        (top, left, around, label), (which, *_) = uniforms.tolist()
        mask = sample["mask"]
        places = {each: np.argwhere(mask[None] == each) for each in (1, 2)}
        is_guided = around < 0.33 and any(map(len, places.values()))
        guided += is_guided
        numpy.random = Exclusive(*((label, which) if is_guided else (top, left)))
        (y, x), (bottom, right) = loader.get_bbox(mask.shape, around < 0.33, places)
        assert (words["top"], words["left"]) == (y, x)
        large = np.pad(sample["image"], ((64, 64), (64, 64), (0, 0)))
        assert np.array_equal(batch["tensor"][0], large[y + 64 : bottom + 64, x + 64 : right + 64])
    assert COUNT // 6 < guided < COUNT // 2


UPPER, LOWER = tuple(range(11)), tuple(range(11, 17))


@pytest.mark.parametrize(("height", "width"), [(64, 48), (40, 56)])
def test_a_warp_around_a_box_equals_mmpose(height, width):
    steps = definitions(
        "mmpose/datasets/transforms/common_transforms.py",
        "RandomHalfBody", "RandomBBoxTransform",
        BaseTransform=object, np=np, List=list, Dict=dict, Tuple=tuple, Optional=list,
    )  # fmt: skip
    functions = definitions(
        "mmpose/structures/bbox/transforms.py",
        "bbox_xyxy2cs", "get_warp_matrix", "_rotate_point", "_get_3rd_point",
        np=np, cv2=cv2, Tuple=tuple,
    )  # fmt: skip
    affine = definitions(
        "mmpose/datasets/transforms/topdown_transforms.py",
        "TopdownAffine",
        BaseTransform=object, np=np, cv2=cv2, is_seq_of=lambda *_: True, Dict=dict, Tuple=tuple, Optional=list,
        get_warp_matrix=functions.get_warp_matrix,
    )  # fmt: skip
    op = pp.random_box_warp(height=height, width=width, half_body_p=0.5, upper_body=UPPER, lower_body=LOWER)
    halves = rotations = kept = 0
    for sample, batch, uniforms, words in replayed(op):
        (box, half, upper, _), changes, (shift_p, scale_p, degrees_p, _) = uniforms.tolist()
        index = int(box * 2)
        center, scale = functions.bbox_xyxy2cs(sample["boxes"][index : index + 1], padding=1.25)
        results = {
            "bbox_center": center,
            "bbox_scale": scale,
            "keypoints": sample["points"][index : index + 1],
            "keypoints_visible": sample["visible"][index : index + 1].astype(int),
            "upper_body_ids": UPPER,
            "lower_body_ids": LOWER,
            "img": sample["image"],
        }
        with pytest.MonkeyPatch.context() as patch:
            draws = [half, upper]
            patch.setattr(np.random, "rand", lambda *_, left=draws: left.pop(0))
            results = steps.RandomHalfBody(prob=0.5).transform(results) or results
            halves += not np.array_equal(results["bbox_center"], center)
            normal = np.array([NormalDist().inv_cdf(LOW + u * (1 - 2 * LOW)) for u in changes], np.float32)
            move = steps.RandomBBoxTransform()
            chances = [np.array([[shift_p]]), np.array([[scale_p]]), np.array([degrees_p])]
            patch.setattr(np.random, "rand", lambda *_, left=chances: left.pop(0))
            patch.setattr(steps.RandomBBoxTransform, "_truncnorm", staticmethod(lambda of=normal, **_: of[None]))
            results = move.transform(results) or results
        rotations += bool(results["bbox_rotation"][0])
        results = affine.TopdownAffine((width, height)).transform(results)
        matrix = functions.get_warp_matrix(
            results["input_center"], results["input_scale"], results["bbox_rotation"][0], (width, height)
        )
        assert np.array_equal(np.array(words["matrix"]).reshape(2, 3), matrix)
        assert np.array_equal(batch["tensor"][0], results["img"])
        for points in batch["points"][0]:  # empty if the box is outside of the region
            # the center of the first pixel is (0, 0) in mmpose and (0.5, 0.5) in pixprep
            np.testing.assert_allclose(
                points, cv2.transform(sample["points"][index][None] - 0.5, matrix)[0] + 0.5, atol=1e-3
            )
            kept += 1
    assert COUNT // 6 < halves < COUNT
    assert COUNT // 3 < rotations < COUNT
    assert kept > COUNT // 2


def test_a_box_is_served_as_mmpose_crops_it():
    """The op ``warp`` with ``box`` crops the region that mmpose crops without random changes."""
    functions = definitions(
        "mmpose/structures/bbox/transforms.py",
        "bbox_xyxy2cs", "get_warp_matrix", "_rotate_point", "_get_3rd_point",
        np=np, cv2=cv2, Tuple=tuple,
    )  # fmt: skip
    pipeline = pp.Pipeline(
        [pp.pixels(), pp.warp(box="boxes", height=64, width=48), pp.tensor(dtype="uint8", layout="hwc")]
    )
    with pp.Engine(pipeline, device="cpu", threads=1) as engine:
        for sample in samples(np.random.default_rng(3)):
            ours = engine.run_batch([sample["image"]], inputs={"boxes": [sample["boxes"]]})["tensor"]
            for box, tensor in zip(sample["boxes"], ours, strict=True):
                center, scale = functions.bbox_xyxy2cs(box, padding=1.25)
                wide = max(scale[0], scale[1] * np.float32(48 / 64))
                matrix = functions.get_warp_matrix(center, np.array([wide, wide]), 0.0, (48, 64))
                assert np.array_equal(tensor, cv2.warpAffine(sample["image"], matrix, (48, 64)))
