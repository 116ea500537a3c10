"""Names of this machine in ``Host`` and ``Origin``: what tells a website's requests from those of a program.

A website can have the browser send requests to this machine, and can bind its own name to 127.0.0.1. It cannot bind an
address, and it cannot leave out or forge the two headers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")


def is_own(host: str, names: Collection[str] = ("localhost",)) -> bool:
    """Tell whether a host, with or without a port, is an address or one of the names in lower case."""
    found = _HOST.fullmatch(host)
    if not found:
        return False
    name = (found["address"] or found["name"]).lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
    return True


def is_own_origin(origin: str, host: str, names: Collection[str] | None) -> bool:
    """Tell whether an ``Origin`` is a page of the host, or of one of the names; None: of the host only."""
    scheme, _, netloc = origin.partition("://")
    if scheme not in ("http", "https"):
        return False
    return netloc.lower() == host.lower() if names is None else is_own(netloc, names)
