"""The command ``pixprep health``."""

from __future__ import annotations

from pixprep.serving.options import HealthOptions

EXAMPLE = "health --model ensemble --timeout 2"


def run(request: HealthOptions) -> int:
    """Send one image to a model. The exit code is 0 if it responds in time, as Kubernetes probes require."""
    from pixprep.cli.output import say
    from pixprep.serving.embedded import client

    say(f"ok  {request.model}  {client.health(**vars(request)):.1f} ms")
    return 0
