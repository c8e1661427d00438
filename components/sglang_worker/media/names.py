"""Name lookups of downloads, in threads of their own: a name server that hangs holds up nobody
else."""

from __future__ import annotations

import socket
from typing import Any

from aiohttp.abc import AbstractResolver

from sglang_worker.media import addresses
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.threads import AllTaken, BlockingCalls

INTERNAL = "leads to an address that is not public"
# More than downloads at a time: a lookup goes on after its download was given up.
LOOKUPS_AT_ONCE = 128


class SystemNames(AbstractResolver):
    """The system's name lookup, as `socket.getaddrinfo` does it."""

    def __init__(self, most: int = LOOKUPS_AT_ONCE) -> None:
        self._calls = BlockingCalls("name-lookup", most)

    @property
    def running(self) -> int:
        """Lookups that have not returned."""
        return self._calls.running

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[Any]:
        """aiohttp's description of each address. Raises OSError, or MediaBusy."""
        try:
            found = await self._calls.run(
                *(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM),
                *(0, socket.AI_ADDRCONFIG),
            )
        except AllTaken as taken:
            raise MediaBusy(str(taken)) from None
        # Scoped addresses have more fields; they are link-local, which is not public.
        return [
            {
                "hostname": host,
                "host": address[0],
                "port": port,
                "family": found_family,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for found_family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Sessions close their resolver; this one serves all of them."""


class OneAddress(AbstractResolver):
    """Leads every name to one address that was looked up, and checked, before."""

    def __init__(self, found: Any) -> None:
        """``found``: one of aiohttp's descriptions."""
        self._found = found

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[Any]:
        return [self._found]

    async def close(self) -> None:
        """Nothing is open."""


def domain_of(host: str) -> str:
    """The last two labels: names below one are free of charge, domains are not."""
    return ".".join(host.rsplit(".", 2)[-2:])


class PublicNames(AbstractResolver):
    """Resolves names, and refuses those with any internal address."""

    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[Any]:
        found = await self._inner.resolve(host, port, family)
        for one in found:
            address = addresses.parse(one["host"])
            if address is None or not addresses.is_public(address):
                raise MediaError(INTERNAL)
        return list(found)

    async def close(self) -> None:
        await self._inner.close()
