"""Starts and owns the SGLang engine of this worker."""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import (
    compat,
    compat_engine,
    compat_gateway,
    compat_outputs,
    compat_receive,
    signals,
)
from sglang_worker.engine.children import EntryPoint
from sglang_worker.engine.control import EngineControl
from sglang_worker.engine.death import Death, DeathWatch
from sglang_worker.errors import EngineStartError, WorkerError
from sglang_worker.requests.ids import is_probe_id
from sglang_worker.requests.limits import EngineLimits

SCHEDULER_ENTRY = EntryPoint("sglang_worker.engine.scheduler_process", "run_scheduler_process")
DETOKENIZER_ENTRY = EntryPoint("sglang.srt.managers.detokenizer_manager", "run_detokenizer_process")

logger = logging.getLogger(__name__)


class WorkerEngine:
    """One running engine: its processes, its tokenizer manager, and the watch over both."""

    def __init__(
        self, engine: Any, record: compat_engine.LaunchRecord, started_in_s: float
    ) -> None:
        self.engine = engine
        self.started_in_s = started_in_s
        self._record = record
        self._watch: DeathWatch | None = None
        self._stopped = False
        self.death: Death | None = None
        atexit.register(self.shutdown)

    @property
    def tokenizer_manager(self) -> Any:
        """None on a later node of a multi-node engine: requests enter on the first."""
        return self.engine.tokenizer_manager

    @cached_property
    def limits(self) -> EngineLimits:
        return compat.read_limits(self.engine)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """SGLang's sockets belong to it."""
        loop: asyncio.AbstractEventLoop = self.engine.loop
        return loop

    @property
    def control(self) -> EngineControl:
        return EngineControl(self.tokenizer_manager)

    def begin(self) -> None:
        """Let the tokenizer manager receive; SGLang would do so at the first request."""
        compat_receive.watch(self.tokenizer_manager)
        compat.start_receiving(self.tokenizer_manager)

    @property
    def server_args(self) -> Any:
        """The effective server arguments, read-only."""
        return compat.resolved(self.engine.server_args)

    @property
    def scheduler_infos(self) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = self.engine._scheduler_init_result.scheduler_infos
        return infos

    @property
    def process_names(self) -> dict[int, str]:
        """Every engine process by pid, those of the data-parallel controller included."""
        names = self._record.names()
        return {**names, **compat_engine.grandchild_names(self.engine, names)}

    @property
    def lost_process(self) -> bool:
        """Whether a process that was started here has ended; before `watch_deaths` can tell."""
        return any(not process.is_alive() for _, process in self._record.processes)

    def watch_deaths(
        self, loop: asyncio.AbstractEventLoop, on_death: Callable[[Death], None]
    ) -> None:
        """Call ``on_death`` once when any engine process dies; from now on SGLang's own watchdog,
        which would kill the worker, is off."""

        def remember(death: Death) -> None:
            self.death = death
            on_death(death)

        self._watch = DeathWatch(self.process_names, remember)
        self._watch.start(loop)
        compat_engine.stop_sglang_watchdog(self.engine)

    def report_failure(self) -> None:
        """A child sent SIGQUIT: it hit a fatal error and is about to exit."""
        if self._watch is not None:
            self._watch.report(Death("an engine process", 0))

    def held_request_ids(self) -> list[str]:
        """Ids that SGLang still tracks; health probes, SGLang's own and ours, are left out."""
        states = compat.request_states(self.tokenizer_manager)
        return [
            rid
            for rid in list(states)
            if not is_probe_id(rid) and not compat.is_health_request(rid)
        ]

    def shutdown(self) -> None:
        """Kill every engine process. Safe to call twice and from ``atexit``."""
        if self._stopped:
            return
        self._stopped = True
        if self._watch is not None:
            self._watch.stop()
        compat_gateway.remove_shared_data(self.engine)
        self.engine.shutdown()


def start_engine(
    config: WorkerConfig,
    server_args: Any,
    scheduler_entry: Callable[..., Any] = SCHEDULER_ENTRY,
    *,
    prefer_fork: bool = False,
) -> WorkerEngine:
    """Start SGLang and wait until it can serve; leaves no process behind when it cannot.

    Call it in the main thread before any other thread exists. ``prefer_fork``: the CPU reference
    platform runs, so the engine's processes may be forked (DESIGN section 8).

    Raises EngineStartError with SGLang's own reason; `signals.StopRequested` passes through.
    """
    compat.check_version()
    record = compat_engine.LaunchRecord(prefer_fork)
    reader = compat_outputs.reader_of_text(config, server_args)
    began_s = time.monotonic()
    try:
        with compat_gateway.kept_title(), compat_outputs.sent_directly(reader is None):
            engine = compat_engine.new_engine(
                server_args, record, scheduler_entry, DETOKENIZER_ENTRY
            )
    except signals.EngineReportedFailure:
        record.kill()
        raise EngineStartError(
            "the engine failed to start: a scheduler process reported a fatal error, "
            "see its traceback above"
        ) from None
    except WorkerError:
        record.kill()
        raise
    except Exception as error:
        record.kill()
        raise EngineStartError(f"the engine failed to start: {_reason(error)}") from error
    except BaseException:
        record.kill()
        raise
    return WorkerEngine(engine, record, time.monotonic() - began_s)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
