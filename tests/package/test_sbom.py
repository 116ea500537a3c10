"""Tests that `make sbom` adds the facts that a wheel's metadata lacks: the shared libraries in the wheel and their
licences.
"""

import runpy
from pathlib import Path

import pytest

SBOM = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "sbom.py"))


@pytest.fixture
def packages(tmp_path):
    """Create a site-packages folder with two packages. The wheel of one contains an encoder, and the other wheel is
    empty.
    """
    for name, files in (
        ("Clips", ["clips.libs/libx265-f5385bb8.so.216", "clips.libs/libvpx-edb6de90.so.12.0.0"]),
        ("plain", []),
    ):
        folder = tmp_path / f"{name.lower()}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text("".join(f"{file},,\n" for file in [f"{name}.py", *files]))
    return tmp_path


def test_the_libraries_of_a_wheel_are_found_without_hash_and_version(packages):
    assert SBOM["libraries"](packages) == {"clips": ["libvpx", "libx265"], "plain": []}


def test_a_copyleft_library_is_listed_and_marks_its_package(packages):
    components = [
        {"name": "plain", "version": "1.0", "licenses": [{"license": {"id": "MIT"}}]},
        {
            "name": "Clips",
            "version": "1.0",
            "licenses": [{"license": {"name": "License :: OSI Approved :: BSD License"}}],
        },
        {"name": "weak", "version": "2.0", "licenses": [{"expression": "MPL-2.0 AND MIT"}]},
        {"name": "silent", "version": "3.0"},
    ]
    bom = {"components": components}
    table = SBOM["complete"](bom, SBOM["libraries"](packages))
    copyleft, _, others = table.partition("# Others")
    assert "| Clips | 1.0 | BSD License | libx265 (GPL-2.0-or-later) |\n" in copyleft
    assert "| weak | 2.0 | MPL-2.0 AND MIT |  |\n" in copyleft
    assert "| plain | 1.0 | MIT |  |\n" in others
    assert "| silent | 3.0 | not declared |  |\n" in others
    assert components[1]["components"] == [
        {"type": "library", "name": "libvpx"},
        {"type": "library", "name": "libx265", "licenses": [{"expression": "GPL-2.0-or-later"}]},
    ]


@pytest.mark.parametrize(
    ("library", "licence"),
    [("libavcodec", "LGPL-2.1-or-later"), ("libheif", "LGPL-3.0-or-later"), ("libzmq", "MPL-2.0"), ("libavif", None)],
)
def test_a_library_is_recognized_by_its_complete_name(library, licence):
    assert SBOM["copyleft"](library) == licence
