"""Attack: An ONNX file refers to external weights that ``build`` would also copy. The weights' name is "model.py",
"../../.bashrc" or "torch.so". It may also be "weights.bin", where that file is a link to ~/.ssh/id_rsa, a FIFO, a
device, truncated, or a sparse file of terabytes; or "model.onnx", which would replace the file that was checked.

Defence: Weights must be in the folder of the ONNX file, in a regular file that is neither a link nor a file that Python
executes. ``build`` searches for external weights wherever a constant may occur: in the nodes, their subgraphs and
functions. ``check`` applies the same rules.

Outcome: The ONNX file is rejected. Before the fix, the attacker's model.py replaced ours, and Triton would have
executed it. Files that a link pointed to were also copied into the repository, and thus disclosed to everyone who
receives it.
"""

import os
import shutil

import pytest
from onnx import TensorProto, helper

import pixprep as pp
from attacks.repositories import patience, sparse
from pixprep.serving import repository
from support.pipeline_texts import VALID

NAMES = (
    *("model.onnx", "model.plan", "*/_ORT_MEM_ADDR_/*", "model.py", "torch.py", "numpy.so", "x.pyc", "../model.py"),
    *("/etc/passwd", "..", ".", "a/b", "a\0b", ""),
)
CONTROLS = ("red\x1b[31m.bin", "line\nok: no problem found", "\u202egnp.bin")


def external(location, **entries):
    """Return a weight whose data is declared to be in a separate file."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weights.external_data.add(key=key, value=value)
    return weights


def save(path, location, place="initializer", name="x", **entries):
    """Save a model that adds external weights to its input ``name``. ``place`` is the part of the graph that contains
    the weights.
    """
    weights, functions = external(location, **entries), []
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
def test_weights_that_are_code_or_elsewhere_are_rejected_and_nothing_is_written(tmp_path, name):
    save(tmp_path / "model.onnx", name)
    (tmp_path / "model.py").write_text("raise SystemExit")
    with pytest.raises(pp.PipelineError, match="has weights in") as caught:
        build(tmp_path)
    assert str(caught.value).isprintable()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["initializer", "constant", "branch", "function"])
def test_weights_are_found_everywhere_in_the_graph(tmp_path, place):
    save(tmp_path / "model.onnx", "model.py", place)
    with pytest.raises(
        pp.PipelineError, match=r'has weights in "model.py", which is not a data file in the same folder'
    ):
        build(tmp_path)


def link(path):
    (path.parent / "secret").write_text("secret")
    path.symlink_to("secret")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (link, "a link"), (lambda path: path.symlink_to("/etc/passwd"), "a link"),
        (lambda path: path.symlink_to("/dev/zero"), "a link"), (lambda path: path.symlink_to("nothing"), "a link"),
        (os.mkfifo, "not a file"), (os.mkdir, "not a file"), (lambda _: None, "missing"),
    ],
)  # fmt: skip
def test_weights_outside_a_regular_file_in_the_folder_are_rejected_and_nothing_is_written(tmp_path, make, what):
    save(tmp_path / "model.onnx", "weights.bin")
    make(tmp_path / "weights.bin")
    with patience(), pytest.raises(pp.PipelineError) as caught:
        build(tmp_path)
    assert str(caught.value) == f'model.onnx: has weights in "weights.bin", which is {what}: copy the file itself there'
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".pixprep*")) == []


BAD_RANGES = {
    "beyond the end": (
        {"offset": "60", "length": "8"},
        'has 64 bytes, but the weight "w" ends at byte 68',
    ),
    "an exabyte": ({"length": str(1 << 59)}, "at byte 576,460,752,303,423,488"),
    "a negative offset": ({"offset": "-16", "length": "4"}, 'the weight "w" does not have a valid offset and length'),
    "words": ({"offset": "abc"}, 'the weight "w" does not have a valid offset and length'),
    "2^64": ({"offset": str(1 << 64)}, 'the weight "w" does not have a valid offset and length'),
}


@pytest.mark.parametrize("case", BAD_RANGES)
def test_weights_beyond_the_end_of_their_file_are_rejected_and_found_by_check(tmp_path, case):
    entries, words = BAD_RANGES[case]
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    save(tmp_path / "model.onnx", "weights.bin", offset="60", length="4")
    build(tmp_path)
    assert repository.check(tmp_path / "out") == []
    save(tmp_path / "model.onnx", "weights.bin", **entries)
    with pytest.raises(pp.PipelineError) as caught:
        build(tmp_path)
    assert words in str(caught.value)
    shutil.copy(tmp_path / "model.onnx", tmp_path / "out" / "classifier" / "1")
    (problem,) = repository.check(tmp_path / "out")
    assert problem.where == "classifier/1/model.onnx"
    assert words in problem.what


@pytest.mark.parametrize(
    ("make", "what"), [(lambda _: 0, "missing"), (os.mkfifo, "not a file"), (os.mkdir, "not a file")]
)
def test_check_finds_weights_that_are_not_a_regular_file(tmp_path, make, what):
    (tmp_path / "weights.bin").write_bytes(bytes(4))
    save(tmp_path / "model.onnx", "weights.bin")
    build(tmp_path)
    weights = tmp_path / "out" / "classifier" / "1" / "weights.bin"
    weights.unlink()
    make(weights)
    with patience():
        (problem,) = repository.check(tmp_path / "out")
    assert problem.what == f'has weights in "weights.bin", which is {what}: copy the file itself there'


def test_a_sparse_file_of_terabytes_does_not_fill_the_disk(tmp_path):
    save(tmp_path / "model.onnx", "weights.bin")
    try:
        sparse(shutil.disk_usage(tmp_path).free + (1 << 40))(tmp_path / "weights.bin")
    except OSError:
        pytest.skip("this file system has no sparse files of that size")
    with patience(), pytest.raises(pp.SetupError, match="No space left on device"):
        build(tmp_path)
    assert not (tmp_path / "out").exists()


def test_an_onnx_file_named_by_a_link_is_built(tmp_path):
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
def test_a_tensor_name_with_control_sequences_is_rejected(tmp_path, name):
    save(tmp_path / "model.onnx", "weights.bin", name=name)
    with pytest.raises(pp.PipelineError, match="is not a valid tensor name: rename it") as caught:
        build(tmp_path)
    assert str(caught.value).isprintable()
