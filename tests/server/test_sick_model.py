"""A model whose process runs and fails every request is brought back like one whose process died."""

import pytest

from serving import GOOD, PIPELINE, Clients, Serve, wait_until, write_model

pytestmark = pytest.mark.server

MODEL = """\
from pathlib import Path
from pixprep.triton.model import TritonPythonModel as Model, pb_utils

class TritonPythonModel(Model):
    sick = Path({sick!r})
    def initialize(self, args):
        self.sick.unlink(missing_ok=True)  # it is well whenever it was loaded
        super().initialize(args)
    def execute(self, requests):
        if not self.sick.exists():
            return super().execute(requests)
        error = pb_utils.TritonError("sick", pb_utils.TritonError.INTERNAL)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""


def test_a_model_that_fails_every_request_is_loaded_again_although_its_process_runs(tmp_path, oracle):
    sick = tmp_path / "sick"
    files = {"model.py": MODEL.format(sick=str(sick)), "pipeline.json": PIPELINE.to_json()}
    write_model(tmp_path / "models", "preprocess", 'backend: "python"\n', files)
    with (
        Serve(tmp_path / "models", triton_log=tmp_path / "triton.log") as serve,
        Clients(serve, oracle) as clients,
    ):
        assert clients.ask(GOOD) == "right"
        before = serve.stub("preprocess")
        sick.touch()
        assert clients.ask(GOOD) == "error"
        wait_until(lambda: not sick.exists(), "it is left as it is", within_s=60)
        clients.recover(models=["preprocess"])
        assert clients.ask(GOOD) == "right"
        assert not before.state  # its process was another one
        assert clients.counts["wrong"] == clients.counts["lost"] == 0, clients.notes
