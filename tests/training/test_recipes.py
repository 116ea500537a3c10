"""Tests that a Loader runs each recipe of training_examples/recipes.py, and that the page lists all of them."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from support.clips import clip
from support.images import jpeg, scene

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("recipes", ROOT / "training_examples" / "recipes.py")
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
RECIPES = MODULE.RECIPES
PAGE = (ROOT / "docs" / "training-recipes.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (\d+) \|", PAGE, re.MULTILINE))
HEIGHT, WIDTH = 120, 160


def sample(number):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[30:90, 40 : 100 + number] = 1
    return {
        "label": number % 4,
        "boxes": np.array([[40, 30, 100 + number, 90]], np.float32),
        "labels": np.array([number]),
        "points": np.array([[[50, 40], [90, 80]]], np.float32),
        "mask": mask,
        "masks": mask[None],
        "depth": np.full((HEIGHT, WIDTH), 2.5, np.float32),
        "high": np.full((4 * HEIGHT, 4 * WIDTH, 3), number, np.uint8),
    }


@pytest.fixture(scope="module")
def samples():
    return [{"image": jpeg(scene(HEIGHT, WIDTH, seed=number)), **sample(number)} for number in range(8)]


@pytest.mark.parametrize("name", RECIPES)
def test_a_loader_runs_each_recipe(name, samples):
    pipeline, options = RECIPES[name].pipeline().for_training(), dict(RECIPES[name].loader)
    if "decode_video" in pipeline.to_json():
        samples = [{**each, "image": clip()} for each in samples[:2]]
    if "shares" in options:
        samples = pp.read.concat(samples[:2], samples)
    batch = next(
        iter(pp.Loader(samples, pipeline, batch_size=2 * options.get("repeats", 1), shuffle=True, seed=1, **options))
    )
    for output in pipeline.outputs:
        for image in batch[output]:
            assert np.isfinite(image).all()
            assert np.ptp(np.asarray(image, np.float32)) > 0 or output in ("boxes", "points", "mask", "masks", "target")


def test_the_page_lists_each_recipe_and_its_number_of_ops():
    assert {name: int(count) for name, count in ROWS.items()} == {
        name: len(recipe.ops) for name, recipe in RECIPES.items()
    }


def test_the_tests_that_the_page_names_exist():
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+)`", PAGE)) <= files
