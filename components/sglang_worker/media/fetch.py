"""Downloads of http(s) URLs that cannot be led to internal addresses.

A name is looked up once for each hop, and aiohttp is led to an address that was checked then, so a
name that changes its answer between a check and the connection gains nothing. Address literals
never reach a resolver and are checked from the URL, on every redirect.

A download holds a place of the address that it connects to, one hop at a time: many names of one
server, and many servers that redirect to one, are counted for that one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from yarl import URL

from sglang_worker.media import addresses
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.names import INTERNAL, OneAddress, PublicNames, SystemNames, domain_of
from sglang_worker.media.places import Pace
from sglang_worker.media.settings import MediaSettings
from sglang_worker.media.slots import DownloadSlots

REDIRECTS = frozenset({301, 302, 303, 307, 308})
CHUNK_BYTES = 64 << 10
ADDRESSES_TRIED = 4
UNREACHABLE = (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError)
UNKNOWN_NAME = "could not be fetched: its host name is unknown"


class Route(msgspec.Struct, frozen=True):
    """``account``: under which its place is counted."""

    account: str
    resolver: AbstractResolver
    proxy: str | None


class Budget:
    """The time that a medium may take, waiting for places left out. Used by one task."""

    def __init__(self, total_s: float) -> None:
        self._left_s = total_s

    @asynccontextmanager
    async def spent(self) -> AsyncIterator[None]:
        """Around what takes of it. Raises TimeoutError once no time is left."""
        started_s = _now_s()
        try:
            async with _limit(self._left_s):
                yield
        finally:
            self._left_s -= _now_s() - started_s


class Fetcher:
    """Used from one event loop."""

    def __init__(
        self,
        settings: MediaSettings,
        resolver: AbstractResolver | None = None,
        slots: DownloadSlots | None = None,
    ) -> None:
        """``resolver`` replaces the system's name lookup, below the check."""
        self._settings = settings
        self._lookup = resolver or SystemNames()
        self._slots = slots or DownloadSlots(settings.place_timeout_s)
        # Apart, so that a slow name server takes no places of downloads.
        self._lookups = DownloadSlots(settings.place_timeout_s, what="name lookup")

    async def fetch(self, url: str) -> bytes:
        """The content behind ``url``. Raises MediaError, which names no address, or MediaBusy."""
        try:
            return await self._follow(url)
        except asyncio.TimeoutError:
            limit_s = self._settings.total_timeout_s
            raise MediaError(f"could not be fetched within {limit_s:g} s") from None
        except aiohttp.ClientError as error:
            refused = _refusal_in(error)
            raise refused or MediaError(f"could not be fetched: {_kind_of(error)}") from None
        except (OSError, ValueError) as error:
            raise MediaError(f"could not be fetched: {type(error).__name__}") from None

    async def _follow(self, url: str) -> bytes:
        budget = Budget(self._settings.total_timeout_s)
        for _ in range(self._settings.max_redirects + 1):
            answer = await self._hop(url, budget)
            if isinstance(answer, bytes):
                return answer
            url = answer
        raise MediaError(f"redirects more than {self._settings.max_redirects} times")

    async def _hop(self, url: str, budget: Budget) -> bytes | str:
        """The content, or where the server says that it is."""
        *others, last = await self._routes(url, budget)
        connect_s = self._settings.connect_timeout_s / (len(others) + 1)
        for route in others:
            try:
                return await self._try(url, route, connect_s, budget)
            except UNREACHABLE:
                continue
        return await self._try(url, last, connect_s, budget)

    async def _routes(self, url: str, budget: Budget) -> list[Route]:
        """The ways to try in turn, each counted for where it ends."""
        host = self._checked_host(url)
        literal = addresses.parse(host)
        name_account = addresses.account_of(literal) if literal else domain_of(host)
        proxy = self._proxy_for(url)
        if proxy is not None or literal is not None:
            # Behind a proxy the name is all that is known here.
            return [Route(name_account, self._lookup, proxy)]
        names = self._lookup if self._settings.allow_internal else PublicNames(self._lookup)
        where = URL(url)
        try:
            async with self._lookups.place(name_account), budget.spent():
                found = await names.resolve(
                    where.raw_host or host, where.port or 0, socket.AF_UNSPEC
                )
        except asyncio.TimeoutError:
            raise
        except OSError:
            raise MediaError(UNKNOWN_NAME) from None
        routes = []
        for one in found[:ADDRESSES_TRIED]:
            address = addresses.parse(one["host"])
            account = addresses.account_of(address) if address else name_account
            routes.append(Route(account, OneAddress(one), None))
        if not routes:
            raise MediaError(UNKNOWN_NAME)
        return routes

    async def _try(self, url: str, route: Route, connect_s: float, budget: Budget) -> bytes | str:
        """As `_hop`, by one route, whose place is held meanwhile and no longer."""
        async with self._slots.place(route.account), budget.spent():
            return await self._ask(url, route, connect_s)

    async def _ask(self, url: str, route: Route, connect_s: float) -> bytes | str:
        pace = Pace(self._settings.min_rate_bytes_per_s, self._settings.min_rate_window_s, _now_s())
        async with self._session(route.resolver, connect_s) as session:
            async with self._in_pace(pace):
                answered = await session.get(url, allow_redirects=False, proxy=route.proxy)
            async with answered as response:
                target = response.headers.get("Location")
                if response.status in REDIRECTS and target is not None:
                    return str(response.url.join(URL(target)))
                pace.restart(_now_s())
                return await self._read(response, pace)

    @asynccontextmanager
    async def _in_pace(self, pace: Pace) -> AsyncIterator[None]:
        try:
            async with _limit(pace.deadline_s - _now_s()):
                yield
        except aiohttp.ClientError:
            # Among them a connection that was not made in time.
            raise
        except asyncio.TimeoutError:
            raise MediaError(
                f"its server sent less than {self._settings.min_rate_bytes_per_s} bytes per second "
                f"for {self._settings.min_rate_window_s:g} s"
            ) from None

    def _checked_host(self, url: str) -> str:
        """Where the URL leads, unless it may not be fetched at all."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise MediaError("is neither a data URI nor an http(s) URL")
        # yarl's reading of the host is what aiohttp connects to.
        host = (URL(url).host or "").rstrip(".").lower()
        if not host:
            raise MediaError("the URL has no host")
        if self._settings.allowed_hosts and host not in self._settings.allowed_hosts:
            raise MediaError("its host is not in --allowed-media-domains")
        literal = addresses.parse(host)
        if literal is None and addresses.looks_numeric(host):
            # Never resolved but connected to as inet_aton reads it: 127.1, 2130706433.
            raise MediaError("its host is a malformed address")
        if literal is None or self._settings.allow_internal or addresses.is_public(literal):
            return host
        raise MediaError(INTERNAL)

    async def _read(self, response: aiohttp.ClientResponse, pace: Pace) -> bytes:
        if response.status != 200:
            raise MediaError(f"its server answered {response.status}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise MediaError("its server answered with a compressed body")
        most = self._settings.max_bytes
        too_large = MediaError(f"is larger than {most} bytes")
        if (response.content_length or 0) > most:
            raise too_large
        content = bytearray()
        while True:
            async with self._in_pace(pace):
                chunk = await response.content.read(CHUNK_BYTES)
            if not chunk:
                break
            content += chunk
            if len(content) > most:
                raise too_large
            pace.arrived(len(chunk), _now_s())
        if not content:
            raise MediaError("is empty")
        return bytes(content)

    def _proxy_for(self, url: str) -> str | None:
        """The environment's proxy, which the operator trusts to check destinations."""
        parts = urlsplit(url)
        if not self._settings.trust_proxy or proxy_bypass(parts.hostname or ""):
            return None
        proxies = getproxies()
        return proxies.get(parts.scheme) or proxies.get("all")

    def _session(self, resolver: AbstractResolver, connect_s: float) -> aiohttp.ClientSession:
        """Clients' URLs rarely share a host, so no connection is kept for the next one."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=resolver, use_dns_cache=False, force_close=True
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
            # A compressed body could grow beyond every bound while it is unpacked.
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _limit(left_s: float) -> asyncio.Timeout:
    """Raises TimeoutError at once when no time is left: work that finds all it needs does not
    wait, and so would not notice."""
    if left_s <= 0:
        raise TimeoutError
    return asyncio.timeout(left_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _refusal_in(error: BaseException | None) -> MediaError | MediaBusy | None:
    """aiohttp wraps what a resolver raises."""
    while error is not None:
        if isinstance(error, MediaError | MediaBusy):
            return error
        error = error.__cause__ or error.__context__
    return None


def _kind_of(error: aiohttp.ClientError) -> str:
    """What failed, without the address that aiohttp's own text contains."""
    for kind, text in (
        (aiohttp.ClientConnectorDNSError, "its host name is unknown"),
        (aiohttp.ClientConnectorCertificateError, "its server's certificate is not trusted"),
        (aiohttp.ClientSSLError, "the TLS handshake failed"),
        (aiohttp.ClientConnectorError, "its server cannot be reached"),
        (aiohttp.InvalidURL, "the URL is malformed"),
    ):
        if isinstance(error, kind):
            return text
    return type(error).__name__
