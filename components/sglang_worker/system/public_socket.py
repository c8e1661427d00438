"""Binding the public socket, with errors that name the setting to change."""

from __future__ import annotations

import errno
import socket

from sglang_worker.errors import ConfigError

_BACKLOG = 1024
_REASONS = {
    errno.EADDRINUSE: "is already in use by another process",
    errno.EADDRNOTAVAIL: "is no address of this host",
    errno.EACCES: "needs a privilege that this user does not have",
}


def bind_public(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 lets the system pick. Raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(f"DYN_SYSTEM_HOST {host!r} cannot be resolved: {error}") from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            # One listener for both families, as operators expect of the wildcard.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        reason = _REASONS.get(error.errno or 0, str(error))
        raise ConfigError(
            f"DYN_SYSTEM_HOST:DYN_SYSTEM_PORT {host}:{port} {reason}; choose another "
            "(port 0 picks a free one, -1 turns the listener off)"
        ) from error
    return listening
