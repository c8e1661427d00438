"""What is done to the deployment while the load runs, and what is measured meanwhile."""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.drain_proof.ask import Result, ask
from benchmarks.drain_proof.fleet import Fleet, post, scheduler_of, until_state
from benchmarks.drain_proof.judge import Score
from benchmarks.drain_proof.load import Load
from benchmarks.drain_proof.plan import Kind, Request
from tests.support.stack import Worker

INFLIGHT = re.compile(r"^dynamo_component_inflight_requests\{([^}]*)\} (\d+)", re.MULTILINE)
RECEIVED = re.compile(r"^dynamo_component_requests_total\{([^}]*)\} (\d+)", re.MULTILINE)
# Requests that must pass between two disturbances, so that both workers are really in use.
BETWEEN = 6
LATENCY_TOKENS = 200
REPLACEMENT_REST_S = 1.0


class Times(msgspec.Struct):
    """Seconds, one value per disturbance."""

    values: list[float] = msgspec.field(default_factory=list)

    def summary(self) -> dict[str, float]:
        if not self.values:
            return {}
        return {
            "count": len(self.values),
            "median_s": round(statistics.median(self.values), 3),
            "max_s": round(max(self.values), 3),
        }


class Phase(msgspec.Struct):
    """The outcome of one phase. ``broken``: what went wrong besides requests."""

    name: str
    score: Score
    seconds: float
    times: dict[str, Times] = msgspec.field(default_factory=dict)
    broken: list[str] = msgspec.field(default_factory=list)
    # Requests that met a closed gate. Other 503s come from the frontend, not from a worker.
    late: int = 0

    def passed(self) -> bool:
        return not self.broken and self.score.lost() == 0


async def undisturbed_load(load: Load, clients: int, seconds: float) -> Phase:
    load.start(clients)
    await asyncio.sleep(seconds)
    return Phase("undisturbed", await load.stop(), load.seconds)


async def cycles(
    name: str, fleet: Fleet, load: Load, clients: int, count: int, least_requests: int = 0
) -> Phase:
    """``count`` drain and resume cycles, alternating between the workers; then the load goes on,
    with further cycles, until ``least_requests`` have been answered."""
    times = {"drain_call": Times(), "drained": Times(), "resume_call": Times()}
    broken: list[str] = []
    load.start(clients)
    done, late = 0, late_requests(fleet)
    while done < count or load.done < least_requests:
        worker = fleet.workers[done % len(fleet.workers)]
        await _cycle(worker, times, broken)
        await _in_use(worker)
        await _progress(load, BETWEEN)
        done += 1
    score = await load.stop()
    times["cycles"] = Times([float(done)])
    return Phase(name, score, load.seconds, times, broken, late_requests(fleet) - late)


def late_requests(fleet: Fleet) -> int:
    return sum(worker.log().count("admits no new requests") for worker in fleet.workers)


async def _cycle(worker: Worker, times: dict[str, Times], broken: list[str]) -> None:
    began_s = time.monotonic()
    reply = await post(worker, "/engine/drain")
    times["drain_call"].values.append(time.monotonic() - began_s)
    if reply.status not in (200, 202):
        broken.append(f"drain answered {reply.status}: {reply.text[:200]}")
        return
    await until_state(worker, "drained")
    times["drained"].values.append(time.monotonic() - began_s)
    if in_flight := await in_flight_requests(worker):
        broken.append(f"drained with {in_flight} requests in flight")
    began_s = time.monotonic()
    reply = await post(worker, "/engine/resume")
    times["resume_call"].values.append(time.monotonic() - began_s)
    if reply.status != 200:
        broken.append(f"resume answered {reply.status}: {reply.text[:200]}")


async def in_flight_requests(worker: Worker) -> int:
    return await _sum(worker, INFLIGHT)


async def _sum(worker: Worker, series: re.Pattern[str]) -> int:
    assert worker.system is not None
    text = (await asyncio.to_thread(worker.system.get, "/metrics")).text
    found = series.findall(text)
    return sum(int(value) for labels, value in found if "worker_kv_query" not in labels)


async def _in_use(worker: Worker, deadline_s: float = 30.0) -> None:
    """Return once the load reaches ``worker``. A frontend that is short of CPU learns of it later
    than the other worker's grace takes, and would then have nobody left."""
    before, end_s = await _sum(worker, RECEIVED), time.monotonic() + deadline_s
    while True:
        if await _sum(worker, RECEIVED) > before or time.monotonic() >= end_s:
            return
        await asyncio.sleep(0.02)


async def _progress(load: Load, requests: int, deadline_s: float = 30.0) -> None:
    goal, end_s = load.done + requests, time.monotonic() + deadline_s
    while True:
        if load.done >= goal or time.monotonic() >= end_s:
            return
        await asyncio.sleep(0.01)


class Blow(msgspec.Struct, frozen=True):
    """One way to end a worker, and the exit code that it should lead to."""

    name: str
    strike: Callable[[Worker], None]
    code: int


def sigterm(worker: Worker) -> None:
    worker.send(signal.SIGTERM)


def kill_scheduler(worker: Worker) -> None:
    scheduler_of(worker).kill()


SIGTERM = Blow("SIGTERM", sigterm, 0)
SCHEDULER_DEATH = Blow("scheduler killed", kill_scheduler, 71)


async def endings(blow: Blow, fleet: Fleet, load: Load, clients: int, count: int) -> Phase:
    """End alternating workers under load; each is replaced before the next one goes."""
    times = {"exit": Times(), "replacement": Times()}
    broken: list[str] = []
    load.start(clients)
    for number in range(count):
        slot = number % len(fleet.workers)
        worker = fleet.workers[slot]
        await _progress(load, BETWEEN)
        began_s = time.monotonic()
        blow.strike(worker)
        code = await asyncio.to_thread(worker.wait_exit, 90.0)
        times["exit"].values.append(time.monotonic() - began_s)
        if code != blow.code:
            broken.append(f"{blow.name} {number}: exit code {code}\n{worker.tail(15)}")
        try:
            await asyncio.to_thread(worker.check_nothing_left, 5.0)
        except AssertionError as left:
            broken.append(f"{blow.name} {number}: {str(left)[:500]}")
        began_s = time.monotonic()
        # An engine that loads beside two busy cores takes three times as long.
        load.rest_s = REPLACEMENT_REST_S
        fleet.workers[slot] = await fleet.start_worker()
        load.rest_s = 0.0
        times["replacement"].values.append(time.monotonic() - began_s)
        await _in_use(fleet.workers[slot])
    name = f"{blow.name}, migration limit 3"
    return Phase(name, await load.stop(), load.seconds, times, broken)


async def completion_latency(fleet: Fleet, model: str, count: int) -> Phase:
    """From the last byte that a client has received to ``drained``, one long stream per drain.
    Streams that end before the grace does count from its end."""
    worker, *others = fleet.workers
    for other in others:
        await post(other, "/engine/drain")
        await until_state(other, "drained")
    after_last_byte = Times()
    broken: list[str] = []
    for number in range(count):
        request = Request(number, Kind.STREAM, f"story number {number}", LATENCY_TOKENS)
        running = asyncio.create_task(ask(fleet.frontend.http_port, request, model))
        while not await in_flight_requests(worker):
            if running.done():
                break
        await post(worker, "/engine/drain")
        closes_s = time.monotonic() + fleet.grace_s
        await until_state(worker, "drained")
        seen_s = time.monotonic()
        result: Result = await running
        if result.error is not None:
            broken.append(f"stream {number}: {result.error}")
        else:
            after_last_byte.values.append(seen_s - max(result.last_byte_s, closes_s))
        await post(worker, "/engine/resume")
        await until_routed(fleet, model)
    for other in others:
        await post(other, "/engine/resume")
    return Phase("completion latency", Score(), 0.0, {"after_last_byte": after_last_byte}, broken)


async def until_routed(fleet: Fleet, model: str) -> None:
    request = Request(0, Kind.UNARY, "ready", 1)
    for _ in range(200):
        if (await ask(fleet.frontend.http_port, request, model)).error is None:
            return
        await asyncio.sleep(0.02)
    raise RuntimeError("the frontend does not route to the resumed worker")


def to_json(phase: Phase) -> dict[str, Any]:
    score = phase.score
    return {
        "phase": phase.name,
        "passed": phase.passed(),
        "seconds": round(phase.seconds, 1),
        "requests": score.requests,
        "per_second": round(score.requests / phase.seconds, 1) if phase.seconds else None,
        "verdicts": dict(score.verdicts),
        "never_migrated": dict(score.never_migrated),
        "errors": dict(score.errors),
        "differences": score.differences,
        "times": {name: times.summary() for name, times in phase.times.items()},
        "late_requests": phase.late,
        "broken": phase.broken,
    }
