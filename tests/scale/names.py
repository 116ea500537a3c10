"""DNS server that resolves one name to several addresses, as Kubernetes does for a headless Service."""

import socket
import struct
import threading

_A, _IN, _TTL_S = 1, 1, 1


class Names:
    """DNS server that runs until it is closed.

    Attributes:
        hosts: Addresses that are returned for every name. Changes apply to later queries.
        address: HOST:PORT of the DNS server.
    """

    def __init__(self, hosts):
        self.hosts = list(hosts)
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        while len(asked := self._socket.recvfrom(512)) and asked[0]:
            message, client = asked
            self._socket.sendto(self._answer(message), client)

    def _answer(self, message):
        """Return the response to a query: its id, flags, counts and question. For A queries, each address follows, with
        a pointer to the name.
        """
        end = message.index(b"\0", 12) + 5
        (kind,) = struct.unpack(">H", message[end - 4 : end - 2])
        hosts = self.hosts if kind == _A else []
        head = message[:2] + struct.pack(">5H", 0x8580, 1, len(hosts), 0, 0)
        records = (struct.pack(">3HIH", 0xC00C, _A, _IN, _TTL_S, 4) + socket.inet_aton(host) for host in hosts)
        return head + message[12:end] + b"".join(records)

    def close(self):
        host, port = self.address.split(":")
        self._socket.sendto(b"", (host, int(port)))
        self._thread.join()
        self._socket.close()
