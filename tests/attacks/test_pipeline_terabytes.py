"""Attack: The tensors of a small pipeline file would take terabytes: it combines sides of 16384 pixels, float32, 250
outputs and batches of 64.

Defence: The outputs of one image and of one batch are limited to 2 GiB minus one byte. A gRPC response has the same
limit, so no usable pipeline is rejected. The size is computed before any allocation. A default ``max_batch_size`` is
reduced automatically.

Outcome: The file is rejected with a PipelineError that contains the maximum batch size. Before the fix, such a file
passed every check, and its model used up all memory while it was being loaded.
"""

import pytest

import pixprep as pp
from pixprep.pipeline.walk import MAX_OUTPUT_BYTES
from pixprep.serving import repository
from pixprep.serving.triton import config
from pixprep.serving.triton.warm_up import warm_up


def square(side, *, dtype="uint8", outputs=1):
    tensors = [pp.tensor(dtype=dtype, name=f"t{number}") for number in range(outputs)]
    return [pp.decode(), pp.resize(height=side, width=side), *tensors]


def test_outputs_of_hundreds_of_gigabytes_are_rejected_with_both_numbers():
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline(square(16384, dtype="float32", outputs=250))
    assert str(caught.value) == (
        "ops: the outputs of one image take 805,306,368,000 bytes, but a response of the server may contain at most "
        "2,147,483,647"
    )


def test_the_limit_counts_all_outputs_of_an_image():
    each = 8192 * 8192 * 3
    max_outputs = MAX_OUTPUT_BYTES // each
    assert pp.Pipeline(square(8192, outputs=max_outputs)).n_bytes == max_outputs * each
    with pytest.raises(pp.PipelineError, match="the outputs of one image"):
        pp.Pipeline(square(8192, outputs=max_outputs + 1))


def test_a_default_batch_size_is_reduced_to_fit_and_an_explicit_one_is_rejected():
    pipeline = pp.Pipeline(square(8192))
    raised = {"parameters": {"max_response_bytes": {"string_value": str(MAX_OUTPUT_BYTES)}}}
    for written, max_batch_size, limit in (({}, 1, 320 << 20), (raised, 10, MAX_OUTPUT_BYTES)):
        assert config.complete(written, pipeline)["max_batch_size"] == max_batch_size
        assert (
            config.complete({**written, "max_batch_size": max_batch_size}, pipeline)["max_batch_size"] == max_batch_size
        )
        for size in (max_batch_size + 1, 64, 2**31 - 1):
            with pytest.raises(pp.PipelineError, match=f"but the limit is {limit:,}: set it to {max_batch_size}"):
                config.complete({**written, "max_batch_size": size}, pipeline)
    assert config.complete({}, pp.Pipeline(square(224)))["max_batch_size"] == 64


def test_a_negative_batch_size_is_rejected():
    with pytest.raises(pp.PipelineError, match="max_batch_size must be at least 1, not -5"):
        config.complete({"max_batch_size": -5}, pp.Pipeline(square(8)))


def test_check_reports_it_before_anything_is_loaded(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "pixprep"\nmax_batch_size: 64\n')
    pp.Pipeline(square(8192)).save(tmp_path / "m" / "1" / "pipeline.json")
    (problem,) = repository.check(tmp_path)
    assert str(problem).startswith("m/config.pbtxt: max_batch_size: the outputs of 64 images have 12,884,901,888 bytes")


def test_a_model_with_large_outputs_is_warmed_up_with_only_as_many_images_as_fit():
    counts = []

    class Engine:
        lanes = 64
        pipeline = pp.Pipeline(square(8192))
        plan = pipeline.plan

        def run_batch(self, encoded, *, inputs):
            assert inputs == {}
            counts.append(len(encoded))

    warm_up(Engine())
    Engine.pipeline = pp.Pipeline(square(8))
    warm_up(Engine())
    assert counts == [10, 128]


@pytest.mark.parametrize("threads", ["1025", "999999999", "9" * 5000])
def test_billions_of_threads_are_rejected(threads):
    with pytest.raises(pp.PipelineError, match="threads must be at most 1,024"):
        config.options({"parameters": {"threads": {"string_value": threads}}})


def test_a_crop_of_an_absurd_resize_costs_only_the_crop(measure_pipeline):
    ops = [pp.decode(), pp.resize(height=16384, width=16384), pp.center_crop(8), pp.tensor()]
    measure_pipeline(pp.Pipeline(ops)).within("ok", mib=64)
