"""Recognizes the supervisor's health probes by a secret, which is created at every start of the server.

A model that only receives probes counts as idle. pixprep's metrics do not count probes, but Triton's own statistics
include them.
"""

from __future__ import annotations

import os
from typing import Any

HEADER = "pixprep-probe"
"""HTTP header with the secret. Triton forwards it to the backend as a parameter of the request."""
VARIABLE = "PIXPREP_PROBE"
"""Environment variable that passes the secret from `pixprep serve` to the backend."""


def is_probe(request: Any) -> bool:
    """Return whether a request is a probe. The result is False if no supervisor has set the secret."""
    word = os.environ.get(VARIABLE, "")
    return bool(word) and word in request.parameters()
