"""Attack: an ONNX file whose weights lie in "model.py", "../../.bashrc" or "torch.so": ``build`` copies them along.
Or in "weights.bin", which is a link to ~/.ssh/id_rsa, a FIFO, a device.

Defence: weights lie beside the ONNX file, in a regular file that is no link, and are no file that Python runs. They are
looked for wherever a constant may stand: in the nodes, their own graphs and functions, too.
Outcome: refused. Before the mend the stranger's model.py took the place of ours, and Triton would have run it; and any
file that a link led to was copied into the repository, which others are given.
"""

import os

import pytest
from onnx import TensorProto, helper

import pixprep as pp
from attacks.pipelines import VALID
from attacks.repositories import patience
from pixprep.serving import repository

NAMES = ("model.py", "torch.py", "numpy.so", "x.pyc", "../model.py", "/etc/passwd", "..", ".", "a/b", "a\0b", "")
CONTROLS = ("red\x1b[31m.bin", "line\nok: no problem found", "\u202egnp.bin")


def external(location):
    """A weight that is said to lie in a file of its own."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    return weights


def save(path, location, place="initializer", name="x"):
    """A model that adds such weights, which stand at some place of it, to the input of a name."""
    weights, functions = external(location), []
    x = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, 8, 8])
    constant = helper.make_node("Constant", [], ["w"], value=weights)
    inner = helper.make_graph([constant], "inner", [], [helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("own", 1)]
    nodes = {
        "initializer": [],
        "constant": [constant],
        "branch": [helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner)],
        "function": [helper.make_node("weigh", [], ["w"], domain="own")],
    }[place]
    if place == "function":
        functions = [helper.make_function("own", "weigh", [], ["w"], [constant], opsets)]
    nodes = [*nodes, helper.make_node("Add", [name, "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=[weights] if place == "initializer" else [])
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, functions=functions).SerializeToString())


def build(folder, **options):
    return repository.build(
        folder / "out", pipeline=pp.Pipeline.from_json(VALID), onnx=folder / "model.onnx", **options
    )


@pytest.mark.parametrize("name", NAMES + CONTROLS, ids=ascii)
def test_weights_that_are_code_or_elsewhere_are_refused_and_nothing_is_written(tmp_path, name):
    save(tmp_path / "model.onnx", name)
    (tmp_path / "model.py").write_text("raise SystemExit")
    with pytest.raises(pp.PipelineError, match="has weights in") as caught:
        build(tmp_path)
    assert str(caught.value).isprintable()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["initializer", "constant", "branch", "function"])
def test_weights_are_found_wherever_they_stand(tmp_path, place):
    save(tmp_path / "model.onnx", "model.py", place)
    with pytest.raises(pp.PipelineError, match=r'has weights in "model.py", which is no data file beside it'):
        build(tmp_path)


def link(path):
    (path.parent / "secret").write_text("secret")
    path.symlink_to("secret")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (link, "a link"), (lambda path: path.symlink_to("/etc/passwd"), "a link"),
        (lambda path: path.symlink_to("/dev/zero"), "a link"), (lambda path: path.symlink_to("nothing"), "a link"),
        (os.mkfifo, "no file"), (os.mkdir, "no file"), (lambda _: None, "not there"),
    ],
)  # fmt: skip
def test_weights_that_are_no_file_beside_it_are_refused_and_nothing_is_written(tmp_path, make, what):
    save(tmp_path / "model.onnx", "weights.bin")
    make(tmp_path / "weights.bin")
    with patience(), pytest.raises(pp.PipelineError) as caught:
        build(tmp_path)
    assert str(caught.value) == f'model.onnx: has weights in "weights.bin", which is {what}: put the file itself there'
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".pixprep*")) == []


def test_an_onnx_file_that_the_user_names_by_a_link_is_built(tmp_path):
    (tmp_path / "store").mkdir()
    save(tmp_path / "store" / "blob", "weights.bin")
    (tmp_path / "model.onnx").symlink_to("store/blob")
    (tmp_path / "weights.bin").write_bytes(bytes(4))
    build(tmp_path)
    copies = tmp_path / "out" / "classifier" / "1"
    assert (copies / "weights.bin").read_bytes() == bytes(4)
    assert not (copies / "model.onnx").is_symlink()
    assert (copies / "model.onnx").read_bytes() == (tmp_path / "store" / "blob").read_bytes()


@pytest.mark.parametrize("name", CONTROLS, ids=ascii)
def test_a_tensor_whose_name_writes_to_the_terminal_is_refused(tmp_path, name):
    save(tmp_path / "model.onnx", "weights.bin", name=name)
    with pytest.raises(pp.PipelineError, match="is no name of a tensor: rename it") as caught:
        build(tmp_path)
    assert str(caught.value).isprintable()
