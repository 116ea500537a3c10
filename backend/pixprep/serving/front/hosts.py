"""Names of this machine in ``Host`` and ``Origin``, which distinguish requests of websites from those of programs.

A website can have the browser send requests to this machine, and can bind its own name to 127.0.0.1. It cannot bind an
address, and it cannot leave out or forge the two headers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")


def is_own(host: str, names: Collection[str] = ("localhost",)) -> bool:
    """Return whether a host, with or without a port, is an address or one of the names in lower case."""
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
    """Return whether an ``Origin`` is a page of the host, a loopback address of this machine, or one of the names.

    Any website may be opened by its address, so an address in ``Origin`` is not trusted as one in ``Host`` is.

    Args:
        origin: Value of the header.
        host: Value of ``Host``.
        names: Names of this machine in lower case; None: only the host is allowed.
    """
    scheme, _, netloc = origin.partition("://")
    if scheme not in ("http", "https"):
        return False
    if netloc.lower() == host.lower() or names is None or not is_own(netloc, names):
        return netloc.lower() == host.lower()
    found = _HOST.fullmatch(netloc)
    assert found
    try:
        return ipaddress.ip_address(found["address"] or found["name"]).is_loopback
    except ValueError:
        return True  # one of the names
