"""Random parameters of augmentation policies: stored results of torchvision, pixel comparisons over many samples, and
frequencies.
"""

from collections import Counter
from hashlib import sha256

import numpy as np

import pixprep as pp
from support.images import noise, photo, png, read, scene

OPS = {
    "rand_augment": pp.rand_augment,
    "trivial_augment": pp.trivial_augment,
    "auto_augment": pp.auto_augment,
    "aug_mix": pp.aug_mix,
    "timm_rand_augment": pp.timm_rand_augment,
}

FROZEN = {
    ("rand_augment", "nearest", "pillow"): "af6b8da68a04ee32",
    ("rand_augment", "nearest", "torchvision"): "843ac1a40d88d985",
    ("trivial_augment", "nearest", "pillow"): "e381285c4bc13043",
    ("trivial_augment", "nearest", "torchvision"): "38d294837b49c455",
    ("trivial_augment", "bilinear", "pillow"): "ff34a4dd7fbd3f94",
    ("trivial_augment", "bilinear", "torchvision"): "1d894ef2874eadb7",
    ("auto_augment", "bilinear", "pillow"): "94b1e60aa2119708",
    ("auto_augment", "bilinear", "torchvision"): "a997d63ba7f45c22",
    ("aug_mix", "bilinear", "torchvision"): "446821f9fe7d4df3",
    ("timm_rand_augment", "bicubic", "pillow"): "1ac40e79275c17c0",
}
"""Digest of the pixels of torchvision 0.28 and timm 1.0.31 for the same random parameters.

``tests/parity/test_augment.py`` and ``test_timm_policies.py`` compute it again.
"""


def frozen_draws(name, filter_, like):
    """Yield (pixels, op, random parameters of each sample, results of the engine) for each case of the digests
    above.
    """
    op = OPS[name](filter=filter_, fill=(123, 117, 104), like=like)
    pixels = np.concatenate([scene(24, 20), noise(24, 20)], axis=1)
    pipeline = pipeline_of(op)
    drawn = pipeline.plan.draw(seed=3, epoch=1, indices=range(200))
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch([png(pixels)] * 200, places=[pipeline.plan.placing(each) for each in drawn])
    return pixels, op, [drawn_of(placed.draws[f"{name}#0"]) for placed in batch.placed], batch["tensor"]


def drawn_of(words):
    """Return the sampled steps of a policy, or the raw random parameters of ``aug_mix``."""
    return words.get("ops", words)


def steps_in(drawn):
    """Return the sampled steps. If there are several chains, return the steps of all chains."""
    return [step for chain in drawn["chains"] for step in chain] if isinstance(drawn, dict) else drawn


def digest(pixels):
    """Return a hash of uint8 arrays."""
    return sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()[:16]


def pipeline_of(op, height=24, width=40):
    ops = [
        pp.decode(),
        pp.resize(height=height, width=width),
        op,
        pp.tensor(dtype="uint8", layout="hwc", only="training"),
    ]
    return pp.Pipeline(ops)


def photos():
    """Return crops of a photo, a scene and noise. One of them is square, and their sizes do not favour any rounding
    rule.
    """
    flower = np.asarray(read(photo("flower")))
    return [
        np.ascontiguousarray(flower[100:140, 200:260]),
        scene(57, 31),
        noise(23, 80),
        np.ascontiguousarray(flower[60:104, 80:124]),
        noise(20, 31),
    ]


def differing(op, count, expected_of):
    """Compare many samples of an op. Return (samples, differing values, values, maximum difference) for each kind of
    step.
    """
    ops = [pp.decode(), op, pp.tensor(dtype="uint8", layout="hwc", only="training")]
    found = {}
    key = f"{type(op).__struct_config__.tag}#0"
    for number, pixels in enumerate(photos()):
        height, width = pixels.shape[:2]
        window = pp.crop(top=0, left=0, height=height, width=width)
        pipeline = pp.Pipeline([ops[0], window, *ops[1:]])
        drawn = pipeline.plan.draw(seed=7, epoch=number, indices=range(count // 5))
        with pp.Engine(pipeline, threads=2) as engine:
            batch = engine.run_batch([png(pixels)] * len(drawn), places=[pipeline.plan.placing(n) for n in drawn])
        for row, ours in enumerate(batch["tensor"]):
            steps = drawn_of(batch.placed[row].draws[key])
            off = abs(ours.astype(int) - expected_of(pixels, steps, op))
            for kind in {each["op"] for each in steps_in(steps)}:
                total = found.setdefault(kind, Counter())
                total["draws"] += 1
                total["differing"] += np.count_nonzero(off)
                total["values"] += off.size
                total["largest"] = max(total["largest"], int(off.max()))
    return found


def sampled(op, count, size=(24, 40)):
    """Return the steps of many samples, each step as (kind, magnitude)."""
    plan = pipeline_of(op, *size).for_training().plan
    (step,) = plan.random_steps
    drawn = plan.draw(seed=11, epoch=0, indices=range(count))
    words = [drawn_of(step.words(*size, numbers)) for numbers in drawn]
    return [[(each["op"], each.get("magnitude")) for each in steps_in(those)] for those in words]


def chi_square(ours, theirs):
    """Compare two samples with a chi-square test. Return by how many standard deviations the statistic exceeds its
    expected value.

    The statistic is converted to a normal distribution with the Wilson-Hilferty approximation. The categories are the
    lists of kinds and, for each kind, its magnitudes, divided at the sextiles of ``theirs``.
    """
    edges = {}
    for kind in {kind for steps in theirs for kind, _ in steps}:
        those = [round(size or 0, 9) for steps in theirs for each, size in steps if each == kind]
        edges[kind] = np.unique(np.quantile(those, np.linspace(0, 1, 7), method="nearest"))
    counts = []
    for sample in (ours, theirs):
        cells = Counter(tuple(kind for kind, _ in steps) for steps in sample)
        for kind, size in (step for steps in sample for step in steps):
            cells[kind, int(np.digitize(round(size or 0, 9), edges.get(kind, [])))] += 1
        counts.append(cells)
    pairs = [(counts[0][cell], counts[1][cell]) for cell in {**counts[0], **counts[1]}]
    rare = [pair for pair in pairs if sum(pair) < 10]
    pairs = [pair for pair in pairs if sum(pair) >= 10] + ([tuple(map(sum, zip(*rare, strict=True)))] if rare else [])
    free = len(pairs) - 1
    total = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    return ((total / free) ** (1 / 3) - 1 + 2 / (9 * free)) / (2 / (9 * free)) ** 0.5
