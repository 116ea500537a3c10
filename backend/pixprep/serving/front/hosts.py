"""Checks the ``Host`` and ``Origin`` headers, in order to distinguish requests of websites from requests of programs.

A website can make a browser send requests to this machine, and can let its own name resolve to 127.0.0.1 (DNS
rebinding). It can neither omit nor forge the two headers. With DNS rebinding, ``Host`` is the name of the website and
not an IP address.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")


def is_own(host: str, names: Collection[str] = ("localhost",)) -> bool:
    """Return whether a ``Host`` header contains an IP address or one of the accepted names.

    Args:
        host: Value of the header, with or without a port.
        names: Accepted names in lower case.
    """
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
    """Return whether an ``Origin`` is the host itself, a loopback address, or one of the accepted names.

    Other IP addresses are not accepted, although ``is_own`` accepts them in ``Host``, because a browser can also open a
    foreign website by its IP address.

    Args:
        origin: Value of the ``Origin`` header.
        host: Value of the ``Host`` header.
        names: Accepted names in lower case. None means that only the host is accepted.
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
        return True  # not an IP address, so it is one of the names
