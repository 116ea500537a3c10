"""Rehearses the serving tests of ``make gpu`` on the CPU, with fewer requests and the same checks."""

import pytest

from pixprep.serving.triton import pool
from support import ensemble
from support.serving import GOOD, PIPELINE, Clients, Oracle, write_repository

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow(
        reason="it rehearses tests/gpu/hardware/test_served.py; test_faults.py checks the product's responses"
    ),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    models = write_repository(tmp_path_factory.mktemp("served") / "models")
    return ensemble.write_pairs(models, ("CPU", "CPU"))


@pytest.fixture(scope="module")
def it(tmp_path_factory, oracle, models):
    """Run the server with the memory pools of a GPU server. Triton accepts these options also without a GPU."""
    folder = tmp_path_factory.mktemp("served") / "it"
    with ensemble.serve(folder, oracle, models, pool_bytes=pool.needed(PIPELINE)) as it:
        yield it


@pytest.fixture(scope="module")
def images():
    return ensemble.photos(12)


def test_the_ensembles_responses_are_right_and_its_tensors_use_host_memory(it, images):
    ensemble.assert_answers_can_be_told_apart(it.clients.oracle, images)
    it.steady(60, concurrency=16, images=images, models=("ensemble",), sizes=(1,))
    it.steady(60, concurrency=16, images=ensemble.STORM)
    ensemble.assert_all_right(it, 120)
    assert ensemble.tensors_pass_the_host(it, images)


def test_triton_has_the_requested_pools(it):
    assert len(ensemble.said(it, r"cuda_memory_pool_byte_size\{0\} +\| 462422016 ")) == 1
    assert len(ensemble.said(it, r"pinned_memory_pool_byte_size +\| 0 ")) == 1


def test_wrong_responses_are_counted(it, images):
    class WrongOracle(Oracle):
        def logits(self, tensors):
            return super().logits(tensors) + 1

    oracle = WrongOracle()
    with Clients(it, oracle) as clients:
        assert clients.ask(images[:1], model="ensemble") == "wrong"
        assert clients.ask(images[:1]) == "right"
    oracle.close()


def test_two_models_on_the_same_device_return_the_same_pixel_values(it):
    apart = ensemble.levels_apart(it.clients.grpc(), GOOD)
    assert apart == {decoder: {"max": 0, "mean": 0.0} for decoder in ensemble.DECODERS}


def test_a_model_is_reloaded_under_load_without_wrong_responses(it):
    loaded = len(ensemble.said(it, "successfully loaded 'preprocess'"))
    it.reload(1)
    assert not it.clients.notes
    assert len(ensemble.said(it, "successfully loaded 'preprocess'")) == loaded + 1
