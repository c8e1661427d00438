from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.ctl.command import main

Script = Callable[[str, str], tuple[int, Any]]


class Listener:
    """A listener that answers as the script says and remembers the calls."""

    def __init__(self, script: Script) -> None:
        self.calls: list[tuple[str, str, str | None]] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                token = self.headers.get("Authorization")
                listener.calls.append((self.command, self.path, token))
                status, body = script(self.command, self.path)
                payload = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = answer

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = str(self.server.server_port)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def listen() -> Iterator[Callable[[Script], Listener]]:
    started: list[Listener] = []

    def start(script: Script) -> Listener:
        started.append(Listener(script))
        return started[-1]

    yield start
    for listener in started:
        listener.server.shutdown()
        listener.server.server_close()


def body(state: str, reason: str | None = None, **more: str) -> dict[str, Any]:
    return {"worker_id": "7", "state": state, "reason": reason, **more}


def in_turn(*answers: tuple[int, Any]) -> Script:
    """The answers one after another, the last one for ever."""
    left = list(answers)
    return lambda method, path: left.pop(0) if len(left) > 1 else left[0]


def test_status_prints_the_workers_answer(listen: Any, capsys: Any) -> None:
    listener = listen(in_turn((200, body("serving"))))
    assert main(["status", "--port", listener.port]) == 0
    assert json.loads(capsys.readouterr().out) == body("serving")
    assert listener.calls == [("GET", "/engine/status", None)]


def test_the_port_is_found_in_the_environment(listen: Any) -> None:
    listener = listen(in_turn((200, body("serving"))))
    assert main(["status"], {"DYN_SYSTEM_PORT": listener.port}) == 0


def test_drain_without_wait_is_done_when_it_was_accepted(listen: Any) -> None:
    listener = listen(in_turn((202, body("draining", "routing_grace"))))
    assert main(["drain", "--url", f"127.0.0.1:{listener.port}"]) == 0
    assert listener.calls == [("POST", "/engine/drain", None)]


def test_drain_with_wait_returns_when_drained_and_tells_what_it_waits_for(
    listen: Any, capsys: Any
) -> None:
    listener = listen(
        in_turn(
            (202, body("draining", "routing_grace")),
            (200, body("draining", "routing_grace")),
            (200, body("draining", "dynamo_inflight")),
            (200, body("drained")),
        )
    )
    assert main(["drain", "--wait", "--port", listener.port]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == body("drained")
    assert "requests are still admitted" in shown.err and "still running" in shown.err


def test_drain_with_wait_repeats_what_discovery_did_not_confirm(listen: Any) -> None:
    pending = body("draining", "discovery_unregister_pending", error="not confirmed")
    listener = listen(in_turn((503, pending), (202, body("draining")), (200, body("drained"))))
    assert main(["drain", "--wait", "--port", listener.port]) == 0
    assert [call[1] for call in listener.calls].count("/engine/drain") == 2


def test_a_drain_that_somebody_cancels_is_refused(listen: Any, capsys: Any) -> None:
    listener = listen(in_turn((202, body("draining", "routing_grace")), (200, body("serving"))))
    assert main(["drain", "--wait", "--port", listener.port]) == 1
    assert "the worker is serving" in capsys.readouterr().err


def test_resume_with_wait_returns_when_the_worker_is_ready(listen: Any) -> None:
    ready = in_turn((503, {}), (200, {}))

    def script(method: str, path: str) -> tuple[int, Any]:
        return ready(method, path) if path == "/ready" else (200, body("serving"))

    listener = listen(script)
    assert main(["resume", "--wait", "--port", listener.port]) == 0
    assert [call[1] for call in listener.calls] == ["/engine/resume", "/ready", "/ready"]


@pytest.mark.parametrize("status", [401, 404, 409, 503])
def test_a_refusal_is_1_and_says_why(listen: Any, capsys: Any, status: int) -> None:
    listener = listen(in_turn((status, body("stopping", error="The worker is shutting down."))))
    assert main(["drain", "--port", listener.port]) == 1
    assert f"({status}): The worker is shutting down." in capsys.readouterr().err


def test_an_answer_that_is_no_json_is_shown_as_it_is(listen: Any, capsys: Any) -> None:
    listener = listen(in_turn((502, b"<html>bad gateway</html>")))
    assert main(["status", "--port", listener.port]) == 1
    assert "bad gateway" in capsys.readouterr().err


def test_waiting_too_long_is_3(listen: Any, capsys: Any) -> None:
    listener = listen(in_turn((202, body("draining")), (200, body("draining", "dynamo_inflight"))))
    assert main(["drain", "--wait", "--timeout", "1.5", "--port", listener.port]) == 3
    assert "not done after 1.5 s" in capsys.readouterr().err


def test_a_worker_that_accepts_and_never_answers_is_3(listen: Any) -> None:
    release = threading.Event()

    def hang(method: str, path: str) -> tuple[int, Any]:
        release.wait(10)
        return 200, {}

    listener = listen(hang)
    assert main(["status", "--timeout", "0.2", "--port", listener.port]) == 3
    release.set()


def test_nobody_listening_is_4(capsys: Any) -> None:
    assert main(["status", "--port", "1"]) == 4
    assert "cannot reach http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["stop"],
        ["status", "--port", "0"],
        ["status", "--port", "x"],
        ["status", "--port", "1", "--url", "http://h:1"],
        ["status", "--url", "ftp://h:1"],
        ["status", "--url", "http://h:99999"],
        ["status", "--timeout", "-1", "--port", "1"],
        ["status", "--token-file", "/nonexistent/token", "--port", "1"],
        ["server-info", "--wait", "--port", "1"],
        ["status"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: Any) -> None:
    assert main(arguments, {}) == 2
    assert capsys.readouterr().err


def test_the_token_of_the_file_is_sent(listen: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    listener = listen(in_turn((200, {"version": "1"})))
    arguments = ["server-info", "--port", listener.port, "--token-file", str(token)]
    assert main(arguments) == 0
    assert listener.calls == [("GET", "/engine/server_info", "Bearer s3cret")]


def test_the_client_loads_nothing_heavy_and_starts_fast() -> None:
    code = (
        "import sys\n"
        "from sglang_worker.cli import main\n"
        "assert main(['ctl', 'status', '--port', '1']) == 4\n"
        "heavy = {'torch', 'sglang', 'dynamo', 'msgspec', 'asyncio', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    began_s = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert time.monotonic() - began_s < 5.0  # the goal is 0.5 s on an idle machine
