"""Stands in for the frontend and the worker of the demo: same ports and paths, no engine.

``python stub_deployment.py frontend|worker MODE …`` with the flags that the demo passes; MODE
says how it misbehaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROLE, MODE, *FLAGS = sys.argv[1:]
INFO = {
    "internal_states": [{"avg_spec_accept_length": 2.5}],
    "linear_attn_runners": [{"runner": "draft", "model": "Tiny", "stamp": None, "kernels": None}],
}
ANSWERS = {
    "/v1/models": {"data": [{"id": "demo"}]},
    "/ready": {"ready": True},
    "/startup": {"phase": "registered"},
    "/engine/server_info": INFO,
}
PIECES = ("It ", "works.")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        missing = MODE == "never-ready" and self.path == "/ready"
        self._send(503 if missing else 200, json.dumps(ANSWERS.get(self.path, {})).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if MODE == "refuses":
            self._send(503, b'{"message": "no worker"}')
        elif body.get("stream"):
            events = [{"choices": [{"delta": {"content": piece}}]} for piece in PIECES]
            events.append({"choices": [], "usage": {"completion_tokens": 2}})
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode())
        else:
            message = {"content": "".join(PIECES)}
            answer = {
                "choices": [{"message": message, "finish_reason": "stop"}],
                "usage": {"completion_tokens": 2},
            }
            self._send(200, json.dumps(answer).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    print(f"{ROLE} {MODE} starts", flush=True)
    if MODE == "leaves-a-helper":
        # In a session of its own and deaf to SIGTERM, like the worst of helpers.
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    if MODE == "dies":
        print("the last words of a broken worker", flush=True)
        sys.exit(3)
    port = int(FLAGS[FLAGS.index("--http-port") + 1] if ROLE == "frontend" else _system_port())
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.serve_forever(poll_interval=0.05)
    time.sleep(1)


def _system_port() -> str:
    return os.environ["DYN_SYSTEM_PORT"]


if __name__ == "__main__":
    main()
