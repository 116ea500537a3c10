"""Tests the Loader with PyTorch, Lightning, accelerate and Hugging Face's Trainer."""

import gc

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.decoders.pixels import host_array
from support.images import png, scene
from support.loading import TRAINING, samples

torch = pytest.importorskip("torch", reason="NO PYTORCH: make training")
from torch.utils.data import DataLoader  # noqa: E402


def network():
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 4, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(100, 3)
    return torch.nn.Sequential(*layers)


def test_tensors_share_the_memory_of_the_batch(loader):
    for batch in loader:
        images, labels = batch.torch("tensor", "label")
        assert (images.dtype, images.shape, labels.dtype) == (torch.float32, (8, 3, 24, 24), torch.int64)
        assert images.data_ptr() == batch["tensor"].ctypes.data
        assert labels.data_ptr() == batch["label"].ctypes.data
        assert torch.equal(batch.torch("tensor", device="cpu"), images)
        assert np.array_equal(images.numpy(), batch["tensor"])


def test_floats_become_bfloat16_and_integers_do_not_change(loader, again):
    for (images, labels), batch in zip(loader.torch("tensor", "label", dtype="bfloat16"), again, strict=True):
        assert (images.dtype, labels.dtype) == (torch.bfloat16, torch.int64)
        assert torch.equal(images, torch.from_numpy(batch["tensor"]).to(torch.bfloat16))
        assert torch.equal(batch.torch("tensor", dtype=torch.bfloat16, non_blocking=True, device="cpu"), images)


def test_a_bfloat16_output_becomes_a_tensor_that_shares_its_memory():
    ops = [pp.decode(), pp.resize(24, max_size=60), pp.normalize(), pp.tensor(dtype="bfloat16"), pp.tensor(name="long")]
    with pp.Engine(pp.Pipeline(ops), threads=1) as engine:
        batch = engine.run_batch([png(scene(50, 90)), png(scene(90, 50))])
    short, padded = batch.torch("tensor"), batch.torch("tensor", padded=True)
    for tensor, bits, long in zip(short, batch["tensor"], batch["long"], strict=True):
        assert tensor.dtype == torch.bfloat16
        assert tensor.data_ptr() == bits.ctypes.data
        assert torch.equal(tensor, torch.from_numpy(long).to(torch.bfloat16))
    assert padded.dtype == torch.bfloat16
    assert torch.equal(padded[0, :, : short[0].shape[1], : short[0].shape[2]], short[0])
    assert batch.torch("tensor", dtype="float32")[0].dtype == torch.float32


def test_a_validation_on_two_shards_has_every_sample_once(caplog):
    seen = []
    for rank in range(2):
        with pp.Loader(samples(11), TRAINING.for_serving(), batch_size=4, shard=(rank, 2)) as ours:
            assert len(ours.torch("index", "is_padding")) == 2
            for images, indices, is_padding in ours.torch("tensor", "index", "is_padding"):
                assert images.shape == (4, 3, 24, 24)
                assert is_padding.dtype == torch.bool
                seen += indices[~is_padding].tolist()
    assert sorted(seen) == list(range(11))
    assert not caplog.records
    with pp.Loader(samples(11), TRAINING, batch_size=4, shard=(0, 2)) as ours:
        ours.torch("tensor", "label")
    assert 'name "is_padding", too' in caplog.text


def test_images_of_different_sizes_are_a_list_as_torchvisions_detectors_expect(open_sizes):
    for (images, labels), batch in zip(list(open_sizes.torch("tensor", "label")), open_sizes, strict=True):
        assert len(images) == len(labels) == len(batch)
        assert len({each.shape for each in images}) > 1
        assert all(np.array_equal(ours.numpy(), own) for ours, own in zip(images, batch["tensor"], strict=True))


def test_a_kept_tensor_is_not_overwritten(loader, again):
    kept = [batch.torch("tensor")[2:4, 1] for batch in loader]
    gc.collect()
    for part, batch in zip(kept, again, strict=True):
        assert np.array_equal(part.numpy(), batch["tensor"][2:4, 1])


def test_memory_of_freed_tensors_is_reused(loader):
    places = {batch.torch("tensor").data_ptr() for _ in range(4) for batch in loader}
    assert len(places) < 20


def test_without_names_all_entries_are_included_and_texts_are_not_converted(loader):
    batch = next(iter(loader)).torch()
    assert set(batch) == {"tensor", "label", "name", "index", "attempt", "is_padding"}
    assert isinstance(batch["name"], list)
    assert batch["is_padding"].dtype == torch.bool


def test_tensors_are_used_as_pixels_in_place():
    """Tensors of PyTorch with any strides must give an engine, ``apply`` and a Loader the same results as equal NumPy
    arrays.
    """
    torch.manual_seed(0)
    frame = torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8)
    planes = frame.permute(2, 0, 1).contiguous()
    assert host_array(frame).ctypes.data == frame.data_ptr()
    frames = [frame, planes.permute(1, 2, 0), frame[5:50:2, 3:70], frame.flip(0)]
    ops = [pp.pixels(), pp.resize(height=24, width=30), pp.normalize(), pp.tensor()]
    with pp.Engine(pp.Pipeline(ops)) as engine:
        expected = engine.run([each.numpy() for each in frames])
        assert all(map(np.array_equal, engine.run(frames), expected))
        assert np.array_equal(engine.run(torch.stack([frame, frame]))[1], expected[0])
        assert engine.run([planes])[0].detail.endswith("or permute of PyTorch")
        with pytest.raises(TypeError, match=r"^image 1 of 1: Tensor of float32: pixels must be uint8"):
            engine.run([frame / 255])
    assert np.array_equal(pp.apply(ops[1:], frame), expected[0])
    trained = pp.Pipeline([*ops[:-1], pp.tensor(only="training")])
    with pp.Loader([{"image": each} for each in frames], trained, batch_size=4, threads=1) as batches:
        assert np.array_equal(next(iter(batches))["tensor"], np.stack(expected))


def test_boxes_are_one_tensor_per_image(detection):
    counts = []
    for batch in detection:
        boxes, labels = batch.torch("boxes", "labels")
        assert all(each.dtype == torch.float32 and each.shape[1] == 4 for each in boxes)
        assert [len(each) for each in boxes] == [len(each) for each in labels]
        counts += [len(each) for each in boxes]
    assert counts == [0, 1, 2, 3] * 4


def test_pytorchs_dataloader_passes_the_batches_on(loader, again):
    dataset = loader.torch("tensor", "label")
    through = DataLoader(dataset, batch_size=None)
    assert len(through) == len(dataset) == 5
    for _ in range(2):
        for (images, labels), batch in zip(through, again, strict=True):
            assert np.array_equal(images.numpy(), batch["tensor"])
            assert np.array_equal(labels.numpy(), batch["label"])


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("fork", "a Loader works only in the process"),
        ("spawn", "a Loader cannot be pickled or sent to another process"),
    ],
)
# Python warns about a fork with threads, and PyTorch about processes that it has not started
@pytest.mark.filterwarnings("ignore")
def test_workers_are_rejected_with_a_fix(loader, context, words):
    next(iter(loader))
    with pytest.raises(pp.SetupError, match=f"(?s){words}.*use num_workers=0"):
        list(DataLoader(loader.torch("tensor"), batch_size=None, num_workers=1, multiprocessing_context=context))
    assert len(list(loader)) == 5


def test_a_network_learns_from_the_batches(learnable):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(6):
        for images, labels in learnable.torch("tensor", "label"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert len(losses) == 30
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2


@pytest.mark.filterwarnings("ignore")  # Lightning emits many warnings
def test_lightning_trains_and_resumes_a_checkpoint_mid_epoch(tmp_path, again):
    lightning = pytest.importorskip("lightning", reason="NO LIGHTNING: make training")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()
            self.seen = []

        def training_step(self, batch, _):
            images, labels, index = batch
            self.seen += [index.tolist()]
            return torch.nn.functional.cross_entropy(self.network(images), labels)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    class Saving(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 3:
                trainer.save_checkpoint(tmp_path / "state.ckpt", weights_only=False)

    def train(checkpoint=None):
        model = Model()
        with pp.Loader(samples(), again.pipeline, batch_size=8, shuffle=True, seed=5, threads=1) as ours:
            trainer = lightning.Trainer(
                accelerator="cpu", callbacks=[Saving()], logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path, max_epochs=2,
            )  # fmt: skip
            trainer.fit(model, ours.torch("tensor", "label", "index"), ckpt_path=checkpoint)
        return model.seen

    expected = [batch["index"].tolist() for _ in range(2) for batch in again]
    assert train() == expected
    assert train(tmp_path / "state.ckpt") == expected[3:]


@pytest.mark.filterwarnings("ignore")
def test_accelerate_accepts_the_dataset(loader, again):
    accelerate = pytest.importorskip("accelerate", reason="NO ACCELERATE: make training")
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer, batches = accelerator.prepare(
        network(),
        torch.optim.SGD(network().parameters(), 0.01),
        DataLoader(loader.torch("tensor", "label"), batch_size=None),
    )
    for _ in range(2):
        for (images, labels), batch in zip(batches, again, strict=True):
            accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
            assert np.array_equal(images.numpy(), batch["tensor"])


@pytest.mark.filterwarnings("ignore")
def test_hugging_faces_trainer_trains_and_resumes_a_checkpoint_mid_epoch(tmp_path, again):
    transformers = pytest.importorskip("transformers", reason="NO TRANSFORMERS: make training")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network()
            self.seen = []

        def forward(self, pixel_values, labels, index):
            self.seen += [index.tolist()]
            return {"loss": torch.nn.functional.cross_entropy(self.network(pixel_values), labels)}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            names = "pixel_values", "labels", "index"
            batches = DataLoader(
                self.train_dataset, batch_size=None, collate_fn=lambda batch: dict(zip(names, batch, strict=True))
            )
            return self.accelerator.prepare(batches)

    def train(checkpoint=None):
        model = Model()
        with pp.Loader(samples(), again.pipeline, batch_size=8, shuffle=True, seed=5, threads=1) as ours:
            options = transformers.TrainingArguments(
                tmp_path, num_train_epochs=2, save_steps=7, use_cpu=True, report_to=[], disable_tqdm=True
            )
            trainer = Trainer(model, options, train_dataset=ours.torch("tensor", "label", "index"))
            trainer.train(resume_from_checkpoint=checkpoint)
        return model.seen

    expected = [batch["index"].tolist() for _ in range(2) for batch in again]
    assert train() == expected
    assert train(tmp_path / "checkpoint-7") == expected[7:]


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_batches_equal_torchvision_with_the_same_parameters(kind):
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="NO TORCHVISION: make training")
    options = {"batch_size": 8, "shuffle": True, "seed": 5}
    theirs = {"mixup": v2.MixUp, "cutmix": v2.CutMix}[kind](num_classes=3)
    partly = 0
    with (
        pp.Loader(samples(), TRAINING, **options) as plain,
        pp.Loader(samples(), TRAINING, **options, mix=pp.Mix(3, **{kind: 1.0})) as mixed,
    ):
        for _ in range(60):
            for before, after in zip(plain, mixed, strict=True):
                images, labels = before.torch("tensor", "label")
                drawn = after["mix"][0][kind]
                told = {"labels": labels, "batch_size": 8, "lam": drawn}
                if kind == "cutmix":
                    top, left, bottom, right = drawn
                    told["box"] = left, top, right, bottom
                    told["lam_adjusted"] = told["lam"] = 1.0 - (right - left) * (bottom - top) / 24**2
                expected = [theirs.transform(each, told) for each in (images, labels)]
                assert torch.equal(after.torch("tensor"), expected[0])
                assert torch.equal(after.torch("label"), expected[1])
                partly += not torch.equal(expected[0], images)
    assert partly > 200  # out of 300; the other images have a fraction near 1, or an empty window
