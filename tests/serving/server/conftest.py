"""Fixtures shared by all files of this folder: the demo repository, one Triton server that serves the repositories of
the tests in turn, and one `pixprep serve`.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from pixprep.serving import repository
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.snapshot import Snapshot
from pixprep.serving.repository.repository import Repository
from support.serving import Oracle, Serve, client_of, wait_until, write_repository


class Shared:
    """One Triton server for all tests that neither stop nor configure it.

    Calling the object makes the server serve exactly the models of the given repository, and returns the server. Models
    that are the same in the previous repository remain loaded. A repository must not change once it has been served.
    """

    def __init__(self):
        self._server = self._repository = None

    def __call__(self, repository):
        if self._server is None:
            ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
            self._server = Server(repository, **ports, grace_s=0, allow_shared_memory=True)
            self._server.start()
        elif repository != self._repository:
            self._exchange(repository)
        self._repository = repository
        return self._server

    def _exchange(self, repository):
        control, old = self._server.control, self._server.snapshot
        shutil.rmtree(old.folder)
        self._server.snapshot = new = Snapshot(repository, old.folder)
        gone = [model for model, number in old.hashes.items() if new.hashes.get(model) != number]
        for model in gone:
            assert control.repository(f"models/{model}/unload")[0] == 200
        wait_until(lambda: self._states().keys().isdisjoint(gone), self._states)
        ensembles = Repository(new.folder).ensembles.keys()
        for models in (new.hashes.keys() - ensembles, ensembles):  # an ensemble is loaded after its models
            with ThreadPoolExecutor(4) as pool:
                errors = [*pool.map(self._load, models - self._states().keys())]
            assert not any(errors), errors

    def _states(self):
        """Return the models that are loaded or being loaded."""
        states = {model["name"]: model.get("state") for model in self._server.control.index()}
        return {name: state for name, state in states.items() if state not in (None, "UNAVAILABLE")}

    def _load(self, model):
        return self._server.control.load(model, timeout_s=120, meanwhile=lambda: None)

    def close(self):
        if self._server is not None:
            self._server.stop()


def pytest_collection_modifyitems(items):
    """Run the tests that use the demo's models first, so that the shared server loads these models only once."""
    items.sort(key=lambda item: not {"demo", "demo_repository"} & {*getattr(item, "fixturenames", ())})


@pytest.fixture(scope="session")
def shared():
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def demo_repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "model_repository"
    repository.build(folder)
    return folder


@pytest.fixture
def demo(shared, demo_repository):
    """Return the shared server with the demo's models loaded."""
    return shared(demo_repository)


@pytest.fixture
def server(shared, models):
    """Return the shared server with the ``models`` of the test file loaded."""
    return shared(models)


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    """Return Triton's own client of the shared server, for HTTP or gRPC."""
    with client_of(server, request.param) as client:
        yield client


@pytest.fixture(scope="session")
def usual(tmp_path_factory):
    """Run `pixprep serve` without further options."""
    folder = tmp_path_factory.mktemp("usual")
    models = write_repository(folder / "models", is_small=False)
    with Serve(models, triton_log=folder / "triton.log") as serve:
        yield serve


@pytest.fixture(scope="session")
def oracle():
    """Return an object that computes the expected results with the engine in this process."""
    oracle = Oracle()
    yield oracle
    oracle.close()
