"""The demo repository, and a Triton that serves it: built and started once for all server tests that ask."""

import pytest

from pixprep.serving import repository
from pixprep.serving.embedded.server import Server
from support.serving import Oracle


@pytest.fixture(scope="session")
def demo_repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "model_repository"
    repository.build(folder)
    return folder


@pytest.fixture(scope="session")
def demo(demo_repository):
    with Server(
        demo_repository, http_port=0, grpc_port=0, metrics_port=0, grace_s=0, allow_shared_memory=True
    ) as server:
        yield server


@pytest.fixture(scope="session")
def oracle():
    """Result of the engine in this process."""
    oracle = Oracle()
    yield oracle
    oracle.close()
