"""Write the software bill of materials (SBOM) of an environment.

    make sbom

build/sbom.cdx.json is a CycloneDX file; build/licences.md lists the licences of the packages. Both also list the shared
libraries in each package, which the metadata of a wheel does not mention.
"""

import json
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = re.compile(r"(lib[\w+-]+?)(?:-[0-9a-f]{8})?(?:-[\d.]+)?\.so[\d.]*")
COPYLEFT = re.compile(r"GPL|MPL|Mozilla")
KNOWN = {
    # licences as the libraries are built in these wheels
    "libav(codec|device|filter|format|util)|libsw(resample|scale)": "LGPL-2.1-or-later",
    "libx26[45]": "GPL-2.0-or-later",
    "libheif|libde265": "LGPL-3.0-or-later",
    "libgmp|libnettle|libhogweed|libunistring|libidn2": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libacl|libasound|libgnutls|libkeyutils|libmp3lame|libnuma|librtmp|libssh|libtasn1": "LGPL-2.1-or-later",
    "libquadmath": "LGPL-2.1-or-later",
    "libgfortran|libgomp|libstdc\\+\\+|libgcc_s": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libzmq": "MPL-2.0",
}
"""Copyleft licences by shared library."""

HEAD = ("| package | version | licence | copyleft libraries in its wheel |", "|---|---|---|---|")


def libraries(folder: Path) -> dict[str, list[str]]:
    """Return the names of the shared libraries in each package, by package name in lower case."""
    found: dict[str, list[str]] = {}
    for package in distributions(path=[str(folder)]):
        names = {match[1] for file in package.files or () if (match := LIBRARY.fullmatch(file.name))}
        found[package.metadata["Name"].lower()] = sorted(names)
    return found


def copyleft(library: str) -> str | None:
    """Return the copyleft licence of a shared library, or an empty string if none is known."""
    return next((licence for names, licence in KNOWN.items() if re.fullmatch(names, library)), None)


def licence(component: dict[str, object]) -> str:
    """Return the licence that a package declares, as one line."""
    declared = component.get("licenses", [])
    words = [each.get("expression") or each["license"].get("id") or each["license"]["name"] for each in declared]
    return (
        ", ".join(dict.fromkeys(word.removeprefix("License :: OSI Approved :: ") for word in words)) or "not declared"
    )


def complete(bom: dict[str, list], held: dict[str, list[str]]) -> str:
    """Add the shared libraries of each package to the SBOM, and return the text of the licence table."""
    marked, others = [], []
    for component in sorted(bom["components"], key=lambda each: each["name"].lower()):
        names = held.get(component["name"].lower(), [])
        known = {name: found for name in names if (found := copyleft(name))}
        if names:
            component["components"] = [
                {"type": "library", "name": name}
                | ({"licenses": [{"expression": known[name]}]} if name in known else {})
                for name in names
            ]
        words = ", ".join(f"{name} ({found})" for name, found in known.items())
        line = f"| {component['name']} | {component['version']} | {licence(component)} | {words} |"
        (marked if known or COPYLEFT.search(licence(component)) else others).append(line)
    return "\n".join(["# Copyleft", "", *HEAD, *marked, "", "# Others", "", *HEAD, *others, ""])


def main() -> int:
    """Write both files for the environment in the given folder."""
    (environment,) = sys.argv[1:]
    made = ROOT / "build" / "sbom.cdx.json"
    made.parent.mkdir(exist_ok=True)
    program = Path(sysconfig.get_path("scripts"), "cyclonedx-py")
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-file", made]
    subprocess.run([program, "environment", *options, Path(environment, "bin", "python")], check=True)
    bom = json.loads(made.read_text(encoding="utf-8"))
    (folder,) = Path(environment).glob("lib/python3*/site-packages")
    table = complete(bom, libraries(folder))
    made.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    made.with_name("licences.md").write_text(table, encoding="utf-8")
    print(f"{made.relative_to(ROOT)}, build/licences.md: {len(bom['components'])} packages")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
