"""Probes of the supervisor, which a secret that is new at every start distinguishes from clients' requests.

A probe does not count as work: a model with probes alone is still idle, and its metrics do not count them as images.
    Triton's own statistics count them.
"""

from __future__ import annotations

import os
from typing import Any

HEADER = "pixprep-probe"
"""The HTTP header that contains the secret; Triton passes it on as a parameter of the request."""
VARIABLE = "PIXPREP_PROBE"
"""Environment variable that passes the secret from `pixprep serve` to the backend."""


def is_probe(request: Any) -> bool:
    """Return whether a request from Triton is a probe; False if no supervisor has set a secret."""
    word = os.environ.get(VARIABLE, "")
    return bool(word) and word in request.parameters()
