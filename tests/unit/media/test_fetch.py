"""Downloads against a real server on loopback: bounds, redirects, and who may be reached."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from aiohttp.test_utils import TestServer
from msgspec.structs import replace
from sglang_worker.media import fetch
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.fetch import Budget, Fetcher
from sglang_worker.media.names import SystemNames
from sglang_worker.media.settings import MediaSettings
from sglang_worker.media.slots import DownloadSlots

from tests.support.wait import wait_until_async

OPEN = MediaSettings(allow_internal=True, max_bytes=1000, total_timeout_s=20.0)
CONTENT = b"c" * 1000


class Names(AbstractResolver):
    """Name lookup from a table."""

    def __init__(self, table: Mapping[str, list[str]]) -> None:
        self.table = dict(table)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[Any]:
        if host not in self.table:
            raise OSError("unknown name")
        return [
            {"hostname": host, "host": one, "port": port, "family": socket.AF_INET, "proto": 0}
            | {"flags": socket.AI_NUMERICHOST}
            for one in self.table[host]
        ]

    async def close(self) -> None:
        """Nothing is open."""


class Site:
    """What the server was asked for, and where it is."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0
        self.redirect_to = ""
        self.never = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/redirect":
            return web.Response(status=302, headers={"Location": self.redirect_to})
        if request.path == "/loop":
            return web.Response(status=302, headers={"Location": "/loop"})
        if request.path == "/hang":
            await self.never.wait()
        if request.path == "/drip":
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            while not self.never.is_set():
                await response.write(b"x")
                await asyncio.sleep(0.01)
            return response
        if request.path == "/large":
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            await response.write(CONTENT)
            await response.write(b"one more")
            return response
        answers: dict[str, Callable[[], web.Response]] = {
            "/ok": lambda: web.Response(body=CONTENT),
            "/announced": lambda: web.Response(body=CONTENT + b"!"),
            "/empty": lambda: web.Response(body=b""),
            "/gzip": lambda: web.Response(body=b"x", headers={"Content-Encoding": "gzip"}),
        }
        return answers.get(request.path, lambda: web.Response(status=404))()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    one = Site()
    app = web.Application()
    app.router.add_get("/{path:.*}", one.answer)
    server = TestServer(app)
    await server.start_server()
    one.port = int(server.port or 0)
    yield one
    one.never.set()
    await server.close()


@pytest.fixture
def only_loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a server on loopback can play one on the internet."""
    monkeypatch.setattr(fetch.addresses, "is_public", lambda one: str(one) == "127.0.0.1")


async def test_content_up_to_the_bound_arrives_whole(site: Site) -> None:
    assert await Fetcher(OPEN).fetch(site.url("/ok")) == CONTENT


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/large", "larger than 1000 bytes"),
        ("/announced", "larger than 1000 bytes"),
        ("/empty", "empty"),
        ("/missing", "answered 404"),
        ("/gzip", "compressed"),
        ("/loop", "redirects more than 3 times"),
    ],
)
async def test_what_the_server_does_wrong_is_told(site: Site, path: str, reason: str) -> None:
    with pytest.raises(MediaError, match=reason):
        await Fetcher(OPEN).fetch(site.url(path))


async def test_a_server_that_never_answers_is_given_up(site: Site) -> None:
    with pytest.raises(MediaError, match=r"within 0\.2 s"):
        await Fetcher(replace(OPEN, total_timeout_s=0.2)).fetch(site.url("/hang"))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/a.png",
        "gopher://example.org",
        "/etc/passwd",
        "http://",
        "http:///a.png",
    ],
)
async def test_only_http_urls_with_a_host_are_fetched(url: str) -> None:
    with pytest.raises(MediaError):
        await Fetcher(OPEN).fetch(url)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "localhost", "0.0.0.0", "2130706433", "0x7f000001", "127.1"],
)
async def test_no_spelling_of_loopback_is_reached(site: Site, host: str) -> None:
    with pytest.raises(MediaError):
        await Fetcher(replace(OPEN, allow_internal=False)).fetch(site.url("/ok", host))
    assert site.asked == []


@pytest.mark.parametrize("host", ["127.1", "2130706433", "017700000001", "0177.0.0.1", "127.1."])
async def test_an_address_in_a_spelling_that_no_resolver_sees_is_refused_by_us(
    site: Site, host: str
) -> None:
    """Releases of aiohttp differ in whether they connect to it."""
    with pytest.raises(MediaError, match="malformed address"):
        await Fetcher(replace(OPEN, allow_internal=False)).fetch(site.url("/ok", host))
    assert site.asked == []


async def test_a_name_with_one_internal_address_among_public_ones_is_refused(site: Site) -> None:
    names = Names({"mixed.test": ["8.8.8.8", "10.0.0.1"]})
    with pytest.raises(MediaError, match="not public"):
        await Fetcher(replace(OPEN, allow_internal=False), names).fetch("http://mixed.test/a")


async def test_a_name_that_turns_internal_between_two_hops_is_refused_at_the_second(
    site: Site, only_loopback_is_public: None
) -> None:
    names = Names({"turns.test": ["127.0.0.1"]})

    class Turning(Names):
        async def resolve(self, *arguments: Any, **options: Any) -> list[Any]:
            found = await names.resolve(*arguments, **options)
            names.table["turns.test"] = ["10.0.0.1"]
            return found

    site.redirect_to = site.url("/ok", "turns.test")
    fetcher = Fetcher(replace(OPEN, allow_internal=False), Turning({}))
    with pytest.raises(MediaError, match="not public"):
        await fetcher.fetch(site.url("/redirect", "turns.test"))
    assert site.asked == ["/redirect"]


@pytest.mark.parametrize(
    "target",
    [
        "http://10.0.0.1/secret",
        "http://[::ffff:169.254.169.254]/",
        "file:///etc/passwd",
        "//[::1]/",
    ],
)
async def test_a_redirect_leads_no_further_than_a_url(
    site: Site, only_loopback_is_public: None, target: str
) -> None:
    site.redirect_to = target
    with pytest.raises(MediaError):
        await Fetcher(replace(OPEN, allow_internal=False)).fetch(site.url("/redirect"))
    assert site.asked == ["/redirect"]


async def test_a_redirect_within_the_internet_is_followed(
    site: Site, only_loopback_is_public: None
) -> None:
    site.redirect_to = "/ok"
    fetcher = Fetcher(replace(OPEN, allow_internal=False))
    assert await fetcher.fetch(site.url("/redirect")) == CONTENT


async def test_hosts_outside_the_operators_list_are_refused_on_every_hop(site: Site) -> None:
    names = Names({"listed.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    fetcher = Fetcher(replace(OPEN, allowed_hosts=frozenset({"listed.test"})), names)
    assert await fetcher.fetch(site.url("/ok", "LISTED.test")) == CONTENT
    site.redirect_to = site.url("/ok", "other.test")
    for url in (site.url("/ok", "other.test"), site.url("/redirect", "listed.test")):
        with pytest.raises(MediaError, match="--allowed-media-domains"):
            await fetcher.fetch(url)


async def test_a_proxy_is_used_only_where_the_operator_trusts_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{site.port}")
    monkeypatch.setenv("no_proxy", "direct.test")
    strict = replace(OPEN, allow_internal=False)
    names = Names({"far.test": ["10.0.0.1"], "direct.test": ["10.0.0.1"]})
    with pytest.raises(MediaError, match="not public"):
        await Fetcher(strict, names).fetch("http://far.test/ok")
    assert site.asked == []
    trusting = Fetcher(replace(strict, trust_proxy=True), names)
    assert await trusting.fetch("http://far.test/ok") == CONTENT
    with pytest.raises(MediaError, match="not public"):
        await trusting.fetch("http://direct.test/ok")
    assert site.asked == ["/ok"]


async def test_errors_name_no_address(site: Site) -> None:
    for url in ("http://127.0.0.1:9/a", "http://nowhere.test/a", "http://inside.test:9/a"):
        with pytest.raises(MediaError) as refused:
            await Fetcher(OPEN, Names({"inside.test": ["127.0.0.1"]})).fetch(url)
        assert "127.0.0.1" not in str(refused.value)
        assert "inside.test" not in str(refused.value)


@pytest.fixture
async def neighbour(site: Site) -> AsyncIterator[None]:
    """The same site at 127.0.0.2, on the same port."""
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    server = TestServer(app, host="127.0.0.2", port=site.port)
    await server.start_server()
    yield
    site.never.set()
    await server.close()


async def test_a_server_that_answers_slowly_under_many_names_holds_up_no_other(
    site: Site, neighbour: None
) -> None:
    slow_names = [f"{number}.slow{number}.test" for number in range(3)]
    names = Names({name: ["127.0.0.1"] for name in slow_names} | {"other.test": ["127.0.0.2"]})
    fetcher = Fetcher(OPEN, names, DownloadSlots(0.05, at_once=4))
    slow = [
        asyncio.ensure_future(fetcher.fetch(site.url("/hang", name))) for name in slow_names[:2]
    ]
    await wait_until_async(lambda: site.asked == ["/hang"] * 2, "the slow downloads run")
    assert await fetcher.fetch(site.url("/ok", "other.test")) == CONTENT
    with pytest.raises(MediaBusy, match="2 are taken for the same server"):
        await fetcher.fetch(site.url("/ok", slow_names[2]))
    assert site.asked == ["/hang", "/hang", "/ok"]
    site.never.set()
    for one in slow:
        with pytest.raises(MediaError, match="answered 404"):
            await one
    assert await fetcher.fetch(site.url("/ok", slow_names[2])) == CONTENT


async def test_a_redirect_leaves_the_first_place_for_one_of_where_it_leads(
    site: Site, neighbour: None
) -> None:
    slots = DownloadSlots(0.05, at_once=4)
    fetcher = Fetcher(OPEN, None, slots)
    site.redirect_to = site.url("/hang", "127.0.0.1")
    url = site.url("/redirect", "127.0.0.2")
    slow = [asyncio.ensure_future(fetcher.fetch(url)) for _ in range(2)]
    await wait_until_async(lambda: site.asked.count("/hang") == 2, "both were redirected")
    assert slots.free == 2
    with pytest.raises(MediaBusy, match="2 are taken for the same server"):
        await fetcher.fetch(url)
    assert await fetcher.fetch(site.url("/ok", "127.0.0.2")) == CONTENT
    site.never.set()
    await asyncio.gather(*slow, return_exceptions=True)
    assert slots.free == 4


@pytest.mark.parametrize("path", ["/drip", "/hang"])
async def test_a_server_slower_than_the_least_rate_loses_its_place(site: Site, path: str) -> None:
    slots = DownloadSlots(0.05, at_once=4)
    settings = replace(OPEN, max_bytes=1 << 20, min_rate_window_s=0.3)
    with pytest.raises(MediaError, match=r"less than 1024 bytes per second for 0\.3 s"):
        await Fetcher(settings, None, slots).fetch(site.url(path))
    assert slots.free == 4


async def test_an_address_that_refuses_is_followed_by_the_names_next(site: Site) -> None:
    slots = DownloadSlots(0.05, at_once=4)
    names = Names({"two.test": ["127.0.0.2", "127.0.0.1"]})
    assert await Fetcher(OPEN, names, slots).fetch(site.url("/ok", "two.test")) == CONTENT
    assert slots.free == 4


async def test_a_name_server_that_hangs_holds_up_nothing_but_its_own_lookups(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, asked = threading.Event(), []

    def look_up(host: str, port: int, *arguments: Any) -> list[Any]:
        asked.append(host)
        if host == "hangs.test":
            answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    names = SystemNames(most=2)
    fetcher = Fetcher(OPEN, names)
    hanging = [
        asyncio.ensure_future(fetcher.fetch(site.url("/ok", "hangs.test"))) for _ in range(2)
    ]
    try:
        await wait_until_async(lambda: len(asked) == 2, "both lookups hang")
        assert await asyncio.to_thread(lambda: "a thread is free") == "a thread is free"
        with pytest.raises(MediaBusy, match="2 calls of name-lookup have not returned"):
            await fetcher.fetch(site.url("/ok", "quick.test"))
        for one in hanging:
            one.cancel()
        with pytest.raises(MediaBusy):
            await fetcher.fetch(site.url("/ok", "quick.test"))
    finally:
        answered.set()
    await wait_until_async(lambda: names.running == 0, "the lookups returned")
    assert await fetcher.fetch(site.url("/ok", "quick.test")) == CONTENT


async def test_names_that_are_being_looked_up_take_no_places_of_downloads(site: Site) -> None:
    answered, asked = asyncio.Event(), []

    class Hanging(Names):
        async def resolve(self, host: str, *arguments: Any, **options: Any) -> list[Any]:
            asked.append(host)
            await answered.wait()
            return await super().resolve(host, *arguments, **options)

    slots = DownloadSlots(0.05, at_once=1)
    fetcher = Fetcher(OPEN, Hanging({"hangs.test": ["127.0.0.1"]}), slots)
    hanging = asyncio.ensure_future(fetcher.fetch(site.url("/ok", "hangs.test")))
    await wait_until_async(lambda: asked == ["hangs.test"], "the lookup hangs")
    assert slots.free == 1
    assert await fetcher.fetch(site.url("/ok")) == CONTENT
    answered.set()
    assert await hanging == CONTENT


async def test_names_of_this_machine_are_looked_up(site: Site) -> None:
    assert await Fetcher(OPEN).fetch(site.url("/ok", "localhost")) == CONTENT


async def test_nothing_is_begun_once_the_time_of_a_download_is_used_up() -> None:
    budget, begun = Budget(0.0), False
    with pytest.raises(TimeoutError):
        async with budget.spent():
            begun = True
    assert not begun


async def test_the_time_of_a_download_is_shared_by_all_that_it_waits_for() -> None:
    budget, never = Budget(0.05), asyncio.Event()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with budget.spent():
                await never.wait()
