"""The Loader builds training batches from a source of samples and a pipeline.

Modules, in the order in which a batch passes through them:

order      selects the samples of a batch     a function of the seed and the epoch
reading    samples -> encoded bytes           in threads, two batches ahead
making     encoded bytes -> tensors           runs the engine and replaces broken samples
prefetch   queues finished batches            at most ``prefetch`` batches
caller     ``for batch in loader``
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Codec, Damage, Limits
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError, SetupError
from pixprep.names import LOADER, explained
from pixprep.pipeline.pipeline import Pipeline, not_a_pipeline
from pixprep.training.cache import pixel_cache
from pixprep.training.chain import Chain, Mixture
from pixprep.training.epoch import HERE, Epoch, EpochSequence
from pixprep.training.frameworks import Tuples, library
from pixprep.training.making import Broken, Maker, OnError, checked_on_error, error_limit
from pixprep.training.mixer import Mixer
from pixprep.training.mixing import Mix
from pixprep.training.order import Last, Order, Shuffle, shard_of
from pixprep.training.recycling import Recycler
from pixprep.training.sources import AnySource
from pixprep.training.sources.joined import check_source, fingerprint, groups_of, weights_of
from pixprep.training.sources.rows import check_in_order
from pixprep.training.timeline import Stats

log = logging.getLogger(__name__)

EXAMPLES = 100
"""Maximum number of samples that ``example`` tries until it finds one that is not broken."""


class Loader:
    """Iterate over training batches. Each ``for`` loop is one epoch.

    >>> loader = Loader(pp.read.files("train/"), pipeline, batch_size=64, shuffle=True)      # doctest: +SKIP
    >>> for epoch in range(90):                                                              # doctest: +SKIP
    ...     for batch in loader:
    ...         images, labels = batch.torch("tensor", "label", device="cuda")

    A batch contains the outputs of the pipeline and the fields of the samples. Numeric fields are collated into an
    array, all other fields into a list. The Loader adds four fields:

    - ``index`` (int64): index of each sample in the source. For a ``pixprep.read.subset``, it is the position in the
      subset, so ``indices[index]`` is the position in the complete source.
    - ``attempt`` (int64): attempt number of each sample: 0, or n if the sample is the n-th replacement of a broken one.
      If a sample occurs several times per epoch, the attempts of its k-th repetition start at k * 128.
    - ``is_padding`` (bool): whether the sample only fills up the last batch.
    - ``frames`` (int64, clips x frames): indices of the frames of each clip in its video; only for clips.

    The samples of a batch and their random parameters depend only on ``seed`` and the epoch, not on the number of
    threads, the device, or previous reads. If you break out of an epoch, its memory is freed, and the next ``for`` loop
    starts the next epoch. After a complete epoch, the memory is reused for the next one, until ``close``.

    A Loader must be used by one thread at a time, in the process that created it.

    Args:
        source: Samples to read: a source from ``pixprep.read``, or any object with ``len()`` and indexing that returns
            dicts, such as a list of dicts. The key ``image`` contains the encoded bytes or a ``pathlib.Path``. Several
            threads read the source concurrently.
        pipeline: The pipeline that is applied to each image: ``pipeline.for_training()`` or ``.for_serving()``.
        batch_size: Number of samples per batch in this shard.
        shuffle: True, False, or ``"blocks"``, which shuffles blocks of neighbouring samples, for disks with slow seeks.
        seed: Seed of the order and of all random parameters, 0 to 2**32 - 1.
        shard: Rank of this process and number of processes: (rank, world). All shards have the same number of batches.
            Default: a single shard with all samples. If WORLD_SIZE shows that there are several processes, ``shard``
            is required.
        weights: Sampling weight of each sample, as an array, or ``"balanced"`` to sample all classes with equal
            probability. Samples are drawn with replacement. Default: each sample occurs once per epoch.
        shares: Relative number of an epoch's samples that comes from each source of a ``pixprep.read.concat``, such as
            (0.75, 0.25) or (3, 1). No sample of a source is repeated until all of that source's samples have been used.
        repeats: Number of times that each sample occurs per epoch, each time with different random parameters (repeated
            augmentation). The copies of a sample are distributed over the shards. The length of an epoch does not
            change, so it contains fewer distinct samples.
        epoch_samples: Number of samples per epoch. The next epoch continues after them. Default: the length of the
            source.
        group_by: Group of each sample, as integers. All samples of a batch, on all shards, belong to the same group,
            and ``last`` applies to each group. ``"aspect"`` makes two groups: images that are at least as wide as high,
            and all others. Image sizes that the source does not provide are read once from the file headers. Default:
            a single group.
        last: Treatment of the remaining samples that do not fill a batch: ``drop``, ``short`` (a smaller batch), or
            ``pad`` (filled up with other samples; see ``is_padding``). Default: ``drop`` with ``shuffle``, which drops
            different samples in each epoch; without ``shuffle``, ``short`` on one shard and ``pad`` on several.
        on_error: Treatment of broken samples. ``raise`` raises an ImageError. ``replace`` uses a different sample,
            which is the same one after resuming. ``skip`` returns a smaller batch, in which the other samples keep
            their order. ``replace`` and ``skip`` log a warning, and ``errors`` lists the broken samples.
        max_errors: Maximum number of broken samples per epoch, as an integer or as a fraction (float) of this shard's
            samples. If more are broken, a DataError is raised.
        device: Device of the engine and of the outputs: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``. ``"cuda:1"`` means
            ``"gpu:1"``.
        threads: Number of threads that decode and resize. Default: the number of cores available to this process.
        prefetch: Number of batches that are prepared ahead.
        cache: ``"pixels"`` keeps decoded images in memory for later epochs; only on the CPU. Default: no cache.
        cache_bytes: Maximum size of the cache in bytes.
        mix: A ``Chain`` of augmentations that combine several samples, or a list of its stages, such as
            ``[pp.resize(640), pp.Mosaic(height=640)]``; or a ``Mix``, which mixes the images of a batch, and which
            ``replay`` does not apply.
        epoch: Number of the first epoch, from 0. Set it if you create a new Loader for each epoch.
        limits: Limits on the size of images; see ``Engine``.
        damage: Policy for damaged JPEGs; see ``Engine``.
        decoder: Decoder on a GPU; see ``Engine``.
        odd_range: Whether an unusual range of tensor values is intended; see ``Engine``.
        progress: Whether to show a progress bar for each epoch, on a terminal or in a notebook.

    Attributes:
        source: Source of the samples.
        pipeline: Pipeline that is applied to each image.
        order: Order of the samples, which determines the samples of each batch.

    Raises:
        PipelineError: An argument is unknown or has an invalid value.
        DataError: The source is empty, or does not support ``len()`` or indexing.
        SetupError: The device is not available.
    """

    @explained(LOADER, "arguments after the pipeline are keyword-only: write batch_size=64, for example")
    def __init__(
        self,
        source: AnySource,
        pipeline: Pipeline,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        weights: npt.ArrayLike | Literal["balanced"] | None = None,
        shares: Sequence[float] | None = None,
        repeats: int = 1,
        epoch_samples: int | None = None,
        group_by: npt.ArrayLike | Literal["aspect"] | None = None,
        last: Last | None = None,
        on_error: OnError = "raise",
        max_errors: float = 0.01,
        device: str = "cpu",
        threads: int | None = None,
        prefetch: int = 2,
        cache: Literal["pixels"] | None = None,
        cache_bytes: int = 4 << 30,
        mix: Mix | Chain | Mixture | Sequence[Any] | None = None,
        epoch: int = 0,
        limits: Limits | None = None,
        damage: Damage | None = None,
        decoder: Codec = "consistent",
        odd_range: bool = False,
        progress: bool = False,
    ) -> None:
        if isinstance(source, Pipeline):
            raise DataError("source must be a source of samples, not a Pipeline: pass the source first")
        if not isinstance(pipeline, Pipeline):
            raise PipelineError(f"pipeline must be a Pipeline, {not_a_pipeline(pipeline)}")
        check_source(source)
        check_in_order(
            source,
            shuffle=shuffle,
            weights=weights,
            shares=shares,
            repeats=repeats,
            group_by=group_by,
            on_error=on_error,
        )
        if not isinstance(prefetch, int) or prefetch < 1:
            raise PipelineError(f"prefetch must be an integer of at least 1, not {prefetch!r}")
        device = re.sub("^cuda(?=:|$)", "gpu", str(device))  # ``device`` may be a ``torch.device``
        self.source = source
        self.pipeline = pipeline
        self.order = Order(
            samples=len(source),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            shard=shard_of(shard),
            last=last,
            weights=weights_of(source, weights),
            blocks=getattr(source, "blocks", None),
            parts_of=tuple(map(len, getattr(source, "sources", ()))),
            shares=None if shares is None else tuple(map(float, shares)),
            repeats=repeats,
            epoch_samples=epoch_samples,
            groups=groups_of(
                source, group_by, is_upright=isinstance(group_by, str) and pipeline.plan.apply_exif_orientation
            ),
        )
        pixels = pixel_cache(cache, cache_bytes, device, pipeline)
        engine = partial(Engine, threads=threads, limits=limits, damage=damage)
        mixer = None
        if mix is not None and pipeline.plan.alpha == "keep":
            raise PipelineError('mix does not support "alpha": "keep" of decode: remove one of them')
        if isinstance(mix, Chain | Mixture | list | tuple):
            chain = mix if isinstance(mix, Chain) else Chain([mix] if isinstance(mix, Mixture) else mix)
            check_in_order(source, mix=chain)
            mixer = Mixer(chain, pipeline, self.order, partial(engine, device="cpu"), pixels)
            mix = None
        elif mix is not None:
            if not isinstance(mix, Mix):
                raise PipelineError(f"mix must be a Mix, a Chain or a list of stages, not {mix!r}")
            mix.check(pipeline, self.order)
        self._prefetch = prefetch
        self._maker = Maker(
            source=source,
            order=self.order,
            on_error=checked_on_error(on_error, self.order.shard[1]),
            max_errors=error_limit(max_errors, self.order),
            # Memory for the prefetched batches, for the consumer's current and previous batch, and for a batch that is
            # being copied to a GPU.
            recycler=Recycler(prefetch + 3) if device == "cpu" else None,
            cache=pixels,
            mix=mix,
            mixer=mixer,
            engine=engine(
                pipeline if mixer is None else mixer.pipeline,
                device=device,
                decoder=decoder,
                odd_range=odd_range,
            ),
        )
        what = "applies a chain" if mixer is not None else "shuffles" if shuffle else ""
        if what and pipeline.side == "serving" and pipeline.left_out:
            use = "use pipeline.for_training() to apply the training ops"
            log.warning("the Loader %s, but %s: %s", what, pipeline.left_out, use)
        self._is_closed = False
        self._epochs = EpochSequence(self.order, self._maker, epoch=checked_epoch(epoch), with_bar=progress)
        self._epoch: Epoch | None = None

    def __repr__(self) -> str:
        order, source = self.order, type(self.source).__name__
        what = f"shuffle={order.shuffle!r}, seed={order.seed}, shard={order.shard}, epoch={self.epoch}"
        return f"<Loader: {len(self):,} batches of {order.batch_size}, {order.samples:,} samples of {source}, {what}>"

    def __len__(self) -> int:
        """Return the number of batches of a complete epoch."""
        return self.order.batches()

    def __iter__(self) -> Epoch:
        """Start the next epoch, or continue at a loaded state."""
        self._check_open()
        return self._epochs.begin(self._prefetch)

    def __next__(self) -> Batch:
        """Return the next batch, starting a new epoch if none is active."""
        if self._epoch is None or self._epoch.is_closed:
            self._epoch = iter(self)
        return next(self._epoch)

    def __getitem__(self, index: object) -> Batch:
        raise TypeError(
            f"a Loader cannot be indexed: source[{index}] returns a sample, and loader.replay(epoch, {index}) returns "
            "its tensors"
        )

    def __enter__(self) -> Loader:  # noqa: PYI034  (typing.Self requires Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads and free the memory. The Loader cannot be used afterwards."""
        self._epochs.end()
        self._is_closed = True
        self._maker.free_memory()
        self._maker.engine.close()
        if self._maker.mixer is not None:
            self._maker.mixer.close()

    @property
    def epoch(self) -> int:
        """Number of the current epoch, or of the next one between two epochs."""
        return self._epochs.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch.

        If a loaded state is in the middle of this epoch, the epoch continues from there.

        Args:
            epoch: Number of the epoch, 0 to 2**32 - 1.

        Raises:
            PipelineError: The number is out of range.
        """
        self._epochs.select(checked_epoch(epoch))

    @property
    def errors(self) -> list[Broken]:
        """Broken samples that were replaced or skipped, each listed once, in the order in which they were found."""
        return list(self._maker.broken.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training after the last returned batch, as a dict that JSON can represent.

        Prefetched batches do not count as returned. After the last batch of an epoch, the position is the start of the
        next epoch. The state is the same on all shards, and can be loaded with a different number of shards.
        """
        epoch, position = self._epochs.next_position
        return {
            "version": STATE_VERSION,
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
            "epoch": epoch,
            "position": position,
            "samples": self.order.samples,
            "source": fingerprint(self.source),
            "sampler": self.order.sampler,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state: the next ``for`` loop returns the rest of that epoch, and reads only its samples.

        The number of shards and ``batch_size`` may differ from those of the state: the rest of the epoch is distributed
        again.

        Args:
            state: Result of ``state_dict``.

        Raises:
            DataError: The state belongs to different samples.
            PipelineError: The state was saved with a different ``seed``, ``shuffle`` or sampler, or is invalid.
        """
        epoch, position = checked_state(state, self.state_dict(), self.order.length)
        self._epochs.end()
        self._epochs.go_to(epoch, position)

    def replay(self, epoch: int, index: int, attempt: int = 0) -> Batch:
        """Return one sample exactly as it was in an epoch, in a batch of one.

        Args:
            epoch: Number of the epoch: the value of ``Loader.epoch`` at that time.
            index: Index of the sample, from ``batch["index"]``.
            attempt: Attempt number of the sample, from ``batch["attempt"]``.

        Raises:
            ImageError: The sample is broken.
            IndexError: The source has no sample with this index.
        """
        self._check_open()
        if not 0 <= index < self.order.samples:
            raise IndexError(f"index must be from 0 to {self.order.samples - 1:,}, not {index:,}")
        return self._maker.one(epoch, index, attempt)

    def example(self) -> Batch:
        """Return a batch that contains only the first valid sample, to inspect outputs and fields.

        Raises:
            ImageError: All of the first 100 samples are broken.
        """
        self._check_open()
        for index in range(min(EXAMPLES, self.order.samples)):
            try:
                one = self._maker.one(0, index, 0)
                break
            except ImageError as error:
                broken = error
        else:
            raise broken
        return one if self._maker.mix is None else self._maker.mixed(one, (0, 0, 0, 0))

    def tuples(self, *names: str) -> Tuples:
        """Return the batches as tuples: ``for images, labels in loader.tuples("tensor", "label")``.

        Args:
            names: Names of at least one output or field. Each element of a tuple is a NumPy array or a list.
        """
        if not names:
            raise PipelineError('tuples: pass the names of outputs and fields, such as tuples("tensor", "label")')
        return Tuples(self, names)

    def torch(
        self, *names: str, padded: bool = False, device: Any = None, non_blocking: bool = False, dtype: Any = None
    ) -> Any:
        """Return the batches as a PyTorch ``IterableDataset`` of tensors, for Lightning, accelerate and other trainers.

        The dataset supports ``state_dict``, ``load_state_dict`` and ``len``. PyTorch's DataLoader accepts it with
        ``batch_size=None`` and ``num_workers=0``.

        Args:
            names: Names of outputs and fields. Default: all of them, as a dict.
            padded: Whether a list of arrays is padded and stacked into a single tensor; see ``Batch.padded``.
            device: PyTorch device. Default: the device of the outputs.
            non_blocking: Whether copies to the device are asynchronous; see ``Batch.torch``.
            dtype: Data type to which floating-point tensors are converted; see ``Batch.torch``.

        Raises:
            SetupError: PyTorch is not installed.
        """
        return library("torch").Dataset(
            self, names, padded=padded, device=device, non_blocking=non_blocking, dtype=dtype
        )

    def tf(self, *names: str, padded: bool = False) -> Any:
        """Return the batches as a ``tf.data.Dataset``. Each iteration is one epoch.

        The element spec is determined from one sample. The dataset supports ``len``, except with ``on_error="skip"``
        and in the middle of a resumed epoch.

        Args:
            names: Names of outputs and fields. Default: all of them, as a dict. A list of arrays becomes a
                ``tf.RaggedTensor``.
            padded: Whether a list of arrays is instead padded and stacked into a single tensor; see ``Batch.padded``.

        Raises:
            DataError: A field cannot be represented as a tensor.
            SetupError: TensorFlow is not installed.
        """
        return library("tensorflow").dataset(self, names, is_counted=self._maker.on_error != "skip", is_padded=padded)

    def keras(self, *names: str) -> Any:
        """Return the batches as a ``keras.utils.PyDataset``: ``model.fit(loader.keras("tensor", "label"), epochs=3)``.

        A list of arrays is padded and stacked into a single array; see ``Batch.padded``.

        Args:
            names: Names of outputs and fields. Default: all of them, as a dict.

        Raises:
            SetupError: Keras is not installed.
        """
        return library("keras").Dataset(self, names)

    def stats(self) -> Stats:
        """Return how long the training loop and the Loader have waited for each other. ``print`` shows a summary."""
        return self._epochs.stats()

    def trace(self, path: str | Path) -> None:
        """Write a trace of the recent work of all threads, which can be opened in https://ui.perfetto.dev.

        Args:
            path: JSON file to write.
        """
        self._maker.timeline.save(path)

    def _check_open(self) -> None:
        self._epochs.check_process()
        if self._is_closed:
            raise SetupError("this Loader is closed: create a new one")

    def __reduce__(self) -> Any:
        raise SetupError(f"a Loader cannot be pickled or sent to another process: {HERE}")


STATE_VERSION = 1
MAX_EPOCHS = (1 << 32) - 1


def checked_state(state: Mapping[str, Any], now: Mapping[str, Any], length: int) -> tuple[int, int]:
    """Return the epoch and the position of a valid state.

    Args:
        state: Result of ``Loader.state_dict``, possibly from a different shard.
        now: Current state of the Loader that loads it.
        length: Number of samples per epoch.

    Raises:
        DataError: The state belongs to different samples.
        PipelineError: The state was saved with a different ``seed``, ``shuffle`` or sampler, or is invalid.
    """
    if isinstance(state, Mapping):
        state = {"sampler": None, **state}  # states of older versions lack this field
    if not isinstance(state, Mapping) or set(state) != set(now) or state["version"] != STATE_VERSION:
        raise PipelineError(f"state must be a result of Loader.state_dict, not {state!r}")
    for name in ("seed", "shuffle"):
        if state[name] != now[name]:
            raise PipelineError(
                f"the state was saved with {name}={state[name]!r}, but this Loader has {name}={now[name]!r}: the rest "
                f"of the epoch would contain different samples; use the same {name}"
            )
    epoch = _number(state, "epoch", MAX_EPOCHS)
    _number(state, "samples", (1 << 63) - 1)
    if (state["samples"], state["source"]) != (now["samples"], now["source"]):
        raise DataError(
            f"the state belongs to a different source: it has {state['samples']:,} samples (fingerprint "
            f"{state['source']}), but this Loader's source has {now['samples']:,} (fingerprint {now['source']})"
        )
    if state["sampler"] != now["sampler"]:
        raise PipelineError(
            "the state was saved with different weights, shares, repeats, epoch_samples or group_by, or with group_by "
            "and a different global batch size (batch_size times shards): the rest of the epoch would contain other "
            "samples; use the same arguments"
        )
    return epoch, _number(state, "position", length)


def checked_epoch(epoch: int) -> int:
    """Return the number of an epoch as an int.

    Raises:
        PipelineError: It is not an integer in the valid range.
    """
    if isinstance(epoch, bool) or not isinstance(epoch, Integral) or not 0 <= int(epoch) <= MAX_EPOCHS:
        raise PipelineError(f"epoch must be an integer from 0 to {MAX_EPOCHS:,}, not {epoch!r}")
    return int(epoch)


def _number(state: Mapping[str, Any], name: str, maximum: int) -> int:
    if not isinstance(state[name], Integral) or not 0 <= int(state[name]) <= maximum:
        raise PipelineError(
            f'the state is damaged: "{name}" must be an integer from 0 to {maximum:,}, not {state[name]!r}'
        )
    return int(state[name])
