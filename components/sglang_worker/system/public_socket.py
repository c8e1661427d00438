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
        bound = bind_reserved(host, port)
    except socket.gaierror as error:
        raise ConfigError(f"DYN_SYSTEM_HOST {host!r} cannot be resolved: {error}") from error
    except OSError as error:
        raise _unusable(host, port, error) from error
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise _unusable(host, port, error) from error
    return bound


def bind_reserved(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            # One listener for both families, as operators expect of the wildcard.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _unusable(host: str, port: int, error: OSError) -> ConfigError:
    reason = _REASONS.get(error.errno or 0, str(error))
    return ConfigError(
        f"DYN_SYSTEM_HOST:DYN_SYSTEM_PORT {host}:{port} {reason}; choose another "
        "(port 0 picks a free one, -1 turns the listener off)"
    )
