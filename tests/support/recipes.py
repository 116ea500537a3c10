"""Reads the pipelines in docs/models.md, by heading, and those in docs/models, by file."""

from pathlib import Path

import pixprep as pp

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
SECTIONS = [section.partition("\n") for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]]
RECIPES = {
    heading: pp.Pipeline.from_json(text.split("```json\n")[1].partition("```")[0])
    for heading, _, text in SECTIONS
    if "```json" in text
}
FAMILIES = {path.stem: pp.load(path) for path in sorted((PAGE.parent / "models").glob("*.json"))}
