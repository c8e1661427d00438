from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_worker.system.access import TokenFile, check, is_loopback
from sglang_worker.system.http import HttpError
from sglang_worker.system.state import Access, RouteSpec

from .conftest import RunningWorker, wait_until

Start = Callable[..., RunningWorker]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_loopback_peers_are_told(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "", "localhost", "0.0.0.0"]
)
def test_everything_else_is_not_loopback(address: str) -> None:
    assert not is_loopback(address)


def test_the_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    tokens = TokenFile(str(file))
    assert tokens.accepts("Bearer first")
    assert tokens.accepts("bearer  first ")
    assert not tokens.accepts("Bearer second")
    assert not tokens.accepts("Basic first")
    assert not tokens.accepts(None)
    replaced = tmp_path / "new"
    replaced.write_text("second")
    os.replace(replaced, file)
    assert tokens.accepts("Bearer second")
    assert not tokens.accepts("Bearer first")


@pytest.mark.parametrize("content", ["", "  \n"])
def test_an_empty_or_missing_token_refuses_everybody(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    tokens = TokenFile(str(file))
    assert not tokens.accepts("Bearer ")
    assert not tokens.accepts("Bearer x")
    file.unlink()
    assert not tokens.accepts("Bearer ")


def test_without_a_token_a_route_that_unpickles_answers_loopback_only() -> None:
    spec = RouteSpec(path="/engine/x", methods=("POST",), access=Access.UNPICKLES)
    check(spec, "127.0.0.1", {}, None)
    with pytest.raises(HttpError) as refused:
        check(spec, "10.0.0.1", {}, None)
    assert refused.value.status == 403


def test_with_a_token_it_may_come_from_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t")
    spec = RouteSpec(path="/engine/x", methods=("POST",), access=Access.UNPICKLES)
    check(spec, "10.0.0.1", {"authorization": "Bearer t"}, TokenFile(str(file)))


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"host": "worker.example:1"}, True),
        ({"origin": "http://127.0.0.1:1", "host": "127.0.0.1:1"}, True),
        ({"origin": "http://localhost:1", "host": "localhost:1"}, True),
        ({"origin": "http://[::1]:1", "host": "[::1]:1"}, True),
        ({"origin": "http://evil", "host": "127.0.0.1:1"}, False),
        ({"origin": "null", "host": "127.0.0.1:1"}, False),
        ({"sec-fetch-site": "cross-site", "host": "127.0.0.1:1"}, False),
        ({"sec-fetch-site": "same-origin", "host": "127.0.0.1:1"}, True),
        ({"sec-fetch-site": "none", "host": "w:1"}, True),
        # A name that was pointed at this address, to look like the same site.
        ({"origin": "http://evil:1", "host": "evil:1"}, False),
        ({"sec-fetch-site": "same-origin", "host": "evil:1"}, False),
    ],
)
def test_a_page_of_another_site_cannot_call_a_protected_route(
    headers: dict[str, str], allowed: bool
) -> None:
    spec = RouteSpec(path="/engine/drain", methods=("POST",))
    if allowed:
        check(spec, "127.0.0.1", headers, None)
    else:
        with pytest.raises(HttpError):
            check(spec, "127.0.0.1", headers, None)


def test_calls_without_the_token_are_401_before_their_body_is_read(
    start_worker: Start, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret")
    worker = start_worker(token_file=str(file))
    for path in ("/live", "/startup", "/ready", "/engine", "/engine/openapi.json"):
        assert worker.get(path).status != 401, path
    assert worker.get("/engine/status").status == 200
    refused = worker.post("/engine/echo", {"a": 1})
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert worker.post("/engine/echo", {}, headers={"Authorization": "Bearer wrong"}).status == 401
    authorized = {"Authorization": "Bearer s3cret"}
    assert worker.post("/engine/echo", {"a": 1}, headers=authorized).status == 200
    # Refused calls reach the worker's audit log, though never its handlers.
    refusals = wait_until(lambda: worker.post("/engine/refusals", headers=authorized))
    assert refusals.json == [["POST", "/engine/echo", "127.0.0.1", 401]] * 2
    with worker.connect() as client:
        client.sendall(b"POST /engine/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 401")
