"""Attack or accident: A repository contains unreadable files and directories.

Defence: Each model is read separately, and an unreadable file is a problem of its model only.

Outcome: The file is reported with the operating system's reason, and the other models are still checked.
"""

import os
import shutil

import pytest

from attacks.repositories import CONFIG, PIPELINE, problems

NOBODY = 65534


@pytest.fixture
def as_nobody(models, monkeypatch):
    """Return a function that switches to a user who owns no files here, because root may read all files."""
    shutil.copytree(models / "m", models / "other")
    # this model has a different problem
    (models / "other" / "config.pbtxt").write_text('backend: "pixprep"\nname: "x"\n')
    models.parent.chmod(0o755)
    monkeypatch.chdir(models.parent)  # the parent folders belong to root
    yield lambda: os.geteuid() or os.seteuid(NOBODY)
    if os.getuid() == 0:
        os.seteuid(0)
    for path in models.rglob("*"):
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("path", "where"), [(CONFIG, CONFIG), (PIPELINE, PIPELINE), ("m", "m"), ("m/1", "m")], ids=lambda path: path
)
def test_unreadable_files_are_named_and_the_others_are_checked(models, as_nobody, path, where):
    (models / path).chmod(0)
    as_nobody()
    first, second = problems(models.relative_to(models.parent))
    assert first.startswith(f"{where}: cannot be read: Permission denied")
    assert second.startswith('other/config.pbtxt: name is "x"')
