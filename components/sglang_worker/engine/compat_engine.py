"""Our subclass of SGLang's Engine: the launch steps that SGLang leaves to subclasses.

Read in SGLang 0.5.23 ``sglang/srt/entrypoints/engine.py``: ``_launch_subprocesses`` resets the
start method and the SIGQUIT handler, then calls the two classmethods overridden here, then builds
the tokenizer manager and waits for the schedulers.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sglang_worker.engine import compat, compat_ports, signals
from sglang_worker.engine.children import kill_trees
from sglang_worker.reference_platform.start import choose_start_method, thread_count

logger = logging.getLogger(__name__)


class LaunchRecord:
    """The processes of one launch, known even when SGLang fails half-way through it."""

    def __init__(self, prefer_fork: bool) -> None:
        self.prefer_fork = prefer_fork
        self.processes: list[tuple[str, Any]] = []

    def names(self) -> dict[int, str]:
        return {process.pid: name for name, process in self.processes if process.pid}

    def kill(self) -> list[int]:
        return kill_trees([process.pid for _, process in self.processes if process.pid])

    def set_start_method(self, dp_size: int) -> None:
        """Fork where that is safe saves imports; SGLang has just forced spawn."""
        method = "spawn"
        if self.prefer_fork:
            method = choose_start_method(dp_size, thread_count())
            logger.info("engine processes start by %s", method)
        multiprocessing.set_start_method(method, force=True)


@lru_cache(maxsize=1)
def owned_engine_class() -> Any:
    """`sgl.Engine` whose processes are known by pid and die with the worker."""
    from sglang.srt.entrypoints.engine import Engine

    class OwnedEngine(Engine):
        launch_record: LaunchRecord

        @classmethod
        def _launch_scheduler_processes(
            cls, server_args: Any, port_args: Any, run_scheduler_process_func: Any, **more: Any
        ) -> Any:
            signals.own_quit_before_loop()
            cls.launch_record.set_start_method(compat.dp_layout(server_args)[0])
            result, processes = super()._launch_scheduler_processes(
                server_args, port_args, run_scheduler_process_func, **more
            )
            cls.launch_record.processes += [
                (f"scheduler {index}", process) for index, process in enumerate(processes or [])
            ]
            return result, processes

        @classmethod
        def _launch_detokenizer_subprocesses(
            cls, server_args: Any, port_args: Any, run_detokenizer_process_func: Any
        ) -> Any:
            processes, names = super()._launch_detokenizer_subprocesses(
                server_args=server_args,
                port_args=port_args,
                run_detokenizer_process_func=run_detokenizer_process_func,
            )
            cls.launch_record.processes += list(zip(names, processes, strict=True))
            return processes, names

        def shutdown(self) -> None:
            """SGLang's version kills *every* child of the worker; ours only the engine's."""
            stop_sglang_watchdog(self)
            socket, self.send_to_rpc = getattr(self, "send_to_rpc", None), None
            if socket is not None:
                socket.close(linger=0)
            self.launch_record.kill()

    return OwnedEngine


def new_engine(
    server_args: Any,
    record: LaunchRecord,
    scheduler_entry: Callable[..., Any],
    detokenizer_entry: Callable[..., Any],
) -> Any:
    """Start an engine; blocks until its schedulers are ready. Raises what SGLang raises."""
    base = owned_engine_class()
    launched = type(
        "WorkerSglangEngine",
        (base,),
        {
            "launch_record": record,
            "run_scheduler_process_func": staticmethod(scheduler_entry),
            "run_detokenizer_process_func": staticmethod(detokenizer_entry),
        },
    )
    try:
        with compat_ports.only_own_checked(server_args):
            return launched(server_args=server_args)
    finally:
        # Whatever the worker starts later has threads beside it.
        multiprocessing.set_start_method("spawn", force=True)


def stop_sglang_watchdog(engine: Any) -> None:
    """SGLang's polling watchdog would SIGQUIT the worker; `death.DeathWatch` replaces it."""
    watchdog = getattr(getattr(engine, "tokenizer_manager", None), "_subprocess_watchdog", None)
    if watchdog is not None:
        watchdog.stop()


def grandchild_names(engine: Any, known: dict[int, str]) -> dict[int, str]:
    """Schedulers that the data-parallel controller started, by pid."""
    pids = [pid for pid in engine.get_all_child_pids() if pid and pid not in known]
    return {pid: f"scheduler of the data-parallel controller (pid {pid})" for pid in pids}
