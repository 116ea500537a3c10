"""Generate pages of the documentation site, and rewrite links that leave ``docs/``.

The pages in ``docs/`` can also be read on a code host, where relative links may lead to any file of the repository. The
site contains only ``docs/``: links to the README, the changelog and the contribution guide become links to their pages
on the site, and a link to any other file becomes the file's path.
"""

import json
import os
import re
import subprocess
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

COPIED = {"README.md": "home.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")
API = {
    "Pipelines": ["Pipeline", "load", "Origin", "ImageSpec", "TensorSpec"],
    "Engine": ["Engine", "Batch", "Limits", "apply"],
    "Training": ["Loader", "views", "Mix", "Chain", "Mosaic", "MixUp", "CopyPaste", "read"],
    "Operators of your own": ["operator", "Operator", "Epoch"],
    "Detections and coordinates": [
        "Detections",
        "detections",
        "boxes_to_original",
        "boxes_to_tensor",
        "points_to_original",
        "points_to_tensor",
        "mask_to_original",
        "quads_of",
        "rotated_to_original",
    ],
    "Presets": ["presets"],
    "Errors": ["PixprepError", "PipelineError", "ImageError", "DataError", "SetupError"],
}
"""Public names by subject. The ops have their own page."""
PICTURES = ROOT / "build" / "pictures"
CAPTIONS: dict[str, str] = {}
"""Captions by op, for the ops that have a picture."""
CREDIT = (
    "The pictures of the ops show a photo by [vultilion](https://www.flickr.com/photos/vultilion/), which the build of "
    "this site changed, under [CC BY 2.0](https://creativecommons.org/licenses/by/2.0/)."
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in ``docs/``."""
    pages = {new: (ROOT / name).read_text("utf-8") for name, new in COPIED.items()}
    pages["api.md"] = api()
    pages["cli.md"] = command_line()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    CAPTIONS.update(json.loads(output_of("python", "tools/site/pictures.py", str(PICTURES))))
    for op in CAPTIONS:
        files.append(File.generated(config, f"pictures/{op}.jpg", abs_src_path=str(PICTURES / f"{op}.jpg")))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Replace links to files that the site does not contain."""
    source = next((old for old, new in COPIED.items() if new == page.file.src_uri), f"docs/{page.file.src_uri}")
    folder = PurePosixPath(source).parent

    def replaced(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        path = normpath(str(folder / target))
        if path in COPIED:
            return f"[{text}]({COPIED[path]}{anchor or ''})"
        inside = path.removeprefix("docs/")
        if path.startswith("docs/") and files.get_file_from_path(inside):
            return f"{image}[{text}]({inside}{anchor or ''})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    text = "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)
    return with_pictures(text) if page.file.src_uri == "operators.md" else text


def with_pictures(markdown: str) -> str:
    """Return the page of operators, with a picture and its caption after the first paragraph of each op."""
    head, *sections = re.split(r"^### ", f"{markdown.rstrip()}\n", flags=re.MULTILINE)
    for number, section in enumerate(sections):
        name, summary, rest = section.split("\n\n", 2)
        if caption := CAPTIONS.get(name):
            picture = f"![{name}: before and after](pictures/{name}.jpg)\n\n*{caption}*"
            sections[number] = f"{name}\n\n{summary}\n\n{picture}\n\n{rest}"
    return "### ".join([head.replace("\n## ", f"\n{CREDIT}\n\n## ", 1), *sections])


def api() -> str:
    """Return the page of the Python API, with one mkdocstrings directive per public name."""
    homes = json.loads(output_of("python", "-c", "import json, pixprep; print(json.dumps(pixprep.LATE))"))
    listed = [name for names in API.values() for name in names]
    if missing := set(homes) - set(listed) - {"ops"}:
        raise SystemExit(f"tools/site/hooks.py: API does not list the public names {', '.join(sorted(missing))}")
    lines = [
        "# Python API\n",
        "Every public name of `pixprep` is on this page, except the ops. [Operators](operators.md) describes each op,",
        "its fields and their defaults: `pixprep.resize(256)` creates the op `resize`.\n",
    ]
    for subject, names in API.items():
        lines.append(f"## {subject}\n")
        lines += [f"::: {homes[name].rstrip(':').replace(':', '.')}\n" for name in names]
    return "\n".join(lines)


def command_line() -> str:
    """Return the page of the command line: the help text of each command."""
    whole = help_of()
    names = re.findall(r"^    ([a-z][\w-]*)(?: |$)", whole, re.MULTILINE)
    text = [f"# Command line\n\n```text\n{whole}```\n"]
    text += [f"## pixprep {name}\n\n```text\n{help_of(name)}```\n" for name in names]
    return "\n".join(text)


def help_of(*command: str) -> str:
    """Return the output of ``--help`` for a command."""
    return output_of("pixprep", *command, "--help")


def output_of(program: str, *arguments: str) -> str:
    """Run a program of the environment ``.venv``, and return its output."""
    run = [ROOT / ".venv" / "bin" / program, *arguments]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
