"""HTTP connections to public addresses only: a name is resolved once, and what was checked is connected to (B113)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from time import monotonic
from typing import Any, Final

import httpcore
import httpx

Networks = Iterable[IPv4Network | IPv6Network]
Resolve = Callable[[str, int], list[str]]

# IPv6 addresses whose last 32 bits are an IPv4 address
NAT64: Final = ip_network("64:ff9b::/96")
COMPATIBLE: Final = range(2, 1 << 32)
KEEP_CONNECTIONS: Final = 64
KEEP_SECONDS: Final = 15.0
_until = threading.local()


def resolve(host: str, port: int) -> list[str]:
    """Every address of a name, in the system's order of preference."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def is_allowed(text: str, allowed: Networks) -> bool:
    """Whether an address may be connected to: a public one, or one of the allowed networks."""
    given = ip_address(text.partition("%")[0])
    address = _inner(given)
    if any(given in network or address in network for network in allowed):
        return True
    return address.is_global and not address.is_multicast


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64 or int(address) in COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Bound everything that this thread does on guarded connections: a timeout alone starts anew with every byte."""
    _until.when = monotonic() + seconds
    try:
        yield
    finally:
        _until.when = None


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    """The timeout, or what is left until the thread's deadline if that is less."""
    when: float | None = getattr(_until, "when", None)
    if when is None:
        return timeout
    left = when - monotonic()
    if left <= 0:
        raise error("took too long")
    return left if timeout is None else min(timeout, left)


class GuardedStream(httpcore.NetworkStream):
    """A connection whose every wait ends at the deadline of the thread."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return GuardedStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class GuardedBackend(httpcore.SyncBackend):
    """Connects to addresses that were checked, and to no others."""

    def __init__(self, allowed: Networks, resolve: Resolve = resolve) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of the host that answers; raises httpcore.ConnectError if any is not allowed."""
        error: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in self._addresses(host, port):
            try:
                left = _left(timeout, httpcore.ConnectTimeout)
                return GuardedStream(super().connect_tcp(address, port, left, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failed:
                error = failed
        raise error

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.NetworkStream:
        raise httpcore.ConnectError("no sockets of this machine")

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"cannot resolve {host}: {error}") from error
        if not all(is_allowed(address, self._allowed) for address in addresses):
            raise httpcore.ConnectError(f"{host} is not a public address")
        return addresses


class GuardedTransport(httpx.HTTPTransport):
    """The transport of httpx over a pool that connects through the guard."""

    def __init__(self, allowed: Networks, resolve: Resolve = resolve) -> None:
        context = httpx.create_ssl_context(trust_env=False)
        super().__init__(verify=context, trust_env=False)
        self._pool.close()
        # httpx has no public way to give its pool another backend; httpcore, which the pool is of, has
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=KEEP_CONNECTIONS,
            keepalive_expiry=KEEP_SECONDS,
            network_backend=GuardedBackend(allowed, resolve),
        )
