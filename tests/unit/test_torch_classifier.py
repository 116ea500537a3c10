"""The classifier model on PyTorch, with a stand-in for the module that Triton's stub gives it.

What needs PyTorch is skipped, loudly, where there is none: pixprep does not depend on it.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import weakref
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pixprep as pp
from classifier_models import DISAGREEMENTS, Error, Request, load, one, parameter, save, save_small, started
from pixprep.demo import lite0
from pixprep.errors import PipelineError
from pixprep.triton.repository import build, check

MODEL = Path(__file__).parents[2] / "backend" / "pixprep" / "demo" / "torch_classifier.py"
PHOTOS = Path(__file__).parents[2] / "client_examples" / "images"
FAILED = "small: PyTorch could not run this request; the server's log says why"
X = {"input": one(), "output": one("y")}


@pytest.fixture
def torch():
    try:
        return importlib.import_module("torch")
    except ImportError:
        pytest.skip("NO PYTORCH: pip install torch")


@pytest.fixture
def loaded(torch, monkeypatch):  # noqa: ARG001  (first it must be there)
    return load(MODEL, monkeypatch)


@pytest.fixture
def module(loaded):
    return loaded[0]


@pytest.fixture
def logs(loaded):
    return loaded[1]


@pytest.fixture
def folder(tmp_path):
    return save_small(tmp_path)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The model directory of the demo's classifier."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "1").mkdir()
    lite0.export(lite0.find_checkpoint(), folder / "1" / "model.onnx")
    return folder


DEMO = {"input": one("input", dims=(3, 224, 224)), "output": one("logits", dims=(1000,))}


def photos():
    """The two photos as the demo's pipeline gives them, float32 [2, 3, 224, 224]."""
    with pp.Engine(pp.presets.efficientnet_lite0()) as engine:
        return np.stack(engine.run([path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg"))]))


def onnx_runtime(folder, **feed):
    session = onnxruntime.InferenceSession(str(folder / "1" / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def constants(**arrays):
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]


def floats(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


# What `pixprep build` makes of it


def test_it_imports_nothing_of_pixprep():
    tree = ast.parse(MODEL.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    third_party = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert third_party == {"onnx", "torch", "triton_python_backend_utils"}


def test_its_repository_differs_from_onnx_runtimes_in_the_model_file_and_in_where_it_runs(tmp_path):
    ours, theirs = (
        {path.relative_to(tmp_path / kind).as_posix(): path for path in build(tmp_path / kind, classifier=kind).paths}
        for kind in ("torch", "onnxruntime")
    )
    assert ours.keys() == theirs.keys()
    assert {name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()} == {
        "classifier/1/model.py",
        "classifier/config.pbtxt",
    }
    assert ours["classifier/1/model.py"].read_bytes() == MODEL.read_bytes()
    pairs = zip_longest(*(side["classifier/config.pbtxt"].read_text().splitlines() for side in (ours, theirs)))
    assert [pair for pair in pairs if pair[0] != pair[1]] == [
        ("# Tensors that preprocess gives on the GPU stay there.", "# ONNX Runtime uses all cores by itself."),
        (
            'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
            "instance_group { count: 1 kind: KIND_CPU }",
        ),
        ("# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.", None),
    ]
    assert check(tmp_path / "torch") == []


def test_check_knows_it_as_a_model_that_needs_its_onnx_file(tmp_path):
    build(tmp_path / "models", classifier="torch")
    (tmp_path / "models" / "classifier" / "1" / "model.onnx").unlink()
    assert list(map(str, check(tmp_path / "models"))) == [
        "classifier/1/model.onnx: is missing: `pixprep build` writes it: it is too large for the repository"
    ]


def test_a_plan_is_not_for_it(tmp_path):
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "models", plan=tmp_path / "my.plan", classifier="torch")
    assert str(caught.value) == "a plan runs in TensorRT only: --classifier tensorrt"


# What it computes


@pytest.mark.parametrize("batch", [1, 8])
def test_the_demos_logits_are_onnx_runtimes_within_1e_4(module, demo, batch):
    model = started(module, demo, **DEMO)
    for values in (np.resize(photos(), (batch, 3, 224, 224)), floats(batch, 3, 224, 224)):
        (answer,) = model.execute([Request(["logits"], input=values)])
        (expected,) = onnx_runtime(demo, input=values)
        assert answer.error is None
        assert (answer.outputs["logits"].shape, answer.outputs["logits"].dtype) == ((batch, 1000), np.float32)
        np.testing.assert_allclose(answer.outputs["logits"], expected, rtol=0, atol=1e-4)


def test_it_knows_the_photos(module, demo):
    labels = lite0.labels()
    answers = started(module, demo, **DEMO).execute([Request(["logits"], input=photo[None]) for photo in photos()])
    assert [labels[answer.outputs["logits"].argmax()] for answer in answers] == ["palace", "daisy"]


OPS = {
    "Add": (("Add", ["x", "c"], ["y"]), (2, 3, 4), {"c": floats(3, 1)}),
    "Clip": (("Clip", ["x", "low", "high"], ["y"]), (2, 9), {"low": np.float32(-0.5), "high": np.float32(0.5)}),
    "Clip without a minimum": (("Clip", ["x", "", "high"], ["y"]), (2, 9), {"high": np.float32(0.5)}),
    "Clip without limits": (("Clip", ["x"], ["y"]), (2, 9), {}),
    "Conv": (("Conv", ["x", "w", "b"], ["y"]), (2, 3, 8, 9), {"w": floats(5, 3, 3, 2), "b": floats(5)}),
    "Conv padded on one side": (
        (
            "Conv",
            ["x", "w"],
            ["y"],
            {"pads": [0, 1, 2, 3], "strides": [2, 1], "auto_pad": "NOTSET", "kernel_shape": [3, 2]},
        ),
        (2, 3, 8, 9),
        {"w": floats(5, 3, 3, 2)},
    ),
    "Conv in groups": (
        ("Conv", ["x", "w"], ["y"], {"pads": [1, 2, 1, 2], "group": 4, "dilations": [1, 2]}),
        (2, 4, 8, 9),
        {"w": floats(8, 1, 3, 3)},
    ),
    "Flatten": (("Flatten", ["x"], ["y"]), (2, 3, 4), {}),
    "Flatten behind an axis": (("Flatten", ["x"], ["y"], {"axis": -1}), (2, 3, 4), {}),
    "Gemm": (
        ("Gemm", ["x", "b", "c"], ["y"], {"alpha": 0.5, "beta": 2.0, "transB": 1}),
        (2, 3),
        {"b": floats(4, 3), "c": floats(4)},
    ),
    "Gemm without a bias": (("Gemm", ["x", "b"], ["y"], {"alpha": 0.5, "transA": 1}), (2, 3), {"b": floats(2, 4)}),
    "GlobalAveragePool": (("GlobalAveragePool", ["x"], ["y"]), (2, 3, 4, 5), {}),
    "MatMul": (("MatMul", ["x", "c"], ["y"]), (2, 3, 4), {"c": floats(4, 5)}),
    "Reshape": (("Reshape", ["x", "s"], ["y"]), (2, 3, 4), {"s": np.array([0, -1, 2])}),
    "Reshape to nothing": (("Reshape", ["x", "s"], ["y"], {"allowzero": 1}), (0, 3), {"s": np.array([3, 0])}),
}


@pytest.mark.parametrize(("node", "shape", "extra"), OPS.values(), ids=OPS)
def test_each_op_is_onnx_runtimes(module, tmp_path, node, shape, extra):
    x = floats(*shape)
    save(tmp_path, [node], {"x": shape}, {"y": None}, constants(**extra))
    (expected,) = onnx_runtime(tmp_path, x=x)
    save(tmp_path, [node], {"x": shape}, {"y": expected.shape}, constants(**extra))
    faces = {"input": one(dims=shape), "output": one("y", dims=expected.shape)}
    (answer,) = started(module, tmp_path, max_batch_size=0, **faces).execute([Request(["y"], x=x)])
    assert answer.outputs["y"].shape == expected.shape
    np.testing.assert_allclose(answer.outputs["y"], expected, rtol=0, atol=1e-5)


def test_the_table_above_has_every_op(module):
    assert {node[0] for node, *_ in OPS.values()} == set(module._OPS)


def test_a_value_is_dropped_behind_the_last_that_needs_it_and_an_output_is_kept(torch, module, tmp_path):
    nodes = [
        ("Add", ["x", "x"], ["a"]),
        ("Add", ["a", "x"], ["y"]),
        ("Add", ["y", "a"], ["b"]),
        ("Add", ["b", "b"], ["z"]),
    ]
    save(tmp_path, nodes, {"x": ["n", "m"]}, {"y": ["n", "m"], "z": ["n", "m"]})
    graph = started(module, tmp_path, input=one(), output=one("y") + one("z"))._graph
    made, alive = [], []

    def add(first, second):
        alive.append([reference() is not None for reference in made])
        result = first + second
        made.append(weakref.ref(result))
        return result

    graph._steps = [replace(step, call=add) for step in graph._steps]
    outputs = graph.run({"x": torch.ones(1, 2)}, {"y", "z"})
    assert alive == [[], [True], [True, True], [False, True, True]]
    assert {name: value.tolist() for name, value in outputs.items()} == {"y": [[3, 3]], "z": [[10, 10]]}


# Requests


def test_each_request_gets_what_the_onnx_file_computes(module, folder):
    inputs = [np.arange(n * m, dtype=np.float32).reshape(n, m) for n, m in ((1, 4), (3, 4), (2, 6), (2, 4))]
    answers = started(module, folder).execute([Request(x=x) for x in inputs])
    for answer, x in zip(answers, inputs, strict=True):
        np.testing.assert_array_equal(answer.outputs["double"], x * 2)
        np.testing.assert_array_equal(answer.outputs["pairs"], x.reshape(len(x), -1, 2))


@pytest.fixture
def gram(tmp_path):
    """A model whose y = x (x^T x): each row depends on all that ran with it."""
    nodes = [("Gemm", ["x", "x"], ["gram"], {"transA": 1}), ("MatMul", ["x", "gram"], ["y"])]
    return save(tmp_path, nodes, {"x": ["n", "m"]}, {"y": ["n", "m"]})


def assert_close(answers, expected):
    for answer, rows in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer.outputs["y"], rows, rtol=0, atol=1e-5)


def test_requests_of_one_shape_run_as_one_batch_and_others_by_themselves(module, gram):
    first, other, second = floats(1, 3), floats(2, 4), floats(2, 3)
    answers = started(module, gram, **X).execute([Request(["y"], x=x) for x in (first, other, second)])
    both = np.concatenate([first, second])
    expected = both @ both.T @ both
    assert_close(answers, [expected[:1], other @ other.T @ other, expected[1:]])


def test_requests_of_a_model_without_batches_run_by_themselves(module, gram):
    matrices = {"input": one(dims=(-1, -1)), "output": one("y", dims=(-1, -1))}
    x = floats(2, 3)
    answers = started(module, gram, max_batch_size=0, **matrices).execute([Request(["y"], x=x)] * 2)
    assert_close(answers, [x @ x.T @ x] * 2)


def test_what_fails_as_one_batch_runs_again_request_by_request(module, tmp_path, logs):
    nodes = [("Reshape", ["x", "shape"], ["y"])]
    save(tmp_path, nodes, {"x": ["n", "m"]}, {"y": ["n", "k"]}, constants(shape=np.array([1, 4])))
    good, bad = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    before, failed, after = started(module, tmp_path, **X).execute([Request(["y"], x=x) for x in (good, bad, good)])
    assert (str(failed.error), failed.error.code) == (FAILED, "INTERNAL")
    for answer in (before, after):
        np.testing.assert_array_equal(answer.outputs["y"], good)
    assert logs.errors == ["small: shape '[1, 4]' is invalid for input of size 8"]


def test_a_request_gets_only_the_outputs_that_it_asks_for(module, folder):
    x = np.ones((1, 4), np.float32)
    answers = started(module, folder).execute([Request([name], x=x) for name in ("double", "pairs")])
    assert [answer.error for answer in answers] == [None, None]
    assert [list(answer.outputs) for answer in answers] == [["double"], ["pairs"]]


def test_a_request_that_fails_fails_alone_and_its_client_sees_no_details(module, folder, logs):
    good, bad = np.ones((1, 4), np.float32), np.ones((1, 3), np.float32)
    before, failed, missing, after = started(module, folder).execute(
        [Request(x=good), Request(x=bad), Request(), Request(x=good)]
    )
    for answer in (failed, missing):
        assert (str(answer.error), answer.error.code) == (FAILED, "INTERNAL")
    for answer in (before, after):
        assert answer.error is None
        np.testing.assert_array_equal(answer.outputs["double"], good * 2)
    assert sorted(logs.errors) == [
        "small: 'NoneType' object has no attribute 'to_dlpack'",
        "small: shape '[1, -1, 2]' is invalid for input of size 3",
    ]


def test_the_log_says_once_that_an_input_is_taken_where_it_lies(module, folder, logs):
    model = started(module, folder)
    for _ in range(2):
        model.execute([Request(x=np.ones((1, 4), np.float32))] * 2)
    assert logs.infos == ['small: input "x" is taken where it lies, on cpu']
    assert logs.warnings == []


def test_one_warning_says_that_an_input_came_by_way_of_the_host(torch, module, folder, logs):
    model = started(module, folder)
    model._device = torch.device("meta")  # stands for a GPU, but keeps no values: only what is logged is looked at
    for _ in range(2):
        model.execute([Request(x=np.ones((1, 4), np.float32))] * 2)
    assert logs.warnings == [
        'small: input "x" comes on cpu and is copied to meta; from preprocess it comes on the GPU if that runs there, '
        'with outputs "gpu" and a CUDA pool that is large enough (its log says), and if FORCE_CPU_ONLY_INPUT_TENSORS '
        'is "no" here'
    ]
    assert logs.infos == []


@pytest.mark.gpu
@pytest.mark.parametrize("outputs", ["cpu", "gpu"])
def test_on_a_gpu_a_tensor_is_taken_where_it_lies(torch, module, demo, logs, outputs):
    if not torch.cuda.is_available():
        reason = f"NO GPU that PyTorch {torch.__version__} can use"
        (pytest.fail if os.environ.get("PIXPREP_REQUIRE_GPU") == "1" else pytest.skip)(reason)
    model = started(module, demo, kind="GPU", **DEMO, **parameter("outputs", outputs))
    values = photos()
    answers = model.execute([Request(["logits"], input=torch.from_numpy(value[None]).cuda()) for value in values])
    logits = [answer.outputs["logits"] for answer in answers]
    if outputs == "gpu":
        tensors = [torch.utils.dlpack.from_dlpack(capsule) for capsule in logits]
        assert [str(tensor.device) for tensor in tensors] == ["cuda:0"] * 2
        logits = [tensor.cpu().numpy() for tensor in tensors]
    np.testing.assert_allclose(np.concatenate(logits), *onnx_runtime(demo, input=values), rtol=0, atol=1e-3)
    assert logs.infos == ['small: input "input" is taken where it lies, on cuda:0']
    assert logs.warnings == logs.errors == []


# What it refuses


def refusal(module, folder, **changes):
    with pytest.raises(Error) as caught:
        started(module, folder, **changes)
    return str(caught.value)


def test_a_config_may_leave_outputs_out_and_fix_open_lengths(module, folder):
    started(module, folder, input=one(dims=[4]), output=one("pairs", dims=["2", "2"]))
    started(module, folder, max_batch_size=0, input=one(dims=[1, 4]), output=[])


@pytest.mark.parametrize(
    ("changes", "message"),
    [*DISAGREEMENTS, (parameter("outputs", "GPU"), 'parameter "outputs" is "GPU", expected "cpu" or "gpu"')],
)
def test_a_config_that_disagrees_with_the_onnx_file_is_refused_in_one_line(module, folder, changes, message):
    assert refusal(module, folder, **changes) == f"small: {message}"


def test_threads_are_the_parameter_or_the_cores_that_the_process_may_use(module):
    assert module._threads(parameter("threads", "3")) == 3
    assert module._threads({}) == len(os.sched_getaffinity(0))


def test_a_missing_onnx_file_is_named(module, folder):
    (folder / "1" / "model.onnx").unlink()
    assert refusal(module, folder) == "small: model.onnx is missing in version 1 of the model"


def test_a_broken_onnx_file_is_refused_in_one_line_without_its_path(module, folder):
    (folder / "1" / "model.onnx").write_bytes(b"junk")
    message = refusal(module, folder)
    assert message.startswith("small: onnx cannot load model.onnx: ")
    assert "\n" not in message
    assert str(folder) not in message


KNOWN = "Add, Clip, Conv, Flatten, Gemm, GlobalAveragePool, MatMul, Reshape"
INSTEAD = "run this one with ONNX Runtime or TensorRT"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (("Sigmoid", ["x"], ["y"]), f'op "Sigmoid"; the PyTorch classifier knows {KNOWN}: {INSTEAD}'),
        (
            ("Conv", ["x", "w"], ["y"], {"auto_pad": "SAME_UPPER"}),
            f'op "Conv" with attribute "auto_pad", which the PyTorch classifier does not know: {INSTEAD}',
        ),
        (
            ("Clip", ["x", "x"], ["y"]),
            f'op "Clip" whose input "x" is computed, which the PyTorch classifier does not know: {INSTEAD}',
        ),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(module, tmp_path, node, message):
    save(tmp_path, [node], {"x": ["n", "m"]}, {"y": ["n", "m"]}, constants(w=floats(1, 1, 1, 1)))
    assert refusal(module, tmp_path, **X) == f"small: model.onnx has {message}"


def test_an_op_of_another_domain_is_named_with_it(module, tmp_path):
    save(tmp_path, [("Add", ["x", "x"], ["y"], {"domain": "com.acme"})], {"x": ["n", "m"]}, {"y": ["n", "m"]})
    path = tmp_path / "1" / "model.onnx"
    model = onnx.load(path)
    model.opset_import.add(domain="com.acme", version=1)
    onnx.save(model, path)
    message = f'model.onnx has op "com.acme.Add"; the PyTorch classifier knows {KNOWN}: {INSTEAD}'
    assert refusal(module, tmp_path, **X) == f"small: {message}"


def test_a_graph_that_cannot_run_is_refused_at_the_start_and_not_at_the_first_request(module, folder):
    message = refusal(module, folder, input=one(dims=[3]))
    assert message == "small: PyTorch cannot run model.onnx: shape '[1, -1, 2]' is invalid for input of size 3"


def test_weights_that_pytorch_does_not_take_are_refused_in_one_line(module, tmp_path):
    weights = [helper.make_tensor("c", TensorProto.UINT4, [2], [1, 2])]
    save(tmp_path, [("Add", ["x", "c"], ["y"])], {"x": ["n", "m"]}, {"y": ["n", "m"]}, weights)
    message = refusal(module, tmp_path, **X)
    assert message.startswith("small: PyTorch cannot run model.onnx: can't convert np.ndarray of type ")
    assert "\n" not in message


def test_a_type_that_triton_does_not_carry_is_called_as_onnx_does(module, folder):
    path = folder / "1" / "model.onnx"
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    onnx.save(model, path)
    message = 'input "x" is TYPE_FP32 [-1, -1] in config.pbtxt, BFLOAT16 [-1, -1] in model.onnx'
    assert refusal(module, folder) == f"small: {message} (the batch first, -1: any)"


def test_an_instance_on_a_gpu_that_pytorch_does_not_see_is_refused_with_the_way_out(torch, module, folder):
    count = torch.cuda.device_count()
    assert refusal(module, folder, kind="GPU", device="99") == (
        f"small: the instance is on GPU 99, and PyTorch {torch.__version__} sees {count} GPUs: "
        "install a PyTorch for this machine's CUDA, or write instance_group { kind: KIND_CPU }"
    )
