"""Attack, or accident: files and directories that may not be read.

Defence: each model is read by itself; what cannot be read is a problem of that model.
Outcome: named, with the system's reason; the other models are checked all the same.
"""

import os
import shutil

import pytest

from attacks.repositories import CONFIG, PIPELINE, problems

NOBODY = 65534


@pytest.fixture
def as_nobody(models, monkeypatch):
    """The rights of a user who owns nothing here: root may read anything."""
    shutil.copytree(models / "m", models / "other")
    (models / "other" / "config.pbtxt").write_text('backend: "pixprep"\nname: "x"\n')  # its own problem
    models.parent.chmod(0o755)
    monkeypatch.chdir(models.parent)  # the folders above belong to root alone
    yield lambda: os.geteuid() or os.seteuid(NOBODY)
    if os.getuid() == 0:
        os.seteuid(0)
    for path in models.rglob("*"):
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("path", "where"), [(CONFIG, CONFIG), (PIPELINE, PIPELINE), ("m", "m"), ("m/1", "m")], ids=lambda path: path
)
def test_what_may_not_be_read_is_named_and_the_others_are_checked(models, as_nobody, path, where):
    (models / path).chmod(0)
    as_nobody()
    first, second = problems(models.relative_to(models.parent))
    assert first.startswith(f"{where}: cannot be read: Permission denied")
    assert second.startswith('other/config.pbtxt: name is "x"')
