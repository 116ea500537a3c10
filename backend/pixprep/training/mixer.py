"""Applies a chain of augmentations to the samples of a Loader.

The partners of a sample are drawn from the whole source. All random parameters are a pure function of the seed, the
epoch, the sample and the attempt, so a chain can be resumed at any sample, and ``Loader.replay`` repeats it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any
from zlib import crc32

import numpy as np

from pixprep.engine.batch import Batch
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError
from pixprep.pipeline.ops import AnnotationOp, Boxes, Decode, Op, Pixels, Points, Target, Tensor
from pixprep.pipeline.ops.limits import MAX_SIDE
from pixprep.pipeline.ops.op import changed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.plan import Plan
from pixprep.plan.steps.operators import OperatorCall
from pixprep.training.cache import PixelCache
from pixprep.training.chain import Chain, Mixture
from pixprep.training.fields import Annotated, run_annotated, without_missing
from pixprep.training.joining import Part, check_fields
from pixprep.training.order import ATTEMPT_BITS, CHAINS, COPY, Indices, Order, generator
from pixprep.training.reading import Reader, Sample

_PATH_BITS = 16
MAX_TRIES = 100
"""Maximum number of times that a partner is drawn until it is not broken."""


@dataclass(frozen=True)
class Request:
    """Request for a sample from a chain.

    Attributes:
        index: Index of the sample in the source.
        attempt: Attempt number of the sample.
        path: 0 for a sample of a batch. For a partner, a hash of the stage, of its number among the partners, and of
            the path of the sample that it is combined with. Each partner therefore has its own random parameters.
    """

    index: int
    attempt: int
    path: int = 0

    @property
    def key(self) -> int:
        """Attempt number, combined with ``path``, with which the random parameters are sampled."""
        return self.attempt | self.path << ATTEMPT_BITS

    def partner(self, number: int, which: int, index: int) -> Request:
        """Return the request for a partner.

        Args:
            number: Number of the stage in the chain.
            which: Number of the partner, from 1.
            index: Index of the partner's sample in the source.
        """
        return Request(index, self.attempt, self._path(number, which))

    def stage_key(self, number: int) -> int:
        """Return the attempt number with which a pipeline of the chain samples its random parameters.

        Ops of different pipelines may have the same key. Different attempt numbers make their random parameters
        independent.

        Args:
            number: Number of the pipeline in the chain.
        """
        return replace(self, path=self._path(number, 0)).key

    def _path(self, *position: int) -> int:
        return crc32(repr((*position, self.path)).encode()) % ((1 << _PATH_BITS) - 1) + 1


@dataclass(frozen=True)
class Item:
    """Sample between two stages of a chain.

    Attributes:
        sample: Sample, whose image is an array, uint8 (height, width, channels), or an error.
        history: Random parameters of the previous stages. A pipeline without random ops does not have an entry.
    """

    sample: Sample
    history: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether the sample could not be read or decoded."""
        return isinstance(self.sample.image, ImageError)


@dataclass(frozen=True, eq=False)
class _Node:
    """Compiled stage of a chain.

    Attributes:
        mixture: Augmentation, or None for a pipeline.
        engine: Engine of a pipeline, or None for an augmentation.
        number: Number of the stage in the chain, from 1.
        partner: Stages that compute the partners; None means the preceding stages.
        kept: Cached inputs of an augmentation with ``recent``, by request.
    """

    mixture: Mixture | None = None
    engine: Engine | None = None
    number: int = 0
    partner: tuple[_Node, ...] | None = None
    kept: OrderedDict[Request, Item] = field(default_factory=OrderedDict)


class Mixer:
    """Applies a chain to the samples of a Loader. Only one thread at a time may use it.

    Args:
        chain: The chain.
        pipeline: Pipeline of the Loader.
        order: Order of the samples.
        engine: Function that creates an engine on the CPU for a pipeline.
        cache: Cache of decoded images, if enabled.

    Attributes:
        pipeline: Pipeline that is applied to the results of the chain. It begins with ``pixels``.
        plan: Plan of the first stage, which specifies the fields of the samples that it reads.

    Raises:
        PipelineError: The chain does not support the pipeline, or a stage is invalid.
    """

    def __init__(
        self,
        chain: Chain,
        pipeline: Pipeline,
        order: Order,
        engine: Callable[[Pipeline], Engine],
        cache: PixelCache | None,
    ) -> None:
        first, *ops = pipeline.ops
        if not isinstance(first, Decode | Pixels):
            raise PipelineError(
                "mix: a chain does not support video clips: use a pipeline that begins with decode or pixels"
            )
        if pipeline.inputs:
            raise PipelineError(
                f"mix: a chain does not support the input {next(iter(pipeline.inputs))} of the pipeline"
            )
        self._first, self._engine, self._order, self._cache = first, engine, order, cache
        self._is_optional = pipeline.side == "serving"
        self._operators, self._epoch, self._until, self._count = pipeline.operators, -1, chain.until, 0
        found = {_kind(op): op for op in pipeline.side_ops if isinstance(op, AnnotationOp)}
        self._annotations = [_plain(op) for op in found.values()]
        pixels = Pixels(color=first.color, name=first.name)
        self.pipeline = Pipeline([pixels, *ops], operators=pipeline.operators).at(pipeline.side)
        self._reader: Reader | None = None
        self._given: dict[Request, Sample] = {}
        self._placed: tuple[int, tuple[Indices, Indices, Indices]] | None = None
        self.broken: list[tuple[Sample, ImageError]] = []
        self._stages, self._then = self._compiled(chain.stages), self._compiled(chain.then)

    def _compiled(self, stages: Sequence[Any]) -> tuple[_Node, ...]:
        """Compile stages. The first compiled stage is always the pipeline that decodes the images."""
        groups: list[Any] = [[]]
        for stage in stages:
            if isinstance(stage, Op | OperatorCall) and isinstance(groups[-1], list):
                groups[-1].append(stage)
            elif isinstance(stage, Op | OperatorCall):
                groups.append([stage])
            elif isinstance(stage, list | tuple):
                groups += [tuple(stage)]
            elif isinstance(stage, Mixture):
                groups.append(stage)
            else:
                raise PipelineError(
                    f"mix: a stage must be an op, a list of ops, Mosaic, MixUp or CopyPaste, not {stage!r}"
                )
        nodes: list[_Node] = []
        for group in groups:
            self._count += 1
            number = self._count
            if isinstance(group, Mixture):
                group.check(nodes[0].engine.plan)  # type: ignore[union-attr]
                partner = getattr(group, "partner", None)
                partner = None if partner is None else self._compiled(partner)
                nodes.append(_Node(group, number=number, partner=partner))
                continue
            begin = self._first if not nodes else Pixels(color=self._first.color)
            tensor = Tensor(layout="hwc", dtype="uint8", max_size=MAX_SIDE, only="training")
            own = {_kind(op) for op in group if isinstance(op, AnnotationOp)}
            ops = [begin, *group, *(op for op in self._annotations if _kind(op) not in own), tensor]
            try:
                made = Pipeline(ops, operators=self._operators).for_training()
            except PipelineError as error:
                raise PipelineError(f"mix: {error}") from None
            nodes.append(_Node(engine=self._engine(made), number=number))
        return tuple(nodes)

    @property
    def plan(self) -> Plan:
        """See the class."""
        assert self._stages[0].engine is not None
        return self._stages[0].engine.plan

    def close(self) -> None:
        """Close the engines."""
        for node in _flat((*self._stages, *self._then)):
            if node.engine is not None:
                node.engine.close()

    def mixed(self, samples: Sequence[Sample], attempts: Sequence[int], epoch: int, reader: Reader) -> list[Item]:
        """Apply the chain to samples.

        Afterwards, ``broken`` contains the broken partners that were replaced, with their errors.

        Args:
            samples: Samples that were read.
            attempts: Attempt number of each sample.
            epoch: Number of the epoch.
            reader: Reader of the partners.
        """
        if epoch != self._epoch:
            for node in _flat((*self._stages, *self._then)):
                node.kept.clear()
        self._epoch, self._reader, self.broken = epoch, reader, []
        requests = [Request(sample.index, attempt) for sample, attempt in zip(samples, attempts, strict=True)]
        self._given = dict(zip(requests, samples, strict=True))
        try:
            stages = self._stages if self._until is None or epoch < self._until else self._then
            items = self._made(stages, requests)
        finally:
            self._given = {}
        return items

    def _made(self, stages: tuple[_Node, ...], requests: Sequence[Request]) -> list[Item]:
        """Return the results of several stages for each request. Without stages, read the samples."""
        if not stages:
            missing = [each for each in dict.fromkeys(requests) if each not in self._given]
            keys = [each.key for each in missing]
            assert self._reader is not None
            read = self._reader.samples([each.index for each in missing], self._epoch, keys) if missing else []
            found = {**self._given, **dict(zip(missing, read, strict=True))}
            return [Item(found[each]) for each in requests]
        *before, node = stages
        if node.mixture is None:
            items = self._made(tuple(before), requests)
            return self._applied(node, requests, items, is_original=not before)
        return self._combined(node, tuple(before), requests)

    def _applied(
        self, node: _Node, requests: Sequence[Request], items: Sequence[Item], *, is_original: bool
    ) -> list[Item]:
        """Apply a pipeline to images."""
        assert node.engine is not None
        batch, places = run_annotated(
            node.engine,
            [item.sample for item in items],
            seed=self._order.seed,
            epoch=self._epoch,
            attempts=[each.stage_key(node.number) for each in requests],
            cache=self._cache if node in (self._stages[0], *self._then[:1]) else None,
            is_original=is_original,
            is_optional=self._is_optional,
        )
        return [self._item(batch, row, items[row], place, node.engine.plan) for row, place in enumerate(places)]

    @staticmethod
    def _item(batch: Batch, row: int, item: Item, place: Annotated, plan: Plan) -> Item:
        """Return the result of a pipeline for one row of its batch."""
        sample, error = item.sample, batch.errors[row]
        if error is not None:
            return Item(replace(sample, image=sample.error(error)))
        rest = {name: value for name, value in sample.fields.items() if name not in plan.moving}
        fields = {**rest, **place.fields}
        for target in without_missing(plan, fields).targets.values():
            fields[target.field] = np.moveaxis(fields[target.field], 0, -1)
        placed = batch.placed[row]
        assert placed is not None
        history = (*item.history, *([{"draws": dict(placed.draws)}] if placed.draws else []))
        return Item(replace(sample, image=batch["tensor"][row], fields=fields, identity=None), history)

    def _combined(self, node: _Node, before: tuple[_Node, ...], requests: Sequence[Request]) -> list[Item]:
        """Apply an augmentation to images."""
        mixture = node.mixture
        assert mixture is not None
        rngs = [
            generator((self._order.seed, self._epoch, each.index, each.key), node.number << 8 | CHAINS)
            for each in requests
        ]
        pools = [self._pool(mixture, each) for each in requests]
        changes = [
            rng.random() < mixture.p and (pool is None or len(pool) >= mixture.min_recent)
            for rng, pool in zip(rngs, pools, strict=True)
        ]
        words = [mixture.draw(rng) for rng in rngs]
        owns = self._inputs(node, before, requests)
        changes = [change and not own.is_broken for change, own in zip(changes, owns, strict=True)]
        partners: list[list[Item | None]] = [[None] * mixture.partners for _ in requests]
        left = [(row, which) for row, change in enumerate(changes) if change for which in range(mixture.partners)]
        for _ in range(MAX_TRIES):
            wanted = [self._partner(node, requests[row], pools[row], rngs[row], which + 1) for row, which in left]
            found = self._made(node.partner, wanted) if node.partner else self._inputs(node, before, wanted)
            for (row, which), item in zip(left, found, strict=True):
                partners[row][which] = item
            self.broken += [
                (each.sample, each.sample.image) for each in found if isinstance(each.sample.image, ImageError)
            ]
            left = [place for place, item in zip(left, found, strict=True) if item.is_broken]
            if not left:
                break
        else:
            raise DataError(f"all {MAX_TRIES} samples that were drawn as the partner of a sample are broken")
        made = []
        for own, others, change, each in zip(owns, partners, changes, words, strict=True):
            made.append(self._joined(node, own, [item for item in others if item is not None] if change else [], each))
        return made

    def _joined(self, node: _Node, own: Item, others: Sequence[Item], words: Mapping[str, Any]) -> Item:
        """Combine an image with its partners, if there are any."""
        if own.is_broken:
            return own
        assert node.mixture is not None
        result = None
        if others:
            parts = [Part(item.sample.image, item.sample.fields) for item in (own, *others)]  # type: ignore[arg-type]
            every = {name for part in parts for name in part.fields}
            plan = without_missing(self.plan, every)
            check_fields(parts, plan)
            result = node.mixture.mixed(words, parts, plan)
        if result is None:
            return replace(own, history=(*own.history, {}))
        of = [{"index": item.sample.index, "mix": [*item.history]} for item in others]
        sample = replace(own.sample, image=result.image, fields=result.fields)
        return Item(sample, (*own.history, {**words, "of": of}))

    def _inputs(self, node: _Node, before: tuple[_Node, ...], requests: Sequence[Request]) -> list[Item]:
        """Return the images that an augmentation receives. With ``recent``, the images of recent samples are cached."""
        assert node.mixture is not None
        if node.mixture.recent is None:
            return self._made(before, requests)
        missing = [each for each in dict.fromkeys(requests) if each not in node.kept]
        node.kept.update(zip(missing, self._made(before, missing), strict=True))
        found = [node.kept[each] for each in requests]
        while len(node.kept) > node.mixture.recent + self._order.batch_size:
            node.kept.popitem(last=False)
        return found

    def _partner(
        self, node: _Node, request: Request, pool: Sequence[Request] | None, rng: np.random.Generator, which: int
    ) -> Request:
        """Draw a partner from the whole source, or from the recent samples."""
        if pool is not None:
            return pool[int(rng.random() * len(pool))]
        return request.partner(node.number, which, int(rng.random() * self._order.samples))

    def _pool(self, mixture: Mixture, request: Request) -> list[Request] | None:
        """Return the recent samples: the sample itself and those before it in the epoch.

        None means that the augmentation does not have ``recent``.
        """
        if mixture.recent is None:
            return None
        order, places, starts = self._places()
        copy = request.attempt // COPY
        begin, end = starts[request.index], starts[request.index + 1]
        if begin + copy >= end:  # a replacement that is not in the order of the epoch
            return []
        world, size, place = self._order.shard[1], self._order.batch_size, int(places[begin + copy])
        lane, own = place // size % world, place // (size * world) * size + place % size
        numbers = np.arange(max(own - mixture.recent + 1, 0), own + 1)
        those = (numbers // size * world + lane) * size + numbers % size
        copies = np.array(
            [np.searchsorted(places[starts[i] : starts[i + 1]], at) for i, at in zip(order[those], those, strict=True)]
        )
        return [Request(int(i), int(c) * COPY) for i, c in zip(order[those], copies, strict=True)]

    def _places(self) -> tuple[Indices, Indices, Indices]:
        """Return the order of the epoch, its positions sorted by sample, and each sample's first index in them."""
        if self._placed is None or self._placed[0] != self._epoch:
            order = self._order.order(self._epoch)
            places = np.argsort(order, kind="stable")
            starts = np.searchsorted(order[places], np.arange(self._order.samples + 1))
            self._placed = self._epoch, (order, places, starts)
        return self._placed[1]


def _kind(op: Op) -> object:
    """Return a value that is equal for two ops if they transform the same field."""
    return op.field if isinstance(op, Target) else type(op)


def _plain(op: Op) -> Op:
    """Convert an annotation op for the stages of a chain. Their results must have the format of samples again."""
    plain: dict[str, Any] = {"name": None, "from_": None, "only": None}
    if isinstance(op, Boxes):
        plain |= {"format": "xyxy", "normalized": False, "pad": None}
    elif isinstance(op, Points):
        plain |= {"normalized": False, "clip": False, "pad": None}
    elif isinstance(op, Target):
        plain["name"] = op.field
        if op.filter == "bilinear" and op.dtype == "float32":
            plain["ignore"] = nan  # interpolation between a value and NaN is NaN, which becomes ``ignore`` at the end
    return changed(op, **plain)


def _flat(nodes: Sequence[_Node]) -> Iterator[_Node]:
    """Yield all stages, including those of partners."""
    for node in nodes:
        yield node
        yield from _flat(node.partner or ())
