"""Tests that the lock files match the current extras, which detects changes of pyproject.toml that are missing from the
lock files.
"""

import re
import sys
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REMAKE = "make lock"
ENTRY = re.compile(r"^([\w.-]+)==(\S+?)(?: ; (.*?))? \\$", re.MULTILINE)


def required_versions(extra):
    """Return the requirements of an extra for this Python version. Extras that it includes are resolved."""
    for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]:
        requirement = Requirement(text)
        if requirement.name == "pixprep":
            for other in requirement.extras:
                yield from required_versions(other)
        elif requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def locked(*names):
    """Return the versions in the lock files that apply to this Python version."""
    found = {}
    for name in names:
        for package, version, marker in ENTRY.findall((ROOT / "requirements" / name).read_text()):
            if not marker or Marker(marker).evaluate():
                assert found.setdefault(package, version) == version, f"two versions of {package}"
    return found


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        ("demo", ["demo.txt"]),
        ("dev", ["build.txt", "demo.txt", "dev.txt"]),
        ("gpu-cuda12", ["gpu-cuda12.txt"]),
        ("gpu-cuda13", ["gpu-cuda13.txt"]),
    ],
)
def test_every_requirement_has_its_locked_version(extra, names):
    versions = locked(*names)
    wanted = list(required_versions(extra))
    assert len(wanted) > 8
    for requirement in wanted:
        assert requirement.name in versions, f"{requirement.name}: {REMAKE}"
        assert requirement.specifier.contains(versions[requirement.name]), f"{requirement}: {REMAKE}"


def test_every_file_of_a_package_has_its_hash_and_none_names_a_host():
    paths = list((ROOT / "requirements").iterdir())
    assert len(paths) == 6
    for path in paths:
        text = path.read_text()
        for entry in re.split(r"\n(?=\S)", text)[1:]:
            assert re.fullmatch(r"\S+==\S+( ; .*?)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", entry), entry
        assert "://" not in text


@pytest.mark.parametrize("cuda", ["12", "13"])
def test_both_images_have_the_same_versions_of_shared_packages(cuda):
    gpu, cpu = locked(f"gpu-cuda{cuda}.txt"), locked("demo.txt")
    shared = gpu.keys() & cpu.keys()
    assert {"msgspec", "numpy", "pillow", "simplejpeg"} <= shared
    assert {name: gpu[name] for name in shared} == {name: cpu[name] for name in shared}


def test_zig_is_locked_at_the_version_that_the_build_requires():
    (required,) = re.findall(r'^ZIG = "ziglang==(.*)"', (ROOT / "hatch_build.py").read_text(), re.MULTILINE)
    assert locked("zig.txt") == {"ziglang": required}
