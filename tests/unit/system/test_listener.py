from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable

import pytest
from sglang_worker.config.worker_config import SystemSettings
from sglang_worker.errors import ConfigError
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.phases import report_phase
from sglang_worker.system.public_socket import bind_public
from sglang_worker.system.state import Phase

from .conftest import RunningWorker, process_lives, wait_until
from .fake_worker import FakeApp

Start = Callable[..., RunningWorker]


def get_status(port: int) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/engine/status", timeout=10) as answer:
        return json.loads(answer.read())


def test_probes_answer_within_a_second_while_the_engine_loads(start_worker: Start) -> None:
    begun = time.monotonic()
    worker = start_worker(load_s=1.5)
    assert worker.get("/live").status == 200
    assert time.monotonic() - begun < 3.0
    startup = worker.get("/startup")
    assert (startup.status, startup.json) == (503, {"phase": "loading"})
    assert worker.get("/health").status == 503
    assert worker.get("/ready").status == 503
    assert worker.get("/engine/status").status == 503
    assert worker.post("/engine/drain").status == 503
    worker.wait_attached()
    wait_until(lambda: worker.get("/startup").status == 200)
    assert worker.get("/ready").status == 200


def test_another_process_of_the_worker_reports_the_phase_while_the_main_one_loads(
    start_worker: Start,
) -> None:
    worker = start_worker(load_s=1.5)
    assert worker.get("/startup").json == {"phase": "loading"}
    report_phase(worker.phase_socket, Phase.CAPTURING)
    wait_until(lambda: worker.get("/startup").json == {"phase": "capturing"})
    worker.wait_attached()
    report_phase(worker.phase_socket, Phase.CAPTURING)  # late: must change nothing any more
    wait_until(lambda: worker.get("/startup").json == {"phase": "registered"})


def test_a_phase_report_without_a_listener_is_silent() -> None:
    report_phase(None, Phase.WARMING)
    report_phase("sglang-worker-phase-nobody", Phase.WARMING)


def test_a_killed_child_is_replaced_on_the_same_port(start_worker: Start) -> None:
    worker = start_worker()
    os.kill(worker.first_child, signal.SIGKILL)
    wait_until(lambda: worker.child() != worker.first_child)
    assert worker.get("/engine/status").json == {
        "worker_id": "7",
        "state": "serving",
        "reason": None,
    }


def test_the_port_never_refuses_while_the_child_is_replaced(start_worker: Start) -> None:
    worker = start_worker()
    os.kill(worker.first_child, signal.SIGKILL)
    # Connections wait in the backlog of the socket that the worker still holds.
    for _ in range(5):
        with worker.connect():
            pass
    assert worker.get("/live").status == 200


async def test_a_safe_transition_returns_only_when_no_child_can_show_the_old_state() -> None:
    listener = SystemListener(SystemSettings(host="127.0.0.1", port=0))
    listener.start()
    try:
        await listener.attach(FakeApp(listener, 1024))
        await listener.publish_acknowledged(state="drained", worker_id="7")
        stopped = listener.child_pid
        os.kill(stopped, signal.SIGSTOP)
        begun = time.monotonic()
        await listener.publish_acknowledged(state="serving")
        assert time.monotonic() - begun < 3.0
        assert not process_lives(stopped)
        assert listener.child_pid != stopped
        status = await asyncio.to_thread(get_status, listener.address[1])
        assert status["state"] == "serving"
    finally:
        listener.close()


def test_a_stopped_child_is_replaced_though_no_transition_asks_for_it(start_worker: Start) -> None:
    worker = start_worker()
    os.kill(worker.first_child, signal.SIGSTOP)
    wait_until(lambda: not process_lives(worker.first_child), 10, "the stopped child's end")
    assert wait_until(lambda: worker.get("/engine/status")).json["state"] == "serving"


def test_a_stopped_worker_shows_its_state_as_stale(start_worker: Start) -> None:
    worker = start_worker()
    assert "X-Worker-State-Age-S" not in worker.get("/engine/status").headers
    os.kill(worker.process.pid, signal.SIGSTOP)
    age = wait_until(lambda: worker.get("/engine/status").headers.get("X-Worker-State-Age-S"))
    assert float(age) >= 2.0
    assert worker.get("/live").status == 200
    os.kill(worker.process.pid, signal.SIGCONT)
    wait_until(lambda: "X-Worker-State-Age-S" not in worker.get("/engine/status").headers)
    assert worker.child() == worker.first_child


def test_a_dead_worker_takes_the_child_and_the_port_with_it(start_worker: Start) -> None:
    worker = start_worker()
    worker.process.kill()
    wait_until(lambda: not process_lives(worker.first_child))
    with pytest.raises(ConnectionRefusedError):
        worker.connect()


def test_a_call_in_flight_hears_that_the_worker_is_gone(start_worker: Start) -> None:
    worker = start_worker()
    before = worker.post("/engine/echo").json["calls"]
    with worker.connect() as waiting:
        waiting.sendall(
            b'POST /engine/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{"seconds": 30}'
        )
        wait_until(lambda: worker.post("/engine/echo").json["calls"] > before + 1)
        worker.process.kill()
        answer = waiting.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"the worker ended before it answered" in answer
    _, errors = worker.process.communicate(timeout=10)
    assert "Traceback" not in errors


def test_the_child_survives_the_signals_that_end_a_worker(start_worker: Start) -> None:
    worker = start_worker()
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(worker.first_child, sent)
    assert worker.get("/live").status == 200
    assert worker.child() == worker.first_child
    assert os.getsid(worker.first_child) == worker.first_child


@pytest.mark.parametrize("what", ["block_loop", "hold_gil"])
def test_probes_answer_while_the_worker_is_blocked(start_worker: Start, what: str) -> None:
    worker = start_worker()
    with worker.connect() as asking:
        body = b'{"seconds": 3.5}'
        head = f"POST /engine/{what} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        asking.sendall(head.encode() + body)
        slowest = 0.0
        until = time.monotonic() + 3.0
        stale_seen = False
        while time.monotonic() < until:
            begun = time.monotonic()
            assert worker.get("/live", timeout_s=2).status == 200
            status = worker.get("/engine/status", timeout_s=2)
            slowest = max(slowest, time.monotonic() - begun)
            stale_seen = stale_seen or "X-Worker-State-Age-S" in status.headers
            time.sleep(0.1)
        assert slowest < 1.0
        assert stale_seen
        asking.settimeout(10)
        assert b"200" in asking.recv(100)
    # The block was the worker's, so the child is not blamed for it.
    assert worker.child() == worker.first_child


def test_a_slow_call_blocks_no_other_call(worker: RunningWorker) -> None:
    with worker.connect() as slow:
        body = b'{"seconds": 1.0}'
        slow.sendall(
            b"POST /engine/slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        begun = time.monotonic()
        assert worker.post("/engine/echo").status == 200
        assert time.monotonic() - begun < 0.9
        assert b"200" in slow.recv(100)


def test_a_client_that_leaves_mid_call_harms_nobody(worker: RunningWorker) -> None:
    before = worker.post("/engine/echo").json["calls"]
    leaving = worker.connect()
    body = b'{"seconds": 0.3}'
    leaving.sendall(
        b"POST /engine/slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    wait_until(lambda: worker.post("/engine/echo").json["calls"] > before + 1)
    leaving.close()
    assert worker.post("/engine/echo").status == 200


def test_a_taken_port_is_a_startup_error_that_names_it() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port} is already in use"):
            bind_public("127.0.0.1", port)


def test_a_foreign_address_is_a_startup_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="no address of this host"):
        bind_public("192.0.2.1", 0)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_open_port_without_a_token_is_warned_about(
    host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listener = SystemListener(SystemSettings(host=host, port=0))
    listener.start()
    listener.close()
    assert any("no token is set" in record.getMessage() for record in caplog.records) is warned


async def test_details_are_as_fresh_as_the_last_heartbeat() -> None:
    listener = SystemListener(SystemSettings(host="127.0.0.1", port=0))
    listener.start()
    try:
        counts = itertools.count()
        later = asyncio.Event()

        def details() -> dict[str, int]:
            if (count := next(counts)) > 3:
                later.set()
            return {"count": count}

        listener.show_details(details)
        await listener.attach(FakeApp(listener, 1024))
        await listener.publish_acknowledged(state="draining")
        await asyncio.wait_for(later.wait(), 10)
        await asyncio.sleep(0)
        assert listener.state.details["count"] > 3
    finally:
        listener.close()


async def test_closing_takes_the_child_along_at_once() -> None:
    listener = SystemListener(SystemSettings(host="127.0.0.1", port=0))
    listener.start()
    await listener.attach(FakeApp(listener, 1024))
    await listener.publish_acknowledged(state="serving")
    child = listener.child_pid
    begun = time.monotonic()
    listener.close(patience_s=30)
    assert not process_lives(child)
    assert time.monotonic() - begun < 10
    listener.close()
