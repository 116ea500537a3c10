"""Write docs/performance-training.md from the newest results of ``train`` and ``memory``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import measure
from loaders import task_of
from train import OURS

RESULTS = Path(__file__).parent / "results"
PAGE = measure.ROOT / "docs" / "performance-training.md"
WHAT = {
    "pixprep_loader": "pixprep Loader",
    "pixprep_cached": 'pixprep Loader, second epoch with `cache="pixels"`',
    "pixprep_engine": "pixprep engine alone, without prefetching",
    "dali_crop": "DALI, decode, then `random_resized_crop`",
    "dali_region": "DALI, `image_random_crop`: decodes only the crop",
    "torch_pil": "DataLoader, torchvision v2 on Pillow",
    "torch_tensor": "DataLoader, torchvision v2 on tensors",
    "tf_antialiased": "tf.data, antialiased",
    "tf_default": "tf.data, default resize, which aliases",
    "webdataset": "WebDataset, torchvision v2 on Pillow",
    "grain": "Grain, torchvision v2 on Pillow",
    "spdl": "SPDL, torchvision v2 on Pillow",
    "colour_pixprep": "pixprep Loader, `color_jitter`",
    "colour_dali": "DALI, `image_random_crop`, `color_twist`",
    "colour_torch_pil": "DataLoader, torchvision v2 on Pillow, `ColorJitter`",
    "masks_pixprep": "pixprep Loader, PNG masks",
    "masks_dali": "DALI, decodes only the crop of photo and mask",
    "masks_torch_pil": "DataLoader, torchvision v2 on Pillow, `Mask`",
    "masks_tf": "tf.data, default resize, which aliases; nearest for masks",
    "boxes_pixprep": "pixprep Loader, `random_iou_crop`",
    "boxes_dali": "DALI, `random_bbox_crop`: decodes only the crop",
    "boxes_torch_pil": "DataLoader, torchvision v2 on Pillow, `RandomIoUCrop`",
}
SECTIONS = {
    "colour": "In the section with colours, brightness, contrast and saturation are also jittered by 0.4, and hue by "
    "0.1. ",
    "masks": "In the section with masks, each photo has a PNG mask of eight classes, which is cropped and flipped with "
    "the photo, and resized with the filter nearest. ",
    "boxes": "In the section with boxes, the crop is the random crop of SSD, which depends on the four boxes of each "
    "photo, and is followed by a resize to 224 x 224 pixels. tf.data is missing there, because TensorFlow does not "
    "have operators that crop and flip boxes. ",
}
"""Description of each further task."""
LINE = 120


def page(result: dict[str, Any], memory: dict[str, Any] | None = None) -> str:
    """Return the text of the page. Without ``memory``, the page does not have the section about memory."""
    paragraphs = [*_paragraphs(result)]
    if memory:
        paragraphs.append(_memory(memory))
    return "\n\n".join(paragraphs) + "\n"


def _memory(memory: dict[str, Any]) -> str:
    parts = memory["parts_mib"]
    return "## Memory\n\n" + fill(
        f"{memory['images']:,} images of 300 sizes were read and decoded, in batches of {memory['batch_mib']:g} MiB, "
        f"and the iterator was deleted once in mid-epoch ({memory['date']}, `benchmarks/memory.py`). The process used "
        f"{memory['before_mib']:.0f} MiB before the run, at most {memory['max_mib']:.0f} MiB during the run, and "
        f"{memory['dropped_mib']:.0f} MiB after the iterator was deleted. The medians of each tenth of the run, in "
        f"MiB, are {', '.join(f'{mib:.0f}' for mib in parts)}.",
        LINE,
    )


def _paragraphs(result: dict[str, Any]) -> Iterator[str]:
    measured = {task_of(name) for cell in result["cells"] for name in cell["contenders"]}
    yield "# Performance of the training input"
    yield fill(
        "This page is for engineers who choose an input pipeline for training. It compares pixprep's Loader with "
        "other loaders on a CPU. `make benchmark-training` runs the measurements, and `benchmarks/train_report.py` "
        "generates this page from `benchmarks/results/`.",
        LINE,
    )
    yield fill(
        "The task is torchvision's ImageNet training preset: shuffled JPEG files of two classes, a random resized crop "
        "of 224 x 224 pixels, a random flip, normalization with mean and std, and float32 batches of 64 images. "
        + "".join(text for task, text in SECTIONS.items() if task in measured)
        + f"The benchmark ran on {result['date']} with commit `{result['commit']}`, on {result['processor']}, and with "
        f"Python {result['python']}. All processes of a loader together had as many cores as the loader had threads, "
        "and were paused while other loaders ran. Loaders with worker processes ran with the fastest number of "
        "workers. "
        f'The numbers are medians of {result["rounds"]} rounds. The column "speed-up" contains the factor by which '
        "pixprep's Loader is faster. The CPU time is the total of all processes of a loader.",
        LINE,
    )
    if (load := result["load_average"]) >= measure.QUIET:
        yield f"**The machine was not quiet: load average {load:.2f} before the first round.**"
    for cell in result["cells"]:
        threads = "one thread" if cell["threads"] == 1 else f"{cell['threads']} threads"
        yield f"## {cell['workload']}, {threads}"
        yield _table(cell["contenders"])
    if result["absent"]:
        reasons = (f"{WHAT[name]}: {why.partition('. ')[0]}" for name, why in result["absent"].items())
        yield fill(f"Not measured: {'; '.join(reasons)}.", LINE)


def _table(contenders: dict[str, Any]) -> str:
    ours = _ours(contenders)
    lines = ["| | images/s | speed-up | CPU time, ms per image | workers |", "|---|--:|--:|--:|--:|"]
    for name, found in sorted(contenders.items(), key=lambda item: -item[1]["images_per_s"]):
        ratio = "" if name in OURS else f"{measure.ratio(ours, found):.2f} x"
        workers = found["workers"] or ""
        lines.append(
            f"| {WHAT[name]} | {found['images_per_s']:.0f} | {ratio} | {found['cpu_ms_per_image']:.2f} | {workers} |"
        )
    return "\n".join(lines)


def _ours(contenders: dict[str, Any]) -> dict[str, Any]:
    """Return the contender of a cell with which the others are compared."""
    return next(found for name, found in contenders.items() if name in OURS)


def newest(what: str = "train") -> dict[str, Any] | None:
    """Return the newest full result, or None."""
    paths = [path for path in RESULTS.glob(f"{what}-*.json") if not path.stem.endswith("quick")]
    return dict(json.loads(max(paths).read_text(encoding="utf-8"))) if paths else None


if __name__ == "__main__":
    newest_of_all = newest()
    assert newest_of_all, "run train.py first"
    PAGE.write_text(page(newest_of_all, newest("memory")), encoding="utf-8")
