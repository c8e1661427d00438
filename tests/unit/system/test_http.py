from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from .conftest import RunningWorker, wait_until

Start = Callable[..., RunningWorker]


def raw(worker: RunningWorker, data: bytes, timeout_s: float = 5.0) -> bytes:
    """Send bytes, half-close, and read everything that comes back."""
    with worker.connect() as client:
        client.settimeout(timeout_s)
        client.sendall(data)
        with contextlib.suppress(OSError):  # the child may have closed the connection already
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
        return answer


def test_an_unknown_path_is_404_json(worker: RunningWorker) -> None:
    for path in (
        "/",
        "/nope",
        "/engine/",
        "/engine/nope",
        "/engine/%65cho",
        "//live",
        "/engine/../live",
    ):
        reply = worker.get(path)
        assert reply.status == 404, path
        assert reply.headers["Content-Type"] == "application/json"
        assert "error" in reply.json


def test_a_wrong_method_is_405_with_allow(worker: RunningWorker) -> None:
    reply = worker.post("/engine/status")
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert worker.get("/engine/unpickle").headers["Allow"] == "POST, OPTIONS"


def test_head_answers_as_get_without_a_body(worker: RunningWorker) -> None:
    head, get = worker.call("HEAD", "/engine/status"), worker.get("/engine/status")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(get.body))


def test_options_lists_the_methods(worker: RunningWorker) -> None:
    reply = worker.call("OPTIONS", "/engine/echo")
    assert reply.status == 204
    assert reply.headers["Allow"] == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_every_ordinary_method_reaches_a_configured_route(
    worker: RunningWorker, method: str
) -> None:
    reply = worker.call(method, "/engine/echo?x=1", b'{"a": 1}')
    assert reply.status == 200
    assert (reply.json["method"], reply.json["query"], reply.json["bytes"]) == (method, "x=1", 8)


def test_a_connection_is_kept_for_several_calls(worker: RunningWorker) -> None:
    with worker.connect() as client:
        for _ in range(3):
            client.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")


def test_pipelined_calls_are_answered_in_order(worker: RunningWorker) -> None:
    answer = raw(
        worker,
        b"GET /live HTTP/1.1\r\nHost: x\r\n\r\nGET /nope HTTP/1.1\r\nHost: x\r\n\r\n"
        b"GET /startup HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_a_body_over_the_limit_is_413(worker: RunningWorker) -> None:
    limit = 1 << 20
    assert worker.post("/engine/echo", b"x" * limit).json["bytes"] == limit
    reply = worker.post("/engine/echo", b"x" * (limit + 1))
    assert reply.status == 413
    assert str(limit) in reply.json["error"]


def test_a_route_for_weights_has_its_own_limit(worker: RunningWorker) -> None:
    assert worker.post("/engine/weights", b"x" * (4 << 20)).json["bytes"] == 4 << 20
    assert worker.post("/engine/weights", b"x" * ((4 << 20) + 1)).status == 413


def test_a_declared_body_over_the_limit_is_refused_before_it_is_sent(worker: RunningWorker) -> None:
    with worker.connect() as client:
        client.sendall(
            b"POST /engine/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert client.recv(4096).startswith(b"HTTP/1.1 413")


def test_an_endless_chunked_body_is_413_once_the_limit_is_passed(worker: RunningWorker) -> None:
    with worker.connect() as client:
        client.sendall(
            b"POST /engine/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        for _ in range(17):
            client.sendall(chunk)
        assert client.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_client_that_waits_for_100_continue_gets_it_or_413(worker: RunningWorker) -> None:
    head = (
        b"POST /engine/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    with worker.connect() as client:
        client.sendall(head % 4)
        assert client.recv(4096).startswith(b"HTTP/1.1 100")
        client.sendall(b"abcd")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    with worker.connect() as client:
        client.sendall(head % (2 << 20))
        assert client.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /live HTTP/1.1\r\n\r\n",
        b"POST /engine/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    ],
)
def test_bytes_that_are_no_request_get_4xx_or_a_closed_connection(
    worker: RunningWorker, garbage: bytes
) -> None:
    try:
        answer = raw(worker, garbage)
    except ConnectionError:
        answer = b""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
    assert worker.get("/live").status == 200


def test_two_hundred_idle_connections_block_nobody(worker: RunningWorker) -> None:
    idle = [worker.connect() for _ in range(200)]
    try:
        begun = time.monotonic()
        assert worker.get("/live").status == 200
        assert worker.post("/engine/echo").status == 200
        assert time.monotonic() - begun < 2.0
    finally:
        for client in idle:
            client.close()


def test_when_all_connections_are_taken_the_longest_idle_one_gives_way(start_worker: Start) -> None:
    worker = start_worker(connections=8)
    idle = [worker.connect() for _ in range(8)]
    wait_until(lambda: worker.get("/live").status == 200)
    assert idle[0].recv(1) == b""
    for client in idle:
        client.close()


def test_slow_clients_are_cut_off(start_worker: Start) -> None:
    worker = start_worker(idle_timeout_s=0.5, head_timeout_s=0.5, body_timeout_s=0.5)
    with worker.connect() as silent:
        assert silent.recv(100) == b""
    with worker.connect() as dripping:
        dripping.sendall(b"GET /live HT")
        assert dripping.recv(100).startswith(b"HTTP/1.1 408")
    with worker.connect() as half:
        half.sendall(b"POST /engine/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        assert half.recv(100).startswith(b"HTTP/1.1 408")
