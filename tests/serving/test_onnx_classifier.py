"""Tests of the standalone ONNX classifier model, with a fake of the module that Triton's stub provides."""

from __future__ import annotations

import ast
import sys

import numpy as np
import onnxruntime
import pytest

from pixprep.cores import cores
from pixprep.serving.repository.backend import onnx_classifier
from serving.classifier_models import DISAGREEMENTS, Error, OnDevice, Request, load, one, parameter, save_small, started


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    (tmp_path / "model.py").write_text(onnx_classifier())
    return load(tmp_path / "model.py", monkeypatch)


@pytest.fixture
def module(loaded):
    return loaded[0]


@pytest.fixture
def logs(loaded):
    return loaded[1]


@pytest.fixture
def folder(tmp_path):
    return save_small(tmp_path)


def test_it_does_not_import_pixprep():
    tree = ast.parse(onnx_classifier())
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    third_party = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert third_party == {"numpy", "onnxruntime", "triton_python_backend_utils"}


def test_each_request_gets_the_results_of_the_onnx_file(module, folder):
    first, second = (np.arange(n * 4, dtype=np.float32).reshape(n, 4) for n in (1, 3))
    first_output, three = started(module, folder).execute([Request(x=first), Request(x=second)])
    for answer, x in ((first_output, first), (three, second)):
        np.testing.assert_array_equal(answer.outputs["double"], x * 2)
        np.testing.assert_array_equal(answer.outputs["pairs"], x.reshape(len(x), 2, 2))


def test_a_request_gets_only_its_requested_outputs(module, folder):
    x = np.ones((1, 4), np.float32)
    (answer,) = started(module, folder).execute([Request(["double"], x=x)])
    assert answer.error is None
    assert answer.outputs.keys() == {"double"}


def test_a_failing_request_fails_alone_and_its_client_sees_no_details(module, folder, logs):
    good, bad = np.ones((1, 4), np.float32), np.ones((1, 3), np.float32)
    before, failed, missing, after = started(module, folder).execute(
        [Request(x=good), Request(x=bad), Request(), Request(x=good)]
    )
    message = "small: ONNX Runtime failed to run this request: see the log of the server"
    for answer in (failed, missing):
        assert (str(answer.error), answer.error.code) == (message, "INTERNAL")
    for answer in (before, after):
        assert answer.error is None
        np.testing.assert_array_equal(answer.outputs["double"], good * 2)
    assert len(logs.errors) == 2
    assert "Reshape" in logs.errors[0]


def test_a_config_can_omit_outputs_and_fix_or_open_dimensions(module, folder):
    # the 2 may be a dimension that only ONNX Runtime infers
    started(module, folder, output=one("pairs", dims=[-1, -1]))
    started(module, folder, input=one(dims=[4]), output=one("pairs", dims=["2", "2"]))
    started(module, folder, max_batch_size=0, input=one(dims=[1, 4]), output=[])


@pytest.mark.parametrize(("changes", "message"), DISAGREEMENTS)
def test_a_config_that_contradicts_the_onnx_file_is_rejected_in_one_line(module, folder, changes, message):
    with pytest.raises(Error) as caught:
        started(module, folder, **changes)
    assert str(caught.value) == f"small: {message}"


def test_a_missing_onnx_file_is_named(module, folder):
    (folder / "1" / "model.onnx").unlink()
    with pytest.raises(Error) as caught:
        started(module, folder)
    assert str(caught.value) == "small: model.onnx is missing in version 1 of the model"


def test_a_broken_onnx_file_is_rejected_in_one_line_without_its_path(module, folder):
    (folder / "1" / "model.onnx").write_bytes(b"junk")
    with pytest.raises(Error) as caught:
        started(module, folder)
    message = str(caught.value)
    assert message.startswith("small: ONNX Runtime cannot load model.onnx: ")
    assert "\n" not in message
    assert str(folder) not in message


def test_the_thread_count_is_the_parameter_or_the_available_cores(module):
    assert module._threads({"parameters": {"threads": {"string_value": "3"}}}) == 3
    assert module._threads({}) == cores()


# Tests of tensors on a GPU. ONNX Runtime's own functions pass them, but the data is in CPU memory.


def test_a_tensor_on_the_device_is_passed_by_dlpack(module, folder, logs):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (answer,) = started(module, folder).execute([Request(x=OnDevice("x", x))])
    assert logs.errors == []
    np.testing.assert_array_equal(answer.outputs["double"], x * 2)


def test_outputs_can_stay_on_the_device(module, folder):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (answer,) = started(module, folder, **parameter("outputs", "gpu")).execute([Request(x=x)])
    assert isinstance(answer.outputs["double"], onnxruntime.OrtValue)
    np.testing.assert_array_equal(np.from_dlpack(answer.outputs["double"]), x * 2)


class Cuda:
    """Mock of a GPU build of ONNX Runtime. The CPU computes the results, and the mock records the requests to CUDA.

    Attributes:
        starts: Whether the CUDA provider can be initialized.
        providers: Execution providers of each session.
        outputs: Device requested for each output.
        rows: Number of rows in each run.
    """

    def __init__(self, *, starts=True):
        self.starts, self.providers, self.outputs, self.rows = starts, [], [], []
        self.is_preloaded = False
        self.SessionOptions, self.OrtValue = onnxruntime.SessionOptions, onnxruntime.OrtValue
        self.__version__ = "1.31.1"

    def get_available_providers(self):
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def preload_dlls(self):
        self.is_preloaded = True

    def InferenceSession(self, path, options, providers):
        assert self.is_preloaded
        self.providers.append(providers)
        session = onnxruntime.InferenceSession(path, options, providers=providers[-1:])
        return CudaSession(session, self)


class CudaSession:
    def __init__(self, session, cuda):
        self._session, self._cuda = session, cuda
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs

    def get_providers(self):
        return self._cuda.get_available_providers()[not self._cuda.starts :]

    def io_binding(self):
        return CudaBinding(self._session, self._cuda)

    def run_with_iobinding(self, binding):
        self._session.run_with_iobinding(binding)


class CudaBinding(onnxruntime.IOBinding):
    def __init__(self, session, cuda):
        super().__init__(session)
        self._cuda = cuda

    def bind_cpu_input(self, name, values):
        self._cuda.rows.append(len(values))
        super().bind_cpu_input(name, values)

    def bind_output(self, name, device_type, device_id):
        self._cuda.outputs.append((device_type, device_id))
        super().bind_output(name, "cpu", 0)


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """Return a mocked GPU build of ONNX Runtime, after importing the classifier's module with it."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "onnxruntime", cuda)
    (tmp_path / "model.py").write_text(onnx_classifier())
    module, logs = load(tmp_path / "model.py", monkeypatch)
    return cuda, module, logs


def on_gpu(module, folder, **changes):
    """Start the small model, with 4 values per image, as Triton would start it on its second GPU."""
    return started(module, folder, device="GPU", number="1", input=one(dims=[4]), **changes)


def test_a_gpu_instance_runs_there_and_has_run_when_it_is_ready(cuda, folder):
    cuda, module, _ = cuda
    on_gpu(module, folder)
    (((provider, options), fallback),) = cuda.providers
    assert (provider, fallback) == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert options == {"device_id": "1", "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"}
    assert cuda.rows == [1, 8]


@pytest.mark.parametrize(("outputs", "place"), [("cpu", ("cpu", 0)), ("gpu", ("cuda", 1))])
def test_outputs_are_where_the_parameter_requests(cuda, folder, outputs, place):
    cuda, module, _ = cuda
    model = on_gpu(module, folder, **parameter("outputs", outputs))
    model.execute([Request(x=np.ones((1, 4), np.float32))])
    assert set(cuda.outputs) == {place}


def test_the_log_reports_once_whether_a_tensor_is_copied(cuda, folder):
    _, module, logs = cuda
    x = np.ones((1, 4), np.float32)
    on_gpu(module, folder).execute([Request(x=OnDevice("x", x))] * 2)
    assert (logs.infos, logs.warnings) == (['small: input "x" is read in GPU memory without a copy'], [])
    on_gpu(module, folder).execute([Request(x=x)] * 2)
    assert logs.warnings == [
        'small: input "x" is copied from host memory to the GPU; to avoid this, run preprocess on the GPU with outputs '
        '"gpu" and a large enough CUDA memory pool (see its log), and set FORCE_CPU_ONLY_INPUT_TENSORS to "no" in this '
        "model"
    ]


REMEDY = (
    'pip uninstall onnxruntime, then pip install ".[classifier-gpu-cuda13]" (or -cuda12) in a checkout of pixprep; '
    "or set instance_group { kind: KIND_CPU }"
)


def test_an_onnx_runtime_without_cuda_is_rejected_on_a_gpu(module, folder):
    with pytest.raises(Error) as caught:
        on_gpu(module, folder)
    version = onnxruntime.__version__
    assert str(caught.value) == (
        f"small: the instance is on GPU 1, but ONNX Runtime {version} has no CUDA provider: {REMEDY}"
    )


def test_a_cuda_provider_that_does_not_start_is_not_replaced_by_the_cpu(cuda, folder):
    cuda, module, _ = cuda
    cuda.starts = False
    with pytest.raises(Error) as caught:
        on_gpu(module, folder)
    assert str(caught.value) == (
        "small: the instance is on GPU 1, but ONNX Runtime 1.31.1 cannot start its CUDA provider (see the log of the "
        f"server): {REMEDY}"
    )


def test_a_network_that_cannot_run_is_rejected_at_the_start_on_a_gpu(cuda, folder):
    _, module, _ = cuda
    with pytest.raises(Error) as caught:
        started(module, folder, device="GPU", input=one(dims=[3]))
    message = str(caught.value)
    assert message.startswith("small: ONNX Runtime cannot run model.onnx on the GPU: ")
    assert "Reshape" in message
    assert "\n" not in message
