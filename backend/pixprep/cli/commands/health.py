"""The command ``pixprep health``."""

from __future__ import annotations

from pixprep.serving.options import HealthOptions

EXAMPLE = "health --model ensemble --timeout 2"


def run(request: HealthOptions) -> int:
    """Send one image through a model; exit code 0 if it responds in time. For Kubernetes and load balancers."""
    from pixprep.cli.output import say
    from pixprep.serving.embedded import client

    say(f"ok  {request.model}  {client.health(**vars(request)):.1f} ms")
    return 0
