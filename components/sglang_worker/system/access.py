"""Who may call: the bearer token, the loopback rule and the browser rule. Used by the child."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Mapping

from sglang_worker.system.http import HttpError
from sglang_worker.system.state import Access, RouteSpec

_SCHEME = "bearer "


class TokenFile:
    """A bearer token in a file that may be replaced while the worker runs.

    An unreadable or empty file refuses everybody: losing the secret must not open the routes.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._digest: bytes | None = None

    def accepts(self, authorization: str | None) -> bool:
        expected = self._current()
        if expected is None or authorization is None:
            return False
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return False
        offered = authorization[len(_SCHEME) :].strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(_digest(offered), expected)

    def _current(self) -> bytes | None:
        try:
            status = os.stat(self._path)
            # The inode tells a replaced file (Kubernetes swaps a symlink) from a rewritten one.
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                with open(self._path, "rb") as file:
                    token = file.read(65536).strip()
                self._digest = _digest(token) if token else None
                self._seen = seen
        except OSError:
            self._seen = None
            self._digest = None
        return self._digest


def check(
    spec: RouteSpec, remote: str, headers: Mapping[str, str], tokens: TokenFile | None
) -> None:
    """Raise HttpError 401 or 403 when this peer may not call this route."""
    if spec.access is Access.OPEN:
        return
    if _comes_from_another_site(headers):
        raise HttpError(403, "a page of another site may not call this route")
    if tokens is not None:
        if not tokens.accepts(headers.get("authorization")):
            raise HttpError(401, "a valid bearer token is required", {"WWW-Authenticate": "Bearer"})
        return
    if spec.access is Access.UNPICKLES and not is_loopback(remote):
        raise HttpError(
            403,
            "this route unpickles its input: without --system-token-file it answers loopback only",
        )


def is_loopback(address: str) -> bool:
    """True for 127.0.0.0/8, ::1 and IPv4-mapped loopback; False for anything unparsable."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _comes_from_another_site(headers: Mapping[str, str]) -> bool:
    """A browser tells where a request comes from; curl and the operator's client say nothing.

    Without this a page opened on an administrator's machine could drain a port-forwarded worker.
    A name that its owner has pointed at this address looks like the same site, so a browser must
    have asked for an address or for localhost.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if origin is None and site == "none":
        return False
    host = headers.get("host", "")
    if site in {"cross-site", "same-site"} or not _is_address(host):
        return True
    return origin is not None and origin.partition("://")[2] != host


def _is_address(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.split(":")[0]
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
