"""The bootstrap address: where a prefill worker listens and what it tells decode workers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from sglang_worker.engine import bootstrap
from sglang_worker.engine.bootstrap import advertised, advertised_host, listen_host
from sglang_worker.errors import ConfigError, EngineStartError


def arguments(**changed: Any) -> Any:
    values = {
        "host": "0.0.0.0",
        "dist_init_addr": None,
        "disaggregation_bootstrap_port": 8998,
        "disaggregation_mode": "prefill",
        "node_rank": 0,
    }
    return SimpleNamespace(**{**values, **changed})


@pytest.mark.parametrize(
    ("local", "listens"),
    [
        ("10.1.2.3", "0.0.0.0"),
        ("fd00::7", "::"),
        ("[fd00::7]", "::"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("prefill.example", "0.0.0.0"),
    ],
)
def test_peers_reach_every_interface_unless_they_are_told_loopback(
    local: str, listens: str
) -> None:
    assert listen_host(local) == listens


@pytest.mark.parametrize(
    ("host", "dist_init", "local", "told"),
    [
        ("0.0.0.0", None, "10.1.2.3", "10.1.2.3"),
        ("::", None, "fd00::7", "[fd00::7]"),
        ("::", None, "[fd00::7]", "[fd00::7]"),
        ("10.9.9.9", None, "10.1.2.3", "10.9.9.9"),
        ("fd00::9", None, "10.1.2.3", "[fd00::9]"),
        ("0.0.0.0", "10.7.7.7:20000", "10.1.2.3", "10.7.7.7"),
        ("0.0.0.0", "[fd00::5]:20000", "10.1.2.3", "[fd00::5]"),
    ],
)
def test_what_peers_are_told_is_routable_and_brackets_ipv6(
    host: str, dist_init: str | None, local: str, told: str
) -> None:
    assert advertised_host(host, dist_init, lambda: local) == told


def test_no_address_at_all_is_an_error_that_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> str:
        raise ValueError("Can not get local ip")

    monkeypatch.setattr(bootstrap.advertised_host, "__defaults__", (none,))
    with pytest.raises(EngineStartError, match="SGLANG_HOST_IP"):
        advertised(arguments())
    with pytest.raises(EngineStartError, match="no bootstrap address"):
        advertised(arguments(dist_init_addr="fd00::5:20000"))


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_taken_port_is_refused_before_the_engine_starts(taken: int) -> None:
    wanted = arguments(host="127.0.0.1", disaggregation_bootstrap_port=taken)
    with pytest.raises(ConfigError, match=f"--disaggregation-bootstrap-port={taken} cannot"):
        bootstrap.require_free_port(wanted)


@pytest.mark.parametrize("changed", [{"disaggregation_mode": "decode"}, {"node_rank": 1}])
def test_only_the_first_node_of_a_prefill_engine_opens_the_port(
    taken: int, changed: dict[str, Any]
) -> None:
    base = {"host": "127.0.0.1", "disaggregation_bootstrap_port": taken}
    bootstrap.require_free_port(arguments(**base, **changed))


def manager(*, alive: bool) -> Any:
    thread = SimpleNamespace(is_alive=lambda: alive)
    return SimpleNamespace(bootstrap_server=SimpleNamespace(thread=thread))


class Server:
    """Answers the readiness question as SGLang's does: 503 until every rank is known."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        assert set(request.query.values()) == {"-1"}
        self.asked += 1
        if self.asked <= self.refusals:
            return web.Response(status=503, text="not fully registered yet")
        return web.json_response({"dp_size": 1})

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/route", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner


async def test_a_prefill_worker_waits_until_every_rank_is_known() -> None:
    server = Server(refusals=2)
    runner = await server.start()
    try:
        port = runner.addresses[0][1]
        wanted = arguments(disaggregation_bootstrap_port=port)
        await bootstrap.until_ready(manager(alive=True), wanted)
    finally:
        await runner.cleanup()
    assert server.asked == 3


async def test_ranks_that_never_register_fail_the_start_with_the_servers_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bootstrap, "READY_TIMEOUT_S", 0.3)
    server = Server(refusals=10**6)
    runner = await server.start()
    try:
        wanted = arguments(disaggregation_bootstrap_port=runner.addresses[0][1])
        with pytest.raises(EngineStartError, match="503 not fully registered yet"):
            await bootstrap.until_ready(manager(alive=True), wanted)
    finally:
        await runner.cleanup()


async def test_a_bootstrap_server_that_could_not_listen_fails_the_start_at_once() -> None:
    with pytest.raises(EngineStartError, match=r"could not listen on 0\.0\.0\.0, port 8998"):
        await bootstrap.until_ready(manager(alive=False), arguments())
