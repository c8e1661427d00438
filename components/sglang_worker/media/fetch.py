"""Downloads of http(s) URLs that cannot be led to internal addresses.

The check is made where the connection is: aiohttp asks our resolver and connects to what it
returns, so a name that changes its answer between a check and the connection gains nothing.
Address literals never reach a resolver and are checked from the URL, on every redirect.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from sglang_worker.media import addresses
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.names import INTERNAL, PublicNames, SystemNames
from sglang_worker.media.settings import MediaSettings
from sglang_worker.media.slots import DownloadSlots

REDIRECTS = frozenset({301, 302, 303, 307, 308})
CHUNK_BYTES = 64 << 10


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

    async def fetch(self, url: str) -> bytes:
        """The content behind ``url``. Raises MediaError, which names no address, or MediaBusy."""
        limit_s = self._settings.total_timeout_s
        try:
            async with self._slots.place(self._checked_host(url)):
                return await asyncio.wait_for(self._follow(url), limit_s)
        except asyncio.TimeoutError:
            raise MediaError(f"could not be fetched within {limit_s:g} s") from None
        except aiohttp.ClientError as error:
            refused = _refusal_in(error)
            raise refused or MediaError(f"could not be fetched: {_kind_of(error)}") from None
        except (OSError, ValueError) as error:
            raise MediaError(f"could not be fetched: {type(error).__name__}") from None

    async def _follow(self, url: str) -> bytes:
        for _ in range(self._settings.max_redirects + 1):
            self._checked_host(url)
            proxy = self._proxy_for(url)
            async with (
                self._session(guarded=proxy is None) as session,
                session.get(url, allow_redirects=False, proxy=proxy) as response,
            ):
                target = response.headers.get("Location")
                if response.status not in REDIRECTS or target is None:
                    return await self._read(response)
                url = str(response.url.join(URL(target)))
        raise MediaError(f"redirects more than {self._settings.max_redirects} times")

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

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if response.status != 200:
            raise MediaError(f"its server answered {response.status}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise MediaError("its server answered with a compressed body")
        limit = self._settings.max_bytes
        too_large = MediaError(f"is larger than {limit} bytes")
        if (response.content_length or 0) > limit:
            raise too_large
        content = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            content += chunk
            if len(content) > limit:
                raise too_large
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

    def _session(self, *, guarded: bool) -> aiohttp.ClientSession:
        """Clients' URLs rarely share a host, so no connection is kept for the next one.

        ``guarded``: names must lead to public addresses; a proxy's own name need not.
        """
        resolver = self._lookup
        if guarded and not self._settings.allow_internal:
            resolver = PublicNames(resolver)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=resolver, use_dns_cache=False, force_close=True
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._settings.connect_timeout_s
            ),
            # A compressed body could grow beyond every bound while it is unpacked.
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


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
