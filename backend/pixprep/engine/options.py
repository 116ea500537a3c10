"""Options of an engine, which the Loader, a Triton model, the page and the preview pass to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pixprep.engine.decoders import CODECS, DAMAGES, Codec, Damage, Limits
from pixprep.errors import PipelineError


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Validated options of an engine. ``Engine`` documents them, and accepts them as ``**vars(options)``.

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
            raise PipelineError('decoder "fastest" was removed: leave decoder out, or write "consistent"')
        for name, value, choices in (("damage", self.damage, DAMAGES), ("decoder", self.decoder, CODECS)):
            if value is not None and value not in choices:
                raise PipelineError(f"{name} is one of {', '.join(choices)}, not {value!r}")
        if self.threads is not None and not (isinstance(self.threads, int) and self.threads >= 1):
            raise PipelineError(f"threads is an integer of at least 1, not {self.threads!r}")
        if not isinstance(self.limits, Limits):
            such = "a pixprep.Limits, such as Limits(max_pixels=100_000_000)"
            raise PipelineError(f"limits is {such}, not {self.limits!r}")


USUAL = EngineOptions()
