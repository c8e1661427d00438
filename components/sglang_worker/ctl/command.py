"""``sglang-worker ctl``: drain, watch and resume one worker through its system listener.

Prints the worker's JSON answer on standard output and everything for people on standard error.
Imports the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sglang_worker.ctl.client import Reply, WorkerClient
from sglang_worker.ctl.codes import Code, CtlError
from sglang_worker.ctl.display import LiveLine
from sglang_worker.ctl.waiting import CALL_S, Waiter

DEFAULT_TIMEOUT_S = 300.0
PORT_VARIABLE = "DYN_SYSTEM_PORT"
SETTLING = frozenset({"draining", "stopping"})

EPILOG = f"""\
exit codes: 0 done, 1 refused, 2 usage, 3 timeout, 4 unreachable.
Without --url and --port the port is taken from {PORT_VARIABLE}."""


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="sglang-worker ctl",
        description="Drain, watch and resume one worker through its system listener.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("action", choices=sorted(ACTIONS))
    where = flags.add_mutually_exclusive_group()
    where.add_argument("--url", help="address of the system listener, http://host:port")
    where.add_argument("--port", type=_port, help="port of the system listener on this host")
    flags.add_argument(
        "--wait",
        action="store_true",
        help="return when it is done: drained, or serving and ready; repeats what discovery "
        "did not confirm. For status: when no drain or shutdown is under way any more",
    )
    flags.add_argument("--timeout", type=_seconds, metavar="S", help="give up after S seconds")
    flags.add_argument("--token-file", type=Path, metavar="F", help="file with the bearer token")
    return flags


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    try:
        options = parser().parse_args(argv)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    line = LiveLine(sys.stderr)
    try:
        reply = _run(options, environ, line)
    except CtlError as error:
        line.end()
        print(f"sglang-worker ctl: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        line.end()
        print("sglang-worker ctl: interrupted; the worker goes on", file=sys.stderr)
        return Code.INTERRUPTED
    line.end()
    print(json.dumps(reply.body, indent=2 if options.action == "server-info" else None))
    if reply.status in (200, 202):
        return Code.DONE
    print(f"sglang-worker ctl: refused ({reply.status}): {reply.problem}", file=sys.stderr)
    return Code.REFUSED


def _run(options: argparse.Namespace, environ: Mapping[str, str], line: LiveLine) -> Reply:
    plain, waiting = ACTIONS[options.action]
    if options.wait and waiting is None:
        raise CtlError(Code.USAGE, f"{options.action} has nothing to wait for")
    timeout_s = options.timeout or (DEFAULT_TIMEOUT_S if options.wait else CALL_S)
    client = WorkerClient(_address(options, environ), _token(options.token_file), timeout_s)
    if options.wait and waiting is not None:
        return waiting(Waiter(client, timeout_s, line))
    return plain(client)


def _drain_and_wait(waiter: Waiter) -> Reply:
    reply = waiter.ask("/engine/drain")
    if reply.status != 202:
        return reply
    return waiter.until("drained", frozenset({"draining"}))


def _resume_and_wait(waiter: Waiter) -> Reply:
    reply = waiter.ask("/engine/resume")
    if reply.status == 200:
        waiter.until_ready()
    return reply


def _status_and_wait(waiter: Waiter) -> Reply:
    return waiter.until_settled(SETTLING)


Plain = Callable[[WorkerClient], Reply]
Waiting = Callable[[Waiter], Reply]
ACTIONS: dict[str, tuple[Plain, Waiting | None]] = {
    "status": (lambda client: client.get("/engine/status"), _status_and_wait),
    "drain": (lambda client: client.post("/engine/drain"), _drain_and_wait),
    "resume": (lambda client: client.post("/engine/resume"), _resume_and_wait),
    "server-info": (lambda client: client.get("/engine/server_info"), None),
}


def _address(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    if options.url:
        return str(options.url)
    if options.port:
        return f"http://127.0.0.1:{options.port}"
    text = environ.get(PORT_VARIABLE, "")
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise CtlError(Code.USAGE, f"give --url or --port, or set {PORT_VARIABLE} to a port")
    return f"http://127.0.0.1:{text}"


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CtlError(Code.USAGE, f"cannot read --token-file {path}: {error}") from None
    if not token:
        raise CtlError(Code.USAGE, f"--token-file {path} is empty")
    return token


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds
