"""The schedulers' entry point, given to SGLang as `Engine.run_scheduler_process_func`.

SGLang starts it by name, forked or spawned, directly or through the data-parallel controller, with
the arguments of its own entry.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import compat
from sglang_worker.runners.folder import ReportFolder
from sglang_worker.runners.hooks import RunnerHooks, install
from sglang_worker.runners.records import RankIdentity
from sglang_worker.system import scheduler_guard

logger = logging.getLogger(__name__)


def run_scheduler_process(
    server_args: Any,
    port_args: Any,
    gpu_id: int,
    tp_rank: int,
    pp_rank: int,
    dp_rank: int | None,
    pipe_writer: Any,
    *display_ranks: Any,
) -> None:
    """Puts the hooks in place, then runs SGLang's scheduler until it ends.

    When strict, hooks that do not apply end the process: SGLang reports a dead scheduler, and the
    reason waits in the report folder.
    """
    folder = ReportFolder.from_environment(os.environ)
    strict = folder is None or folder.settings.strict
    hooks = RunnerHooks(identity_of(server_args, dp_rank, pp_rank, tp_rank), folder, strict)
    try:
        install(hooks)
    except StartupCheckError as error:
        hooks.fail(str(error))
        if strict:
            raise
        logger.warning("%s (allowed by --no-runner-report-strict)", error)

    scheduler_guard.install(world_size=server_args.tp_size * server_args.pp_size)
    from sglang.srt.managers.scheduler import run_scheduler_process as run_scheduler

    run_scheduler(
        server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank, pipe_writer, *display_ranks
    )


def identity_of(server_args: Any, dp_rank: int | None, pp_rank: int, tp_rank: int) -> RankIdentity:
    """Where this scheduler process stands, before SGLang's configuration is published."""
    dp = compat.replica_of(server_args, dp_rank)
    rank = compat.report_rank(
        dp, pp_rank, tp_rank, pp_size=server_args.pp_size, tp_size=server_args.tp_size
    )
    return RankIdentity(rank=rank, dp=dp, pp=pp_rank, tp=tp_rank)
