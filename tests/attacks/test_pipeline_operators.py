"""Attack: A pipeline file refers to code: a Python function, a module, or a package that is installed but not allowed.

Defence: A file contains only an operator's name, its version and its fields. The function comes from the caller, or
from an entry point whose name the operator of the server has allowed. No other name causes an import. The fields must
have the types that the custom operator declares.

Outcome: The file is rejected with an error that contains the op's index. Operators that are installed but not allowed
are not even imported.
"""

import json
import sys

import pytest

import pixprep as pp
from pixprep.pipeline.file import MAX_BYTES
from pixprep.plan.steps.operators import VARIABLE
from support.pipeline_texts import with_op

MODULE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
import pixprep as pp

@pp.operator("evil.steal", version=1)
def steal(pixels):
    return pixels

@pp.operator("evil.other", version=1)
def other(pixels):
    return pixels

def bare(pixels):
    return pixels
"""
ENTRY_POINTS = """
[pixprep.operators]
evil.steal = evil_operators:steal
evil.renamed = evil_operators:other
evil.bare = evil_operators:bare
evil.missing = evil_operators:nothing
evil.twice = evil_operators:steal
evil.broken = evil_broken:steal
os.system = os:system
"""


def install(folder, name, entry_points, modules):
    folder.mkdir(exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package of custom operators on the module search path. Return the file that the package writes when it
    is imported.
    """
    folder = tmp_path / "site"
    install(folder, "evil", ENTRY_POINTS, {"evil_operators": MODULE, "evil_broken": "raise RuntimeError('no')"})
    install(folder, "second", "[pixprep.operators]\nevil.twice = evil_operators:other\n", {})
    monkeypatch.syspath_prepend(folder)
    yield folder / "imported"
    sys.modules.pop("evil_operators", None)


def text(operator, version=1, **fields):
    entry = {"op": "extern", "operator": operator, "version": version, **({"fields": fields} if fields else {})}
    return with_op(json.dumps(entry)[1:-1])


NAMES = [
    "os.system", "builtins.eval", "subprocess.run", "pixprep.operators.operator", "evil_operators.steal", "evil.steal",
    "site.evil_operators",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_alone_imports_no_function(name, installed):
    with pytest.raises(
        pp.PipelineError, match=rf'^ops\[1\] "{name}": needs operator {name} 1: (install it and )?allow'
    ):
        pp.Pipeline.from_json(text(name))
    assert not installed.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os:system", "../evil.py", "/etc/passwd", "evil.steal\u0000", "evil.ste\u0430l", "evil.steal ", "a.b\n",
        "a.b;c", "x",
    ],
)  # fmt: skip
def test_a_name_with_unusual_characters_is_rejected_before_any_lookup(name, installed):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text(name), operators=["evil.steal", name])
    assert str(caught.value).startswith('ops[1] "extern": "operator" must be a name such as "acme.denoise"')
    assert not installed.exists()


def test_only_the_named_operator_is_allowed(installed):
    with pytest.raises(pp.PipelineError, match=r"needs operator evil.steal 1: allow it with operators"):
        pp.Pipeline.from_json(text("evil.steal"), operators=["evil.other", "evil"])
    assert not installed.exists()
    assert pp.Pipeline.from_json(text("evil.steal"), operators=["evil.steal"]).outputs
    assert installed.exists()


def test_the_environment_of_the_operator_can_allow_operators(installed, monkeypatch):
    monkeypatch.setenv(VARIABLE, "acme.denoise evil.steal")
    assert pp.Pipeline.from_json(text("evil.steal")).outputs
    assert installed.exists()


def test_a_file_cannot_allow_its_own_operators(installed):
    for field in ("allow_operators", "operators"):
        with pytest.raises(pp.PipelineError, match="no such field"):
            pp.Pipeline.from_json(text("evil.steal").replace('"format"', f'"{field}": ["evil.steal"], "format"'))
    assert not installed.exists()


@pytest.mark.parametrize("version", [2, 999_999])
def test_a_different_version_is_rejected(version, installed):  # noqa: ARG001
    with pytest.raises(pp.PipelineError, match=f"needs operator evil.steal {version}, but found version 1"):
        pp.Pipeline.from_json(text("evil.steal", version), operators=["evil.steal"])


@pytest.mark.parametrize("version", [0, -1, 10**19, 1.5, "1", True, None])
def test_an_invalid_version_is_rejected(version):
    with pytest.raises(pp.PipelineError, match=r"version"):
        pp.Pipeline.from_json(text("evil.steal", version))


PACKAGES = {
    "evil.renamed": "operator evil.renamed: its entry point is evil.other, which is not",
    "evil.bare": "operator evil.bare: its entry point is function, which is not",
    "evil.missing": "operator evil.missing: its package cannot be loaded: AttributeError",
    "evil.broken": "operator evil.broken: its package cannot be loaded: RuntimeError: no",
    "evil.twice": "operator evil.twice is allowed, but 2 installed packages provide it",
    "os.system": "operator os.system: its entry point is builtin_function_or_method, which is",
    "evil.nowhere": "operator evil.nowhere is allowed, but no installed package provides it",
}


@pytest.mark.parametrize(("name", "message"), PACKAGES.items())
def test_a_package_without_such_an_operator_is_reported_to_the_operator(name, message, installed):  # noqa: ARG001
    with pytest.raises(pp.SetupError) as caught:
        pp.Pipeline.from_json(text(name), operators=[name])
    assert str(caught.value).startswith(message)


@pp.operator("acme.typed", version=1)
def typed(pixels, *, strength: float = 0.5, mode: str = "a"):  # noqa: ARG001
    return pixels


FIELDS = {
    "a string for a number": ({"strength": "__import__('os')"}, "expected a number, got a string"),
    "an object": ({"strength": {"$ref": "x"}}, "expected a number, got an object"),
    "true for a number": ({"strength": True}, "expected a number, got true or false"),
    "a field that is none": ({"__class__": 1}, 'has no field "__class__"; its fields are: strength, mode'),
    "the array itself": ({"pixels": 1}, 'has no field "pixels"'),
    "control characters": ({"\u001b[2J": 1}, 'has no field "\\u001b[2J"'),
    "words of another alphabet": ({"str\u0435ngth": 1}, 'has no field "str\\u0435ngth"'),
    "a long one": ({"x" * 9999: 1}, f'has no field "{"x" * 79}; its fields are'),
}


@pytest.mark.parametrize(("fields", "message"), FIELDS.values(), ids=FIELDS)
def test_fields_of_wrong_types_and_names_are_rejected(fields, message):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text("acme.typed", **fields), operators=[typed])
    output = str(caught.value)
    assert message in output
    assert output.isascii()
    assert len(output) < 300


def test_fields_are_limited_by_the_size_of_the_file():
    with pytest.raises(pp.PipelineError, match="not a pipeline file: it has more than"):
        pp.Pipeline.from_json(text("acme.typed", mode="x" * MAX_BYTES), operators=[typed])
    deep = with_op(
        '"op": "extern", "operator": "acme.typed", "version": 1, "fields": ' + '{"a": ' * 9000 + "1" + "}" * 9000
    )
    with pytest.raises(pp.PipelineError):
        pp.Pipeline.from_json(deep, operators=[typed])
