"""Tests that every command interprets config.pbtxt in the same way."""

import pytest

import pixprep as pp
from pixprep.cli import main
from pixprep.serving.repository import check, side_notes, try_out
from pixprep.serving.repository.build import build
from pixprep.serving.repository.repository import Repository
from support.images import photo

OPERATOR = '''
import pixprep as pp

@pp.operator("acme.denoise", version=1)
def denoise(pixels):
    """Nothing."""
    return pixels
'''
FILE = '{"format": "pixprep/1", "ops": [{"op": "decode"}, {"op": "resize", "height": 8, "width": 8}, '
NAMED = FILE + '{"op": "extern", "operator": "acme.denoise", "version": 1}, {"op": "tensor", "dtype": "uint8"}]}'
ALLOWED = {
    "as build writes it": 'parameters { key: "allow_operators" value { string_value: "acme.denoise" } }',
    "in single quotes": "parameters { key: 'allow_operators' value { string_value: 'acme.denoise' } }",
    "the last of two": "".join(
        f'parameters {{ key: "allow_operators" value {{ string_value: "{name}" }} }}\n'
        for name in ("acme.corner", "acme.denoise")
    ),
    "of several": 'parameters { key: "allow_operators" value { string_value: "acme.corner,acme.denoise" } }',
}
NOT_ALLOWED = {
    "nothing": "",
    "a comment": f"# {ALLOWED['as build writes it']}",
    "another name": 'parameters { key: "allow_operators" value { string_value: "acme.corner" } }',
}


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """Install a package that provides the custom operator, in the form in which pip would install it."""
    packages = tmp_path / "packages"
    (packages / "acme-1.dist-info").mkdir(parents=True)
    (packages / "acme-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (packages / "acme-1.dist-info" / "entry_points.txt").write_text(
        "[pixprep.operators]\nacme.denoise = acme_denoise:denoise\n"
    )
    (packages / "acme_denoise.py").write_text(OPERATOR)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.delenv("PIXPREP_ALLOW_OPERATORS", raising=False)


def repository(folder, text, file=NAMED):
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "config.pbtxt").write_text(f'backend: "pixprep"\n{text}\n')
    (folder / "m" / "1" / "pipeline.json").write_text(file)
    return folder


def accepts(act):
    """Return True if a command accepts the pipeline, and False if it rejects the pipeline's operator."""
    try:
        act()
    except pp.PipelineError as error:
        if "needs operator acme.denoise 1" not in str(error):
            raise
        return False
    return True


def accepts_everywhere(models):
    """Return whether ``check``, the trial and the reader of repositories each accept the pipeline with its
    configuration.
    """
    (problems, notes) = check(models), side_notes(models)
    assert all("needs operator acme.denoise 1" in problem.what for problem in problems)
    assert all(note.startswith("runs code: m/config.pbtxt (parameter allow_operators ") for note in notes)
    return {
        "check": problems == [],
        "trial": accepts(lambda: list(try_out(models, photo()))),
        "reader": accepts(lambda: Repository(models).pipelines["m"].pipeline),
    }


@pytest.mark.parametrize("case", ALLOWED)
def test_an_operator_that_the_configuration_allows_is_allowed_everywhere(tmp_path, case):
    assert set(accepts_everywhere(repository(tmp_path / "models", ALLOWED[case])).values()) == {True}


@pytest.mark.parametrize("case", NOT_ALLOWED)
def test_an_operator_that_it_does_not_allow_is_rejected_everywhere(tmp_path, case):
    assert set(accepts_everywhere(repository(tmp_path / "models", NOT_ALLOWED[case])).values()) == {False}


def test_a_shared_preprocess_is_read_by_the_same_reader(tmp_path):
    models = repository(tmp_path / "models", ALLOWED["in single quotes"])
    with pytest.raises(
        pp.PipelineError, match="the demo's classifier: the pipeline returns uint8"
    ):  # a later error shows that the operator was accepted
        build(models, preprocess="m", name="other")


def test_build_accepts_several_names_as_in_the_configuration(tmp_path, capsys):
    (tmp_path / "p.json").write_text(NAMED)
    words = ["--pipeline", str(tmp_path / "p.json"), "--output", str(tmp_path / "models")]
    assert main(["build", *words, "--parameter", "allow_operators=acme.corner,acme.denoise"]) == 1
    assert "the pipeline returns uint8" in capsys.readouterr().err
