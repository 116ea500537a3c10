"""Options of an engine, which the Loader, the Triton model, the web page and the preview also accept."""

from __future__ import annotations

from dataclasses import dataclass, field

from pixprep.engine.decoders import CODECS, DAMAGES, Codec, Damage, Limits
from pixprep.errors import PipelineError


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Validated options of an ``Engine``, which documents them. Pass them as ``Engine(pipeline, **vars(options))``.

    Raises:
        PipelineError: The value of an option is invalid.
    """

    device: str = "cpu"
    threads: int | None = None
    limits: Limits = field(default_factory=Limits)
    damage: Damage | None = None
    decoder: Codec = "consistent"
    odd_range: bool = False

    def __post_init__(self) -> None:
        if str(self.decoder) == "fastest":
            raise PipelineError('decoder "fastest" was removed: use "consistent", which is the default')
        for name, value, choices in (("damage", self.damage, DAMAGES), ("decoder", self.decoder, CODECS)):
            if value is not None and value not in choices:
                raise PipelineError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        if self.threads is not None and not (isinstance(self.threads, int) and self.threads >= 1):
            raise PipelineError(f"threads must be an integer of at least 1, not {self.threads!r}")
        if not isinstance(self.limits, Limits):
            example = "Limits(max_pixels=100_000_000)"
            raise PipelineError(f"limits must be a pixprep.Limits, such as {example}, not {self.limits!r}")


USUAL = EngineOptions()
