"""docs/loader.md: what it shows is what happens; the blocks of a framework run where that framework is."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from images import jpeg, scene

PAGE = Path(__file__).parents[2] / "docs" / "loader.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```)?", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """40 photos of two classes, in the folder that the page names."""
    for index in range(40):
        path = tmp_path / "train" / ("cat", "dog")[index % 2] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(scene(80, 100, index)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_there(library):
    """Whether a library is installed, and works here: torchvision's own code may be of another PyTorch."""
    try:
        import_module(library)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


@pytest.mark.filterwarnings("ignore")  # of frameworks
def test_the_pages_programs_run_one_after_the_other(photos, capsys):
    names = {}
    assert len(PROGRAMS) == 9
    for program, shown in PROGRAMS:
        library = re.match(r"(?:import|from) (torchvision|torch|keras)", program)
        if library and not is_there(library[1]):
            list(names["loader"])  # the epoch that it would have trained on
            names.pop("model", None)
            continue
        exec(program, names)  # noqa: S102
        printed = capsys.readouterr().out
        assert printed == shown or not shown
    assert " batches, " in printed
    assert (photos / "trace.json").stat().st_size > 1000
