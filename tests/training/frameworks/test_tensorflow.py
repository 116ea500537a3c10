"""Tests the Loader with TensorFlow and Keras."""

import gc

import numpy as np
import pytest

import pixprep as pp
from support.loading import TRAINING, samples

tf = pytest.importorskip("tensorflow", reason="NO TENSORFLOW: make parity-tensorflow installs it")
keras = pytest.importorskip("keras", reason="NO KERAS: make parity-tensorflow installs it")


def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Permute((2, 3, 1)), keras.layers.Conv2D(4, 5, strides=4, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def place(tensor):
    """Return the address of a tensor's memory. ``numpy()`` would make a copy."""
    return np.asarray(memoryview(tensor)).ctypes.data


def test_tensors_share_the_memory_of_the_batch(loader, again):
    kept = []
    for batch in loader:
        images, labels, names = batch.tf("tensor", "label", "name")
        assert (images.dtype, images.shape, labels.dtype, names.dtype) == (
            tf.float32,
            (8, 3, 24, 24),
            tf.int64,
            tf.string,
        )
        assert place(images) == batch["tensor"].ctypes.data
        assert names.numpy()[0].decode() == batch["name"][0]
        assert [each.dtype for each in batch.tf("tensor", "label", dtype="bfloat16")] == [tf.bfloat16, tf.int64]
        kept.append(images)
        del batch
    gc.collect()
    for images, batch in zip(kept, again, strict=True):
        assert np.array_equal(images.numpy(), batch["tensor"])


def test_images_of_different_sizes_are_available_padded_and_as_a_list(open_sizes):
    dataset = open_sizes.tf("tensor", "label")
    assert [spec.shape.as_list() for spec in dataset.element_spec] == [[None, 3, 24, None], [None]]
    for (images, _), batch in zip(list(dataset), open_sizes, strict=True):
        assert np.array_equal(images.numpy(), batch.padded("tensor"))
        assert [each.shape for each in batch.tf("tensor")] == [each.shape for each in batch["tensor"]]
    images, labels = open_sizes.keras("tensor", "label")[0]
    assert images.shape[:3] == (len(labels), 3, 24)


def test_memory_of_freed_tensors_is_reused(loader):
    places = {place(batch.tf("tensor")) for _ in range(4) for batch in loader}
    assert len(places) < 20


def test_unaligned_arrays_are_copied_for_tensorflow():
    """TensorFlow 2.21 crashes when it reads shared memory at an address that is not a multiple of 64."""
    array = np.arange(64, dtype=np.float32)[3:]
    assert array.ctypes.data % 64
    batch = pp.Batch(outputs={"tensor": array}, errors=[None], decode_s=[0], transform_s=[0])
    assert tf.reduce_sum(batch.tf("tensor")[1:]).numpy() == array[1:].sum()


def test_the_dataset_has_the_types_of_the_pipeline_and_one_epoch_per_iteration(loader, again):
    dataset = loader.tf("tensor", "label", "name")
    images, labels, names = dataset.element_spec
    assert (images.shape.as_list(), images.dtype) == ([None, 3, 24, 24], tf.float32)
    assert (labels.shape.as_list(), labels.dtype) == ([None], tf.int64)
    assert (names.shape.as_list(), names.dtype) == ([None], tf.string)
    for _ in range(2):
        for (images, labels, names), batch in zip(dataset, again, strict=True):
            assert np.array_equal(images.numpy(), batch["tensor"])
            assert np.array_equal(labels.numpy(), batch["label"])
            assert [name.decode() for name in names.numpy()] == batch["name"]


def test_keras_counts_every_sample_of_a_dataset_once(loader):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Lambda(lambda images: keras.ops.mean(images, axis=(1, 2, 3)) * 0)])
    model.compile(metrics=[keras.metrics.BinaryAccuracy(threshold=-1)], loss="mse")
    data = loader.tf("tensor", "label").map(lambda images, labels: (images, tf.ones_like(labels)))
    assert model.evaluate(data, verbose=0)[1] == 1.0


def test_a_dataset_of_short_batches_has_all_of_them():
    with pp.Loader(samples(11), TRAINING, batch_size=8, last="short") as ours:
        dataset = ours.tf("tensor")
        assert dataset.element_spec.shape.as_list() == [None, 3, 24, 24]
        assert [len(images) for images in dataset] == [8, 3]


def test_unnoticed_padding_of_the_last_batch_is_reported(caplog):
    with pp.Loader(samples(11), TRAINING, batch_size=4, shard=(1, 2)) as ours:
        padded = [padding.numpy() for _, padding in ours.tf("tensor", "is_padding")]
        assert np.concatenate(padded).tolist() == [False] * 4 + [True] * 4
        assert len(ours.keras("tensor", "is_padding")) == 2
        assert not caplog.records
        ours.tf("tensor", "label")
        ours.keras("tensor", "label")
    assert caplog.text.count('name "is_padding", too') == 2


def test_a_dataset_knows_its_number_of_batches(loader, again):
    dataset = loader.tf("tensor", "label")
    assert (len(dataset), tf.data.experimental.cardinality(dataset).numpy()) == (5, 5)
    assert [len(list(dataset)) for _ in range(2)] == [5, 5]
    for _ in dataset.take(2):
        pass
    gc.collect()
    assert len(list(dataset)) == 5  # the abandoned epoch has ended, so this is a complete one
    for _, _ in zip(range(3), again, strict=False):
        state = again.state_dict()
    loader.load_state_dict(state)
    with pytest.raises(
        tf.errors.UnknownError, match=r"this epoch has only 2 of 5 batches left: call tf\(\) after load_"
    ):
        list(dataset)
    loader.load_state_dict(state)
    rest = loader.tf("tensor")
    assert rest.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert [len(list(rest)), len(list(dataset))] == [2, 5]


def test_without_names_a_dataset_contains_all_tensors():
    source = [sample | {"extra": {"a": 1}} for sample in samples(8)]
    with pp.Loader(source, TRAINING, batch_size=8) as ours:
        assert set(ours.tf().element_spec) == {"tensor", "label", "name", "index", "attempt", "is_padding"}
        with pytest.raises(pp.DataError, match='the field "extra" is no tensor, but dict'):
            ours.tf("extra")


def test_boxes_are_ragged(detection):
    dataset = detection.tf("tensor", "boxes", "labels")
    assert isinstance(dataset.element_spec[1], tf.RaggedTensorSpec)
    batches = list(dataset)
    assert len(batches) == 4
    for _, boxes, labels in batches:
        assert boxes.row_lengths().numpy().tolist() == labels.row_lengths().numpy().tolist() == [0, 1, 2, 3]
        assert boxes.to_tensor().shape == (4, 3, 4)


def test_an_abandoned_dataset_lets_the_next_epoch_begin(loader):
    for _ in loader.tf("tensor").take(2):
        pass
    gc.collect()
    assert len(list(loader)) == 5


@pytest.mark.filterwarnings("ignore")  # Keras emits warnings of its own
@pytest.mark.parametrize("kind", ["tf", "keras"])
def test_keras_trains(loader, again, kind):
    model, expected = network(), network()
    history = model.fit(getattr(loader, kind)("tensor", "label"), epochs=3, verbose=0)
    for _ in range(3):
        for batch in again:
            expected.train_on_batch(batch["tensor"], batch["label"])
    assert len(history.history["loss"]) == 3
    for ours, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        assert np.allclose(ours, theirs, atol=1e-5)
    assert loader.state_dict()["epoch"] == 3


@pytest.mark.filterwarnings("ignore")
def test_keras_evaluates_every_sample_once():
    with pp.Loader(samples(11), TRAINING.for_serving(), batch_size=4, last="short") as ours:
        predicted = network().predict(ours.keras("tensor"), verbose=0)
    assert predicted.shape == (11, 3)
