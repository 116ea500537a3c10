"""Resolves host names, claims free TCP ports of this machine, and finds the processes that listen on a port."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from pixprep.errors import SetupError

_TCP_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_UNASSIGNED = range(10_240, 32_768)  # below Linux's default range of ephemeral ports (ip_local_port_range)
_TRIES = 100
_BACKLOG = 4096


def resolve(host: str) -> str:
    """Resolve a host name to an IP address, preferably IPv4. Triton does not accept names such as ``localhost``.

    Raises:
        SetupError: The name cannot be resolved.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SetupError(f"host {host}: {error.strerror}: use 127.0.0.1 or an IP address of this machine") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address."""
    return ipaddress.ip_address(address).is_loopback


def bracketed(host: str) -> str:
    """Return the host in a notation that ``:PORT`` can be appended to. IPv6 addresses are put in brackets."""
    return f"[{host}]" if ":" in host else host


def check_ports(address: str, ports: dict[str, int]) -> dict[str, int]:
    """Check that ports are free, and replace each 0 with a free port.

    All ports are bound at the same time, so that the chosen ports differ. The function releases them before it returns.

    Args:
        address: IP address to listen on.
        ports: Port numbers by name, such as ``http``.

    Raises:
        SetupError: A port is in use, is specified twice, or may not be used by this user.
    """
    for name, port in ports.items():
        if twice := [other for other in ports if other < name and ports[other] == port and port]:
            raise SetupError(f"--{twice[0]}-port and --{name}-port are both {port}: choose different ports, or 0")
    with ExitStack() as stack:
        sockets = {name: stack.enter_context(claim(address, port, name)) for name, port in ports.items()}
        for name, claimed in sockets.items():
            listen(claimed, name)
        return {name: int(claimed.getsockname()[1]) for name, claimed in sockets.items()}


def claim(address: str, port: int, name: str) -> socket.socket:
    """Bind a socket to a port without listening. Client connections are rejected until ``listen`` is called.

    For port 0, a random free port below Linux's ephemeral range is chosen. An ephemeral port could be assigned to an
    outgoing connection before Triton starts.

    Raises:
        SetupError: The port is in use, or may not be used by this user.
    """
    claimed = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for tried in (port,) if port else (*secrets.SystemRandom().sample(_UNASSIGNED, _TRIES), 0):
        try:
            claimed.bind((address, tried))
        except OverflowError:
            claimed.close()
            raise SetupError(f"--{name}-port must be 0 to 65535, not {port}") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE or tried == port:
                claimed.close()
                raise SetupError(_taken(address, name, port, error)) from None
        else:
            break
    return claimed


def listen(claimed: socket.socket, name: str) -> None:
    """Start listening on a socket from ``claim``.

    Raises:
        SetupError: Another process has started to listen on the port in the meantime.
    """
    try:
        claimed.listen(_BACKLOG)
    except OSError as error:
        address, port = claimed.getsockname()[:2]
        raise SetupError(_taken(address, name, port, error)) from None


def _taken(address: str, name: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        names = (f" by {Path(f'/proc/{pid}/comm').read_text().strip()} (process {pid})" for pid in listeners(port))
        return f"port {port} is in use{min(names, default='')}: stop that process, or choose a different --{name}-port"
    if error.errno == errno.EACCES:
        return f"port {port}: {error.strerror}: choose a --{name}-port of 1024 or above"
    return f"host {address}: {error.strerror}: use 127.0.0.1 or an IP address of this machine"


def listeners(port: int) -> set[int]:
    """Return the IDs of the processes that listen on a TCP port, except processes that this user may not inspect."""
    sockets = {f"socket:[{inode}]" for state, _, _, _, inode in _sockets(port) if state == _TCP_LISTEN}
    return {int(process.name) for process in Path("/proc").glob("[0-9]*") if sockets & set(_open_files(process))}


def unsent(*ports: int) -> int:
    """Return the number of bytes that connections of these TCP ports have sent without receiving an acknowledgement."""
    return sum(sent for port in ports for state, _, sent, _, _ in _sockets(port) if state != _TCP_LISTEN)


def unread(*ports: int) -> set[str]:
    """Return the remote addresses of connections of these TCP ports whose received bytes have not all been read."""
    sockets = (each for port in ports for each in _sockets(port))
    return {remote for state, remote, _, received, _ in sockets if received and state != _TCP_LISTEN}


def _sockets(port: int) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield the sockets of a port from ``/proc/net/tcp``: state, remote address, send and receive queue, inode."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():  # the kernel does not support IPv6
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
                continue  # the file was closed in the meantime
    except OSError:
        return  # the process has ended, or belongs to a different user
