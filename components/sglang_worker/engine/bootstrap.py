"""Where decode workers find this prefill worker: the address it listens on and the one it tells.

The bootstrap server belongs to SGLang and listens on ``--host``. SGLang's own default, loopback,
suits a worker whose router runs beside it; here decode workers of other machines must reach it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import aiohttp

from sglang_worker.engine import compat_disagg
from sglang_worker.errors import ConfigError, EngineStartError
from sglang_worker.requests.disaggregation import BootstrapAddress

PORT_FLAG = "--disaggregation-bootstrap-port"
ANY_IPV4, ANY_IPV6 = "0.0.0.0", "::"
WILDCARDS = {ANY_IPV4: "127.0.0.1", ANY_IPV6: "::1"}
# SGLang's ranks repeat their registration for about 20 s before they give up.
READY_TIMEOUT_S = 30.0
READY_POLL_S = 0.1


def bracketed(host: str) -> str:
    """``::1`` -> ``[::1]``; names, IPv4 and what has brackets stay as they are."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def bare(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def listen_host(local: str) -> str:
    """Which interface to listen on, given the address that peers will be told.

    Every interface of its family, so that the address may also be a forwarded one; but never more
    than loopback when peers are told loopback.
    """
    address = _address(bare(local))
    if address is None:
        return ANY_IPV4
    if address.is_loopback:
        return str(address)
    return ANY_IPV6 if address.version == 6 else ANY_IPV4


def advertised_host(
    host: str, dist_init_addr: str | None, local: Callable[[], str] = compat_disagg.local_address
) -> str:
    """The routable host for peers, IPv6 in brackets.

    With several nodes the first one runs the bootstrap server, at ``--dist-init-addr``. An
    interface that the operator chose with ``--host`` is told as it is.
    """
    if dist_init_addr:
        return bracketed(compat_disagg.resolve_host(dist_init_addr))
    if bare(host) not in WILDCARDS:
        return bracketed(bare(host))
    return bracketed(bare(local()))


def advertised(server_args: Any) -> BootstrapAddress:
    """Raises EngineStartError when no address can be told."""
    try:
        host = advertised_host(server_args.host, server_args.dist_init_addr)
    except ValueError as failure:
        raise EngineStartError(
            f"no bootstrap address to advertise to decode workers: {failure}; "
            "set SGLANG_HOST_IP or --host"
        ) from None
    return BootstrapAddress(host, int(server_args.disaggregation_bootstrap_port))


def require_free_port(server_args: Any) -> None:
    """Raises ConfigError when the port is taken.

    SGLang would only log it, and its ranks would then register with whatever listens there: with
    two prefill workers of one machine, with the other one.
    """
    if server_args.disaggregation_mode != "prefill" or server_args.node_rank:
        return
    host, port = bare(server_args.host), int(server_args.disaggregation_bootstrap_port)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as failure:
        raise ConfigError(
            f"{PORT_FLAG}={port} cannot be opened on {host}: {failure.strerror or failure}; "
            "choose a free port, or leave the flag out and a free one is taken"
        ) from None


async def until_ready(tokenizer_manager: Any, server_args: Any) -> None:
    """Return once the bootstrap server answers and knows every rank of the engine.

    Raises EngineStartError with what it answered last.
    """
    host = bare(server_args.host)
    url = f"http://{bracketed(WILDCARDS.get(host, host))}:"
    url += f"{server_args.disaggregation_bootstrap_port}{compat_disagg.READY_QUERY}"
    last = ["no answer"]
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await _poll(url, tokenizer_manager, server_args, last)
    except asyncio.TimeoutError:
        raise EngineStartError(
            f"the bootstrap server is not ready after {READY_TIMEOUT_S:g} s: {last[0]}"
        ) from None


async def _poll(url: str, tokenizer_manager: Any, server_args: Any, last: list[str]) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            if not compat_disagg.bootstrap_thread_lives(tokenizer_manager):
                raise EngineStartError(
                    f"SGLang's bootstrap server could not listen on {server_args.host}, port "
                    f"{server_args.disaggregation_bootstrap_port}; its reason is in the log"
                )
            last[0], ready = await _ask(session, url)
            if ready:
                return
            await asyncio.sleep(READY_POLL_S)


async def _ask(session: aiohttp.ClientSession, url: str) -> tuple[str, bool]:
    try:
        async with session.get(url) as response:
            return f"{response.status} {await response.text()}", response.status == 200
    except aiohttp.ClientError as failure:
        return f"{type(failure).__name__}: {failure}", False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
