"""Long and random abuse of the public port; the short forms are in the neighbouring tests."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import RunningWorker, wait_until

Start = Callable[..., RunningWorker]
TOKEN = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"),
    min_size=1,
    max_size=12,
)
HEADER = st.tuples(TOKEN, st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30))
METHOD = (
    st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS", "TRACE", "CONNECT", "get"]) | TOKEN
)
TARGET = st.sampled_from(["/live", "/engine", "/engine/echo", "/v1/loras/a/b", "*", "//"]) | TOKEN


@st.composite
def almost_requests(draw: st.DrawFn) -> bytes:
    """What looks like HTTP, with any method, target, headers and body, whole or cut."""
    lines = [f"{draw(METHOD)} {draw(TARGET)} HTTP/1.1", "Host: x"]
    lines += [f"{name}: {value}" for name, value in draw(st.lists(HEADER, max_size=4))]
    body = draw(st.binary(max_size=50))
    length = draw(st.sampled_from([str(len(body)), "0", "5", "-1", "1e3", "9" * 30, ""]))
    if draw(st.booleans()):
        lines.append(f"Content-Length: {length}")
    if draw(st.booleans()):
        lines.append("Transfer-Encoding: chunked")
    whole = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


def assault(worker: RunningWorker, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(almost_requests() | st.binary(max_size=200))
    def send(data: bytes) -> None:
        answer = b""
        with worker.connect() as client, contextlib.suppress(ConnectionError):
            client.settimeout(5)
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(65536):
                answer += chunk
        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer
        assert b"HTTP/1.1 500" not in answer, answer

    before = worker.child()
    send()
    assert worker.get("/live").status == 200
    assert worker.child() == before


def test_random_bytes_are_answered_or_hung_up_on(worker: RunningWorker) -> None:
    assault(worker, 50)


@pytest.mark.long
def test_five_hundred_random_requests_are_answered_or_hung_up_on(worker: RunningWorker) -> None:
    assault(worker, 500)


@pytest.mark.long
@pytest.mark.parametrize(("what", "seconds"), [("slow", 30), ("block_loop", 5), ("hold_gil", 5)])
def test_probes_answer_every_tenth_of_a_second_meanwhile(
    start_worker: Start, what: str, seconds: int
) -> None:
    worker = start_worker()
    body = b'{"seconds": %d}' % seconds
    head = f"POST /engine/{what} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with worker.connect() as asking:
        asking.sendall(head.encode() + body)
        until = time.monotonic() + seconds - 0.5
        slowest = 0.0
        while time.monotonic() < until:
            began = time.monotonic()
            for path in ("/live", "/startup", "/engine/status"):
                assert worker.get(path, timeout_s=5).status == 200
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.1)
        asking.settimeout(30)
        assert b"200" in asking.recv(100)
    assert slowest < 2.0
    assert worker.child() == worker.first_child


@pytest.mark.long
def test_the_child_is_replaced_again_and_again(start_worker: Start) -> None:
    import os
    import signal

    worker = start_worker()
    seen = {worker.first_child}
    for sent in (signal.SIGKILL, signal.SIGSTOP) * 3:
        current = worker.child()
        os.kill(current, sent)
        replaced = wait_until(
            lambda old=current: (new := worker.child()) != old and new, 20, "another child"
        )
        assert replaced not in seen
        seen.add(replaced)
        assert worker.get("/engine/status").json["state"] == "serving"
