"""Workers behind frontends of their own, all alive at once, and what asking one costs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks.gateways import gateway_pids
from benchmarks.gpu_rates import cpu
from benchmarks.gpu_rates.http_load import Load
from benchmarks.gpu_rows.served import sglang_environment
from benchmarks.gpu_worker import NAME, START_DEADLINE_S
from tests.support.stack import Stack


class Variant(msgspec.Struct, frozen=True):
    """``components``: where the package comes from, if not from this checkout."""

    flags: tuple[str, ...] = ()
    components: str = ""


class Served(msgspec.Struct, frozen=True):
    """A worker behind a frontend of its own, and the load for it."""

    load: Load
    worker_pid: int
    frontend_pid: int
    gateway_pids: tuple[int, ...] = ()

    def pids(self) -> dict[str, int]:
        return {"worker": self.worker_pid, "frontend": self.frontend_pid}

    def worker_spent_s(self) -> float:
        """CPU time of the processes that relay, and of the one that owns the engine."""
        return sum(cpu.spent_s(pid) for pid in (self.worker_pid, *self.gateway_pids))


def variants(gateway_workers: int, before: str) -> dict[str, Variant]:
    """The worker as it is, with eight tokens at a time, with gateways if they are several, and
    with the package of another checkout's ``components`` folder."""
    found = {"worker": Variant()}
    if before:
        found["worker before"] = Variant(components=before)
    found["worker, interval 8"] = Variant(("--stream-interval", "8"))
    if gateway_workers > 1:
        flags = ("--gateway-workers", str(gateway_workers))
        found[f"worker, {gateway_workers} gateways"] = Variant(flags)
    return found


def start(
    stacks: ExitStack,
    scratch: Path,
    model: Path,
    flags: Sequence[str],
    wanted: Mapping[str, Variant],
) -> dict[str, Served]:
    """All at once; returns when every one is ready and listed by its frontend."""
    started = {}
    for name, variant in wanted.items():
        stack = stacks.enter_context(
            Stack(scratch / name.replace(", ", "-").replace(" ", ""), sglang_environment())
        )
        frontend = stack.start_frontend(migration_limit=0, ready=False)
        worker = stack.start_worker(
            *("--model-path", str(model), "--served-model-name", NAME, "--load-format", "dummy"),
            *flags,
            *variant.flags,
            environ=_path(variant.components) if variant.components else {},
        )
        started[name] = (frontend, worker)
    for frontend, worker in started.values():
        frontend.wait_for_model(NAME, deadline_s=START_DEADLINE_S)
        worker.require_running()
    return {
        name: Served(
            Load(f"http://127.0.0.1:{frontend.http_port}", NAME),
            worker.pid,
            frontend.pid,
            gateway_pids(worker.pid),
        )
        for name, (frontend, worker) in started.items()
    }


def _path(components: str) -> dict[str, str]:
    """PYTHONPATH with another checkout's package before this one's."""
    own = [entry for entry in sys.path if entry]
    return {"PYTHONPATH": ":".join([f"{components}/sglang_worker/overlay", components, *own])}
