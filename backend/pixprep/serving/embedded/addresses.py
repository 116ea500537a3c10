"""Addresses and ports of this machine: which are free, and who listens."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from pixprep.errors import SetupError

_LISTENS = "0A"  # a socket's state
_NOBODYS = range(10_240, 32_768)  # above are the ports of outgoing connections (ip_local_port_range)
_TRIES = 100
_BACKLOG = 4096


def resolve(host: str) -> str:
    """The address of a name: Triton accepts only addresses, and would not listen at all on ``localhost``."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SetupError(f"host {host}: {error.strerror}: use 127.0.0.1, or an address of this machine") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])  # IPv4 is preferred


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address."""
    return ipaddress.ip_address(address).is_loopback


def bracketed(host: str) -> str:
    """Format a host for use before a port."""
    return f"[{host}]" if ":" in host else host


def check_ports(address: str, ports: dict[str, int]) -> dict[str, int]:
    """The ports, if they are free; 0 becomes any free port. All are held until the last is found, so that they differ.

    Raises:
        SetupError: A port is in use, or cannot be listened on.
    """
    claimed: dict[str, int] = {}
    for name, port in ports.items():
        if twice := [other for other in ports if other < name and ports[other] == port and port]:
            raise SetupError(f"--{twice[0]}-port and --{name}-port are both {port}: choose two, or 0 for any free one")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as stack:
        for name, port in ports.items():
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                _bind(probe, address, port)
                probe.listen()
            except OverflowError:
                raise SetupError(f"--{name}-port {port}: ports go from 0 to 65535") from None
            except OSError as error:
                raise SetupError(_taken(address, name, port, error)) from None
            claimed[name] = int(probe.getsockname()[1])
    return claimed


def claim(address: str, port: int, name: str) -> socket.socket:
    """A socket that is bound to a port but does not listen yet; client connections are rejected until it does.

    Raises:
        SetupError: The port cannot be bound.
    """
    claimed = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        claimed.bind((address, port))
    except OSError as error:
        claimed.close()
        raise SetupError(_taken(address, name, port, error)) from None
    return claimed


def listen(claimed: socket.socket, name: str) -> None:
    """Listen on a port that ``claim`` has bound.

    Raises:
        SetupError: Somebody else has listened there since.
    """
    try:
        claimed.listen(_BACKLOG)
    except OSError as error:
        address, port = claimed.getsockname()[:2]
        raise SetupError(_taken(address, name, port, error)) from None


def _bind(probe: socket.socket, address: str, port: int) -> None:
    """Bind to a port; 0 chooses one outside of Linux's ephemeral range, so that it is still free when Triton starts."""
    for _ in range(0 if port else _TRIES):
        try:
            return probe.bind((address, secrets.choice(_NOBODYS)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return probe.bind((address, port))


def _taken(address: str, name: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        names = (f" by {Path(f'/proc/{pid}/comm').read_text().strip()} (process {pid})" for pid in listeners(port))
        return (
            f"port {port} is in use{min(names, default='')}: stop what listens there, or choose another --{name}-port"
        )
    if error.errno == errno.EACCES:
        return f"port {port}: {error.strerror}: choose a --{name}-port from 1024 up"
    return f"host {address}: {error.strerror}: use 127.0.0.1, or an address of this machine"


def listeners(port: int) -> set[int]:
    """The processes that listen on a TCP port of this machine, as far as this user may see."""
    sockets = {f"socket:[{inode}]" for state, _, _, _, inode in _sockets(port) if state == _LISTENS}
    return {int(process.name) for process in Path("/proc").glob("[0-9]*") if sockets & set(_open_files(process))}


def unsent(*ports: int) -> int:
    """Bytes written to the connections of TCP ports of this machine, but not yet received by the other side."""
    return sum(sent for port in ports for state, _, sent, _, _ in _sockets(port) if state != _LISTENS)


def unread(*ports: int) -> set[str]:
    """Connections of TCP ports of this machine with received but unread bytes, named by their other ends."""
    sockets = (each for port in ports for each in _sockets(port))
    return {remote for state, remote, _, received, _ in sockets if received and state != _LISTENS}


def _sockets(port: int) -> Iterator[tuple[str, str, int, int, str]]:
    """State, other end, bytes sent and received that wait, and inode of each socket of a port: proc(5), ``net/tcp``."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():  # a kernel without IPv6
            continue
        for line in table.read_text().splitlines()[1:]:
            _, local, remote, state, queues, _, _, _, _, inode = line.split()[:10]
            if int(local.rpartition(":")[2], 16) == port:
                sent, _, received = queues.partition(":")
                yield state, remote, int(sent, 16), int(received, 16), inode


def _open_files(process: Path) -> Iterator[str]:
    try:
        for entry in (process / "fd").iterdir():
            try:
                yield str(entry.readlink())
            except OSError:
                continue  # closed since
    except OSError:
        return  # ended since, or another user's
