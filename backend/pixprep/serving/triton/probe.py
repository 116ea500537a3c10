"""Probes of the supervisor, which a secret that is new at every start distinguishes from clients' requests.

A probe is no work: it keeps no model from being idle, and is no image in the metrics. Triton's own statistics count it.
"""

from __future__ import annotations

import os
from typing import Any

HEADER = "pixprep-probe"
"""The HTTP header that holds the word; Triton hands it over as a parameter of the request."""
VARIABLE = "PIXPREP_PROBE"
"""Environment variable by which `pixprep serve` tells the backend the word."""


def is_probe(request: Any) -> bool:
    """Tell whether a request of Triton's is a probe; false where no supervisor has given a word."""
    word = os.environ.get(VARIABLE, "")
    return bool(word) and word in request.parameters()
