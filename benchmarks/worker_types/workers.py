"""What every kind of worker has to show: a start in phases, probes, routes, a clean end."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

from tests.support.client import HttpClient
from tests.support.stack import NOT_UP_YET, Worker

PROBES = ("/live", "/health", "/ready")
STATUS = "/engine/status"
STOP_S = 40.0


def watch_starts(
    workers: Mapping[str, Worker], found: dict[str, dict[str, Any]], deadline_s: float
) -> None:
    """Writes into ``found[name]["phases_s"]`` when each phase was first seen, in seconds from
    now, until all are registered. Raises WaitTimeout, or ProcessEnded with a worker's log."""
    began_s = time.monotonic()
    for name in workers:
        found[name] = {"phases_s": {}}

    def all_registered() -> bool:
        statuses = [_look(worker, found[name], began_s) for name, worker in workers.items()]
        return all(status == 200 for status in statuses)

    first = next(iter(workers.values()))
    first.wait_for(
        all_registered, "all workers are registered", deadline_s=deadline_s, interval_s=0.1
    )


def _look(worker: Worker, found: dict[str, Any], began_s: float) -> int:
    """The status of ``/startup``, 0 before anything listens."""
    worker.require_running()
    try:
        reply = _system(worker).get("/startup")
    except NOT_UP_YET:
        return 0
    at_s = round(time.monotonic() - began_s, 1)
    found["phases_s"].setdefault(str(reply.json()["phase"]), at_s)
    return reply.status


def describe(worker: Worker, found: dict[str, Any]) -> None:
    """Probes, what ``/engine`` shows, and the runner report where the worker has one."""
    system = _system(worker)
    found["probes"] = {path: system.get(path).status for path in PROBES}
    found["status_route"] = system.get(STATUS).status
    found["engine"] = system.get("/engine").json()
    for longer in ("routes", "runners"):
        found["engine"].pop(longer, None)
    info = system.get("/engine/server_info")
    found["server_info"] = info.status
    found["runners"] = info.json()["linear_attn_runners"] if info.status == 200 else None


def stop(worker: Worker, found: dict[str, Any]) -> None:
    """SIGTERM; raises LeakedProcesses when something is left behind."""
    began_s = time.monotonic()
    worker.send(signal.SIGTERM)
    code = worker.wait_exit(STOP_S)
    found["sigterm"] = {"exit_code": code, "seconds": round(time.monotonic() - began_s, 1)}
    worker.check_nothing_left()


def faults(name: str, found: Mapping[str, Any], *, drains: bool) -> list[str]:
    """What must not be, in words, of a worker that was described and stopped."""
    wrong = [
        f"{name}: {path} is {status}" for path, status in found["probes"].items() if status != 200
    ]
    if found["status_route"] != (200 if drains else 404):
        wrong.append(f"{name}: {STATUS} is {found['status_route']}")
    wrong += [
        f"{name}: the report of {runner['runner']} is not valid"
        for runner in found["runners"] or ()
        if not runner["report_valid"]
    ]
    if found["sigterm"]["exit_code"] != 0:
        wrong.append(f"{name}: exit code {found['sigterm']['exit_code']} after SIGTERM")
    return wrong


def _system(worker: Worker) -> HttpClient:
    assert worker.system is not None
    return worker.system
