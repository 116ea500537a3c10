"""Attack: Links and names lead out of the repository, so that ``check`` or ``serve`` would read private files.

Defence: ``check`` does not follow links that leave the repository. It also rejects names in a configuration that are
absolute or contain ``..``. ``serve`` runs the check first. (Triton itself follows links, and ``--no-check`` permits
this.)

Outcome: The link or name is reported, and its target is not read. Before the fix, links were followed, and a line of a
private file could appear in the message.
"""

import pytest

from attacks.repositories import CONFIG, PIPELINE, problems, put

PRIVATE_LINE = "root:x:0:0:secret"


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(PRIVATE_LINE)
    return path


@pytest.mark.parametrize("file", [PIPELINE, CONFIG, "m/labels.txt", "m/1/model.onnx"])
@pytest.mark.parametrize("is_relative", [True, False])
def test_a_file_outside_is_named_and_not_read(models, secret, file, is_relative):
    target = "../" * (file.count("/") + 1) + secret.name if is_relative else secret
    put(models / file, lambda path: path.symlink_to(target))
    assert (models / file).read_text() == PRIVATE_LINE
    assert problems(models) == [f"{file}: links to a path outside the repository: replace it with a copy"]


@pytest.mark.parametrize("place", ["x", "m/2"])
def test_a_directory_outside_is_not_entered(models, tmp_path, place):
    (tmp_path / "outside" / "1").mkdir(parents=True)
    (tmp_path / "outside" / "config.pbtxt").write_text(PRIVATE_LINE)
    (models / place).symlink_to(tmp_path / "outside")
    assert problems(models) == [f"{place}: links to a path outside the repository: replace it with a copy"]


def test_a_link_to_a_link_is_followed_to_its_end(models, secret):
    (models / "m" / "hop").symlink_to(secret)
    put(models / CONFIG, lambda path: path.symlink_to("hop"))
    assert f"{CONFIG}: links to a path outside the repository: replace it with a copy" in problems(models)


def test_links_inside_are_accepted(models):
    """Kubernetes mounts a ConfigMap with such links: ``pipeline.json -> ..data/pipeline.json``."""
    (models / "m" / "1" / "..data").mkdir()
    (models / PIPELINE).rename(models / "m" / "1" / "..data" / "pipeline.json")
    (models / PIPELINE).symlink_to("..data/pipeline.json")
    (models / "again").symlink_to("m")
    assert problems(models) == []


def test_a_repository_that_is_a_link_is_accepted(models, tmp_path):
    (tmp_path / "link").symlink_to(models)
    assert problems(tmp_path / "link") == []


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "1/../../../secret"])
@pytest.mark.parametrize("field", ["label_filename", "default_model_filename"])
def test_a_name_that_leads_outside_is_rejected_even_if_nothing_is_there(models, secret, name, field):
    assert secret.exists()
    (models / "c" / "1").mkdir(parents=True)
    labels = f' label_filename: "{name}"' if field == "label_filename" else ""
    default = f'default_model_filename: "{name}"\n' if not labels else ""
    (models / "c" / "1" / "model.py").touch()
    text = f'backend: "python"\n{default}output {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ]{labels} }}\n'
    (models / "c" / "config.pbtxt").write_text(text)
    where = f"c/{name}" if labels else f"c/1/{name}"
    assert problems(models) == [f"{where}: is outside the model's directory: move the file into it"]
