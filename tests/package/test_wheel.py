"""The wheel, installed elsewhere with the sources out of reach, does the library's whole job."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PHOTO = ROOT / "client_examples" / "images" / "china.jpg"

JOB = """
import sys, pixprep as pp
assert sys.argv[1] in pp.__file__, pp.__file__
pp.presets.imagenet().save("pipeline.json")
(tensor,) = pp.Engine(pp.load("pipeline.json")).run([open(sys.argv[2], "rb").read()])
print(tensor.shape, tensor.dtype)
from pixprep.cli import main
assert main(["explain", "pipeline.json", "--output", "stages.png"]) == 0
assert open("stages.png", "rb").read(4)[1:] == b"PNG"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_tritons_entry_point_and_no_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "pixprep/engine.py" in names
    assert "pixprep/triton/backend_model.py" in names
    assert "pixprep/serve/page/page.html" in names
    assert {"pixprep/photos/china.jpg", "pixprep/photos/flower.jpg", "pixprep/photos/CREDITS.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "backend", "tools"))]


def test_the_installed_wheel_works_without_the_sources(wheel, tmp_path):
    # The dependencies are those of this environment: the wheel itself is what is under test.
    venv.create(tmp_path / "env", with_pip=False, system_site_packages=False)
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    # .pth lines are not followed, so that the editable install of the checkout stays out
    command = [str(tmp_path / "env" / "bin" / "python"), "-c", JOB, str(site), str(PHOTO)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(libraries), "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(3, 224, 224) float32\npipeline\n")
